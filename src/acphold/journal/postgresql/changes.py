"""The log of changes: what other transactions have written since a position.

A transaction marks what it changes with its own number: a row of `sessions` has the last one in
`changed`, deleted sessions, tokens and the like have rows of their own. So nobody waits for a
counter, and nothing is shown before its commit. Numbers are given at the beginning and
become visible in any order. So a position is a snapshot of the server: the first number that was
not given yet, and those below it that were still open. These, and all from the first on, are read
next time. No open transaction, of whatever database, keeps others from being read.

A position also has the server, because one that takes over repeats the numbers; and the time,
because the rows of what is gone are kept for a while only.
"""

# See docs/decisions.md, 22.

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias
from zlib import crc32

from msgspec import Struct

from acphold.errors import RewrittenError
from acphold.journal import bounds
from acphold.journal.access import AccessChanges
from acphold.journal.postgresql.leases import HERE
from acphold.journal.rows import RowChanges
from acphold.journal.sql.tables import Tables


class Position(Struct, frozen=True):
    """A position: `end` was the next number, the `open` ones below it were not yet committed.

    `at` is the time in seconds since the epoch, by the clock of the database.
    """

    server: int
    at: int
    end: int
    open: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Position:
        """The position in a text made by `str`."""
        server, at, end, still_open = text.split(" ")
        return cls(int(server), int(at), int(end), tuple(filter(None, still_open.split(","))))

    def __str__(self) -> str:
        return f"{self.server} {self.at} {self.end} {','.join(self.open)}"

    def up_to(self, last: int, before: Position) -> Position:
        """This position, if of what came behind `before` only transactions up to `last` are
        read."""
        left = {*self.open} | {it for it in before.open if int(it) > last}
        end = max(before.end, last + 1)
        return Position(self.server, self.at, end, tuple(it for it in left if int(it) < end))


_NOW: Final = f"""
    SELECT pg_current_snapshot()::text AS snapshot, extract(epoch FROM now())::bigint AS at,
    {HERE} AS here
"""

Logs: TypeAlias = tuple[str, ...]

_SESSIONS: Final[Logs] = (
    "SELECT 'session' AS kind, session_id AS subject, changed FROM acphold.sessions",
    "SELECT 'session', session_id, changed FROM acphold.gone",
)

_NUMBERS: Final[Logs] = (
    "SELECT 'session' AS kind, number::text AS subject, changed FROM acphold.sessions",
)

_ACCESS: Final[Logs] = ("SELECT kind, subject, changed FROM acphold.access_changes",)


@cache
def _since(logs: Logs) -> str:
    """The statement that reads what is in these logs since a position, all of one moment."""
    parts = [
        f"{log} WHERE changed {which}"
        for log in logs
        for which in (">= %(end)s::text::xid8", "= ANY(%(open)s::text[]::xid8[])")
    ]
    return (
        "SELECT snapshot, at, here, kind, subject, changed::text::bigint"
        f" FROM ({_NOW}) AS now LEFT JOIN (SELECT * FROM ({' UNION ALL '.join(parts)}) AS every"
        " ORDER BY changed FETCH FIRST %(limit)s ROWS WITH TIES) AS news ON true ORDER BY changed"
    )


def _read(
    tables: Tables, after: str | None, limit: int, logs: Logs, *, forgetting: bool = True
) -> tuple[list[tuple[str, str]], Position, bool]:
    """The kinds and subjects that have changed, the position behind them, and True if there are
    more; raises RewrittenError."""
    rows: list[Any]
    if after is None:
        rows, before = tables.execute(_NOW).fetchall(), None
    else:
        before = Position.read(after)
        values = {"end": str(before.end), "open": [*before.open], "limit": limit + 1}
        rows = tables.execute(_since(logs), values).fetchall()
    snapshot, at, here = rows[0][:3]
    _, end, still_open = snapshot.split(":")
    now = Position(crc32(here), at, int(end), tuple(filter(None, still_open.split(","))))
    if before is None:
        return [], now, False
    age = now.at - before.at
    is_old = forgetting and abs(age) > bounds.KEPT_CHANGES_SECONDS // 2
    if before.server != now.server or is_old:
        raise RewrittenError(
            "the database may have gone back to an earlier state since these changes were read, "
            "or they were read too long ago"
        )
    found = [row[3:] for row in rows if row[3] is not None]
    is_more = len(found) > limit
    if is_more:  # leave out a transaction of which only a part fits
        found = [row for row in found if row[2] < found[limit][2]] or found
        now = now.up_to(found[-1][2], before)
    return [(kind, subject) for kind, subject, _ in found], now, is_more


def changes(
    tables: Tables, after: str | None, limit: int = 500, *, forgetting: bool = True
) -> RowChanges:
    """Like `Journal.changes`; unless `forgetting`, from a position of whatever age, though without
    some of the sessions that are deleted."""
    found, last, is_more = _read(tables, after, limit, _SESSIONS, forgetting=forgetting)
    return RowChanges([*dict.fromkeys(subject for _, subject in found)], str(last), is_more)


def access_changes(tables: Tables, after: str | None) -> AccessChanges:
    """Like `Access.changes`."""
    found, last, is_more = _read(tables, after, bounds.ACCESS_CHANGES, _ACCESS)
    return AccessChanges.of(found, str(last), is_more)


def changed_numbers(tables: Tables, after: str) -> list[int]:
    """The numbers of sessions that have changed since a position, of whatever age, and are not
    deleted; raises RewrittenError."""
    found, _, _ = _read(tables, after, 1 << 31, _NUMBERS, forgetting=False)
    return [int(number) for _, number in found]
