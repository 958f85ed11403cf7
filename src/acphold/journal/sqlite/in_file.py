"""The journal's file as such: what `acphold.journal.in_file` asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold.journal.sqlite import deletion, free_pages, upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from acphold.journal.in_file import Repaired, Sizes
    from acphold.journal.sqlite.background import Background
    from acphold.journal.sqlite.file import JournalFile


class SqliteFile:
    """See `InFile`. `opened` gives the file, opened if need be."""

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
        return await self._background.run(upkeep.log_cut_at)

    async def damage(self) -> list[str]:
        return await self._background.run(upkeep.damage)

    async def spoiled(self) -> list[str]:
        return await self._background.run(upkeep.spoiled_summaries)

    async def unswept(self) -> int:
        return await self._background.run(deletion.unswept)

    async def sizes(self, largest: int) -> Sizes:
        from acphold.journal.sqlite import sizes  # late: for `acphold doctor` alone

        return await self._background.run(lambda db: sizes.sizes(db, largest))

    async def repair(self) -> Repaired:
        from acphold.journal.sqlite import repair  # late: for `acphold doctor` alone

        return await self._background.run(repair.repair)

    async def give_back(self) -> bool:
        await self._background.in_pieces(deletion.sweep)
        await self._background.in_pieces(free_pages.give_back)
        await self._background.run(lambda db: db.execute("PRAGMA wal_checkpoint(PASSIVE)"))
        await self._background.shorten_log()
        return await self._background.run(free_pages.can_give_back)

    async def copy_to(self, path: str) -> int:
        from acphold.journal.sqlite import online_copy  # late: for `acphold backup` alone

        return await self._background.run(lambda db: online_copy.copy_to(db, path))
