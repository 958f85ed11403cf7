"""The relay: each client of `acphold serve` is served by the daemon of its agent's journal.

This process faces the network. It admits a client, says to the daemon who that is, and passes on
the bytes of both; so no client shares its memory with an environment. The daemon has the agents and
the sessions, and enforces what a client may do (`server.relay_protocol`). One daemon keeps the
sessions of one journal; an agent whose settings name another journal is in another one.

When a daemon has ended, its clients are disconnected, and the next one gets the same words.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Struct

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.rpc.transport import OfferingTransport
from acp_wire.schema import encode
from acp_wire.tasks import TaskSet, beside, finish, first, timeout
from acphold import errors
from acphold.journal.stored_journal import Durations
from acphold.live.hub.alerts import Activity
from acphold.live.server import relay_protocol
from acphold.live.server.principals import Principal
from acphold.live.server.service import refuse
from acphold.web import bounds

log = logging.getLogger(__name__)


class Attending(Protocol):
    """Serves clients from the network, each in front of the agent it names."""

    def limit(self, name: str) -> int:
        """Return the longest message to this agent, in bytes."""

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Serve one client until it leaves; `headers` are those of its first request."""


class RelayedAgent(Struct, frozen=True):
    """An agent to serve, the place of its journal, and the longest message to it in bytes."""

    asked: relay_protocol.AskedAgent
    journal: str
    max_message: int


class ReachedDaemon(Protocol):
    """A daemon that has accepted our front."""

    @property
    def transport(self) -> Transport:
        """To and from it, for the front."""

    async def connect(self) -> Transport:
        """Return one more connection to it; raises ConnectionLostError."""


Reach = Callable[[str], AbstractAsyncContextManager[ReachedDaemon]]
"""Reaches the daemon of a journal, which is started if there is none. Raises AcpError."""


