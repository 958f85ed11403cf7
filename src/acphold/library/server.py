"""One hub and one journal for any number of clients: an agent as part of a service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from acp_wire.rpc import Transport
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import TaskSet, beside, end, finish
from acphold.extras import require_loop
from acphold.journal.journal import Journal
from acphold.library import bounds
from acphold.library.definition import Definition, SignIn
from acphold.library.in_process import InProcessAgent
from acphold.live.server.directory import Directory
from acphold.live.server.principals import Principal
from acphold.live.server.service import ConnectedClient, Service, attend, journal_at, open_desk
from acphold.serve_options import AgentOptions

if TYPE_CHECKING:
    from acphold.web.application import Admit, Mounted

UNKNOWN = "the Principal %r can see no sessions: give it a tenant, a session_id or sees_all"


def service_of(definition: Definition, options: AgentOptions, *, share: bool = True) -> Service:
    """Return an agent of the library with the way to serve it; nothing more may be declared then.

    Without `share`, no other process of this user can join its sessions.
    """
    definition.is_used = True
    # Not a copy: an author may take keys out of the environment once they have been read.
    surroundings = Surroundings(os.environ, Surroundings.here().folder)
    return Service(
        make_agent=lambda listener, kept: InProcessAgent(
            definition,
            listener,
            kept,
            surroundings=surroundings,
            mcp_timeout=options.mcp_timeout,
        ),
        options=options,
        door=SignIn(definition) if definition.auth_methods else None,
        share=share,
    )


class Server:
    """An agent served to many clients; made by `Agent.server`.

        async with agent.server(journal="sessions.db") as server:
            await server.attend(transport)

    The end of the block ends all turns, and disconnects all clients with a reason. The last
    hundred sessions that no client has open stay open; earlier ones are closed.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stack = AsyncExitStack()
        self._directory: Directory | None = None
        self._journal: Journal | None = None
        self._attending = TaskSet()
        self._clients: set[ConnectedClient] = set()

    async def __aenter__(self) -> Server:
        require_loop()
        journal = journal_at(self._service.journal)
        directory = await self._stack.enter_async_context(open_desk(self._service, journal))
        closing = directory.hub.close_left(bounds.LEFT_SESSIONS, bounds.LEFT_LOOK_SECONDS)
        await self._stack.enter_async_context(beside(closing, "close sessions"))
        self._directory, self._journal = directory, journal
        return self

    async def __aexit__(self, *_: object) -> None:
        directory, self._directory, self._journal = self._directory, None, None
        await finish(partial(self._close, directory))

    async def _close(self, directory: Directory | None) -> None:
        if directory is not None:
            await directory.hub.end_turns()  # while the owners of open sessions are still here
        await self._attending.aclose()
        await self._stack.aclose()

    async def attend(
        self,
        transport: Transport,
        *,
        principal: Principal | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Serve one more client, until it leaves.

        `principal` says who the client is and which sessions it may use. One without `tenant`,
        `session_id` and `sees_all` has to sign in (`Agent.auth`), and is refused with ValueError if
        the agent has no sign-in. Clients without a principal sign in if the agent asks for it;
        otherwise they share the sessions of no tenant.

        `headers` are for the coroutines of `Agent.auth`. The transport is closed at the end.
        """
        if self._directory is None:
            await transport.aclose()
            raise RuntimeError("the server is not open: use it as `async with agent.server()`")
        wants_sign_in = self._service.door is not None
        if principal is None:
            principal = Principal(name="a client", tenant=None if wants_sign_in else "")
        elif not principal.is_known and not wants_sign_in:
            await transport.aclose()
            raise ValueError(UNKNOWN % principal.name)
        work = attend(
            self._directory,
            self._service,
            transport,
            principal=principal,
            headers=headers,
            clients=self._clients,
        )
        task = self._attending.start(work, "attend")
        try:
            await asyncio.wait([task])
        finally:
            await finish(partial(end, task))
        if not task.cancelled():
            task.result()

    def disconnect(
        self, who: Callable[[Principal], bool], *, reason: str = "your access has ended"
    ) -> int:
        """Disconnect clients by their principal; returns their number.

            server.disconnect(lambda who: who.name == "ann", reason="your account was closed")

        Their pending requests are refused, and their WebSockets closed, with the reason; their
        turns go on. They may connect again: let `admit`, or your code that calls `attend`, refuse
        them.
        """
        found = [client for client in self._clients if who(client.principal)]
        for client in found:
            client.disconnect(reason)
        return len(found)

    def asgi(self, admit: Admit | None = None, *, origins: Sequence[str] = ()) -> Mounted:
        """Return an ASGI application that serves this agent.

        Clients need a token of the journal (`acphold access token`), unless `admit` says who sent a
        request; it is called once for a WebSocket, and for each request over HTTP. Give its
        principal a `tenant`, "" if all share theirs; without one it is refused, unless `Agent.auth`
        asks to sign in. Requests from pages are accepted from the same host and from `origins`
        (`https://host:port`).

        Experimental: the remote transport is a draft of the protocol.
        """
        # late: an editor's agent needs no HTTP
        from acphold.web.application import Mounted, Served

        served = Served(
            self,
            self.attend,
            tokens=lambda: None if self._journal is None else self._journal.access,
            keep=self._stack.enter_async_context,
            max_message=self._service.options.max_message,
            asks_to_sign_in=self._service.door is not None,
        )
        return Mounted(served, admit, origins)
