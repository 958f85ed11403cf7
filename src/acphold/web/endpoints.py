"""The agents that are served, each with a hub of its own that is opened by its first client.

Two hubs of one process are to each other what two processes are: each owns sessions for itself, has
its socket, and finds the other's sessions through the journal.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Final, Protocol
from urllib.parse import quote

from msgspec.structs import replace

from acphold.errors import AcpholdError, UnknownSessionError
from acphold.hub import Hub
from acphold.hub.session_list import only_of_all, page_of_all
from acphold.journal import Journal, ListFilter, SessionRow
from acphold.rpc import Transport
from acphold.server.all_agents import attend_all, begun
from acphold.server.checked_params import checked_list
from acphold.server.principals import FAR_NEIGHBOUR, Principal
from acphold.server.service import (
    LOOK_SECONDS,
    Service,
    attend,
    open_hub,
    refuse,
    served_journal,
)
from acphold.server.unstable import archive_filter
from acphold.transports.addresses import OWNERS
from acphold.transports.urls import origin_of

log = logging.getLogger(__name__)

LARGEST: Final = 16 << 20
"""Bytes of a message that comes over the network. To read one takes the loop, and all who are on
it, a time that grows with its length."""

LINGER_SECONDS: Final = 600.0
"""How long an agent runs on that nobody needs: see `Endpoints`."""


class Attending(Protocol):
    """What serves the clients that come over the network, each in front of the agent it names."""

    def limit(self, name: str) -> int:
        """The longest message to this agent, in bytes."""

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Serve one client until it leaves; `headers` are those of the request by which it came."""


