"""The server of `acphold serve`: the application on uvicorn, in this process.

It has no sessions and no agents: these are the daemon's (`web.relay`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol
from urllib.parse import urlsplit

import uvicorn
from msgspec import Struct

from acp_wire.tasks import beside, first
from acp_wire.transports.known_servers import known_servers, origin_of
from acphold.errors import SettingsError
from acphold.journal.access import SCOPES, Access, token_id
from acphold.journal.stores import journal_name
from acphold.live.hub.alerts import Activity
from acphold.live.server.service import journal_at
from acphold.machine.addresses import NODE_TOKEN
from acphold.web import bounds
from acphold.web.application import Application, ServedMoves
from acphold.web.connections import Asgi, Connections, limits_for, repeating
from acphold.web.devices import Devices, Pairing, Worth
from acphold.web.gate import Gate
from acphold.web.http_clients import HttpClients
from acphold.web.import_requests import Importing, ImportRequests
from acphold.web.journal_pages import JournalPages, JournalReader
from acphold.web.list_feed import ListFeed
from acphold.web.metrics import Metrics
from acphold.web.notices import Notices
from acphold.web.page_files import PageFiles
from acphold.web.protocols import Arrival, HttpProtocol, SocketProtocol
from acphold.web.push import KeptSubscriptions, PushSender
from acphold.web.relay import Reach, Relay, RelayedAgent
from acphold.web.reports import Export, Reports
from acphold.web.rule_requests import RuleRequests
from acphold.web.running_servers import Running, noted

log = logging.getLogger(__name__)

EVERYWHERE: Final = ("", "0.0.0.0", "::")
"""Addresses that stand for all of this machine's."""


class Listening(Struct, frozen=True, kw_only=True):
    """The address to listen on, and those given to others.

    `url` is the address for clients, if it differs: a name of this machine, or a proxy. `proxy` is
    the address that proxy connects from. `node` is the address for other nodes, None if there are
    none.
    """

    host: str = "127.0.0.1"
    port: int = 8260
    certificate: str | None = None
    key: str | None = None
    url: str | None = None
    proxy: str | None = None
    node: str | None = None

    @property
    def outside(self) -> Sequence[str]:
        """The addresses for others, as configured."""
        return [it for it in (self.url, self.node) if it is not None]

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def check(self) -> None:
        """Refuse impossible settings, and unencrypted network traffic; raises SettingsError."""
        self.tls()
        if self.node is not None and NODE_TOKEN not in os.environ:
            raise SettingsError(
                "nodes need a token to connect to each other: `acphold access token --node` "
                f"prints one; set it as {NODE_TOKEN} on each machine"
            )
        is_encrypted = self.certificate is not None or (self.url or "").startswith("https:")
        if not (self.is_local or is_encrypted):
            raise SettingsError(
                f"refusing to serve other machines unencrypted on {self.host}: use --tls-cert and "
                "--tls-key, or --url with the https address of the proxy in front; or leave out "
                "--listen, and connect through `ssh -L 8260:localhost:8260`"
            )

    def tls(self) -> ssl.SSLContext | None:
        """Return TLS with the certificate and its key, None without them.

        Raises SettingsError if they cannot be used.
        """
        if self.certificate is None:
            return None
        for path in (self.certificate, self.key or self.certificate):
            try:
                open(path, "rb").close()
            except OSError as exc:
                raise SettingsError(f"{path} cannot be read: {exc.strerror}") from None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as exc:
            if getattr(exc, "reason", None) == "KEY_VALUES_MISMATCH":
                raise SettingsError(
                    f"{self.key} is not the key of {self.certificate}; pass a matching pair "
                    "with --tls-cert and --tls-key"
                ) from None
            raise SettingsError(
                f"{self.certificate} and {self.key} cannot be used for TLS ({exc}); both must be "
                "PEM files"
            ) from None
        return context

    def bind(self) -> socket.socket:
        """Return a socket that is bound to the address; raises OSError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        host = "127.0.0.1" if self.host == "localhost" else self.host
        return socket.create_server((host, self.port), family=family)

    def connections(self) -> Connections:
        """Return an empty set of connections, with limits for this process."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        is_proxied = self.url is not None and self.certificate is None
        return Connections(limits_for(descriptors), is_proxied=is_proxied)

    def origins(self, port: int) -> list[str]:
        """Return the origins of this server, the one to tell others first."""
        scheme = "https" if self.certificate is not None else "http"
        names = ["localhost", "127.0.0.1", "[::1]"]
        if self.host not in (*EVERYWHERE, *names):
            names.insert(0, f"[{self.host}]" if ":" in self.host else self.host)
        return [
            *(origin_of(it) for it in self.outside),
            *(origin_of(f"{scheme}://{name}:{port}") for name in names),
        ]

    def running(self, journal: str, origins: Sequence[str]) -> Running:
        """Return the record of this server for commands on this machine, given its origins."""
        known_as = localhost(origins)
        is_here = self.is_local or self.host in EVERYWHERE
        here = known_as if is_here else origins[len(self.outside)]
        return Running(journal, here, origins[0], known_as)


