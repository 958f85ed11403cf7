"""Updates on their way from an author's code to the journal and the clients.

Each is committed before anybody sees it; those that are said in a row are committed together. An
author who says a thousand small things pays for a few commits, and nobody waits for more than the
end of the step of the event loop that said them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.agents.interface import Listener

BATCH_BYTES = 32 * 1024
"""Bytes that are held back at most, for the next ones to be committed with them."""

BREATH = 256
"""Updates after which the event loop gets a turn, so that a talkative author starves nobody."""


class Outbox:
    """The updates of one session; `kind` is always "update" but for what only the journal keeps."""

    def __init__(self, session_id: str, listener: Listener) -> None:
        self._session_id = session_id
        self._listener = listener
        self._held: list[bytes] = []
        self._bytes = 0
        self._since_breath = 0
        self._flushing: asyncio.Task[None] | None = None
        self._failure: HoldfastError | None = None

    async def put(self, raw: bytes) -> None:
        """Say `raw`, an update object; raises what an earlier commit failed with."""
        self._held.append(raw)
        self._bytes += len(raw)
        self._since_breath += 1
        if self._bytes >= BATCH_BYTES:
            await self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_soon(), name="flush updates")
        if self._since_breath >= BREATH:
            self._since_breath = 0
            await asyncio.sleep(0)
        self._raise()

    async def keep(self, kind: str, raw: bytes) -> None:
        """Journal something that no client is shown."""
        await self.flush()
        await self._listener.on_updates(self._session_id, kind, [raw])

    async def flush(self) -> None:
        """Commit and deliver all that is held; raises what it failed with."""
        held, self._held, self._bytes = self._held, [], 0
        if held:
            await self._listener.on_updates(self._session_id, "update", held)
        self._raise()

    async def _flush_soon(self) -> None:
        self._flushing = None
        try:
            await self.flush()
        except HoldfastError as exc:
            self._failure = exc

    def _raise(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
