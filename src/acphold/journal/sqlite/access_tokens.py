"""The table of tokens; see `journal.access`."""

from __future__ import annotations

import sqlite3

from acphold.journal.access import SCOPES, AccessToken

COLUMNS = "id, name, digest, scopes, created_at, session_id, expires_at, used_at, revoked_at"


def read(connection: sqlite3.Connection) -> list[AccessToken]:
    """All of them, oldest first."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM access_tokens ORDER BY created_at, id")
    return [
        AccessToken(
            id=id_,
            name=name,
            digest=bytes(digest),
            # One that a newer release knows permits nothing here.
            scopes=tuple(scope for scope in SCOPES if scope in scopes.split()),
            created_at=created_at,
            session_id=session_id,
            expires_at=expires_at,
            used_at=used_at,
            revoked_at=revoked_at,
        )
        for (
            id_,
            name,
            digest,
            scopes,
            created_at,
            session_id,
            expires_at,
            used_at,
            revoked_at,
        ) in rows.fetchall()
    ]


def keep(connection: sqlite3.Connection, token: AccessToken) -> None:
    """Add one, or note its use or its end; what was revoked meanwhile stays so."""
    connection.execute(
        f"INSERT INTO access_tokens ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET used_at = coalesce(excluded.used_at, used_at),"
        " revoked_at = coalesce(access_tokens.revoked_at, excluded.revoked_at)",
        (
            token.id,
            token.name,
            token.digest,
            " ".join(token.scopes),
            token.created_at,
            token.session_id,
            token.expires_at,
            token.used_at,
            token.revoked_at,
        ),
    )
