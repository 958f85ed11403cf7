"""The file of the journal: its health, its copies and its free pages.

Deletions leave free pages. To return them, the last pages of the file are moved into them, so that
the file gets shorter: in pieces, while others read and write, and a little after each turn.

Source: sqlite.org, PRAGMA auto_vacuum. The functions may raise sqlite3 errors.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from acphold.record.journal import bounds
from acphold.record.journal.sqlite import checks
from acphold.record.journal.sqlite.connection import Connection, writing

if TYPE_CHECKING:
    from acphold.record.journal.seams import Repaired, Sizes
    from acphold.record.journal.sqlite.background import Background, HasFile

# See docs/decisions.md, 12.


def free_bytes(connection: sqlite3.Connection) -> int:
    """The bytes of free pages in the file."""
    (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def size_with_log(connection: sqlite3.Connection) -> int:
    """The length of the file, including everything in the log."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def give_back(
    connection: Connection,
    spare: int = 0,
    most: int | None = None,
    on_piece: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """Return all free bytes but `spare`, at most `most` of them if set, a piece with each step.

    `on_piece` is called with the bytes of each piece. The file gets shorter once the log is copied
    into it.
    """
    free = free_bytes(connection)
    least = spare if most is None else max(spare, free - most)
    while free > least:
        with writing(connection):
            before = size_with_log(connection)
            for _ in connection.while_there_is_time(deque(range(bounds.MOVED_PAGES))):
                # One at a time: Python takes a single step of a statement without columns.
                connection.execute("PRAGMA incremental_vacuum(1)")
            given = before - size_with_log(connection)
        if not given:  # it was made without auto_vacuum: its pages wait for new rows
            return
        on_piece(given)
        free = free_bytes(connection)
        yield


def give_back_some(connection: Connection) -> Iterator[None]:
    """Return a few of the free pages beyond the spare ones."""
    yield from give_back(connection, bounds.SPARE_BYTES, bounds.AFTER_A_TURN_BYTES)


def _is_shortened(connection: Connection) -> bool:
    """Copy the log into the file; True once the file is no longer than its content."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return os.stat(connection.path).st_size <= size_with_log(connection)


class SqliteFile:
    """Implements `InFile`."""

    def __init__(self, path: str, journal: HasFile, background: Background) -> None:
        self.path = path
        self._journal = journal
        self._background = background

    @property
    def was_open_to_others(self) -> bool:
        return self._journal.connect().was_open_to_others

    async def log_cut_at(self) -> int | None:
        return await self._background.run(checks.log_cut_at)

    async def went_back_at(self) -> int | None:
        return await self._background.run(checks.went_back_at)

    async def damage(self) -> list[str]:
        return await self._background.run(checks.damage)

    async def find_spoiled(self) -> list[str]:
        return await self._background.run(checks.find_spoiled)

    async def unswept(self) -> int:
        from acphold.record.journal.sqlite import deletion  # late, for a quick start

        return await self._background.run(deletion.unswept)

    async def sizes(self, largest: int) -> Sizes:
        return await self._background.run(lambda db: checks.sizes(db, largest))

    async def repair(self) -> Repaired:
        return await self._background.run(checks.repair)

    async def give_back(self) -> int:
        from acphold.record.journal.sqlite import deletion  # late, for a quick start

        given: list[int] = []
        await self._background.in_pieces(deletion.sweep)
        await self._background.in_pieces(lambda db: give_back(db, on_piece=given.append))
        # The file can only get shorter while nobody writes, so try several times.
        deadline = time.monotonic() + bounds.SHORTENED_SECONDS
        while not await self._background.run(_is_shortened) and time.monotonic() < deadline:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(bounds.SHORTENED_SECONDS / 50)
        await self._background.shorten_log()
        return sum(given)

    async def copy_to(self, path: str) -> int:
        from acphold.record.journal.sqlite import backup  # late: for `acphold journal backup` alone

        return await self._background.run(lambda db: backup.copy_to(db, path))
