"""Checks of the file, and repair of derived data of sessions, for `acphold doctor`.

Derived data (counts, summaries, sums of usage, the search index) can be computed from the entries
and the usage reports, which are never changed here. Repair goes session by session while others use
the journal. A result is written only if the session was not settled again meanwhile.

The functions may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from acphold.record.history.compaction import snapshots
from acphold.record.history.entries import now_ms
from acphold.record.history.fold import Fold
from acphold.record.journal import bounds, stored_history
from acphold.record.journal.seams import Large, Repaired, Sizes
from acphold.record.journal.sql import entry_rows, usage_rows
from acphold.record.journal.sql.session_tables import OF_A_SESSION
from acphold.record.journal.sqlite import eras
from acphold.record.journal.sqlite.connection import Connection, reading, writing
from acphold.record.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.record.journal.sqlite.session_rows import SqliteTables
from acphold.record.journal.stored_history import FRAME, DamagedRowError, read_all, unpack


def find_spoiled_summaries(connection: Connection, number: int | None = None) -> list[str]:
    """The sessions, all or one, whose stored summary is not what was written."""
    rows = connection.execute(
        "SELECT session_id, summary, checksum FROM summaries JOIN sessions ON number = session"
        f"{'' if number is None else ' WHERE session = ?'}",
        () if number is None else (number,),
    )
    return [session_id for session_id, summary, checksum in rows if crc32(summary) != checksum]


def find_spoiled(connection: Connection) -> list[str]:
    """The sessions whose summary, or sums of usage, are not what was written."""
    found = find_spoiled_summaries(connection)
    tables = SqliteTables(connection)
    for number, name in connection.execute("SELECT number, session_id FROM sessions").fetchall():
        with reading(connection):
            if not usage_rows.has_right_sums(tables, number) and name not in found:
                found.append(name)
    return found


def log_cut_at(connection: Connection) -> int | None:
    """The time at which a log was found without its end, in ms since the epoch; None if none
    was."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'log_cut_at'").fetchone()
    return None if row is None else int(row[0])


def went_back_at(connection: Connection) -> int | None:
    """The time at which the file was found to be an earlier copy, in ms since the epoch; None if
    never."""
    if eras.went_back(connection):
        return now_ms()
    row = connection.execute("SELECT value FROM meta WHERE name = 'went_back_at'").fetchone()
    return None if row is None else int(row[0])


def damage(connection: Connection) -> list[str]:
    """Read the whole journal and return what is damaged, a sentence each; empty if it is whole.

    Takes about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        gaps = [*_gaps(connection)]
        unreadable: list[str] = []
        for key, raw in connection.execute(
            "SELECT key, raw FROM segments WHERE substr(raw, 1, 4) = ?", (FRAME,)
        ):
            try:
                unpack(raw)
            except DamagedRowError as error:
                unreadable.append(f"session number {key >> SEQ_BITS}: {error}")
                if len(unreadable) == 20:
                    break
        return gaps + unreadable
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _gaps(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each entry that does not follow the one before, or belongs to no
    session."""
    last = (0, 0)
    # A deleted session has entries until it is swept.
    known = {
        number
        for (number,) in connection.execute(
            "SELECT number FROM sessions UNION ALL SELECT session FROM deleted"
        )
    }
    # Row by row: for a comparison with the row before, SQLite would keep all rows in memory.
    for key, first_seq in connection.execute("SELECT key, first_seq FROM segments ORDER BY key"):
        number, seq = key >> SEQ_BITS, key & SEQ_MASK
        before = last[1] if number == last[0] else 0
        if number != last[0] and number not in known:
            yield (
                f"entries from {first_seq} on belong to session number {number}, which does not "
                "exist"
            )
        last = number, seq
        if first_seq != before + 1:
            # Sessions that are deleted but not swept yet are not reported.
            for (name,) in connection.execute(
                "SELECT session_id FROM sessions WHERE number = ?", (number,)
            ):
                yield f"session {name!r}: entry {first_seq} follows {before}"


# -- sizes ----------------------------------------------------------------------------------

