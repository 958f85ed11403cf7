"""The pool of the daemon: what is kept for fronts, and given to the next equal one."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from functools import cache
from typing import ClassVar, TypeVar

from msgspec import Struct, field

from acp_wire.rpc import Transport
from acp_wire.rpc.wire_errors import incident
from acp_wire.tasks import TaskSet, first
from acphold.errors import AcpError
from acphold.live.hub.hub import Hub
from acphold.live.server.principals import Principal
from acphold.live.server.service import Addresses, Service
from acphold.machine.first_frame import FirstFrame
from acphold.machine.unix import Front

log = logging.getLogger(__name__)


class PreparedAgent(Struct, frozen=True):
    """The agent that a front asks for, and for how many seconds it stays when it is idle.

    That of a brief front ends with it, even in the middle of a turn, unless it has other clients.
    The front's log is `heard` by a handler. `start` is the mark of this start in the journal.
    """

    service: Service
    linger: float
    heard: logging.Handler | None = None
    start: str = ""


Prepare = Callable[[FirstFrame, int], AbstractAsyncContextManager[PreparedAgent]]
"""Reads a front's words, for as long as its desk is there; the descriptor is for its agent's
stderr. Raises AcpError."""


Attend = Callable[[Transport, Principal], Awaitable[None]]
"""Serves a client that joins what is live."""


class Pool(Struct, eq=False):
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
    _pooled: list[tuple[object, Pooled]] = []
    _tasks: TaskSet = field(default_factory=TaskSet)

    async def open(self, front: Front, kind: type[K], identity: object, make: Make[K]) -> K:
        """Return what a front of this kind and `identity` has left, or what `make` makes for this
        one; either is kept while it is needed. Raises AcpError."""
        for its, kept in self._pooled:
            if its == identity and isinstance(kept, kind) and kept.is_free:
                kept.welcome(front)
                return kept
        opened: asyncio.Future[K] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._keep(front, identity, make, opened), kind.what)
        return await opened

    async def _keep(
        self, front: Front, identity: object, make: Make[K], opened: asyncio.Future[K]
    ) -> None:
        """Make what a front waits for, and keep it; `opened` is cancelled if the front goes
        meanwhile."""
        try:
            with closing(FrontStderr()) as stderr:
                stderr.lead_to(front)
                async with make(stderr) as kept:
                    self._pooled.append((identity, kept))
                    try:
                        if opened.cancelled():
                            kept.take_leave()
                        else:
                            kept.welcome(front)
                            opened.set_result(kept)
                        await first(kept.wait_until_over(), self.ending.wait())
                    finally:
                        self._pooled.remove((identity, kept))
        except Exception as exc:  # the front must be told
            if opened.done():
                log.error("what was kept for a front failed", exc_info=exc)
            else:
                opened.set_exception(exc if isinstance(exc, AcpError) else incident(exc))

    @property
    def are_needed(self) -> bool:
        """True while anything that is kept is needed."""
        return any(kept.is_needed for _, kept in self._pooled)

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def wait_until_none(self) -> None:
        """Wait until all have ended."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def aclose(self) -> None:
        """End all desks with their turns, and those tasks that take too long."""
        self.ending.set()
        await self._tasks.finish()


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class FrontStderr:
    """A descriptor that leads to the stderr of a front, and nowhere while there is none."""

    def __init__(self) -> None:
        self.descriptor = os.dup(_nowhere())

    def lead_to(self, front: Front) -> None:
        """Lead to this front's from now on."""
        os.dup2(front.stderr, self.descriptor, inheritable=False)

    def lead_nowhere(self) -> None:
        """The front has gone; this takes no other descriptor, of which there may be none left."""
        os.dup2(_nowhere(), self.descriptor, inheritable=False)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


class Pooled(Struct, eq=False, kw_only=True):
    """Agents that are kept for a front, and then for an equal one, if they are free. `stderr` leads
    to the front's, for the agents' beside the log; `what` is their name in it."""

    what: ClassVar[str]
    stderr: FrontStderr
    left: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    @property
    def is_needed(self) -> bool:
        """True while it may not end."""
        raise NotImplementedError

    @property
    def is_free(self) -> bool:
        """True if another front may have it."""
        return self.left.is_set() and not self.is_over

    def welcome(self, front: Front) -> None:
        """Begin to serve a front, which is let go as soon as it leaves."""
        self.left.clear()
        self.stderr.lead_to(front)
        front.close()  # ours is the only one now

    def take_leave(self) -> None:
        """Note that the front has gone."""
        self.left.set()
        self.stderr.lead_nowhere()

    async def wait_until_over(self) -> None:
        """Wait until nobody needs it any more; from that step on it `is_over`."""
        raise NotImplementedError


K = TypeVar("K", bound=Pooled)

Make = Callable[[FrontStderr], AbstractAsyncContextManager[K]]
"""Makes something for a front with this stderr, and ends it after the block. Raises AcpError."""
