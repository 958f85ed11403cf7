"""One hub and one journal for any number of clients: an agent as part of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from acphold.hub import Hub
from acphold.journal import Journal
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.server.service import Service, attend, open_hub, served_journal

if TYPE_CHECKING:
    from acphold.web.mounted import Admit, Mounted

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
        self._journal: Journal | None = None
        self._attending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        journal = served_journal(self._service.journal)
        self._hub = await self._stack.enter_async_context(open_hub(self._service, journal))
        self._journal = journal
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hub, self._hub, self._journal = self._hub, None, None
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

    def asgi(self, admit: Admit | None = None, *, origins: Sequence[str] = ()) -> Mounted:
        """An ASGI application that serves this agent at `/acp`, over WebSocket and Streamable HTTP.

        Mount it in Starlette or FastAPI, under any prefix; it answers while the server is open, or
        opens it itself where it is all that an ASGI server runs. Nobody is let in without a token
        of the journal (`acphold token create`); or `admit` says who sent a request, by its ASGI
        scope: an `acphold.Principal`, or None for nobody. Its `tenant` is whose sessions there are
        for them, "" where all share theirs; without one nobody is let in, unless `Agent.auth` asks
        them to sign in, or they come for one `session_id`. Pages of the same host may ask, and
        those of `origins` (`https://host:port`).

        Experimental: the remote transport is a draft of the protocol.
        """
        from acphold.web.mounted import Mounted  # late: an editor's agent needs no HTTP

        return Mounted(_Behind(self), admit, origins)


class _Behind:
    """The server as what is mounted sees it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def tokens(self) -> Journal | None:
        return self._server._journal

    @property
    def max_message(self) -> int:
        return self._server._service.options.max_message

    @property
    def asks_to_sign_in(self) -> bool:
        return self._server._service.door is not None

    async def keep(self, what: AbstractAsyncContextManager[None]) -> None:
        await self._server._stack.enter_async_context(what)

    async def attend(
        self, transport: Transport, *, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        await self._server.attend(transport, principal=principal, headers=headers)

    async def __aenter__(self) -> Server:
        return await self._server.__aenter__()

    async def __aexit__(self, kind: None, error: None, trace: None) -> None:
        await self._server.__aexit__(kind, error, trace)
