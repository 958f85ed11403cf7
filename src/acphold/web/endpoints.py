"""The served agents: each has a desk, opened by its first client, in the hub of its journal.

Nearly always that is one hub. An agent whose settings name another journal has another one.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from acp_wire.rpc import Transport
from acp_wire.schema import RESUME_SESSION, encode
from acp_wire.tasks import END_SECONDS, TaskSet, beside, first, tick
from acp_wire.transports.addresses import OWNERS
from acp_wire.transports.known_servers import origin_of
from acp_wire.transports.streams import memory_pair
from acphold.errors import AcpError, UnknownSessionError
from acphold.live.hub.desk import Desk
from acphold.live.hub.session_list import only_of_all, page_of_all
from acphold.live.reading.neighbours import ask_over
from acphold.live.server import bounds as server_bounds
from acphold.live.server.all_agents import attend_all, peek
from acphold.live.server.checked_params import list_request
from acphold.live.server.principals import FAR_NEIGHBOUR, THIS_USER, Principal
from acphold.live.server.service import (
    Service,
    attend,
    journal_at,
    new_desk,
    open_hub,
    refuse,
)
from acphold.live.server.unstable import archive_filter
from acphold.record.history.prompt_queue import REOPENED
from acphold.record.journal import (
    Here,
    Journal,
    ListFilter,
    ListKey,
    SessionRow,
    Silent,
    bounds as journal_bounds,
)
from acphold.record.journal.owners import is_free, other_owner
from acphold.web import bounds

log = logging.getLogger(__name__)

T = TypeVar("T")


class Attending(Protocol):
    """Serves clients from the network, each in front of the agent it names."""

    def limit(self, name: str) -> int:
        """Return the longest message to this agent, in bytes."""

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Serve one client until it leaves; `headers` are those of its first request."""


