"""The fronts of the daemon: what one asks for, its stderr, and what keeps the desks of all."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import cache

from msgspec import Struct

from acp_wire.tasks import END_SECONDS, TaskSet
from acp_wire.transports.first_frame import FirstFrame
from acp_wire.transports.unix import Front
from acphold.live.server.service import Service


class Fronted(Struct, frozen=True):
    """The agent that a front asks for, and for how many seconds it stays when it is idle.

    That of a brief front ends with it, even in the middle of a turn, unless it has other clients.
    The front's log is `heard` by a handler. `start` is the mark of this start in the journal.
    """

    service: Service
    linger: float
    heard: logging.Handler | None = None
    start: str = ""


Prepare = Callable[[FirstFrame, int], AbstractAsyncContextManager[Fronted]]
"""Reads a front's words, for as long as its desk is there; the descriptor is for its agent's
stderr. Raises AcpError."""


class KeptDesks:
    """The tasks that keep desks open for fronts."""

    def __init__(self) -> None:
        self._tasks = TaskSet()
        self._closed = asyncio.Event()

    def start(self, work: Coroutine[None, None, None], name: str) -> None:
        """Start such a task."""
        # Called behind the callback of the set, which then does not have the task any more.
        self._tasks.start(work, name).add_done_callback(lambda _: self._closed.set())

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def wait_until_none(self) -> None:
        """Wait until all have ended."""
        while self._tasks:
            self._closed.clear()
            await self._closed.wait()

    async def aclose(self) -> None:
        """Wait for their end, and end those that take too long."""
        await self._tasks.aclose(END_SECONDS)


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class FrontStderr:
    """A descriptor that leads to the stderr of a front, and nowhere while there is none."""

    def __init__(self) -> None:
        self.descriptor = os.dup(_nowhere())

    def lead_to(self, front: Front) -> None:
        """Lead to this front's from now on; the front is let go as soon as it leaves."""
        os.dup2(front.stderr, self.descriptor, inheritable=False)
        front.close()  # ours is the only one now

    def lead_nowhere(self) -> None:
        """The front has gone; this takes no other descriptor, of which there may be none left."""
        os.dup2(_nowhere(), self.descriptor, inheritable=False)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)
