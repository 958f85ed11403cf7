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
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import ClassVar

from msgspec import field

from acp_wire.rpc import Transport
from acp_wire.rpc.requests import Request
from acp_wire.schema import RESUME_SESSION, encode, members, splice
from acp_wire.schema.methods import REQUESTS
from acp_wire.tasks import TaskSet, beside, first, tick
from acp_wire.transports.streams import memory_pair
from acphold.conversation.history.prompt_queue import REOPENED
from acphold.conversation.history.raw_update import in_meta, with_meta
from acphold.errors import (
    AUTH_REQUIRED,
    AcpError,
    InvalidParamsError,
    OtherAgentError,
    RemoteError,
    StoppedError,
    UnknownSessionError,
)
from acphold.journal import bounds as journal_bounds
from acphold.journal.access import Scope
from acphold.journal.journal import other_owner, row_of
from acphold.journal.rows import ListFilter, ListKey, SessionRow
from acphold.known_agents import short_name
from acphold.live.agents import capabilities
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.hub.annotations import AGENT
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.hub.session_list import page_of_all
from acphold.live.reading.one_question import ask_over
from acphold.live.server import bounds
from acphold.live.server.checked_params import list_request
from acphold.live.server.directory import Directory, FoundSession
from acphold.live.server.open_params import OpenParams
from acphold.live.server.pool import Pooled, PreparedAgent
from acphold.live.server.principals import LOCAL_PROCESS, THIS_USER, Principal
from acphold.live.server.service import attend, new_desk
from acphold.live.server.unstable import archive_filter
from acphold.logs import heard_by
from acphold.machine.addresses import is_node

log = logging.getLogger(__name__)


