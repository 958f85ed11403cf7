"""The file of the journal: its health and repair, its copies and its free pages.

Derived data of sessions (counts, summaries, the search index) can be computed from the entries,
which are never changed here. Repair, for `acphold doctor`, goes session by session while others use
the journal. A result is written only if the session was not settled again meanwhile.

Deletions leave free pages, which take no room where the file system knows holes. To make the file
shorter, its last pages are moved into them: in pieces, while others read and write.

Source: sqlite.org, PRAGMA auto_vacuum. The functions may raise sqlite3 errors.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec.structs import replace

from acphold.conversation.history.compaction import snapshots
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.fold import Fold
from acphold.errors import JournalUnavailableError
from acphold.journal import bounds, stored_history
from acphold.journal.seams import Large, Repaired, Sizes
from acphold.journal.sql import entry_rows
from acphold.journal.sql.session_tables import OF_A_SESSION
from acphold.journal.sqlite import file_system, leases
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stored_history import FRAME, DamagedRowError, unpack

if TYPE_CHECKING:
    from acphold.journal.sqlite.background import Background, HasFile


def find_spoiled(connection: Connection, number: int | None = None) -> list[str]:
    """The sessions, all or one, whose stored summary is not what was written."""
    rows = connection.execute(
        "SELECT session_id, summary, checksum FROM summaries JOIN sessions ON number = session"
        f"{'' if number is None else ' WHERE session = ?'}",
        () if number is None else (number,),
    )
    return [session_id for session_id, summary, checksum in rows if crc32(summary) != checksum]


def log_cut_at(connection: Connection) -> int | None:
    """The time at which a log was found without its end, in ms since the epoch; None if none
    was."""
    at = leases.meta(connection, "log_cut_at")
    return None if at is None else int(at)


def went_back_at(connection: Connection) -> int | None:
    """The time at which the file was found to be an earlier copy, in ms since the epoch; None if
    never."""
    if leases.went_back(connection):
        return now_ms()
    at = leases.meta(connection, "went_back_at")
    return None if at is None else int(at)


def damage(connection: Connection) -> list[str]:
    """Read the whole journal and return what is damaged, a sentence each; empty if it is whole.

    Takes about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        # Entries that do not follow the one before, or belong to no session. A deleted session has
        # entries until it is swept, and is not reported.
        gaps: list[str] = []
        known: dict[int, str | None] = dict(
            connection.execute(
                "SELECT number, session_id FROM sessions "
                "UNION ALL SELECT session, NULL FROM deleted"
            )
        )
        last = (0, 0)
        # Row by row: for a comparison with the row before, SQLite would keep all in memory.
        for key, first_seq in connection.execute(
            "SELECT key, first_seq FROM segments ORDER BY key"
        ):
            number, seq = key >> SEQ_BITS, key & SEQ_MASK
            before = last[1] if number == last[0] else 0
            if number != last[0] and number not in known:
                whose = f"session number {number}, which does not exist"
                gaps.append(f"entries from {first_seq} on belong to {whose}")
            last = number, seq
            if first_seq != before + 1 and (name := known.get(number)) is not None:
                gaps.append(f"session {name!r}: entry {first_seq} follows {before}")
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
    free = free_bytes(connection)
    if not largest:
        return Sizes(None, None, free, ())
    try:
        conversations, index = connection.execute(_PAGES).fetchone()
    except sqlite3.OperationalError:  # built without dbstat
        conversations = index = None
    rows = connection.execute(_LARGEST, (largest,)).fetchall()
    return Sizes(conversations, index, free, tuple(Large(*row) for row in rows))


_ORPHANS: Final = """
    SELECT DISTINCT number FROM (
        SELECT key >> 32 AS number FROM segments UNION SELECT entry >> 32 FROM documents {}
    ) WHERE number NOT IN (SELECT number FROM sessions UNION ALL SELECT session FROM deleted)
""".format(" ".join(f"UNION SELECT session FROM {table}" for table in OF_A_SESSION))


