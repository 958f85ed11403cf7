"""The sessions that one client is opening, and its prompts that wait until they are open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from acp_wire.rpc.requests import Request


class Opening:
    """One opening of a session, in progress; `before` is an earlier one that has not ended."""

    def __init__(self, before: Opening | None) -> None:
        self._before = before
        self.done = asyncio.Event()
        self._waiting: set[Request] = set()
        self._cancelled: set[Request] = set()

    async def wait_with_earlier(self) -> None:
        """Wait until this one and all earlier ones have ended."""
        if self._before is not None:
            await self._before.wait_with_earlier()
        await self.done.wait()

    async def wait(self, prompt: Request | None) -> bool:
        """Wait until this one has ended; return True if the prompt was cancelled meanwhile."""
        if prompt is not None:
            self._waiting.add(prompt)
        await self.done.wait()
        return prompt in self._cancelled

    def cancel(self) -> None:
        """Cancel the waiting prompts: `session/cancel` has arrived."""
        self._cancelled |= self._waiting
        if self._before is not None:
            self._before.cancel()


class Openings:
    """The sessions that a client is opening, and its prompts that wait for them.

    A client can prompt before it has the answer to `session/load`: its messages for the session
    wait until the session is open, or failed to open. Several requests may be opening one session
    at once.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Opening] = {}

    @contextmanager
    def track(self, session_id: str) -> Iterator[Opening | None]:
        """Note that the block opens a session; yields an earlier opening that has not ended."""
        before = self._latest.get(session_id)
        opening = self._latest[session_id] = Opening(before)
        try:
            yield before
        finally:
            opening.done.set()
            if self._latest.get(session_id) is opening:
                del self._latest[session_id]

    @property
    def are_under_way(self) -> bool:
        """True while any session is being opened."""
        return bool(self._latest)

    def has(self, session_id: str) -> bool:
        """Return True if the session is being opened."""
        return session_id in self._latest

    async def wait(self, session_id: str, prompt: Request | None = None) -> bool:
        """Wait until the session is open, or failed to open; return True if the prompt was
        cancelled."""
        is_cancelled = False
        while (opening := self._latest.get(session_id)) is not None:
            is_cancelled = await opening.wait(prompt) or is_cancelled
        return is_cancelled

    def cancel(self, session_id: str) -> None:
        """Cancel the prompts that wait for the session: `session/cancel` has arrived."""
        if (opening := self._latest.get(session_id)) is not None:
            opening.cancel()
