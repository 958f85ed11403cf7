"""The agents of one server in front of a network, by their names: each has a desk in the daemon's
hub, opened by its first client.

The server may go while turns run: its agents end once nobody needs them, and one that comes back
with the same words finds them again.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from acp_conversation.history.prompt_queue import REOPENED
from acp_wire.rpc import Peer, Transport
from acp_wire.schema import RESUME_SESSION, encode
from acp_wire.tasks import END_SECONDS, TaskSet, beside, finish, first_of, tick
from acp_wire.transports.streams import memory_pair
from acphold.errors import AcpError, UnknownSessionError
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import row_of
from acphold.journal.owners import Here, is_free, other_owner, seems_silent
from acphold.journal.rows import ListFilter, ListKey, SessionRow
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.hub.session_list import only_of_all, page_of_all
from acphold.live.reading.neighbours import ask_over
from acphold.live.server import bounds
from acphold.live.server.checked_params import list_request
from acphold.live.server.connection import ClientConnection
from acphold.live.server.fronts import Fronted, Kept
from acphold.live.server.principals import THIS_USER, Principal
from acphold.live.server.service import Service, attend, connect_client, new_desk, refuse
from acphold.live.server.unstable import archive_filter
from acphold.logs import heard_by

log = logging.getLogger(__name__)


class FoundSession(Struct, frozen=True):
    """A session as a server knows it: its agent, None if that is not served here; the one with
    which it then is `held`, unless the session is live or the client may not continue it; and if
    the client may prompt in it."""

    agent: str | None = None
    held: str | None = None
    may_prompt: bool = True


class ServedAgents(Kept, eq=False):
    """See the module.

    `agents` are what the server's words mean, the default one first. `called` returns a person's
    name for the key of an agent. `folder` is that of the first new session, None if it is not
    known. An agent ends after its seconds of idleness, sooner while the server is away.
    """

    what: ClassVar = "the agents of a server"
    _hub: Hub
    agents: Mapping[str, Fronted]
    _called: Callable[[str], str]
    folder: str | None
    _coming: Counter[str] = field(default_factory=Counter)
    _desks: dict[str, Desk] = field(default_factory=dict)
    _tasks: TaskSet = field(default_factory=TaskSet)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def default(self) -> str:
        """The agent of a client that names none."""
        return next(iter(self.agents))

    @property
    def is_needed(self) -> bool:
        """True while any of them runs, or may have to."""
        return bool(self._desks)

    async def wait_until_over(self) -> None:
        """Wait until the server has gone, and all agents have ended."""
        while self._tasks or not self.left.is_set():
            await self.left.wait()
            if self._tasks:
                await asyncio.wait(tuple(self._tasks))
        self.is_over = True  # in the same step: no server may come to them any more

    async def aclose(self) -> None:
        """End all agents with their turns."""
        self._ending.set()
        await self._tasks.aclose(END_SECONDS)

    # -- clients --------------------------------------------------------------------------

    async def attend(
        self, name: str, transport: Transport, principal: Principal, limit: int
    ) -> None:
        """Serve one client of this agent until it leaves; its leaving ends nothing else."""
        await self._attend(self.agents[name].service, name, transport, principal, limit)

    async def _attend(
        self, service: Service, name: str, transport: Transport, principal: Principal, limit: int
    ) -> None:
        try:
            async with self._at_desk(name) as desk:
                await attend(desk, service, transport, principal=principal, limit=limit)
        except AcpError as exc:
            log.error("%s: %s", name, exc)
            await refuse(transport, exc, self._ending)

    @asynccontextmanager
    async def counter(
        self, name: str, peer: Peer, principal: Principal
    ) -> AsyncIterator[ClientConnection]:
        """Let a client of all agents come to the desk of this one, which stays open for the block.
        Raises AcpError."""
        async with self._at_desk(name) as desk:
            await desk.hub.opening.enter()
            connection = connect_client(desk, self._for_all(name), peer, principal=principal)
            try:
                yield connection
            finally:
                await finish(connection.aclose)

    def _for_all(self, name: str) -> Service:
        """Return an agent as a client of all agents gets it: such a client knows acphold, and so
        also our extensions of ACP."""
        service = self.agents[name].service
        return replace(service, options=replace(service.options, unstable=True), stays=True)

    @asynccontextmanager
    async def _at_desk(self, name: str) -> AsyncIterator[Desk]:
        """Keep the desk of this agent open for a client; raises AcpError if it cannot be opened."""
        self._coming[name] += 1
        try:
            with heard_by(self.agents[name].heard):
                desk = self._desks.get(name)
                if desk is None or desk.closed.is_set():  # whoever needs it first has it opened
                    desk = self._desks[name] = new_desk(self._hub, self.agents[name].service)
                    self._tasks.start(self._keep_desk(name, desk), f"keep {name}")
                yield desk
        finally:
            self._coming[name] -= 1

    async def _keep_desk(self, name: str, desk: Desk) -> None:
        """Keep a desk open while it is needed."""
        try:
            idle = self._wait_until_idle(name, desk)
            await first_of(idle, self._ending.wait(), desk.closed.wait())
        finally:
            await desk.aclose()
            if self._desks.get(name) is desk:
                del self._desks[name]

    async def _wait_until_idle(self, name: str, desk: Desk) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            linger = self.agents[name].linger
            if self.left.is_set():
                linger = min(linger, bounds.SERVER_AWAY_SECONDS)
            if loop.time() >= since + linger:
                break
            await tick(min(bounds.IDLE_CHECK_SECONDS, linger / 3))
            if self._coming[name] or desk.has_clients or desk.is_busy:
                since = loop.time()
        if self._desks.get(name) is desk:  # in the same step: no client may come to it any more
            del self._desks[name]
        log.info("%s ended: it was idle for %g seconds", name, linger)

    # -- all agents on one connection: server.all_agents ----------------------------------

    async def agent_of(self, session_id: str) -> str | None:
        """Return the agent of this session; None if it is unknown or not served here."""
        if (row := await row_of(self._hub.journal, session_id)) is None:
            return None
        name = self._name_of(row)
        return name if name in self.agents else None

    async def find(self, session_id: str, principal: Principal, method: str) -> FoundSession:
        """Return what is known here of a session, for this client and its request; raises
        UnknownSessionError also if the client may not know of it."""
        if (row := await row_of(self._hub.journal, session_id)) is None:
            return FoundSession()  # the agent's own
        scopes = principal.scopes_in(row)
        if principal.is_known and not scopes:
            principal.refused(method, session_id)
            raise UnknownSessionError(session_id)
        may = "prompt" in scopes
        if (name := self._name_of(row)) in self.agents:
            return FoundSession(name, may_prompt=may)
        live = self._hub.live.get(session_id)
        # A live one keeps its own agent; one that is only read may be at the desk of another.
        keeps = live is not None and (not live.is_asleep or live.side.agent.key == row.agent)
        keeps = keeps or other_owner(await self._hub.journal.owner(session_id)) is not None
        return FoundSession(held=row.agent if may and not keeps else None, may_prompt=may)

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """Return the result of `session/list` over all agents, running or not."""
        asked = list_request(params)
        if principal.session_id is not None:
            return await only_of_all(
                self._hub.journal, principal.session_id, self._name_of, principal.tenant
            )
        archived = archive_filter(params) or "exclude"
        filter = self._hub.list_filter(asked.cwd, archived, principal.tenant)
        return await page_of_all(self._hub.journal, filter, asked.cursor, self._name_of)

    def _name_of(self, row: SessionRow) -> str:
        """Return the name under which a session's agent is served: that of its last start, if this
        is known; otherwise that of its key, which stays if it is not served."""
        started = (name for name, it in self.agents.items() if it.start and it.start == row.start)
        called = next(started, "") or self._called(row.agent)
        if called in self.agents:
            return called
        # A running agent has reported the key its sessions are kept under.
        for name, desk in self._desks.items():
            if desk.agent.key == row.agent:
                return name
        return row.agent

    # -- after a restart ------------------------------------------------------------------

    async def resume_queues(self) -> None:
        """Open the sessions whose queues continue after a restart, if their process has ended; a
        few at once.

        A session that cannot be opened is logged, and delays no other. Sessions of a process that
        may still live are checked again until that is clear.
        """
        done: set[str] = set()
        slots = asyncio.Semaphore(bounds.QUEUES_OPENED_AT_ONCE)
        async with asyncio.TaskGroup() as opening:
            for _ in range(bounds.OWNER_LOOKS):
                try:
                    rows = [row async for row in self._with_queues() if row.session_id not in done]
                    for row in rows:
                        id_, name = row.session_id, self._name_of(row)
                        if name not in self.agents:
                            log.error(
                                "session %s: its prompts stay queued: this server does not run %s",
                                *(id_, row.agent),
                            )
                        elif not isinstance(owner := await self._hub.journal.owner(id_), Here):
                            is_asleep = self._hub.is_asleep(id_)
                            if not (is_free(owner) or seems_silent(owner) or is_asleep):
                                continue
                            opening.create_task(
                                self._resume_queue(row, name, slots), name=f"open {id_}"
                            )
                        done.add(id_)
                except AcpError as exc:
                    log.error("cannot read which sessions have prompts to continue with: %s", exc)
                await tick(journal_bounds.RENEW_SECONDS)

    async def _resume_queue(self, row: SessionRow, name: str, slots: asyncio.Semaphore) -> None:
        """Open a session as a client that only watches; this process then runs its queue."""
        near, far = memory_pair()
        params = encode({"sessionId": row.session_id, "cwd": row.cwd, "mcpServers": []})
        request = (near, RESUME_SESSION.name, params, bounds.QUEUE_OPEN_SECONDS)
        try:
            service = self._for_all(name)
            limit = service.options.max_message
            attending = self._attend(service, name, far, THIS_USER, limit)
            async with slots, beside(attending, "open for its queue"):
                await ask_over(*request, watches=True)
            log.info("session %s is open again: its queue continues", row.session_id)
        except AcpError as exc:
            log.error("session %s: its prompts stay queued: %s", row.session_id, exc)

    async def _with_queues(self) -> AsyncIterator[SessionRow]:
        """Yield the sessions whose queues continue after a restart."""
        wanted = ListFilter(queued=True, include_unprompted=True, archived="include")
        key: ListKey | None = None
        while page := await self._hub.journal.page(wanted, key):
            for row in page:
                try:
                    queue = (await self._hub.journal.summary(row.session_id)).queue
                except UnknownSessionError:  # deleted meanwhile
                    continue
                except AcpError as exc:
                    log.error("session %s: its queue cannot be read: %s", row.session_id, exc)
                    continue
                held = "" if queue.held == REOPENED else queue.held
                if queue.restarts and (not held or queue.until is not None):
                    yield row
            key = page[-1].key
