"""The fronts of the daemon: what one asks for, its stderr, and what keeps the desks of all."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import TypeVar

from msgspec import Struct, field

from acp_wire.rpc import Transport
from acp_wire.rpc.wire_errors import incident
from acp_wire.tasks import END_SECONDS, TaskSet
from acp_wire.transports.first_frame import FirstFrame
from acp_wire.transports.unix import Front
from acphold.errors import AcpError
from acphold.live.hub.hub import Hub
from acphold.live.server.principals import Principal
from acphold.live.server.service import Addresses, Service

T = TypeVar("T")

log = logging.getLogger(__name__)


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


Attend = Callable[[Transport, Principal], Awaitable[None]]
"""Serves a client that joins what is live."""


class KeptDesks(Struct, eq=False):
    """The hub of a daemon, and the tasks that keep desks open in it for fronts, until `ending`.

    `called` returns a person's name for the key of an agent. The daemon is reached at `addresses`,
    and `join` serves other nodes.
    """

    hub: Hub
    prepare: Prepare
    called: Callable[[str], str]
    addresses: Addresses
    join: Attend
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: TaskSet = field(default_factory=TaskSet)

    async def open(self, what: str, keep: Callable[[asyncio.Future[T]], Awaitable[None]]) -> T:
        """Return what a front waits for, as soon as `keep` has it and sets it; `keep` runs as long
        as it is needed, and is told of a front that has gone by a future that is cancelled."""
        opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await keep(opened)
            except Exception as exc:  # the front must be told
                if opened.done():
                    log.error("%s failed", what, exc_info=exc)
                else:
                    opened.set_exception(exc if isinstance(exc, AcpError) else incident(exc))

        self._tasks.start(run(), what)
        return await opened

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def wait_until_none(self) -> None:
        """Wait until all have ended."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def aclose(self) -> None:
        """End all desks with their turns, and those tasks that take too long."""
        self.ending.set()
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