class Endpoints:
    """See the module; an async context manager. `default` is the agent of a client that names none,
    `journal` the default agent's, and `called` says by what name the agent of a session is served.

    `node` is how other nodes reach this process, None where they do not; by `mark` they tell it
    from one that was there before.

    An agent ends that for `linger` seconds has had no client, no turn and no open question; its
    sessions stay, and who comes next has it started again. At the end of the block all have ended.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        default: str,
        journal: Journal,
        *,
        called: Callable[[SessionRow], str] = attrgetter("agent"),
        linger: float = LINGER_SECONDS,
        node: str | None = None,
    ) -> None:
        self.mark = secrets.token_hex(4)
        if node is not None:
            at = f"{origin_of(node)}{OWNERS}{self.mark}/"
            services = {
                name: replace(service, address=f"{at}{quote(name, safe='')}")
                for name, service in services.items()
            }
        self._services = services
        self._default = default
        self._journal = journal
        self._called = called
        self._linger = linger
        self._coming: Counter[str] = Counter()
        self._open: dict[str, asyncio.Future[Hub]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    async def __aenter__(self) -> Endpoints:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def name_of(self, path: str, only: str | None) -> str | None:
        """The agent that a path below the endpoint names; "" is the default one. None for none.

        For whom there is one session `only`, there is its agent only, whichever "" else is.
        """
        if only is None or len(self._services) == 1:
            name: str | None = path or self._default
            return name if name in self._services else None
        name = await self.agent_of(only)
        return name if path in ("", name) else None

    def limit(self, name: str) -> int:
        """The longest message to this agent, in bytes."""
        return min(self._services[name].options.max_message, LARGEST)

    async def attend(
        self,
        name: str,
        transport: Transport,
        principal: Principal,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Serve one client of this agent, or of all if it asks for that, until it leaves.

        Who has one session has one agent, and is told of no other.
        """
        transport, asks = await begun(transport, self.limit(name))
        if asks and principal.session_id is None and name in self.names:
            await attend_all(self, name, transport, self.limit(name), principal)
        else:
            await self._attend(self._services[name], name, transport, principal)

    async def attend_one(self, name: str, transport: Transport, principal: Principal) -> None:
        """Serve a client of all agents at this one, until it leaves."""
        service = self._services[name]
        # Who asks for all agents knows us, and so what else we have that is no part of ACP yet.
        with_all = replace(service, options=replace(service.options, unstable=True))
        await self._attend(with_all, name, transport, principal)

    async def _attend(
        self, service: Service, name: str, transport: Transport, principal: Principal
    ) -> None:
        """Serve one client of this agent until it leaves; nobody's leaving ends anything."""
        self._coming[name] += 1  # a hub that has let somebody in does not end before they leave
        try:
            try:
                hub = await asyncio.shield(self._hub(name))
            except AcpholdError as exc:
                log.error("%s: %s", name, exc)
                await refuse(transport, exc, self._ending)
                return
            await attend(hub, service, transport, principal=principal, limit=self.limit(name))
        finally:
            self._coming[name] -= 1

    async def attend_node(self, name: str, transport: Transport) -> None:
        """Serve a process of another node, which has come for sessions that are live here, until it
        leaves; for that nothing is started."""
        self._coming[name] += 1
        try:
            if (hub := self._hubs.get(name)) is not None:
                await attend(hub, self._services[name], transport, principal=FAR_NEIGHBOUR)
        finally:
            self._coming[name] -= 1

    # -- all agents on one connection: server.all_agents.Agents ---------------------------

    @property
    def names(self) -> Sequence[str]:
        """The agents that keep their sessions in the one journal, the default one first."""
        place = self._services[self._default].journal
        return [name for name, service in self._services.items() if service.journal == place]

    async def agent_of(self, session_id: str) -> str | None:
        """The agent that this is a session of; None where it is not served here, or not known."""
        try:
            row = await self._journal.session(session_id)
        except UnknownSessionError:
            return None
        name = self._name_of(row)
        return name if name in self.names else None

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """The result of `session/list`, of all agents: the journal's sessions, started or not."""
        asked = checked_list(params)
        if principal.session_id is not None:
            return await only_of_all(
                self._journal, principal.session_id, self._name_of, principal.tenant
            )
        archived = archive_filter(params)
        held: frozenset[str] = frozenset().union(*(hub.held_ids for hub in self._hubs.values()))
        filter = ListFilter(cwd=asked.cwd, held=held, archived=archived, tenant=principal.tenant)
        return await page_of_all(self._journal, filter, asked.cursor, self._name_of, marked=True)

    def _name_of(self, row: SessionRow) -> str:
        """By what name the agent of a session is served; its key if it is not."""
        called = self._called(row)
        if called in self._services:
            return called
        # One that runs has said itself under what its sessions are kept.
        running = (name for name, hub in self._hubs.items() if hub.agent.key == row.agent)
        return next(running, row.agent)

    @property
    def open_names(self) -> Sequence[str]:
        """The agents whose hubs are open."""
        return [*self._hubs]

    @property
    def _hubs(self) -> dict[str, Hub]:
        """Those that are open."""
        return {
            name: opening.result()
            for name, opening in self._open.items()
            if opening.done() and not opening.cancelled() and opening.exception() is None
        }

    # -- hubs -----------------------------------------------------------------------------

    def _hub(self, name: str) -> asyncio.Future[Hub]:
        """That of this agent; whoever comes first has it opened."""
        found = self._open.get(name)
        if found is None or (found.done() and found.exception() is not None):
            found = self._open[name] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._keep(name, found), name=f"hub of {name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return found

    async def _keep(self, name: str, opened: asyncio.Future[Hub]) -> None:
        """Open the hub, and keep it while it is needed: what opens it has to close it."""
        service = self._services[name]
        try:
            async with open_hub(service, served_journal(service.journal)) as hub:
                opened.set_result(hub)
                needed = asyncio.create_task(self._needed(name, hub), name=f"idle {name}")
                ending = asyncio.create_task(self._ending.wait(), name="ending")
                await asyncio.wait({needed, ending}, return_when=asyncio.FIRST_COMPLETED)
                needed.cancel()
                ending.cancel()
                await asyncio.wait({needed, ending})
        except AcpholdError as exc:
            if opened.done():
                log.error("%s: %s", name, exc)
            else:
                opened.set_exception(exc)

    async def _needed(self, name: str, hub: Hub) -> None:
        """Wait until nobody needs the hub; then who comes is given another one."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        while loop.time() < since + self._linger:
            await asyncio.sleep(min(LOOK_SECONDS, self._linger / 4))
            if self._coming[name] or hub.router.clients or hub.is_busy:
                since = loop.time()
        del self._open[name]
        log.info("%s has ended: nobody has needed it for %g seconds", name, self._linger)
