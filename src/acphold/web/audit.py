"""What those who come by `acphold serve` do, on its way to the journal: see `journal.access.Deed`.

Nobody waits for it: a turn is not to begin later because somebody writes down who began it. While
the journal cannot be written it is kept here, so much of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from acphold.errors import JournalError
from acphold.history.times import now_ms
from acphold.journal.access import Access, Deed

log = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Deeds that wait for the journal; beyond them the oldest go."""

AGAIN_SECONDS: Final = 1.0
"""When a journal that could not be written is tried again."""

LONGEST: Final = 100
"""Characters of a method's name: that of an extension is the client's own."""


class Audit:
    """See the module."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: deque[Deed] = deque(maxlen=WAITING)
        self._changed = asyncio.Event()

    def note(
        self,
        deed: str,
        session_id: str | None,
        *,
        name: str,
        token: str,
        address: str,
        transport: str,
    ) -> None:
        """Somebody does this, now."""
        self._waiting.append(
            Deed(
                at=now_ms(),
                deed=deed[:LONGEST],
                name=name,
                token=token,
                session_id=session_id and session_id[:LONGEST],
                address=address,
                transport=transport,
            )
        )
        self._changed.set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write down for the block what is noted, and at its end what is left."""
        keeping = asyncio.create_task(self._keep(), name="audit")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self._write()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not await self._write():
                await asyncio.sleep(AGAIN_SECONDS)
                self._changed.set()

    async def _write(self) -> bool:
        """Whether all is written."""
        batch = [*self._waiting]
        if batch:
            try:
                await self._access.keep_deeds(batch)
            except JournalError as exc:
                log.error("what was done is not in the journal yet: %s", exc)
                return False
            for deed in batch:
                if self._waiting and self._waiting[0] is deed:
                    self._waiting.popleft()
        return True
