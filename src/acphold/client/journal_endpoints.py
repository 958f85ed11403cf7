"""Endpoints that need a journal: an agent with durable sessions, an owner.

They are in a module of their own because they import SQLite and all of the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from acp_wire.rpc import Transport
from acp_wire.tasks import end
from acp_wire.transports.streams import memory_pair
from acphold.client import bounds
from acphold.client.uplink import Endpoint
from acphold.errors import AcpError, ConnectionLostError
from acphold.journal.stores import journal_name, open_journal
from acphold.live.agents.identity import display_name
from acphold.live.agents.wrapped import START_TIMEOUT, ProcessAgent, ProcessOptions
from acphold.live.reading.one_question import dial_owner
from acphold.live.server.service import Service, journal_at, serve
from acphold.serve_options import ServeOptions

if TYPE_CHECKING:
    from acphold.client.endpoints import ProgramStart
    from acphold.journal.journal import Journal
    from acphold.live.agents.interface import AgentListener, HubAgent

log = logging.getLogger(__name__)


class DurableEndpoint(Endpoint):
    """A program behind a hub of ours: like `acphold wrap`, without a process in between.

    `name` is that under which its sessions are kept.
    """

    is_acphold = True
    is_repeatable = False  # the hub restarts the agent itself

    def __init__(
        self,
        program: ProgramStart,
        options: ServeOptions,
        *,
        name: str | None = None,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self.name = display_name(program.command, program.surroundings.folder)
        self.cwd = program.cwd
        self._program = program
        self._service = Service(make_agent=self._agent, options=options)
        self._kept_under = name
        self._start_timeout = start_timeout
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> Transport:
        await journal_at(self._service.journal).aclose()  # raises if it cannot be opened
        here, there = memory_pair()
        serving = serve(there, self._service, stop=self._stop)
        self._serving = asyncio.create_task(serving, name="serve")
        return here

    def _agent(self, listener: AgentListener, journal: Journal) -> HubAgent:
        program = self._program
        return ProcessAgent(
            program.command,
            listener,
            program.surroundings,
            ProcessOptions(
                name=self._kept_under,
                cwd=program.cwd,
                start_timeout=self._start_timeout,
                limit=self._service.options.max_message,
                stderr_log=program.log_file,
                relay_to=program.relay_to,
            ),
            journal=journal,
        )

    async def how_it_ended(self) -> AcpError:
        why = f": {error}" if (error := self._failure()) else ""
        return ConnectionLostError(f"acphold in front of {self.name} has ended{why}")

    def _failure(self) -> BaseException | None:
        serving = self._serving
        if serving is None or not serving.done() or serving.cancelled():
            return None
        return serving.exception()

    async def aclose(self) -> None:
        self._stop.set()
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=bounds.SERVING_END_SECONDS)
            await end(self._serving)
            if error := self._failure():
                log.error("acphold in front of %s has failed", self.name, exc_info=error)


class OwnerEndpoint(Endpoint):
    """The process in which session `session_id` of a journal is live."""

    is_acphold = True
    is_repeatable = True  # another process may own it then

    def __init__(self, session_id: str, journal: str | os.PathLike[str] | None = None) -> None:
        self.name = "the process that owns the session"
        self._session_id = session_id
        self._journal = journal_name(journal)
        self._transport: Transport | None = None

    async def open(self) -> Transport:
        journal = open_journal(self._journal, create=False)
        try:
            self.cwd = (await journal.session(self._session_id)).cwd
            found = await dial_owner(journal, self._session_id)
        finally:
            await journal.aclose()
        if found is None:
            raise ConnectionLostError(
                f"session {self._session_id!r} is not live in any process; connect with the "
                "command of its agent, and load the session"
            )
        _, self._transport, self.place = found
        return self._transport

    async def how_it_ended(self) -> AcpError:
        return ConnectionLostError(f"{self.name} {self._session_id!r} has ended")

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
