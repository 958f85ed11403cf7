"""One process that serves clients: a journal, a hub, and all connected clients.

`wrap` and `agent run` serve the editor that started them, and other processes over a socket. For
the process behind `wrap` see `server.daemon`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import PROMPT
from acp_wire.tasks import finish, first
from acphold.errors import AcpError, AuthRequiredError, JournalError, RuntimeFolderError
from acphold.journal.journal import Journal, Owners
from acphold.journal.stores import open_journal
from acphold.journal_location import default_location
from acphold.live.hub.alerts import NO_ALERTS, Alerts
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.server import bounds
from acphold.live.server.connection import ClientConnection
from acphold.live.server.directory import Directory
from acphold.live.server.places import Places
from acphold.live.server.principals import LOCAL_PROCESS, THIS_USER, Door, Principal
from acphold.live.server.remote_sessions import AttendHere
from acphold.machine.addresses import unix_address
from acphold.machine.runtime_folder import own_socket
from acphold.machine.unix import listening
from acphold.serve_options import ServeOptions

if TYPE_CHECKING:
    from acp_wire.surroundings import Surroundings
    from acphold.live.agents.interface import HubAgent, ListenerToMany

log = logging.getLogger(__name__)

MakeAgent = Callable[["ListenerToMany", "Journal"], "HubAgent"]
"""Makes the agent that answers, given its listener and the journal of its sessions."""


class Service(Struct, frozen=True, kw_only=True):
    """The agent to serve, made by `make_agent`, and how to serve it.

    A `door` admits each connection before anything is answered on it. Without `share`, no other
    process of this user can join its sessions.
    """

    make_agent: MakeAgent
    options: ServeOptions
    door: Door | None = None
    share: bool = True
    alerts: Alerts = NO_ALERTS

    @property
    def journal(self) -> str:
        """The place of its sessions."""
        return os.fspath(self.options.journal or default_location())


def new_desk(hub: Hub, service: Service, surroundings: Surroundings | None = None) -> Desk:
    """Return a new desk in a hub, for the agent of a service; `surroundings` as in Desk."""
    return Desk(
        hub,
        lambda listener: service.make_agent(listener, hub.journal),
        service.options,
        alerts=service.alerts,
        surroundings=surroundings,
    )


async def serve(
    transport: Transport,
    service: Service,
    *,
    stop: asyncio.Event,
    introduction: bytes | None = None,
) -> None:
    """Serve until the client leaves or `stop` is set; then end the agent and all turns.

    `introduction` are the params of an `initialize` that was answered before. Other clients of this
    user may attach to the sessions meanwhile, over a socket. Without a journal every request is
    refused with the reason; while another program holds the journal, only requests that need it.
    """
    try:
        journal = journal_at(service.journal)
    except AcpError as exc:
        log.error("%s", exc)
        await refuse(transport, exc, stop)
        return
    async with open_desk(service, journal) as directory:
        await attend(directory, service, transport, stop, introduction=introduction)


@asynccontextmanager
async def open_desk(service: Service, journal: Journal) -> AsyncIterator[Directory]:
    """Run a hub with one desk for the block; other processes of this user may connect to it over a
    socket.

    After the block its turns, its agent and the journal have ended.
    """
    try:
        hub = Hub(journal)
        directory = Directory(new_desk(hub, service))
        places = Places(hub.places)

        async def attend_process(transport: Transport, place: str | None) -> None:
            principal = await places.principal_of(place)
            await attend(directory, service, transport, principal=principal)

        shared = reachable(journal, attend_process) if service.share else nullcontext()
        async with hub.open(), shared:
            yield directory
            await finish(hub.end_turns)  # other clients may still be here
    finally:
        await finish(journal.aclose)


def journal_at(location: str) -> Journal:
    """Return the journal at `location`; if another program holds it, the journal retries later."""

    async def read_transcript(path: str, session_id: str) -> None:
        from acphold.imports import read_beside  # late: rarely needed

        await read_beside(path, session_id)

    return open_journal(location, at_once=False, read_transcript=read_transcript)


EXPIRED = "your access has expired; renew it and connect again"

UNSHARED = "less is shared with you than before; connect again for what is left"


@runtime_checkable
class RenewedTransport(Transport, Protocol):
    """A transport whose client shows its access again with each message, as over HTTP."""

    expires_at: float | None
    """The end of the access that it showed last, in seconds since 1970; None for never."""


@runtime_checkable
class ExplainingTransport(Transport, Protocol):
    """A transport whose client is told why it is closed."""

    def explain(self, reason: str) -> None: ...


class ConnectedClient:
    """A connected client, for code that may have to disconnect it."""

    def __init__(self, connection: ClientConnection, transport: Transport) -> None:
        self.disconnected = asyncio.Event()
        self._connection = connection
        self._transport = transport
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def principal(self) -> Principal:
        """The principal, as far as it is known yet."""
        return self._connection.principal

    def disconnect(self, reason: str) -> None:
        """End its connection, and refuse its requests with the reason; its turns continue."""
        if not self.disconnected.is_set():
            self._connection.refuse(AuthRequiredError(reason))
            if isinstance(self._transport, ExplainingTransport):
                self._transport.explain(reason)
            self.disconnected.set()

    def expire(self) -> None:
        """Disconnect it once its access has expired, if it ever does."""
        expires_at = self.principal.ends_at
        if expires_at is not None and isinstance(self._transport, RenewedTransport):
            expires_at = self._transport.expires_at
        if expires_at is None:
            return
        if (left := expires_at - time.time()) <= 0:
            self.disconnect(EXPIRED)
        else:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(min(left, bounds.EXPIRY_CHECK_SECONDS), self.expire)

    def close(self) -> None:
        """Clean up: it has left, or was disconnected."""
        if self._expiry is not None:
            self._expiry.cancel()


async def attend(
    directory: Directory,
    service: Service,
    transport: Transport,
    stop: asyncio.Event | None = None,
    *,
    principal: Principal = THIS_USER,
    headers: Mapping[str, str] | None = None,
    limit: int | None = None,
    clients: set[ConnectedClient] | None = None,
    introduction: bytes | None = None,
    attend_here: AttendHere | None = None,
) -> None:
    """Serve one client until it leaves; answer its last requests.

    `introduction` are the params of its `initialize`, if that was answered before. `headers` are
    those of its HTTP request, if there was one. `limit` is the longest message that
    it may send, in bytes, if that is less than the service accepts. Meanwhile it is one of the
    `clients`, which can be disconnected. `attend_here` attends its lines that lead here.

    With `stop` this process exists only for this client: its end, or `stop`, ends all turns. Before
    a task without `stop` is cancelled, end the turns.
    """
    connection = ClientConnection(
        directory,
        transport,
        limit=service.options.max_message if limit is None else limit,
        unstable=service.options.unstable,
        principal=principal,
        door=service.door,
        headers=headers,
        attend_here=attend_here or partial(attend, directory, service, principal=LOCAL_PROCESS),
    )
    stopped = stop or asyncio.Event()
    client = ConnectedClient(connection, transport)
    if clients is not None:
        clients.add(client)
    try:
        await directory.hub.opening.enter()
        if introduction is not None:
            await connection.introduce(introduction)
        async with connected(connection.peer) as pump:
            client.expire()
            try:
                must_go = client.disconnected.wait(), connection.admission.lost_access.wait()
                await first(pump, stopped.wait(), *must_go)
                if connection.admission.lost_access.is_set():
                    client.disconnect(UNSHARED)
                if pump.done():
                    answers = connection.peer.finish(bounds.LAST_ANSWERS_SECONDS, but=PROMPT.name)
                    await first(answers, stopped.wait())
                    connection.detach()
                if stop is not None:
                    await directory.hub.end_turns()
            finally:
                if stop is not None or not pump.done():
                    connection.dismiss()
    finally:
        client.close()
        if clients is not None:
            clients.discard(client)
        await finish(connection.aclose)


@asynccontextmanager
async def reachable(
    journal: Owners, attend: Callable[[Transport, str | None], Awaitable[None]]
) -> AsyncIterator[None]:
    """Have other processes of this user attended at a socket for the block, and publish it."""
    async with AsyncExitStack() as stack:
        try:
            publish = Addresses(journal).listen_at
            await stack.enter_async_context(listening(own_socket(), attend, publish))
        except (RuntimeFolderError, OSError) as exc:
            log.warning("sessions cannot be shared on this machine: %s", exc)
        yield


class Addresses:
    """The addresses of this process, published in the journal: its socket, which is noted elsewhere
    first, and others by which its sessions can be reached."""

    def __init__(self, journal: Owners, note: Callable[[str], object] = bool) -> None:
        self._journal = journal
        self._note = note
        self._socket = ""
        self._others: list[str] = []

    async def listen_at(self, path: str) -> None:
        """Publish the path of the socket."""
        self._socket = unix_address(path)
        self._note(path)
        await self._publish()

    async def add(self, address: str) -> None:
        """Publish one more address. It stays when its server goes: others find nobody there then,
        and with it that this process has ended, if it has."""
        if address not in self._others:
            self._others.append(address)
            await self._publish()

    async def _publish(self) -> None:
        try:
            await self._journal.renew(addresses=[*filter(None, [self._socket]), *self._others])
        except JournalError as exc:  # the next renewal publishes them
            log.info("%s", exc)


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask a program to end."""


def stop_at_signals(numbers: Sequence[signal.Signals] = ENDING) -> asyncio.Event:
    """Return an event that any of these signals sets, but for SIGINT and SIGHUP where whoever
    started us has them ignored, as `nohup` and a shell's background jobs do."""
    stop = asyncio.Event()
    for number in numbers:
        if number != signal.SIGTERM and signal.getsignal(number) is signal.SIG_IGN:
            continue
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def refuse(transport: Transport, error: AcpError, stop: asyncio.Event) -> None:
    """Answer every request with this error: editors show that, and not a program's stderr.

    Used without a journal, when acphold can keep none of its promises.
    """
    async with connected(Peer(transport, _Refuser(error), name="client")) as pump:
        await first(pump, stop.wait())


class _Refuser:
    def __init__(self, error: AcpError) -> None:
        self._error = error

    async def on_request(self, request: Request) -> bytes:
        raise self._error

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None