class ServerAgents(Pooled, eq=False):
    """See the module.

    `agents` are what the server's words mean, the default one first. `called` returns a person's
    name for the key of an agent. `folder` is that of the first new session, None if it is not
    known, `home` that of the server's user. An agent ends after its seconds of idleness, sooner
    while the server is away.
    """

    what: ClassVar = "the agents of a server"
    hub: Hub
    agents: Mapping[str, PreparedAgent]
    _called: Callable[[str], str]
    folder: str | None
    home: str = ""
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
        await self._tasks.finish()

    # -- clients --------------------------------------------------------------------------

    async def attend(
        self, name: str, transport: Transport, principal: Principal, limit: int
    ) -> None:
        """Serve one client of this agent, or of all agents if it asks for that, until it leaves;
        its leaving ends nothing else.

        A client limited to one session gets that session's agent and hears of no other.
        """
        service = self.agents[name].service
        most = service.options.max_message
        attend_here = partial(self.attend, name, principal=LOCAL_PROCESS, limit=most)
        with heard_by(self.agents[name].heard):
            async with AsyncExitStack() as stay:
                await attend(
                    ServerDirectory(self, name, stay),
                    service,
                    transport,
                    principal=principal,
                    limit=min(most, limit),
                    attend_here=attend_here,
                )

    @asynccontextmanager
    async def desk(self, name: str) -> AsyncIterator[Desk]:
        """Keep the desk of this agent open for a client; raises AcpError if it cannot be opened."""
        if self._ending.is_set():
            raise StoppedError
        self._coming[name] += 1
        try:
            desk = self._desks.get(name)
            if desk is None or desk.is_closing:  # whoever needs it first has it opened
                with heard_by(self.agents[name].heard):
                    desk = self._desks[name] = new_desk(self.hub, self.agents[name].service)
                    self._tasks.start(self._keep_desk(name, desk), f"keep {name}")
            yield desk
        finally:
            self._coming[name] -= 1

    async def _keep_desk(self, name: str, desk: Desk) -> None:
        """Keep a desk open while it is needed."""
        try:
            idle = self._wait_until_idle(name, desk)
            await first(idle, self._ending.wait(), desk.closed.wait())
        finally:
            await desk.aclose()
            if self._desks.get(name) is desk:
                del self._desks[name]

    async def _wait_until_idle(self, name: str, desk: Desk) -> None:
        loop = asyncio.get_running_loop()
        since, is_away = loop.time(), False
        while True:
            linger = self.agents[name].linger
            if is_away:  # nobody reaches the sessions of a node from elsewhere then
                away = bounds.NODE_AWAY_SECONDS if is_node() else bounds.SERVER_AWAY_SECONDS
                linger = min(linger, away)
            if loop.time() >= since + linger:
                break
            looking = tick(min(bounds.IDLE_CHECK_SECONDS, linger / 3))
            await (looking if is_away else first(looking, self.left.wait()))
            was_away, is_away = is_away, self.left.is_set()
            is_needed = self._coming[name] or desk.has_clients or desk.is_busy
            if is_needed or is_away != was_away:
                since = loop.time()
        if self._desks.get(name) is desk:  # in the same step: no client may come to it any more
            del self._desks[name]
        log.info("%s ended: it was idle for %g seconds", name, linger)

    # -- all agents on one connection -----------------------------------------------------

    async def agent_of(self, session_id: str) -> str | None:
        """Return the agent of this session; None if it is unknown or not served here."""
        row = await row_of(self.hub.journal, session_id)
        return None if row is None else self.served(row)

    def opened(self, name: str) -> Desk | None:
        """Return the desk of this agent; None if it is not open."""
        desk = self._desks.get(name)
        return None if desk is None or desk.is_closing else desk

    def served(self, row: SessionRow) -> str | None:
        """Return the name of a session's agent; None if it is not served here."""
        return name if (name := self._name_of(row)) in self.agents else None

    def at_work_in(self, conversation: Conversation) -> str | None:
        """Return the agent that answers in a live session; None if it is none of these."""
        agent = conversation.side.agent
        return next((name for name, it in self._desks.items() if it.agent is agent), None)

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """Return the result of `session/list` over all agents, running or not."""
        asked = list_request(params)
        archived = archive_filter(params) or "exclude"
        hub = self.hub
        filter = hub.list_filter(asked.cwd, archived, principal.tenant)
        return await page_of_all(hub.journal, filter, asked.cursor, self._name_of, hub.time_of)

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
                        elif await other_owner(self.hub.journal, id_) is not None:
                            continue
                        elif not self.hub.holds(id_):
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
            limit = self.agents[name].service.options.max_message
            attending = self.attend(name, far, THIS_USER, limit)
            async with slots, beside(attending, "open for its queue"):
                await ask_over(*request, watches=True)
            log.info("session %s is open again: its queue continues", row.session_id)
        except AcpError as exc:
            log.error("session %s: its prompts stay queued: %s", row.session_id, exc)

    async def _with_queues(self) -> AsyncIterator[SessionRow]:
        """Yield the sessions whose queues continue after a restart."""
        wanted = ListFilter(queued=True, include_unprompted=True, archived="include")
        key: ListKey | None = None
        while page := await self.hub.journal.page(wanted, key):
            for row in page:
                try:
                    queue = (await self.hub.journal.summary(row.session_id)).queue
                except UnknownSessionError:  # deleted meanwhile
                    continue
                except AcpError as exc:
                    log.error("session %s: its queue cannot be read: %s", row.session_id, exc)
                    continue
                held = "" if queue.held == REOPENED else queue.held
                if queue.restarts and (not held or queue.until_ms is not None):
                    yield row
            key = page[-1].key


