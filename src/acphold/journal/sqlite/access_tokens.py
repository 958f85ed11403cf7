"""The tables of tokens and shares; see `journal.access`."""

from __future__ import annotations

import sqlite3

from acphold.errors import UnknownSessionError
from acphold.journal.access import KINDS, AccessToken, Share

COLUMNS = (
    "id, name, digest, scopes, created_at, session_id, expires_at, used_at, revoked_at, tenant"
)


def read(connection: sqlite3.Connection) -> list[AccessToken]:
    """All tokens, oldest first."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM access_tokens ORDER BY created_at, id")
    return [
        AccessToken(
            id=id_,
            name=name,
            digest=bytes(digest),
            scopes=tuple(scope for scope in KINDS if scope in scopes.split()),
            created_at=created_at,
            session_id=session_id,
            expires_at=expires_at,
            used_at=used_at,
            revoked_at=revoked_at,
            tenant=tenant,
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
            tenant,
        ) in rows.fetchall()
    ]


def keep(connection: sqlite3.Connection, token: AccessToken) -> None:
    """Add a token, or note its use or its end; a token revoked meanwhile stays revoked."""
    connection.execute(
        f"INSERT INTO access_tokens ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
            token.tenant,
        ),
    )


def shares(connection: sqlite3.Connection) -> list[Share]:
    """All shares, ordered by session and tenant."""
    rows = connection.execute("SELECT session_id, tenant, prompts FROM shares ORDER BY 1, 2")
    return [Share(session_id, tenant, bool(prompts)) for session_id, tenant, prompts in rows]


def keep_share(connection: sqlite3.Connection, share: Share) -> None:
    """Like `Access.keep_share`."""
    added = connection.execute(
        "INSERT OR REPLACE INTO shares SELECT session_id, ?, ? FROM sessions WHERE session_id = ?",
        (share.tenant, share.prompts, share.session_id),
    )
    if not added.rowcount:
        raise UnknownSessionError(share.session_id)


def end_share(connection: sqlite3.Connection, session_id: str, tenant: str) -> bool:
    """Like `Access.end_share`."""
    ended = connection.execute(
        "DELETE FROM shares WHERE session_id = ? AND tenant = ?", (session_id, tenant)
    )
    return bool(ended.rowcount)