class Serving(Struct, frozen=True):
    """The facts to print once clients can connect: address, pairing code, and agents.

    The default agent is first. Without a page a browser finds nothing at the address.
    """

    url: str
    pair: str
    agents: tuple[str, ...] = ()
    has_page: bool = True


class ServerOutput(Protocol):
    """Shows a person what happens at the server."""

    def report_device(self, name: str) -> None:
        """Report a device that has paired, by the name that it gave."""

    def ready(self, serving: Serving) -> None:
        """Report that clients can connect."""


async def serve(
    agents: Sequence[RelayedAgent],
    reach: Reach,
    listening: Listening,
    *,
    output: ServerOutput,
    stop: asyncio.Event,
    export: Export,
    importing: Importing,
    turn_seconds: Callable[[], float],
    folder: str | None = None,
) -> None:
    """Serve these agents until `stop` is set, the first one by default; tokens are those of its
    journal.

    `reach` and `folder` are as in `Relay`, `export` is as in `Reports`, `turn_seconds` as in
    `Notices`. Raises AcpError, and
    OSError if the address is taken.
    """
    listening.check()
    tls = listening.tls()
    with listening.bind() as bound:
        origins = listening.origins(bound.getsockname()[1])
        place = agents[0].journal
        journal = journal_at(place)
        imports = ImportRequests(importing)
        try:
            connections = listening.connections()
            proxies = () if listening.proxy is None else (listening.proxy,)
            gate = Gate(journal.access, origins, connections, proxies=proxies)
            pairing = Pairing()
            await gate.report_held()
            await _let_this_user_in(gate, journal.access, origins)
            kept = KeptSubscriptions(journal_name(place))
            # For push services (RFC 8292, 2.1): https, or mail.
            is_https = origins[0].startswith("https:")
            contact = origins[0] if is_https else "mailto:nobody@example.com"
            activity = Activity()
            async with (
                gate.audit.kept(),
                Relay(agents, reach, activity, folder=folder, node=listening.node) as relay,
                HttpClients(relay, gate) as http,
                repeating(gate.check, bounds.TOKENS_SECONDS),
                repeating(gate.keep_awake, bounds.AWAKE_SECONDS),
                repeating(gate.report_held, bounds.HELD_SECONDS),
                repeating(connections.check, bounds.SLOW_CHECK_SECONDS),
                JournalReader(place) as reader,
                ListFeed(reader, gate, activity) as feed,
                Notices(
                    *(reader, gate, PushSender().send, kept, contact, activity, turn_seconds)
                ) as notices,
            ):
                page = PageFiles()
                app = Application(
                    relay=relay,
                    gate=gate,
                    devices=Devices(gate, pairing, output.report_device),
                    http=http,
                    pages=JournalPages(reader),
                    feed=feed,
                    metrics=Metrics(reader, http, feed, relay),
                    moves=ServedMoves(journal),
                    page=page,
                    reports=Reports(reader, export),
                    rules=RuleRequests(reader),
                    notices=notices,
                    imports=imports,
                )
                limit = max(agent.max_message for agent in agents)
                async with _running(app, bound, tls, connections, limit) as running:
                    with noted(listening.running(place, origins)):
                        code = pairing.new_code(Worth(SCOPES))
                        names = tuple(agent.asked.name for agent in agents)
                        output.ready(Serving(origins[0], code, names, page.is_built))
                        async with beside(stop.wait(), "wait for stop") as stopped:
                            await first(stopped, running)
                    gate.stop()
        finally:
            await imports.aclose()
            await journal.aclose()