def repair(connection: Connection) -> Repaired:
    """Recount every session, remove rows without a session, and drop what is wrong in the search
    index; what is right is only read.

    Afterwards the index has to catch up.
    """
    from acphold.journal.sqlite import deletion, search_index  # late, for a quick start

    orphans = [number for (number,) in connection.execute(_ORPHANS)]
    if orphans:
        with writing(connection):
            deletion.remove_rows(connection, orphans)
    for _ in deletion.sweep(connection):
        pass
    numbers = connection.execute("SELECT number, session_id FROM sessions").fetchall()
    miscounted = tuple(name for number, name in numbers if _recount(connection, number))
    return Repaired(miscounted, len(orphans), search_index.mend(connection))


_Kept = tuple[int, int, stored_history.Settled | None]
"""The stored data of a session: how far it is settled, and its count and state there. The state is
None if it is not what was written."""


def _recount(connection: Connection, number: int) -> bool:
    """Correct the count and summary of a session; True if they were wrong."""
    for _ in range(bounds.RECOUNT_TRIES):
        kept = _read_kept(connection, number)
        if kept is None:
            return False
        folding, through = Fold(), kept[0]
        newest: dict[str, int] = {}
        for segment in SqliteTables(connection).segments(number).read_all(0):
            if segment.last_seq > through:
                break
            newest |= snapshots([segment])
            for entry in segment.entries():
                folding.add(entry)
        state = folding.state()
        settled = stored_history.Settled(state.summary(), newest)
        messages = stored_history.messages(state)
        if (through, messages, settled) == kept:
            return False
        with writing(connection):
            if _read_kept(connection, number) != kept:
                continue
            connection.execute(
                "UPDATE sessions SET message_count = ?, ended = '' WHERE number = ?",
                (messages, number),
            )
            SqliteTables(connection).keep_settled_state(number, settled)
            return True
    return False


