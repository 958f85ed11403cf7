"""Free pages of the file: kept for later use, or returned to the disk.

Deletions leave free pages. To return them, the last pages of the file are moved into them, so that
the file gets shorter: in pieces, while others read and write, and a little after each turn.

Source: sqlite.org, PRAGMA auto_vacuum. The functions may raise sqlite3 errors.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from acphold.journal.sqlite.connection import Connection, writing

SPARE_BYTES: Final = 16 << 20
"""Free bytes kept for later use, unless everything is to be returned."""

AFTER_A_TURN_BYTES: Final = 4 << 20
"""Bytes returned after a turn, when nobody waits."""

PAGES_AT_ONCE: Final = 64
"""Pages moved in one transaction: some milliseconds."""


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
    free = free_bytes(connection)
    least = spare if most is None else max(spare, free - most)
    while free > least:
        with writing(connection):
            before = size(connection)
            for _ in connection.while_there_is_time(deque(range(PAGES_AT_ONCE))):
                # One at a time: Python takes a single step of a statement without columns.
                connection.execute("PRAGMA incremental_vacuum(1)")
            given = before - size(connection)
        if not given:  # it was made without auto_vacuum: its pages wait for new rows
            return
        told(given)
        free = free_bytes(connection)
        yield


def give_back_some(connection: Connection) -> Iterator[None]:
    """Return a few of the free pages beyond the spare ones."""
    yield from give_back(connection, SPARE_BYTES, AFTER_A_TURN_BYTES)
