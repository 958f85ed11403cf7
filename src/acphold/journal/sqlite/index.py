"""Searching, adding up and tidying the file, mostly away from the loop's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from acphold.history.times import now_ms
from acphold.journal import frames
from acphold.journal.journal import Grouping, Index, SearchHit, Sought, UsageSums
from acphold.journal.sql import packed_rows
from acphold.journal.sqlite import deletion, free_pages, search_index
from acphold.journal.sqlite.background import Background
from acphold.journal.sqlite.connection import Connection, reading
from acphold.journal.sqlite.tables import SqliteTables

T = TypeVar("T")


class Look(Protocol):
    """Answers a quick question in the thread of the loop."""

    async def __call__(self, question: Callable[[Connection], T]) -> T: ...


class SqliteIndex(Index):
    """See the module."""

    def __init__(self, background: Background, look: Look) -> None:
        self._background = background
        self._look = look

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        from acphold.journal.sqlite import search  # late, for a quick start

        asked = Sought(sought) if isinstance(sought, str) else sought

        def found(db: Connection) -> list[SearchHit]:
            # In a read transaction: otherwise another process may drop a volume meanwhile.
            with reading(db):
                return search.search(db, asked)

        return await self._background.run(found)

    async def usage(
        self,
        by: Grouping,
        *,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
    ) -> UsageSums:
        from acphold.journal.sqlite import usage_sums  # late, for a quick start

        def found(db: Connection) -> UsageSums:
            with reading(db):
                return usage_sums.sums(db, by, agents, cwd, since)

        return await self._background.run(found)

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        if seconds > 0:
            await self._background.in_pieces(
                lambda db: search_index.index(db, since=since), seconds
            )
        return await self._look(lambda db: search_index.lagging(db, cwd))

    async def tidy(self, seconds: float) -> int:
        await self.sweep()
        deadline = time.monotonic() + seconds
        before = now_ms() - frames.OLD_MS

        def piece(db: Connection) -> bool:
            tables = SqliteTables(db)
            session = packed_rows.newest_unpacked(tables, before)
            return session is not None and packed_rows.pack_piece(tables, session)

        while await self._background.run(piece):
            self._background.has_grown(frames.PIECE_BYTES)
            if time.monotonic() >= deadline:
                break
        await self._background.shorten_log()
        return await self._look(lambda db: packed_rows.unpacked_sessions(SqliteTables(db), before))

    async def sweep(self) -> None:
        """Overwrite the remains of deleted sessions, and return some of their room."""
        await self._background.in_pieces(deletion.sweep)
        await self._background.in_pieces(free_pages.give_back_some)
