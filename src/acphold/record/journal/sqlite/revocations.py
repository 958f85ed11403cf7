"""The grants of a restored journal: no more than those of the journal that it replaces.

A backup has the tokens, shares and rules of its moment. Those that were revoked since are revoked
in the restored journal, too, and rules are as they were last, pauses included: they wait there
until their person has accepted them (`journal.rule_place`). If the former journal is gone, or was
another one, nobody can tell what was revoked, and all tokens and shares are held
(`journal.sql.access_places`), as where any of them are held already.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import msgspec

from acphold.record.journal.sql.access_places import Confirmed, access_here
from acphold.record.journal.sqlite.connection import Connection
from acphold.record.journal.sqlite.session_rows import SqliteTables


def carry_over(former: Connection | None, restored: str) -> bool:
    """Take revocations over from the former journal into the file `restored`; return False if that
    cannot be, and so its tokens and shares have to stay held."""
    with closing(sqlite3.connect(restored, isolation_level=None)) as connection:
        known = None if former is None else _read_former(former, connection)
        if known is None:
            return False
        revoked, shares, rules = known
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "UPDATE access_tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", revoked
        )
        kept = dict(shares)
        for session, tenant, prompts in connection.execute(
            "SELECT session_id, tenant, prompts FROM shares"
        ).fetchall():
            allowed = kept.get((session, tenant))
            if allowed is None:
                connection.execute(
                    "DELETE FROM shares WHERE session_id = ? AND tenant = ?", (session, tenant)
                )
            elif prompts and not allowed:
                connection.execute(
                    "UPDATE shares SET prompts = 0 WHERE session_id = ? AND tenant = ?",
                    (session, tenant),
                )
        connection.executemany("INSERT OR REPLACE INTO rules VALUES (?, ?, ?)", rules)
        connection.execute("COMMIT")
    return True


_Known = tuple[
    list[tuple[int, str]], list[tuple[tuple[str, str], bool]], list[tuple[str, int, bytes]]
]
"""The revoked tokens, with their time; the shares, and if they prompt; the rules."""


def _read_former(former: Connection, restored: sqlite3.Connection) -> _Known | None:
    """Return what the former journal knows; None if it was another one, or cannot be read, or if
    access is held in it or in the restored one: a person has to look at that."""
    secret = "SELECT value FROM meta WHERE name = 'cursor_secret'"
    try:
        if former.execute(secret).fetchone() != restored.execute(secret).fetchone():
            return None
        backed_up = restored.execute("SELECT value FROM meta WHERE name = 'access'").fetchone()
        if backed_up and msgspec.json.decode(backed_up[0], type=Confirmed).held:
            return None
        if access_here(SqliteTables(former))[0].held:
            return None
        revoked = former.execute(
            "SELECT revoked_at, id FROM access_tokens WHERE revoked_at IS NOT NULL"
        ).fetchall()
        shares = former.execute("SELECT session_id, tenant, prompts FROM shares").fetchall()
        rules = former.execute("SELECT person, number, rule FROM rules").fetchall()
    except sqlite3.Error:  # it is damaged, or of an old release
        return None
    return revoked, [((it[0], it[1]), bool(it[2])) for it in shares], rules