class Endpoints:
    """The served agents; an async context manager.

    `default` is the agent of a client that names none, `journal` the default agent's, and `called`
    returns the name under which a session's agent is served.

    `node` is the address for other nodes, None if there are none; `folder` is that of the first new
    session, None if it is not known; `mark` tells them this process
    from an earlier one at the same address.

    An agent ends after its seconds in `lingers`, or ten minutes, with no client, turn or pending
    question; its sessions stay, and the next client starts it again. At the end of the block all
    have ended.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        default: str,
        journal: Journal,
        *,
        called: Callable[[SessionRow], str] = attrgetter("agent"),
        lingers: Mapping[str, float] | None = None,
        node: str | None = None,
        folder: str | None = None,
    ) -> None:
        self.folder = folder
        self.mark = secrets.token_hex(4)
        self._node = node
        self._services = services
        self._default = default
        self._journal = journal
        self._called = called
        self._lingers = lingers or {}
        self._coming: Counter[str] = Counter()
        # For each hub, by its journal, the desk where clients only join.
        self._hubs: dict[str, asyncio.Future[Desk]] = {}
        self._desks: dict[str, asyncio.Future[Desk]] = {}  # by their agents
        self._tasks = TaskSet()
        self._ending = asyncio.Event()

    async def __aenter__(self) -> Endpoints:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending.set()
        await self._tasks.aclose(END_SECONDS)

    async def name_of(self, path: str, only: str | None) -> str | None:
        """Return the agent that a path below the endpoint names, or None; "" is the default one.

        A client limited to the session `only` gets that session's agent, and "" means it too.
        """
        if only is None or len(self._services) == 1:
            name: str | None = path or self._default
            return name if name in self._services else None
        name = await self.agent_of(only)
        return name if path in ("", name) else None

    def limit(self, name: str) -> int:
        """Return the longest message to this agent, in bytes."""
        return min(self._services[name].options.max_message, bounds.MESSAGE_BYTES)

    async def attend(
        self,
        name: str,
        transport: Transport,
        principal: Principal,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Serve one client of this agent, or of all agents if it asks for that, until it leaves.

        A client limited to one session gets that session's agent and hears of no other.
        """
        transport, asks = await peek(transport, self.limit(name))
        if asks and principal.session_id is None and name in self.names:
            await attend_all(self, name, transport, self.limit(name), principal)
        else:
            await self._attend(self._services[name], name, transport, principal)

    async def attend_one(self, name: str, transport: Transport, principal: Principal) -> None:
        """Serve a client of all agents at this one, until it leaves."""
        service = self._services[name]
        # A client that asks for all agents knows acphold, and so also our extensions of ACP.
        with_all = replace(service, options=replace(service.options, unstable=True), stays=True)
        await self._attend(with_all, name, transport, principal)

    async def _attend(
        self, service: Service, name: str, transport: Transport, principal: Principal
    ) -> None:
        """Serve one client of this agent until it leaves; its leaving ends nothing else."""
        self._coming[name] += 1  # counted so that the desk stays open until this client leaves
        try:
            try:
                desk = await self._open(self._desks, name, self._keep_desk)
            except AcpError as exc:
                log.error("%s: %s", name, exc)
                await refuse(transport, exc, self._ending)
                return
            await attend(desk, service, transport, principal=principal, limit=self.limit(name))
        finally:
            self._coming[name] -= 1

    async def _open(
        self,
        opened: dict[str, asyncio.Future[T]],
        name: str,
        keep: Callable[[str, asyncio.Future[T]], Coroutine[None, None, None]],
    ) -> T:
        """Return what has this name; whoever needs it first has it opened."""
        opening = opened.get(name)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = opened[name] = asyncio.get_running_loop().create_future()
            self._tasks.start(keep(name, opening), f"keep {name}")
        return await asyncio.shield(opening)

    async def attend_node(self, name: str, transport: Transport) -> None:
        """Serve a process of another node, connected for sessions live in the hub of this agent's
        journal, until it leaves.

        This starts no agent.
        """
        if (opening := self._hubs.get(self._services[name].journal)) is not None:
            joining = await asyncio.shield(opening)
            await attend(joining, self._services[name], transport, principal=FAR_NEIGHBOUR)

    # -- all agents on one connection: server.all_agents.Agents ---------------------------

    @property
    def names(self) -> Sequence[str]:
        """The agents that share the one journal, the default one first."""
        place = self._services[self._default].journal
        return [name for name, service in self._services.items() if service.journal == place]

    async def agent_of(self, session_id: str) -> str | None:
        """Return the agent of this session; None if it is unknown or not served here."""
        try:
            row = await self._journal.session(session_id)
        except UnknownSessionError:
            return None
        name = self._name_of(row)
        return name if name in self.names else None

    async def agent_in_journal(self, session_id: str, principal: Principal) -> str | None:
        """See `server.all_agents.Agents`."""
        try:
            row = await self._journal.session(session_id)
        except UnknownSessionError:
            return None
        owner = await self._journal.owner(session_id)
        if other_owner(owner) is not None or "prompt" not in principal.scopes_in(row):
            return None
        return row.agent

    async def may_prompt(self, session_id: str, principal: Principal) -> bool:
        """See `server.all_agents.Agents`. A session in no journal is the agent's own."""
        try:
            return "prompt" in principal.scopes_in(await self._journal.session(session_id))
        except UnknownSessionError:
            return True

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """Return the result of `session/list` over all agents, running or not."""
        asked = list_request(params)
        if principal.session_id is not None:
            return await only_of_all(
                self._journal, principal.session_id, self._name_of, principal.tenant
            )
        archived = archive_filter(params)
        joining = _result_of(self._hubs.get(self._services[self._default].journal))
        held = frozenset[str]() if joining is None else joining.hub.open_ids
        filter = ListFilter(cwd=asked.cwd, held=held, archived=archived, tenant=principal.tenant)
        return await page_of_all(self._journal, filter, asked.cursor, self._name_of, marked=True)

    def _name_of(self, row: SessionRow) -> str:
        """Return the name under which a session's agent is served; its key if it is not served."""
        called = self._called(row)
        if called in self._services:
            return called
        # A running agent has reported the key its sessions are kept under.
        for name, opening in self._desks.items():
            desk = _result_of(opening)
            if desk is not None and desk.agent.key == row.agent:
                return name
        return row.agent

    @property
    def open_names(self) -> Sequence[str]:
        """The agents whose hubs are open."""
        return [name for name, service in self._services.items() if service.journal in self._hubs]

    # -- after a restart ------------------------------------------------------------------

    async def resume_queues(self) -> None:
        """Open the sessions whose queues continue after a restart, if their process has ended; a
        few at once.

        A session that cannot be opened is logged, and delays no other. Sessions of a process that
        may still live are checked again until that is clear.
        """
        done: set[str] = set()
        slots = asyncio.Semaphore(bounds.OPENED_AT_ONCE)
        async with asyncio.TaskGroup() as opening:
            for _ in range(bounds.OWNER_LOOKS):
                try:
                    rows = [row async for row in self._with_queues() if row.session_id not in done]
                    for row in rows:
                        id_, name = row.session_id, self._name_of(row)
                        if name not in self.names:
                            log.error(
                                "session %s: its prompts stay queued: this server does not run %s",
                                *(id_, row.agent),
                            )
                        elif not isinstance(owner := await self._journal.owner(id_), Here):
                            joining = _result_of(self._hubs.get(self._services[name].journal))
                            is_asleep = joining is not None and joining.hub.is_asleep(id_)
                            if not (is_free(owner) or isinstance(owner, Silent) or is_asleep):
                                continue
                            opening.create_task(
                                self._resume_queue(row, name, slots), name=f"open {id_}"
                            )
                        done.add(id_)
                except AcpError as exc:
                    log.error("cannot read which sessions have prompts to continue with: %s", exc)
                await tick(journal_bounds.RENEW_SECONDS)

    async def _resume_queue(self, row: SessionRow, name: str, slots: asyncio.Semaphore) -> None:
        """Open a session as a client that only watches; its process then runs its queue."""
        near, far = memory_pair()
        params = encode({"sessionId": row.session_id, "cwd": row.cwd, "mcpServers": []})
        request = (near, "acphold", RESUME_SESSION.name, params, bounds.QUEUE_OPEN_SECONDS)
        try:
            async with slots, beside(self.attend_one(name, far, THIS_USER), "open for its queue"):
                await ask_over(*request, watches=True)
            log.info("session %s is open again: its queue continues", row.session_id)
        except AcpError as exc:
            log.error("session %s: its prompts stay queued: %s", row.session_id, exc)

    async def _with_queues(self) -> AsyncIterator[SessionRow]:
        """Yield the sessions whose queues continue after a restart."""
        wanted = ListFilter(queued=True, include_unprompted=True, archived="include")
        key: ListKey | None = None
        while page := await self._journal.page(wanted, key):
            for row in page:
                try:
                    queue = (await self._journal.summary(row.session_id)).queue
                except UnknownSessionError:  # deleted meanwhile
                    continue
                except AcpError as exc:
                    log.error("session %s: its queue cannot be read: %s", row.session_id, exc)
                    continue
                held = "" if queue.held == REOPENED else queue.held
                if queue.restarts and (not held or queue.until is not None):
                    yield row
            key = page[-1].key

    # -- hubs and desks -------------------------------------------------------------------

    async def _keep_hub(self, place: str, opened: asyncio.Future[Desk]) -> None:
        """Open the hub of a journal and keep it open. One task does both, as a context requires."""
        name, service = next(it for it in self._services.items() if it[1].journal == place)
        others = []
        if self._node is not None:
            at = f"{origin_of(self._node)}{OWNERS}{self.mark}/"
            others.append(f"{at}{quote(name, safe='')}")
        try:
            async with open_hub(service, journal_at(place), others) as joining:
                opened.set_result(joining)
                await self._ending.wait()
        except AcpError as exc:
            _fail(opened, exc)

    async def _keep_desk(self, name: str, opened: asyncio.Future[Desk]) -> None:
        """Open the desk of an agent and keep it open while needed."""
        service = self._services[name]
        try:
            joining = await self._open(self._hubs, service.journal, self._keep_hub)
            desk = new_desk(joining.hub, service)
            opened.set_result(desk)
            async with (
                beside(self._wait_idle(name, desk), f"idle {name}") as needed,
                beside(self._ending.wait(), "ending") as ending,
            ):
                await first(needed, ending)
            await desk.aclose()
        except AcpError as exc:
            _fail(opened, exc)

    async def _wait_idle(self, name: str, desk: Desk) -> None:
        """Wait until nobody needs the desk; later clients then get a new one."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        linger = self._lingers.get(name, bounds.AGENT_LINGER_SECONDS)
        while loop.time() < since + linger:
            await tick(min(server_bounds.IDLE_CHECK_SECONDS, linger / 3))
            if self._coming[name] or desk.has_clients or desk.is_busy:
                since = loop.time()
        del self._desks[name]
        log.info("%s ended: it was idle for %g seconds", name, linger)


def _result_of(opening: asyncio.Future[T] | None) -> T | None:
    """Return what was opened; None if nothing is open."""
    if opening is None or not opening.done() or opening.cancelled():
        return None
    return None if opening.exception() is not None else opening.result()


def _fail(opening: asyncio.Future[T], error: AcpError) -> None:
    if opening.done():
        log.error("%s", error)
    else:
        opening.set_exception(error)