class Relay:
    """See the module; an async context manager, which raises AcpError if an agent's words cannot
    be used.

    Of the agents, the first is that of a client that names none. `folder` is that of the first new
    session, and `node` the address for other nodes, None if there is none. What happens in a daemon
    stirs the `activity`.
    """

    def __init__(
        self,
        agents: Sequence[RelayedAgent],
        reach: Reach,
        activity: Activity,
        *,
        folder: str | None = None,
        node: str | None = None,
    ) -> None:
        self._agents = {agent.asked.name: agent for agent in agents}
        self._default = agents[0].asked.name if agents else ""
        self._ending = asyncio.Event()
        self._keeping = TaskSet()
        self._lines: dict[str, DaemonLine] = {}
        for journal in dict.fromkeys(agent.journal for agent in agents):
            asked = tuple(agent.asked for agent in agents if agent.journal == journal)
            registration = relay_protocol.Registration(asked, folder, node)
            self._lines[journal] = DaemonLine(partial(reach, journal), registration, activity)

    async def __aenter__(self) -> Relay:
        try:
            for line in self._lines.values():
                self._keeping.start(line.keep(), "keep line to daemon")
                await line.wait_until_registered()
        except BaseException:
            await self._keeping.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending.set()
        for line in self._lines.values():
            await line.hear_out()
        await self._keeping.aclose()

    async def name_of(self, path: str, only: str | None) -> str | None:
        """Return the agent that a path below the endpoint names, or None; "" is the default one.

        A client limited to the session `only` gets that session's agent, and "" means it too.
        Raises AcpError.
        """
        if only is None or len(self._agents) == 1:
            name: str | None = path or self._default
            return name if name in self._agents else None
        name = await self._line_of(self._default).agent_of(only)
        return name if path in ("", name) else None

    def _line_of(self, name: str) -> DaemonLine:
        return self._lines[self._agents[name].journal]

    def limit(self, name: str) -> int:
        """Return the longest message to this agent, in bytes."""
        return min(self._agents[name].max_message, bounds.MESSAGE_BYTES)

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Relay one client of this agent, or of all agents if it asks for that, until it leaves."""
        line = self._line_of(name)
        try:
            with line.number(principal) as number:
                _, _, marks = await line.wait_until_registered()
                client = relay_protocol.RelayedClient(
                    marks.mark,
                    number,
                    name,
                    self.limit(name),
                    principal.name,
                    tuple(sorted(principal.scopes)),
                    principal.tenant,
                    principal.session_id,
                    principal.sees_all,
                )
                await line.relay(client, transport)
        except errors.AcpError as exc:
            log.error("%s: %s", name, exc)
            await refuse(transport, exc, self._ending)

    async def appends(self) -> Durations:
        """Return how long appends to the journal have taken in its daemon; raises AcpError."""
        return await self._line_of(self._default).appends()

    def line_of_node(self, mark: str) -> DaemonLine | None:
        """Return the line to the daemon that other nodes reach by this mark now."""
        return next((line for line in self._lines.values() if line.node_mark == mark), None)


class DaemonLine:
    """The line to the daemon of one journal: our front there, and the way for each client."""

    def __init__(
        self,
        reach: Callable[[], AbstractAsyncContextManager[ReachedDaemon]],
        registration: relay_protocol.Registration,
        activity: Activity,
    ) -> None:
        self._reach = reach
        self._registration = registration
        self._activity = activity
        self._numbers = itertools.count(1)
        self._clients: dict[int, Principal] = {}
        self._registered: tuple[ReachedDaemon, Peer, relay_protocol.Registered] | None = None
        self._problem: errors.AcpError | None = None
        self._changed = asyncio.Event()

    @property
    def node_mark(self) -> str | None:
        """The mark of the daemon for other nodes; None while there is none."""
        return None if self._registered is None else self._registered[2].node_mark

    # -- to the daemon --------------------------------------------------------------------

    async def keep(self) -> None:
        """Keep our front at a daemon, the next one when that has ended."""
        pause, was_registered = 0.0, False
        while True:
            try:
                async with self._reach() as daemon:
                    peer = Peer(daemon.transport, self, name="daemon")
                    async with connected(peer) as pump:
                        raw = await peer.call_raw(
                            relay_protocol.REGISTER,
                            encode(self._registration),
                            seconds=bounds.DAEMON_SECONDS,
                        )
                        marks = msgspec.json.decode(raw, type=relay_protocol.Registered)
                        self._registered = daemon, peer, marks
                        self._note(None)
                        pause, was_registered = 0.0, True
                        await asyncio.wait({pump})
                log.warning("the daemon has ended; coming to the next one")
            except (errors.AcpError, OSError, msgspec.MsgspecError) as exc:
                if was_registered:  # otherwise whoever starts us says it
                    names = ", ".join(agent.name for agent in self._registration.agents)
                    log.error("cannot serve %s: %s", names, exc)
                self._note(
                    exc if isinstance(exc, errors.AcpError) else errors.AgentStartError(str(exc))
                )
            finally:
                self._registered = None
            self._activity.stir()
            await asyncio.sleep(pause)
            pause = min(bounds.DAEMON_PAUSE_SECONDS, pause * 2 or 0.1)

    def _note(self, problem: errors.AcpError | None) -> None:
        self._problem = problem
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until_registered(self) -> tuple[ReachedDaemon, Peer, relay_protocol.Registered]:
        """Wait for the daemon; raises the AcpError for which there is none."""
        try:
            async with timeout(bounds.DAEMON_SECONDS):
                while self._registered is None:
                    if self._problem is not None:
                        raise self._problem
                    await self._changed.wait()
        except TimeoutError:
            raise errors.AgentStartError("the daemon cannot be reached") from None
        return self._registered

    async def hear_out(self) -> None:
        """Wait for what the daemon has to say of clients that have left."""
        if self._registered is not None:
            with suppress(errors.AcpError):
                asked = relay_protocol.SessionAsked("")
                await self._ask(relay_protocol.AGENT_OF, asked, bounds.LAST_DEEDS_SECONDS)

    async def agent_of(self, session_id: str) -> str | None:
        """Return the agent of a session; None if it is unknown or not served. Raises AcpError."""
        raw = await self._ask(relay_protocol.AGENT_OF, relay_protocol.SessionAsked(session_id))
        return msgspec.json.decode(raw, type=relay_protocol.AgentTold).agent

    async def appends(self) -> Durations:
        """Return how long appends have taken there; raises AcpError."""
        return msgspec.json.decode(await self._ask(relay_protocol.APPENDS, {}), type=Durations)

    async def _ask(
        self, method: str, asked: object, seconds: float = bounds.DAEMON_SECONDS
    ) -> bytes:
        _, peer, _ = await self.wait_until_registered()
        return await peer.call_raw(method, encode(asked), seconds=seconds)

    # -- from the daemon ------------------------------------------------------------------

    async def on_request(self, request: Request) -> bytes:
        raise errors.MethodNotFoundError(request.method)

    def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            if notification.method == relay_protocol.STIRRED:
                self._activity.stir()
                stirred = msgspec.json.decode(notification.params, type=relay_protocol.Stirred)
                for told in stirred.deeds:
                    if (who := self._clients.get(told.client)) is not None:
                        # Those of the gate, which take a time.
                        note: Callable[..., None] = who.refused if told.is_refused else who.note
                        note(told.deed, told.session, at=told.at)

    # -- clients --------------------------------------------------------------------------

    @contextmanager
    def number(self, principal: Principal) -> Iterator[int]:
        """Yield the number by which the daemon calls this client, for the block."""
        number = next(self._numbers)
        self._clients[number] = principal
        try:
            yield number
        finally:
            # The daemon's last words of it may be on their way.
            asyncio.get_running_loop().call_later(
                bounds.LAST_DEEDS_SECONDS, self._clients.pop, number
            )

    async def relay(self, introduced: relay_protocol.RelayedClient, client: Transport) -> None:
        """Pass on what a client and the daemon say to each other, until one of them leaves.

        Raises AcpError if there is no daemon.
        """
        daemon, _, _ = await self.wait_until_registered()
        transport = await daemon.connect()
        try:
            transport.send(introduced.line)
            async with (
                beside(_pass_on(client, transport), "pass on to the daemon") as there,
                beside(_pass_on(transport, client), "pass on to a client") as back,
            ):
                await first(there, back)
        finally:
            await finish(transport.aclose)


async def _pass_on(source: Transport, sink: Transport) -> None:
    """Pass on all that comes from `source`, until it ends; `sink` sets the pace."""

    def take(data: bytes) -> bool:
        if sink.buffered > bounds.RELAYED_AHEAD_BYTES:
            return False
        sink.send(data)
        return True

    if isinstance(source, OfferingTransport):
        source.offer_to(take)  # without waking this task
    with suppress(errors.ConnectionLostError):
        while data := await source.receive():
            sink.send(data)
            if sink.buffered > bounds.RELAYED_AHEAD_BYTES:
                await sink.drain()
