"""The free pages of the file, which are overwritten in the file itself.

SQLite overwrites a page that it frees by way of the log: it is written twice. A sweep, which frees
thousands, lets them be (`freed_as_they_are`) and overwrites them in the file. SQLite never looks at
free pages, but for the beginning of some, the *trunks*, which list the others. They are overwritten
while nothing is copied from the log into the file, nobody reads an earlier state, and others write
on: then the list in the file is true of all that anybody reads from it.

Source: sqlite.org, Database File Format, 1.5. The functions may raise sqlite3 errors and OSError.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from struct import unpack, unpack_from
from typing import Final

from msgspec import Struct

from acphold.journal import bounds
from acphold.journal.sqlite import write_ahead_log
from acphold.journal.sqlite.connection import Connection, connect, is_busy, reading, writing
from acphold.journal.sqlite.file import LogIndex
from acphold.journal.sqlite.file_system import blank, writable

_RUN_PAGES: Final = 64
"""Pages that are looked at together, at most."""

_PIECE_PAGES: Final = 200
"""Pages that one piece of a sweep frees, most of the time."""

_TAKEN_PAGES: Final = 32
"""Pages that it, and others meanwhile, take before that, most of the time."""


def freed_as_they_are(connection: Connection, pieces: Iterator[None]) -> Iterator[None]:
    """Do these pieces of work; the pages that they free keep what they have.

    What is deleted inside of a page is overwritten all the same, and so is a page that may become a
    trunk: who needs a page and finds no other takes that, and may leave the end of it as it is.
    """
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    listed = page_bytes // 4 - 7  # by a full trunk, with itself
    while True:
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        if free < _TAKEN_PAGES and not connection.is_full:
            with writing(connection):  # empty pages become the first trunk, and what it lists
                empty = _TAKEN_PAGES * page_bytes
                connection.execute("INSERT INTO meta VALUES ('empty', zeroblob(?))", (empty,))
                connection.execute("DELETE FROM meta WHERE name = 'empty'")
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        how = "FAST" if _TAKEN_PAGES <= free % listed < listed - _PIECE_PAGES else "ON"
        if connection.execute(f"PRAGMA secure_delete = {how}").fetchone() == (0,):  # before 3.20
            connection.execute("PRAGMA secure_delete = ON")
        try:
            next(pieces)
        except StopIteration:
            return
        finally:
            connection.execute("PRAGMA secure_delete = ON")
        yield


def overwrite(connection: Connection, finish: Callable[[], object]) -> Iterator[None]:
    """Overwrite the free pages, some with each step, while others write; then empty the log.

    Calls `finish` in a transaction in which all are overwritten; never if somebody keeps reading an
    earlier state for too long.
    """
    file = writable(connection.path)
    empty: dict[int, bytes] = {}
    left: deque[_Run] = deque()
    tries = 0
    with ExitStack() as readers:
        reader = connection
        if not connection.access.is_alone:
            reader = readers.enter_context(closing(connect(connection.path, connection.patience)))
        while tries < bounds.EMPTYING_TRIES:
            is_done = False
            with _as_of_one_moment(connection, reader) as is_frozen:
                if is_frozen:
                    found = _FreeList.of(file)
                    news = [trunk for trunk, raw in found.trunks.items() if empty.get(trunk) != raw]
                    left = left or _not_empty(file, found, news, empty)
                    is_done = not left
                    _blank(file, left, found, empty)
            if is_frozen:
                os.fsync(file)  # before the pages count as overwritten
            if is_done and (is_frozen := write_ahead_log.copy(connection)):
                if os.stat(f"{connection.path}-wal").st_size > bounds.CUT_BYTES:
                    write_ahead_log.start_over(connection)
                    for _ in write_ahead_log.cut(connection, 0):
                        yield
                with _alone_without_log(connection) as is_frozen:
                    found = _FreeList.of(file)
                    if is_frozen and _is_overwritten(file, found, empty):
                        # Trunks are kept in caches: ours is dropped, and those of others go with a
                        # commit.
                        connection.execute("PRAGMA shrink_memory")
                        for start, end in found.unused():
                            os.pwrite(file, bytes(end - start), start)
                        finish()
                        connection.execute("COMMIT")
                        return
            if is_frozen:
                tries = 0
            else:
                tries += 1
                time.sleep(bounds.EMPTYING_WAIT_SECONDS)
            yield


@contextmanager
def _as_of_one_moment(connection: Connection, reader: Connection) -> Iterator[bool]:
    """Keep the file as it is during the block: others write into the log, of which nothing is
    copied. False if not all that `reader` sees is in the file, as somebody reads an earlier state,
    or another process copies the log.

    A page that is free in the file then is read from it by nobody: who needs it later finds it in
    the log.
    """
    if reader is connection:  # it is alone
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        yield 0 <= pages == copied
        return
    with reading(reader):
        reader.execute("SELECT 1 FROM meta").fetchone()  # no more is copied than it sees
        index = LogIndex.of(connection.path)  # which may have more by now
        _, _, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        yield index is not None and index.frames == copied


def _is_overwritten(file: int, found: _FreeList, empty: dict[int, bytes]) -> bool:
    """True if nothing is in the free pages, of which those that a trunk listed in `empty` are not
    looked at. A turn that writes all the time changes one trunk each time, by a few pages."""
    news = [trunk for trunk, raw in found.trunks.items() if empty.get(trunk) != raw]
    return empty.keys() >= {*news} and not _not_empty(file, found, news, dict(empty))


@contextmanager
def _alone_without_log(connection: Connection) -> Iterator[bool]:
    """Hold up all writers during the block, while the log is empty; False if somebody reads what is
    in it, or writes. No reader is waited for."""
    connection.rest()
    with connection.at_once():
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            busy = True
        try:
            yield not busy and not os.stat(f"{connection.path}-wal").st_size
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


class _FreeList(Struct, frozen=True):
    """The trunks of the list of free pages, each as it is in the file; and the bytes of a page."""

    trunks: dict[int, bytes]
    page_bytes: int

    @classmethod
    def of(cls, file: int) -> _FreeList:
        """Read it from the file; it is empty if it does not add up."""
        header = os.pread(file, 40, 0)
        (size,) = unpack(">H", header[16:18])
        size = 65536 if size == 1 else size
        trunk, count = unpack(">II", header[32:])
        trunks: dict[int, bytes] = {}
        while trunk and count > 0:
            raw = os.pread(file, size, (trunk - 1) * size)
            if len(raw) < size:
                break
            trunks[trunk] = raw
            trunk, leaves = unpack_from(">II", raw)
            if 8 + 4 * leaves > size:
                break
            count -= 1 + leaves
        return cls({}, size) if trunk or count else cls(trunks, size)

    def unused(self) -> Iterator[tuple[int, int]]:
        """The bytes of trunks that list nothing but have anything in them, each from a place in the
        file to another."""
        for trunk, raw in self.trunks.items():
            first = 8 + 4 * len(_leaves(raw))
            if any(raw[first:]):
                start = (trunk - 1) * self.page_bytes
                yield start + first, start + self.page_bytes


def _leaves(raw: bytes | None) -> tuple[int, ...]:
    """The pages that this trunk lists."""
    if raw is None:
        return ()
    return unpack_from(f">{unpack_from('>I', raw, 4)[0]}I", raw, 8)


_Run = tuple[int, int, int]
"""A trunk and neighbours among the pages that it lists: the first, and the one after the last."""


def _blank(file: int, left: deque[_Run], found: _FreeList, empty: dict[int, bytes]) -> None:
    """Overwrite some runs of pages, as far as their trunk lists them still."""
    free: set[int] = set()
    last, size = 0, found.page_bytes
    for _ in range(min(len(left), bounds.BLANKED_RUNS)):
        trunk, first, end = left.popleft()
        if trunk != last:
            last, free = trunk, {*_leaves(found.trunks.get(trunk))}
        if not free:
            empty.pop(trunk, None)  # others may list its pages, and later it itself again
        for start, stop in _runs(page for page in range(first, end) if page in free):
            blank(file, (start - 1) * size, (stop - start) * size)


def _not_empty(
    file: int, found: _FreeList, trunks: Iterable[int], empty: dict[int, bytes]
) -> deque[_Run]:
    """Return the pages of these trunks that have anything in them. Those that the trunk listed in
    `empty` are not looked at; from now on `empty` has all of these trunks."""
    size = found.page_bytes
    nothing = bytes(size)
    runs: deque[_Run] = deque()
    for trunk in trunks:
        known = {*_leaves(empty.get(trunk))}
        empty[trunk] = raw_trunk = found.trunks[trunk]
        for first, end in _runs(sorted({*_leaves(raw_trunk)} - known)):
            raw = os.pread(file, (end - first) * size, (first - 1) * size)
            if raw != nothing * (end - first):
                full = _runs(
                    first + place
                    for place in range(end - first)
                    if raw[place * size : (place + 1) * size] != nothing
                )
                runs.extend((trunk, *run) for run in full)
    return runs


def _runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield pages that are neighbours together: the first, and the one after the last."""
    first = end = 0
    for page in pages:
        if page != end or end - first == _RUN_PAGES:
            if end:
                yield first, end
            first = page
        end = page + 1
    if end:
        yield first, end
