"""The sessions that a client is having opened, and what came for them right behind.

A client need not wait for the answer to `session/load` before it prompts: what it sends for the
session waits here until that is open, or could not be. Several requests for one session may be on
their way at once. So it is, too, while a session is opened again because its owner has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from acphold.rpc.request import Request


class Opening:
    """One on its way; `before` is the one before it that has not ended."""

    def __init__(self, before: Opening | None) -> None:
        self._before = before
        self.done = asyncio.Event()
        self._waiting: set[Request] = set()
        self._cancelled: set[Request] = set()

    async def ends(self) -> None:
        """Wait until neither this one is on its way, nor any before it."""
        if self._before is not None:
            await self._before.ends()
        await self.done.wait()

    async def over(self, prompt: Request | None) -> bool:
        """Wait until this one is over; whether the prompt was cancelled meanwhile."""
        if prompt is not None:
            self._waiting.add(prompt)
        await self.done.wait()
        return prompt in self._cancelled

    def cancel(self) -> None:
        """`session/cancel` came: for the prompts before it."""
        self._cancelled |= self._waiting
        if self._before is not None:
            self._before.cancel()


class Openings:
    """Those of one client, by the id of the session: of each, the last."""

    def __init__(self) -> None:
        self._last: dict[str, Opening] = {}

    @contextmanager
    def one(self, session_id: str) -> Iterator[Opening | None]:
        """The session is being opened during the block, which gets the opening before it."""
        before = self._last.get(session_id)
        opening = self._last[session_id] = Opening(before)
        try:
            yield before
        finally:
            opening.done.set()
            if self._last.get(session_id) is opening:
                del self._last[session_id]

    def has(self, session_id: str) -> bool:
        """Whether the session is being opened."""
        return session_id in self._last

    async def over(self, session_id: str, prompt: Request | None = None) -> bool:
        """Wait until the session is open, or could not be; whether the prompt was cancelled."""
        is_cancelled = False
        while (opening := self._last.get(session_id)) is not None:
            is_cancelled = await opening.over(prompt) or is_cancelled
        return is_cancelled

    def cancel(self, session_id: str) -> None:
        """`session/cancel` came for the session."""
        if (opening := self._last.get(session_id)) is not None:
            opening.cancel()
