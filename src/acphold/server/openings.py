"""The sessions that a client is opening, and the messages for them that came right behind.

A client need not wait for the answer to `session/load` before it prompts: its messages for the
session wait here until that is open, or failed to open. Several requests for one session may be
under way at once. The same goes for a session that is opened again because its owner has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from acphold.rpc.request import Request


class Opening:
    """One opening under way; `before` is the one before it that has not ended."""

    def __init__(self, before: Opening | None) -> None:
        self._before = before
        self.done = asyncio.Event()
        self._waiting: set[Request] = set()
        self._cancelled: set[Request] = set()

    async def ends(self) -> None:
        """Wait until neither this one nor any before it is under way."""
        if self._before is not None:
            await self._before.ends()
        await self.done.wait()

    async def over(self, prompt: Request | None) -> bool:
        """Wait until this one is over; return True if the prompt was cancelled meanwhile."""
        if prompt is not None:
            self._waiting.add(prompt)
        await self.done.wait()
        return prompt in self._cancelled

    def cancel(self) -> None:
        """Cancel the prompts that wait: `session/cancel` came."""
        self._cancelled |= self._waiting
        if self._before is not None:
            self._before.cancel()


class Openings:
    """The openings of one client, by the id of the session; the last one of each."""

    def __init__(self) -> None:
        self._last: dict[str, Opening] = {}

    @contextmanager
    def one(self, session_id: str) -> Iterator[Opening | None]:
        """Open a session during the block; yields the opening before it."""
        before = self._last.get(session_id)
        opening = self._last[session_id] = Opening(before)
        try:
            yield before
        finally:
            opening.done.set()
            if self._last.get(session_id) is opening:
                del self._last[session_id]

    def has(self, session_id: str) -> bool:
        """Return True if the session is being opened."""
        return session_id in self._last

    async def over(self, session_id: str, prompt: Request | None = None) -> bool:
        """Wait until the session is open, or failed to open; return True if the prompt was
        cancelled."""
        is_cancelled = False
        while (opening := self._last.get(session_id)) is not None:
            is_cancelled = await opening.over(prompt) or is_cancelled
        return is_cancelled

    def cancel(self, session_id: str) -> None:
        """Cancel the prompts that wait for the session: `session/cancel` came."""
        if (opening := self._last.get(session_id)) is not None:
            opening.cancel()