class ServerDirectory(Directory):
    """The desks of a server, for one client: that of the agent `name`, or of all agents, this one
    by default. `stay` is closed when the client has left.

    A client of all agents requests that with `initialize`, whose answer lists what acphold does for
    every agent. It is introduced to an agent when it first needs it, and an agent that it needs no
    more may end. A session whose agent is not served here never goes to another agent by itself,
    because that agent would read the conversation: the client names the agent that is to continue
    it, or is refused. A live session is joined where it is, with its own agent.
    """

    def __init__(self, served: ServerAgents, name: str, stay: AsyncExitStack) -> None:
        self.hub = served.hub
        self.only_joins = self.has_all = False
        self._served = served
        self._name = name
        self._stay = stay
        self._desk = None
        self._introduction = b"{}"

    async def come(self, offer: ClientOffer, principal: Principal, params: bytes) -> Desk | None:
        self.are_many = offer.all_agents and principal.session_id is None
        self._introduction = params
        if self._desk is None and not self.are_many:
            self._desk = await self._stay.enter_async_context(self._served.desk(self._name))
        return None if self.are_many else self._desk

    def present(self, answer: bytes, principal: Principal) -> bytes:
        names = [*dict.fromkeys((self._name, *self._served.agents))]
        can = members(answer)["agentCapabilities"]
        can = with_meta(can, capabilities.ALL_AGENTS, encode(names))
        if principal.sees_all and (folder := self._served.folder) is not None:
            can = with_meta(can, capabilities.FOLDER, encode(folder))
            if principal.scopes >= {"manage", "prompt"}:  # those of session/new
                can = with_meta(can, capabilities.HOME, encode(self._served.home))
        return splice(answer, {"agentCapabilities": can})

    async def page(self, principal: Principal, params: bytes) -> bytes:
        return await self._served.page(principal, params)

    async def find(self, session_id: str, asked: OpenParams | None = None) -> FoundSession:
        if not self.are_many:
            return FoundSession()
        chosen = None if asked is None else self.require_served(asked.agent)
        if (row := await row_of(self.hub.journal, session_id)) is None:
            return FoundSession(self._name, chosen or self._name)  # the agent's own
        name = self._served.served(row)
        live, its = self.hub.live.get(session_id), self.hub.desk_of(session_id)
        is_ending = its is None or its.is_closing
        if live is not None and not (live.is_asleep or is_ending):  # it keeps its agent
            agent = self._served.at_work_in(live)
            return FoundSession(agent, agent, name)
        if name is not None or await other_owner(self.hub.journal, session_id) is not None:
            return FoundSession(name, chosen or name, name)
        refusal = OtherAgentError(session_id, short_name(row.agent), tuple(self._served.agents))
        return FoundSession(None, chosen or refusal, row.agent)

    def require_served(self, name: str | None, field: str = f"_meta.{AGENT}") -> str | None:
        """Return the name of an agent, or None; InvalidParamsError for the field of the params if
        it is not served."""
        if name is not None and name not in self._served.agents:
            names = ", ".join(self._served.agents)
            raise InvalidParamsError(f"{field}: must be one of {names}", field)
        return name

    @asynccontextmanager
    async def at(
        self,
        request: Request,
        agent: str | None,
        scopes: frozenset[Scope],
        name: str | None = None,
    ) -> AsyncIterator[Desk]:
        if not self.are_many:
            async with super().at(request, agent, scopes) as own:
                yield own
            return
        here = self._name if agent is None else agent
        async with self._served.desk(here) as desk:
            with heard_by(self._served.agents[here].heard):
                starts = agent is not None and "prompt" in scopes
                introduced = await desk.initialize(self._introduction, starts=starts)

                def adapt(answer: bytes | Exception) -> bytes | Exception:
                    if not isinstance(answer, bytes) or not REQUESTS[request.method].opens:
                        return with_ways_in(here, introduced, answer)
                    is_its = agent is not None and in_meta(answer, AGENT) == encode(desk.agent.key)
                    its = agent if is_its else name  # a live session keeps its own
                    return answer if its is None else with_meta(answer, AGENT, encode(its))

                request.adapt = adapt
                yield desk

    @asynccontextmanager
    async def of(
        self,
        request: Request,
        session_id: str | None,
        scopes: frozenset[Scope],
        *,
        acts: bool = False,
    ) -> AsyncIterator[Desk]:
        agent: str | None = None
        if self.are_many and session_id is None:
            asked = OpenParams.decode(request.params or b"{}")
            agent = self.require_served(asked.agent) or self._name
            request.params = asked.naming(None).params
        elif self.are_many and session_id is not None:
            found = await self.find(session_id)
            agent = found.agent_for(scopes) if acts else found.agent
        async with self.at(request, agent, scopes) as desk:
            yield desk

    @property
    def opened(self) -> Desk | None:
        return self._served.opened(self._name) if self.are_many else self._desk

    def conversation(self, session_id: str, request: Request) -> Conversation:
        conversation = self.hub.conversation(session_id)
        if self.are_many:
            name = self._served.at_work_in(conversation) or conversation.side.agent.key
            introduced = conversation.shared.introduced or b"{}"
            request.adapt = partial(with_ways_in, name, introduced)
        return conversation


def with_ways_in(agent: str, introduced: bytes, answer: bytes | Exception) -> bytes | Exception:
    """Return an agent's demand to sign in with its name and its ways to do so, which the client has
    not seen: `introduced` is its answer to `initialize`. Anything else stays as it is."""
    if not isinstance(answer, RemoteError) or answer.code != AUTH_REQUIRED:
        return answer
    data = members(answer.raw).get("data", b"null") if answer.raw else b"null"
    if data == b"null":
        data = b"{}"
    elif not data.startswith(b"{"):
        return answer  # it has no room for them
    methods = members(introduced).get("authMethods", b"[]")
    data = splice(data, {AGENT: encode(agent), "authMethods": methods})
    error = {"code": answer.code, "message": answer.message}
    raw = splice(answer.raw or encode(error), {"data": data})
    return RemoteError(answer.code, answer.message, raw)
