"""An agent under test in this process, over a connection in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_check.subject import RunningAgent
from acp_check.verdicts import Reach
from acp_wire.tasks import end
from acp_wire.transports.streams import MemoryTransport, memory_pair

Serve = Callable[[MemoryTransport], Coroutine[None, None, None]]
"""Serves a client until it leaves."""


class MemorySubject:
    """An agent in this process: each start is a call of `serve`."""

    reach = Reach.PROGRAM

    def __init__(self, name: str, serve: Serve) -> None:
        self.name = name
        self._serve = serve

    @classmethod
    def of(cls, agent: type[Exemplar], memory: Memory | None = None) -> MemorySubject:
        """An exemplary agent, or one with a fault; all its starts have one memory."""
        kept = Memory() if memory is None else memory

        async def serve(transport: MemoryTransport) -> None:
            await agent(transport, kept).serve()

        return cls("agent", serve)

    async def start(self) -> RunningAgent:
        ours, theirs = memory_pair()
        return _RunningTask(ours, asyncio.create_task(self._serve(theirs), name="agent"))


class _RunningTask(RunningAgent):
    def __init__(self, transport: MemoryTransport, task: asyncio.Task[None]) -> None:
        super().__init__(transport)
        self._task = task

    async def wait(self, seconds: float) -> str | None:
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            return None
        if self._task.cancelled():
            return "cancelled"
        error = self._task.exception()
        return "exit status 0" if error is None else f"an exception: {error!r}"

    async def aclose(self) -> None:
        await end(self._task)
        await super().aclose()
