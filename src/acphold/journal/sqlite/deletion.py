"""Deletion for good: out of the lists at once, out of the file piece by piece.

    listed ──delete──▶ deleted: cannot be found any more; its rows are still there
    deleted ──sweep──▶ gone: rows, words and log are overwritten, and nothing is left of it

If a crash, a full disk or a reader of the log cuts a sweep short, the next one continues it.

The functions take a connection that gives way, make their own transactions, and may raise sqlite3
errors. The iterators do one piece of their work for each step.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import json

from acphold.conversation.history.entries import now_ms
from acphold.journal import bounds
from acphold.journal.journal import Lease
from acphold.journal.sql import session_tables
from acphold.journal.sql.session_tables import NOBODY, require_lease
from acphold.journal.sqlite import file_system, free_pages, leases, search_index, session_rows
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.sqlite.migrations import SEQ_BITS
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stored_history import DamagedRowError


def delete(
    connection: Connection,
    sessions: Iterable[Lease | str],
    idle_since: int | None,
    gone: set[str],
) -> Iterator[None]:
    """Like `Journal.delete`; adds the ids of deleted sessions to `gone`.

    Raises LeaseLostError.
    """
    ids = {it if isinstance(it, str) else it.session_id: it for it in sessions}
    at_once = bounds.DELETED_TOGETHER
    if _gives_more_way(connection, len(ids)):
        at_once = bounds.DELETED_BESIDE_TURNS
    waiting = deque(ids)
    tables = SqliteTables(connection)
    find = (
        "SELECT session_id, number, owner, updated_at"
        " FROM sessions LEFT JOIN leases ON leases.session = number"
        f" WHERE {tables.among('session_id', 'ids')}"
    )
    connection.fit_cache(len(ids))
    while waiting:
        now_gone: set[str] = set()
        with writing(connection):
            for first in connection.while_there_is_time(waiting):
                more = 0 if connection.is_full else min(at_once - 1, len(waiting))
                together = [first, *(waiting.popleft() for _ in range(more))]
                for session_id in together:
                    if isinstance(lease := ids[session_id], Lease):
                        require_lease(tables, lease)
                going: dict[bool, list[int]] = {False: [], True: []}
                rows = tables.execute(find, {"ids": tables.array(together)})
                for session_id, number, owner, updated_at in rows.fetchall():
                    if idle_since is not None and (
                        updated_at > idle_since or leases.lives(connection.path, owner or NOBODY)
                    ):
                        continue
                    going[isinstance(ids[session_id], Lease)].append(number)
                    now_gone.add(session_id)
                for as_if_never, numbers in going.items():
                    if numbers:
                        remove_rows(connection, numbers, as_if_never=as_if_never)
        gone |= now_gone
        yield


def _gives_more_way(connection: Connection, sessions: int) -> bool:
    """Make pieces of work shorter if many sessions are deleted while a process has any; True if
    so."""
    connection.beside_turns = sessions > bounds.DELETED_BESIDE_TURNS and any(
        leases.lives(connection.path, owner)
        for (owner,) in connection.execute("SELECT DISTINCT owner FROM leases").fetchall()
    )
    return connection.beside_turns


def remove_rows(
    connection: Connection, numbers: Sequence[int], *, as_if_never: bool = False
) -> None:
    """Delete all rows of sessions except their entries, which the next sweep removes."""
    its = {"numbers": json.encode(numbers).decode()}
    connection.execute(
        "INSERT OR IGNORE INTO deleted SELECT value, coalesce(tenant, '')"
        " FROM json_each(:numbers) LEFT JOIN sessions ON number = value",
        its,
    )
    which = "{} IN (SELECT value FROM json_each(%(numbers)s))"
    session_tables.delete(SqliteTables(connection), which, its, as_if_never=as_if_never)


_OF_OTHERS: Final = 0
"""Stands among the deleted sessions for turns that were taken out of others."""


def leave_to_sweep(connection: sqlite3.Connection) -> None:
    """Let the next sweep overwrite what was taken out of sessions that stay."""
    connection.execute("INSERT OR IGNORE INTO deleted VALUES (?, '')", (_OF_OTHERS,))


# -- sweeping -----------------------------------------------------------------------------------


def unswept(connection: sqlite3.Connection) -> int:
    """The number of deleted sessions, or with deleted turns, with remains in the file or in the
    log."""
    (count,) = connection.execute("SELECT count(*) FROM deleted").fetchone()
    return int(count)


def _remove(connection: Connection) -> Iterator[None]:
    """Remove the rows and words of deleted sessions."""
    tenants: dict[int, str] = dict(connection.execute("SELECT session, tenant FROM deleted"))
    deleted = deque(tenants)
    waiting = deleted.copy()
    if file_system.is_nearly_full(connection.path):
        # Taking words out writes them again: so volumes go whole, and the rest is indexed again.
        its = {it for each in deleted for it in search_index.volumes_of(connection, each)}
        for _ in search_index.forget(connection, its):
            yield
    # If all of a volume of the index goes, its words are not taken out one by one.
    doomed = search_index.volumes_of_these_alone(connection, deleted)
    taken_out = 0
    while parts := deque(_parts(connection, waiting, doomed)):
        while parts:
            with writing(connection):
                for part in connection.while_there_is_time(parts):
                    if part.documents is None:
                        search_index.strike_out(connection, part.session, part.through)
                    else:
                        tenant = tenants[part.session]
                        search_index.unindex(connection, part.session, tenant, part.documents)
                    key = part.session << SEQ_BITS
                    connection.execute(
                        "DELETE FROM segments WHERE key BETWEEN ? AND ?", (key, key | part.through)
                    )
                    taken_out += 1
            yield
            if taken_out >= bounds.VOLUME_PARTS:  # each may have left a part in a volume
                yield from search_index.join_parts(connection)
                taken_out = 0
    if deleted:
        yield from search_index.tidy(connection)
    yield from _forget(connection)


def _forget(connection: Connection) -> Iterator[None]:
    """Let the log of changes forget the sessions deleted before the last mark, if that is an hour
    old; `meta` has the last number forgotten, that of the mark, and its time."""
    while True:
        with writing(connection):
            kept = leases.meta(connection, "forgotten") or "0 0 0"
            through, mark, at = map(int, kept.split())
            if abs(now_ms() - at) < bounds.KEPT_CHANGES_SECONDS * 1000:
                return
            piece = connection.execute(_PIECE, (through, mark, bounds.FORGOTTEN_AT_ONCE))
            (until,) = piece.fetchone()
            if until is not None:
                connection.execute(_FORGET, (through, until))
                kept = f"{until} {mark} {at}"
            else:
                (last,) = connection.execute("SELECT max(revision) FROM changes").fetchone()
                kept = f"{through} {last or 0} {now_ms()}"
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('forgotten', ?)", (kept,))
        yield


# The highest number stays: the next one is above it.
_PIECE: Final = (
    "SELECT max(revision) FROM (SELECT revision FROM changes WHERE revision > ? AND revision <= ?"
    " AND revision < (SELECT max(revision) FROM changes) ORDER BY revision LIMIT ?)"
)

_FORGET: Final = (
    "DELETE FROM changes WHERE revision > ? AND revision <= ? AND NOT EXISTS"
    " (SELECT 1 FROM sessions WHERE sessions.session_id = changes.session_id)"
)


def sweep(connection: Connection) -> Iterator[None]:
    """Remove the remains of deleted sessions, also from free pages and the log.

    If a reader keeps the log from being emptied, the next sweep tries again.
    """
    deleted = [number for (number,) in connection.execute("SELECT session FROM deleted")]
    if not deleted:
        return
    connection.fit_cache(len(deleted))
    _gives_more_way(connection, len(deleted))
    yield from free_pages.freed_as_they_are(connection, _remove(connection))

    def forget() -> None:
        connection.execute(
            "DELETE FROM deleted WHERE session IN (SELECT value FROM json_each(?))",
            (json.encode(deleted).decode(),),
        )

    yield from free_pages.overwrite(connection, forget)


class _Remains(NamedTuple):
    """The rest of a session up to an entry, and its documents; None if these go with whole
    volumes, or cannot be known."""

    session: int
    through: int
    documents: list[search_index.Indexed] | None


def _parts(connection: Connection, waiting: deque[int], doomed: set[int]) -> Iterator[_Remains]:
    """Yield the next parts of the sessions in `waiting`; sessions with nothing left are taken out
    of it."""
    left = bounds.PIECE_BYTES
    while waiting and left > 0:
        session, after = waiting[0], 0
        is_doomed = search_index.volumes_of(connection, session) <= doomed
        while left > 0:
            if is_doomed:
                through, size = session_rows.extent(connection, session, after, bounds.PART_BYTES)
                documents = None
            else:
                try:
                    rows = SqliteTables(connection).segments(session)
                    found = rows.read(after, bounds.PART_BYTES)
                except DamagedRowError:  # its words cannot be known: they stay, and find nothing
                    through, size = session_rows.extent(connection, session, after, 1)
                    documents = None
                else:
                    through = found[-1].last_seq if found else 0
                    size = sum(len(segment.raw) for segment in found)
                    documents = search_index.documents(found)
            if not through:
                waiting.popleft()  # that was all
                break
            yield _Remains(session, through, documents)
            left -= size
            after = through