def localhost(origins: Sequence[str]) -> str:
    """Return the origin for which this user's commands have a token."""
    return next(it for it in reversed(origins) if urlsplit(it).hostname == "localhost")


async def _let_this_user_in(gate: Gate, access: Access, origins: list[str]) -> None:
    """Store a token where this user's commands look for one on this machine.

    A token of an earlier start, on any port, is kept if it permits everything, in all sessions.
    """
    origin = localhost(origins)
    now = access.now_ms()
    known = known_servers()
    here = [it for url, it in known.items() if urlsplit(url).hostname == "localhost"]
    those = [it.token for it in filter(None, [known.get(origin), *reversed(here)])]
    found = await access.tokens([token_id(it or "") for it in those])
    good = {token.id: token for token in found if token.is_good(now)}
    for kept in those:
        token = good.get(token_id(kept or ""))
        if (
            kept is None
            or token is None
            or not token.is_of(kept)
            or not set(token.scopes).issuperset(SCOPES)
        ):
            continue
        if token.session_id is None and token.tenant is None and token.expires_at is None:
            known.keep(origin, kept)
            return
    known.keep(origin, await gate.grant("this machine", SCOPES))


@asynccontextmanager
async def _running(
    app: Asgi,
    bound: socket.socket,
    tls: ssl.SSLContext | None,
    connections: Connections,
    limit: int,
) -> AsyncIterator[asyncio.Task[None]]:
    """Answer requests for the block; yield the task that does so.

    Connections are accepted from its start.
    """
    # Strangers send garbage that is not HTTP; warnings of it would fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = _CountedServer(connections, tls, configure(app, limit))
    running = asyncio.create_task(server.serve(sockets=[bound]), name="uvicorn")
    try:
        await asyncio.wait({running, server.accepting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield running
    finally:
        server.should_exit = True
        await asyncio.wait({running})
    running.result()


def configure(app: Asgi, limit: int) -> uvicorn.Config:
    """Return the settings of uvicorn for messages of at most `limit` bytes."""
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=SocketProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws_max_size=limit,
        ws_ping_interval=bounds.HEARTBEAT_SECONDS,
        ws_ping_timeout=bounds.HEARTBEAT_SECONDS,
        # It would cost memory for each connection, and time for each message.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=int(bounds.LAST_CLIENTS_SECONDS),
    )


class _CountedServer(uvicorn.Server):
    """uvicorn's server, with connections counted from their first moment."""

    def __init__(
        self, connections: Connections, tls: ssl.SSLContext | None, config: uvicorn.Config
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._tls = tls
        self.accepting = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def arrival() -> Arrival:
            return Arrival(
                self._connections,
                self._tls,
                lambda state: HttpProtocol(self.config, self.server_state, state),
            )

        loop = asyncio.get_running_loop()
        self.servers: list[asyncio.Server] = []
        for bound in sockets or ():
            self.servers.append(
                await loop.create_server(arrival, sock=bound, backlog=bounds.ACCEPTED_AT_ONCE)
            )
            bound.listen(bounds.BACKLOG)
            if sys.platform == "linux":
                bound.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, bounds.SILENT_CONNECTION_SECONDS
                )
        self.started = True
        self.accepting.set_result(None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `stop` ends us, not signals