def _read_kept(connection: Connection, number: int) -> _Kept | None:
    row = connection.execute(
        "SELECT settled_through, message_count FROM sessions WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        return None
    state = None
    if not find_spoiled(connection, number):
        # What is kept ahead of it is not compared, and not kept if it is wrong.
        found = entry_rows.settled_state(SqliteTables(connection), number)
        state = replace(found, ahead_through=0, ahead=None)
    return row[0], row[1], state


# -- free pages ------------------------------------------------------------------------------


def free_bytes(connection: sqlite3.Connection) -> int:
    """The bytes of free pages in the file."""
    return _bytes(connection, "freelist_count")


def size_with_log(connection: sqlite3.Connection) -> int:
    """The length of the file, including everything in the log."""
    return _bytes(connection, "page_count")


def _bytes(connection: sqlite3.Connection, pages: str) -> int:
    (count,) = connection.execute(f"PRAGMA {pages}").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(count) * int(page_size)


def give_back(connection: Connection, on_piece: Callable[[int], None]) -> Iterator[None]:
    """Return all free bytes, a piece with each step; `on_piece` is called with the bytes of each.

    The file gets shorter once the log is copied into it.
    """
    while free_bytes(connection):
        with writing(connection):
            before = size_with_log(connection)
            # On a full disk few, as the log has room for few.
            pages = 8 if file_system.is_nearly_full(connection.path) else bounds.MOVED_PAGES
            for _ in connection.while_there_is_time(deque(range(pages))):
                # One at a time: Python takes a single step of a statement without columns.
                connection.execute("PRAGMA incremental_vacuum(1)")
            given = before - size_with_log(connection)
        if not given:  # it was made without auto_vacuum: its pages wait for new rows
            return
        on_piece(given)
        yield


def _is_shortened(connection: Connection) -> bool:
    """Copy the log into the file; True once the file is no longer than its content."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return os.stat(connection.path).st_size <= size_with_log(connection)


# -- a copy --------------------------------------------------------------------------------------


def copy_to(connection: sqlite3.Connection, path: str) -> int:
    """Copy the journal to the file `path`, whole and checked, or not at all; return its size in
    bytes.

    The copy is of one moment, even while others write, and nobody waits for it. It needs no other
    file beside it, and only its owner can read it. Raises JournalUnavailableError if it cannot be
    written, and sqlite3 errors of the journal itself.
    """
    from tempfile import TemporaryDirectory  # late: for `acphold journal backup` alone

    folder = os.path.dirname(path) or "."
    try:
        # A folder, because SQLite makes files beside the one that it writes.
        with TemporaryDirectory(dir=folder, prefix=".acphold-backup-") as made:
            temporary = os.path.join(made, "copy.db")
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            _copy(connection, temporary)
            size = os.stat(temporary).st_size
            write_out(temporary)
            os.replace(temporary, path)
        write_out(folder)
    except _WritingError as error:
        raise JournalUnavailableError(
            f"cannot write the copy {path}: {error}; free space on its disk, or name another place"
        ) from error
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot write the copy {path}: {error.strerror or error}; name another place"
        ) from error
    return size


class _WritingError(Exception):
    """SQLite failed to write the copy; the journal itself is not at fault."""


def _copy(connection: sqlite3.Connection, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as copied:
        try:
            # In one step: with several, each write of another process would make it start over.
            connection.backup(copied)
        except sqlite3.Error as error:
            # These errors come from the copy: the journal is only read.
            if getattr(error, "sqlite_errorcode", None) in _OF_WRITING:
                raise _WritingError(str(error)) from error
            raise
        try:
            # Complete without a log; opening it as a journal turns write-ahead logging on again.
            copied.execute("PRAGMA journal_mode = DELETE")
            found = [line for (line,) in copied.execute("PRAGMA quick_check(1)")]
        except sqlite3.Error as error:
            raise _WritingError(str(error)) from error
        if found != ["ok"]:
            raise JournalUnavailableError(
                f"the copy is damaged ({found[0]}); check the journal itself with "
                "`acphold doctor --deep`"
            )
        leases.renew_era(copied)  # positions that the journal gives out later are not in the copy


_OF_WRITING: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


def write_out(path: str) -> None:
    """Flush a file or folder to the disk, so that it survives a power failure."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class SqliteFile:
    """Implements `InFile`."""

    def __init__(self, path: str, journal: HasFile, background: Background) -> None:
        self.path = path
        self._journal = journal
        self._background = background

    @property
    def is_nearly_full(self) -> bool:
        return file_system.is_nearly_full(self.path)

    @property
    def was_open_to_others(self) -> bool:
        return self._journal.connect().was_open_to_others

    async def log_cut_at(self) -> int | None:
        return await self._background.run(log_cut_at)

    async def went_back_at(self) -> int | None:
        return await self._background.run(went_back_at)

    async def damage(self) -> list[str]:
        return await self._background.run(damage)

    async def find_spoiled(self) -> list[str]:
        return await self._background.run(find_spoiled)

    async def unswept(self) -> int:
        from acphold.journal.sqlite import deletion  # late, for a quick start

        return await self._background.run(deletion.unswept)

    async def sizes(self, largest: int) -> Sizes:
        return await self._background.run(lambda db: sizes(db, largest))

    async def repair(self) -> Repaired:
        return await self._background.run(repair)

    async def sweep(self) -> None:
        from acphold.journal.sqlite import deletion  # late, for a quick start

        await self._background.in_pieces(deletion.sweep, makes_room=True)
        file_system.keep_reserve(self.path)

    async def give_back(self) -> int:
        given: list[int] = []
        await self.sweep()
        await self._background.in_pieces(lambda db: give_back(db, given.append))
        # The file can only get shorter while nobody writes, so try several times.
        deadline = time.monotonic() + bounds.SHORTENED_SECONDS
        while not await self._background.run(_is_shortened) and time.monotonic() < deadline:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(bounds.SHORTENED_SECONDS / 50)
        await self._background.shorten_log(0)
        return sum(given)

    async def copy_to(self, path: str) -> int:
        return await self._background.run(lambda db: copy_to(db, path))