_LARGEST: Final = """
    SELECT session_id, title, (
        SELECT coalesce(sum(length(raw)), 0) FROM segments
        WHERE key BETWEEN number << 32 AND number << 32 | 4294967295
    ) AS bytes FROM sessions ORDER BY bytes DESC LIMIT ?
"""
# Session by session: to group all rows, SQLite would sort them in memory.

_PAGES: Final = """
    SELECT coalesce(sum(pgsize) FILTER (WHERE name = 'segments'), 0),
        coalesce(sum(pgsize) FILTER (WHERE name LIKE 'words%' OR name LIKE '%documents%'), 0)
    FROM dbstat WHERE aggregate = TRUE
"""


def sizes(connection: sqlite3.Connection, largest: int) -> Sizes:
    """The sizes, and this many of the largest sessions; with 0, only the free room: the rest reads
    the whole file."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    if not largest:
        return Sizes(None, None, free * page_size, ())
    try:
        conversations, index = connection.execute(_PAGES).fetchone()
    except sqlite3.OperationalError:  # built without dbstat
        conversations = index = None
    rows = connection.execute(_LARGEST, (largest,)).fetchall()
    return Sizes(conversations, index, free * page_size, tuple(Large(*row) for row in rows))


_ORPHANS: Final = """
    SELECT DISTINCT number FROM (
        SELECT key >> 32 AS number FROM segments UNION SELECT entry >> 32 FROM documents {}
    ) WHERE number NOT IN (SELECT number FROM sessions UNION ALL SELECT session FROM deleted)
""".format(" ".join(f"UNION SELECT session FROM {table}" for table in OF_A_SESSION))


def repair(connection: Connection) -> Repaired:
    """Recount every session, remove rows without a session, and clear the search index.

    Afterwards the index has to catch up.
    """
    from acphold.record.journal.sqlite import deletion, search_index  # late, for a quick start

    orphans = connection.execute(_ORPHANS).fetchall()
    with writing(connection):
        for (number,) in orphans:
            deletion.remove_rows(connection, number)
    for _ in deletion.sweep(connection):
        pass
    numbers = connection.execute("SELECT number, session_id FROM sessions").fetchall()
    miscounted: list[str] = []
    for number, name in numbers:
        was_right = not _recount(connection, number)
        with reading(connection):
            has_right_sums = usage_rows.has_right_sums(SqliteTables(connection), number)
        if not has_right_sums:
            with writing(connection):
                usage_rows.add_up(SqliteTables(connection), number)
        if not (was_right and has_right_sums):
            miscounted.append(name)
    for _ in search_index.forget(connection):
        pass
    return Repaired(tuple(miscounted), len(orphans))


class _Kept(Struct, frozen=True):
    """The stored data of a session: how far it is settled, and its count and state there.

    `state` is None if it is not what was written.
    """

    through: int
    messages: int
    state: stored_history.Settled | None


def _recount(connection: Connection, number: int) -> bool:
    """Correct the count and summary of a session; True if they were wrong."""
    for _ in range(bounds.RECOUNT_TRIES):
        kept = _read_kept(connection, number)
        if kept is None:
            return False
        folding = Fold()
        newest: dict[str, int] = {}
        for segment in read_all(SqliteTables(connection).segments(number), 0):
            if segment.last_seq > kept.through:
                break
            newest |= snapshots([segment])
            for entry in segment.entries():
                folding.add(entry)
        state = folding.state()
        settled = stored_history.Settled(state.summary(), newest)
        right = _Kept(kept.through, stored_history.messages(state), settled)
        if right == kept:
            return False
        with writing(connection):
            if _read_kept(connection, number) != kept or right.state is None:
                continue
            connection.execute(
                "UPDATE sessions SET message_count = ? WHERE number = ?", (right.messages, number)
            )
            SqliteTables(connection).keep_settled_state(number, right.state)
            return True
    return False


def _read_kept(connection: Connection, number: int) -> _Kept | None:
    row = connection.execute(
        "SELECT settled_through, message_count FROM sessions WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        return None
    is_spoiled = bool(find_spoiled_summaries(connection, number))
    state = None
    if not is_spoiled:  # what is kept ahead of it is not compared, and not kept if it is wrong
        found = entry_rows.settled_state(SqliteTables(connection), number)
        state = replace(found, ahead_through=0, ahead=None)
    return _Kept(row[0], row[1], state)
