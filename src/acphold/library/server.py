"""One hub and one journal for any number of clients: an agent as part of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType

from acphold.hub import Hub
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.server.service import Service, attend, open_hub, served_journal

CLIENT = Principal(name="a client")
"""Who has come, where nobody says who that is."""


class Server:
    """An agent that is served to many clients; made by `Agent.server`, an async context manager.

        async with agent.server(journal="sessions.db") as server:
            await server.attend(transport)

    At the end of the block all turns have ended, and all clients have been told and let go.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stack = AsyncExitStack()
        self._hub: Hub | None = None
        self._attending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        journal = served_journal(self._service.journal)
        self._hub = await self._stack.enter_async_context(open_hub(self._service, journal))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hub, self._hub = self._hub, None
        if hub is not None:
            await hub.end_turns()  # for as long as those who have sessions open are here
        for task in self._attending:
            task.cancel()
        if self._attending:
            await asyncio.wait(self._attending)
        await self._stack.aclose()

    async def attend(
        self,
        transport: Transport,
        *,
        principal: Principal = CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Serve one client more, until it leaves; its leaving ends nobody else's turns.

        `principal` says who that is, as far as it is known; with a `tenant` the client need not
        sign in. `headers` are for the coroutines of `Agent.auth`. The transport is closed.
        """
        if self._hub is None:
            await transport.aclose()
            raise RuntimeError("the server is not open: use it as `async with agent.server()`")
        work = attend(self._hub, self._service, transport, principal=principal, headers=headers)
        task = asyncio.create_task(work, name="attend")
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()
