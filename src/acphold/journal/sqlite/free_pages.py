"""Free pages of the file: kept for later use, or returned to the disk.

Deletions leave free pages. To return them, the last pages of the file are moved into them, so that
the file gets shorter: in pieces, while others read and write, and a little after each turn. A file
made by an early release must be rewritten as a whole before it can do that, and nobody else may
have it open then.

Source: sqlite.org, PRAGMA auto_vacuum. The functions may raise sqlite3 errors.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from acphold.errors import JournalBusyError
from acphold.journal.sqlite.connection import Connection, connect, is_busy, writing
from acphold.journal.sqlite.file import FAULTS, failure

INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` for a file that can return pages in pieces."""

SPARE_BYTES: Final = 16 << 20
"""Free bytes kept for later use, unless everything is to be returned."""

AFTER_A_TURN_BYTES: Final = 4 << 20
"""Bytes returned after a turn, when nobody waits."""

PAGES_AT_ONCE: Final = 64
"""Pages moved in one transaction: some milliseconds."""


def can_give_back(connection: sqlite3.Connection) -> bool:
    """True if this file can return pages in pieces."""
    (way,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(way == INCREMENTAL)


def free_bytes(connection: sqlite3.Connection) -> int:
    """The bytes of free pages in the file."""
    (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def size(connection: sqlite3.Connection) -> int:
    """The length of the file, including everything in the log."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def give_back(
    connection: Connection,
    spare: int = 0,
    most: int | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """Return all free bytes but `spare`, at most `most` of them if set, a piece with each step.

    `told` is called with the bytes of each piece. The file gets shorter once the log is copied into
    it.
    """
    if not can_give_back(connection):
        return
    free = free_bytes(connection)
    least = spare if most is None else max(spare, free - most)
    while free > least:
        with writing(connection):
            before = size(connection)
            for _ in connection.while_there_is_time(deque(range(PAGES_AT_ONCE))):
                # One at a time: Python takes a single step of a statement without columns.
                connection.execute("PRAGMA incremental_vacuum(1)")
            given = before - size(connection)
        told(given)
        free = free_bytes(connection)
        yield


def give_back_some(connection: Connection) -> Iterator[None]:
    """Return a few of the free pages beyond the spare ones."""
    yield from give_back(connection, SPARE_BYTES, AFTER_A_TURN_BYTES)


def rewritten(path: str) -> None:
    """Rewrite the whole file without free pages; from then on it can return pages in pieces.

    A kill or a full disk in between leaves the file with its content. Raises JournalBusyError if
    anybody has it open, with nothing changed, and JournalError.
    """
    try:
        with closing(connect(path, 0.0)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            try:
                # Leaving write-ahead logging takes exclusive access, and keeps others out.
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise
                raise JournalBusyError(
                    f"the journal {path} was made by an earlier release, and has to be rewritten "
                    "once while nobody has it open; close the editors that use it, end what runs "
                    "in the background with `acphold stop --all`, and try again"
                ) from error
            # The new content is first written to a temporary file: it may not fit into memory.
            connection.execute("PRAGMA temp_store = FILE")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
    except FAULTS as error:
        raise failure(error, path) from error
