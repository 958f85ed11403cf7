"""The tables of tokens, shares and deeds; see `journal.access`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acphold.errors import UnknownSessionError
from acphold.journal.access import (
    KEPT_DEEDS,
    KEPT_DEEDS_MS,
    KINDS,
    AccessToken,
    Deed,
    Share,
)
from acphold.journal.postgresql.leases import CHANGED
from acphold.journal.postgresql.migrations import Line

_TOKEN: Final = (
    "id, name, digest, scopes, created_at, session_id, expires_at, used_at, revoked_at, tenant"
)
_DEED: Final = "at, deed, name, token, session_id, address, transport"


def tokens(line: Line) -> list[AccessToken]:
    """All tokens, oldest first."""
    rows = line.execute(f"SELECT {_TOKEN} FROM acphold.access_tokens ORDER BY created_at, id")
    found = []
    for row in rows.fetchall():
        told = dict(zip(_TOKEN.split(", "), row, strict=True))
        told["scopes"] = tuple(scope for scope in KINDS if scope in told["scopes"].split())
        found.append(AccessToken(**told))
    return found


def keep_token(line: Line, token: AccessToken) -> None:
    """Add a token, or note its use or its end; a token revoked meanwhile stays revoked."""
    line.execute(
        f"INSERT INTO acphold.access_tokens AS kept ({_TOKEN})"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET"
        " used_at = coalesce(excluded.used_at, kept.used_at),"
        " revoked_at = coalesce(kept.revoked_at, excluded.revoked_at)",
        (
            *(token.id, token.name, token.digest, " ".join(token.scopes), token.created_at),
            *(token.session_id, token.expires_at, token.used_at, token.revoked_at, token.tenant),
        ),
    )


def shares(line: Line) -> list[Share]:
    """All shares, ordered by session and tenant."""
    rows = line.execute("SELECT session_id, tenant, prompts FROM acphold.shares ORDER BY 1, 2")
    return [Share(*row) for row in rows.fetchall()]


def keep_share(line: Line, share: Share) -> None:
    """Like `Access.keep_share`."""
    _tell(line, share.session_id)
    line.execute(
        "INSERT INTO acphold.shares (session_id, tenant, prompts) VALUES (%s, %s, %s)"
        " ON CONFLICT (session_id, tenant) DO UPDATE SET prompts = excluded.prompts",
        (share.session_id, share.tenant, share.prompts),
    )


def end_share(line: Line, session_id: str, tenant: str) -> bool:
    """Like `Access.end_share`."""
    ended = line.execute(
        "DELETE FROM acphold.shares WHERE session_id = %s AND tenant = %s", (session_id, tenant)
    )
    if ended.rowcount:
        _tell(line, session_id)
    return bool(ended.rowcount)


def _tell(line: Line, session_id: str) -> None:
    """Mark the row of a session as changed, for followers of the list; raises
    UnknownSessionError."""
    done = line.execute(
        f"UPDATE acphold.sessions SET {CHANGED} WHERE session_id = %s", (session_id,)
    )
    if not done.rowcount:
        raise UnknownSessionError(session_id)


def deeds(line: Line, since: int, limit: int) -> list[Deed]:
    """The last `limit` deeds since `since`, oldest first."""
    rows = line.execute(
        f"SELECT {_DEED} FROM acphold.deeds WHERE at >= %s ORDER BY at DESC, id DESC LIMIT %s",
        (since, limit),
    ).fetchall()
    return [Deed(**dict(zip(_DEED.split(", "), row, strict=True))) for row in reversed(rows)]


def keep_deeds(line: Line, done: Sequence[Deed]) -> None:
    """Add deeds, and forget those beyond the limits."""
    for it in done:
        line.execute(
            f"INSERT INTO acphold.deeds ({_DEED}) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (it.at, it.deed, it.name, it.token, it.session_id, it.address, it.transport),
        )
    for token in {it.token for it in done}:
        line.execute(
            "DELETE FROM acphold.deeds WHERE token = %s AND id <= (SELECT id FROM acphold.deeds"
            " WHERE token = %s ORDER BY id DESC LIMIT 1 OFFSET %s)",
            (token, token, KEPT_DEEDS),
        )
    newest = max(it.at for it in done)
    line.execute("DELETE FROM acphold.deeds WHERE at < %s", (newest - KEPT_DEEDS_MS,))
