"""The free pages of the file, which are overwritten in the file itself.

SQLite overwrites a page that it frees by way of the log: it is written twice. A sweep, which frees
thousands, lets them be (`freed_as_they_are`) and overwrites them in the file. SQLite never looks at
free pages, but for the beginning of some, the *trunks*, which list the others. They are overwritten
only while all of the log is in the file, nobody reads an earlier state and nobody can write: then
the list in the file is everybody's.

Source: sqlite.org, Database File Format, 1.5. The functions may raise sqlite3 errors and OSError.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from struct import unpack
from typing import Final

from msgspec import Struct

from acphold.journal import bounds
from acphold.journal.sqlite.connection import Connection, is_busy
from acphold.journal.sqlite.file_system import blank, writable

_RUN_PAGES: Final = 64
"""Pages that are looked at together, at most."""


def freed_as_they_are(connection: Connection, pieces: Iterator[None]) -> Iterator[None]:
    """Do these pieces of work; the pages that they free keep what they have.

    What is deleted inside of a page is overwritten all the same.
    """
    while True:
        if connection.execute("PRAGMA secure_delete = FAST").fetchone() != (2,):  # before 3.20
            connection.execute("PRAGMA secure_delete = ON")
        try:
            next(pieces)
        except StopIteration:
            return
        finally:
            connection.execute("PRAGMA secure_delete = ON")
        yield


def overwrite(connection: Connection, finish: Callable[[], object]) -> Iterator[None]:
    """Empty the log and overwrite the free pages, some milliseconds with each step.

    Calls `finish` in a transaction in which all are overwritten; never if somebody keeps reading an
    earlier state for too long.
    """
    file = writable(connection.path)
    left: deque[tuple[int, int]] = deque()
    empty: set[int] = set()
    tries = 0
    while tries < bounds.EMPTYING_TRIES:
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == copied and not left:
            left = _not_empty(file, _FreeList.of(file), empty)
        with _alone_without_log(connection) as is_alone:
            found = _FreeList.of(file)
            # Pages that were freed just now are looked at while nobody can write.
            if is_alone and (left := left or _not_empty(file, found, empty)):
                _blank(file, left, found, connection.piece_seconds)
            elif is_alone:
                # Trunks are kept in caches: ours is dropped, and those of others go with a commit.
                connection.execute("PRAGMA shrink_memory")
                for start, end in found.unused:
                    os.pwrite(file, bytes(end - start), start)
                finish()
                connection.execute("COMMIT")
                return
        tries = 0 if is_alone else tries + 1
        if is_alone and not left:
            os.fsync(file)  # before the pages count as overwritten
        elif not is_alone:
            time.sleep(bounds.EMPTYING_WAIT_SECONDS)
        yield


@contextmanager
def _alone_without_log(connection: Connection) -> Iterator[bool]:
    """Hold up all writers during the block, while the log is empty; False if somebody reads what is
    in it, or writes. No reader is waited for."""
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
    """The free pages that are no trunks, in order; the bytes of trunks that list nothing, each from
    a place in the file to another; and the bytes of a page."""

    pages: list[int]
    unused: list[tuple[int, int]]
    page_bytes: int

    @classmethod
    def of(cls, file: int) -> _FreeList:
        """Read it from the file; it is empty if it does not add up, as while somebody writes it."""
        header = os.pread(file, 40, 0)
        (size,) = unpack(">H", header[16:18])
        size = 65536 if size == 1 else size
        trunk, count = unpack(">II", header[32:])
        pages: list[int] = []
        unused: list[tuple[int, int]] = []
        while trunk and count > 0:
            start = (trunk - 1) * size
            raw = os.pread(file, size, start)
            if len(raw) < size:
                break
            trunk, leaves = unpack(">II", raw[:8])
            end = 8 + 4 * leaves
            if end > size:
                break
            pages += unpack(f">{leaves}I", raw[8:end])
            if any(raw[end:]):
                unused.append((start + end, start + size))
            count -= 1 + leaves
        return cls([], [], size) if trunk or count else cls(sorted(pages), unused, size)


def _blank(file: int, left: deque[tuple[int, int]], found: _FreeList, piece_seconds: float) -> None:
    """Overwrite runs of pages, as far as they are free still, for about so long."""
    began = time.monotonic()
    free, size = {*found.pages}, found.page_bytes
    while left:
        for first, end in _runs(page for page in range(*left.popleft()) if page in free):
            blank(file, (first - 1) * size, (end - first) * size)
        if time.monotonic() - began >= piece_seconds:
            break


def _not_empty(file: int, found: _FreeList, empty: set[int]) -> deque[tuple[int, int]]:
    """Return runs of free pages that have anything in them; those in `empty` are not looked at, and
    all of these belong to it from now on."""
    size = found.page_bytes
    nothing = bytes(size)
    runs: deque[tuple[int, int]] = deque()
    for first, end in _runs(page for page in found.pages if page not in empty):
        raw = os.pread(file, (end - first) * size, (first - 1) * size)
        if raw != nothing * (end - first):
            runs += _runs(
                first + place
                for place in range(end - first)
                if raw[place * size : (place + 1) * size] != nothing
            )
    empty.update(found.pages)
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
