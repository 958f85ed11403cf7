"""The admission of one client: it is let in, may use its sessions, and leaves them.

Messages of a client that is not known yet to have access wait for that, in wire order. A client
leaves all its sessions when it signs out, or in as somebody else, and when less is shared with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from acp_wire import schema
from acp_wire.rpc.requests import Request
from acp_wire.tasks import end, tick
from acphold.live.server import bounds
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Entrance, OwnSessions

T = TypeVar("T")

log = logging.getLogger(__name__)


class Admission:
    """See the module. `enter` is called when the client is let in, `leave` leaves its sessions;
    `lost_access` is set once less is shared with it than before."""

    def __init__(
        self,
        entrance: Entrance,
        own: OwnSessions,
        *,
        enter: Callable[[], None],
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        self.lost_access = asyncio.Event()
        self._entrance = entrance
        self._own = own
        self._enter = enter
        self._leave = leave
        self._in_order = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def has_access(self, session_id: str | None) -> bool:
        """Return True if the client was let in already, and is known to have access to this
        session, if any."""
        is_in = self._entrance.is_in and not self._in_order.locked()
        return is_in and self._own.is_known(session_id)

    async def admit(self, asked: Asked, then: Callable[[], T]) -> T:
        """Let the client in, check its access to the session of this message, and call `then`.

        Raises AuthRequiredError, UnknownSessionError and ForbiddenError.
        """
        async with self._in_order:
            if not self._entrance.is_in:
                former = self._entrance.tenant
                await self._entrance.require()
                await self._enter_after(former)
            await self._own.require(asked)
            if self._own.are_shared and self._watching is None:
                self._watching = asyncio.create_task(self._watch_shares(), name="watch shares")
            return then()

    async def answer(self, request: Request) -> bytes:
        """Answer `authenticate` and `logout` where clients sign in to acphold itself."""
        if request.method == schema.LOGOUT.name:
            await self._entrance.sign_out()
            async with self._in_order:
                await self._leave()
            return b"{}"
        former = self._entrance.tenant
        await self._entrance.sign_in(request.params)
        async with self._in_order:
            await self._enter_after(former)
        return b"{}"

    async def _enter_after(self, former: str | None) -> None:
        """Enter, and first leave all sessions if the client was let in as another tenant before."""
        if former not in (None, self._entrance.tenant):
            await self._leave()
        self._enter()

    async def _watch_shares(self) -> None:
        """Leave all sessions once less is shared with the client than when it was let in."""
        while self._own.are_shared:
            await tick(bounds.SHARES_SECONDS)
            try:
                if await self._own.has_less():
                    async with self._in_order:
                        await self._leave()
                    self.lost_access.set()
            except Exception as exc:  # such as a journal that cannot be read right now
                name = self._entrance.principal.name
                log.warning("cannot see what is shared with %s: %r", name, exc)
        self._watching = None

    async def aclose(self) -> None:
        """Watch no more: the client has gone."""
        await end(self._watching)
