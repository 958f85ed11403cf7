"""The file of the journal: implements `acphold.journal.in_file`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

from acphold.journal.sqlite import checks, deletion, free_pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from acphold.journal.in_file import Repaired, Sizes
    from acphold.journal.sqlite.background import Background
    from acphold.journal.sqlite.connection import Connection
    from acphold.journal.sqlite.file import JournalFile


SHORTENED_SECONDS: Final = 2.0
"""Time spent trying to shorten the file while others read and write for milliseconds each. After
that, the next copy of the log does it."""


def _is_shortened(connection: Connection) -> bool:
    """Copy the log into the file; True once the file is no longer than its content."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return os.stat(connection.path).st_size <= free_pages.size(connection)


class SqliteFile:
    """Implements `InFile`. `opened` returns the file, opening it if needed."""

    def __init__(
        self, path: str, opened: Callable[[], JournalFile], background: Background
    ) -> None:
        self.path = path
        self._opened = opened
        self._background = background

    @property
    def was_open_to_others(self) -> bool:
        return self._opened().was_open_to_others

    async def log_cut_at(self) -> int | None:
        self._opened()
        return await self._background.run(checks.log_cut_at)

    async def went_back_at(self) -> int | None:
        self._opened()
        return await self._background.run(checks.went_back_at)

    async def damage(self) -> list[str]:
        return await self._background.run(checks.damage)

    async def spoiled(self) -> list[str]:
        return await self._background.run(checks.spoiled)

    async def unswept(self) -> int:
        return await self._background.run(deletion.unswept)

    async def sizes(self, largest: int) -> Sizes:
        return await self._background.run(lambda db: checks.sizes(db, largest))

    async def repair(self) -> Repaired:
        from acphold.journal.sqlite import repair  # late: for `acphold doctor` alone

        return await self._background.run(repair.repair)

    async def give_back(self) -> int:
        given: list[int] = []
        await self._background.in_pieces(deletion.sweep)
        await self._background.in_pieces(lambda db: free_pages.give_back(db, told=given.append))
        # The file can only get shorter while nobody writes, so try several times.
        deadline = time.monotonic() + SHORTENED_SECONDS
        while not await self._background.run(_is_shortened) and time.monotonic() < deadline:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(SHORTENED_SECONDS / 50)
        await self._background.shorten_log()
        return sum(given)

    async def copy_to(self, path: str) -> int:
        from acphold.journal.sqlite import online_copy  # late: for `acphold backup` alone

        return await self._background.run(lambda db: online_copy.copy_to(db, path))
