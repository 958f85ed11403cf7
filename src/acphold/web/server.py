"""What `acphold serve` runs: the application on uvicorn, in this process.

Order matters at the end: clients are let go first, so that none sees its session end with a hub;
then the turns, the agents and the journals end (`Endpoints`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import SettingsError
from acphold.history.times import now_ms
from acphold.journal import SessionRow
from acphold.journal.access import SCOPES, Access, token_id
from acphold.journal.stores import named
from acphold.server.service import Service, served_journal
from acphold.server.stirrings import Stirrings
from acphold.transports.addresses import NODE_TOKEN
from acphold.transports.known_servers import remember, token_for
from acphold.transports.urls import origin_of
from acphold.web.application import Application, application
from acphold.web.connections import LOOK_SECONDS, Connections, bounds
from acphold.web.endpoints import LINGER_SECONDS, Endpoints
from acphold.web.gate import TOKENS_SECONDS, Gate
from acphold.web.http_clients import HttpClients
from acphold.web.journal_pages import JournalPages
from acphold.web.journal_reader import JournalReader
from acphold.web.kept_subscriptions import KeptSubscriptions
from acphold.web.list_feed import ListFeed
from acphold.web.metrics import Metrics
from acphold.web.notices import Notices
from acphold.web.page_files import PageFiles
from acphold.web.pairing_codes import Pairing, Worth
from acphold.web.protocols import Arrival, HttpProtocol
from acphold.web.push_sender import PushSender
from acphold.web.reports import Export, Reports
from acphold.web.running_servers import Running, noted
from acphold.web.socket_transport import DirectSocketProtocol

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 20.0
"""How often a client is asked whether it is there; it has as long to answer."""

AT_ONCE: Final = 16
"""Connections that are accepted before others have their turn. Far fewer than may be there without
a token: who brings one with the first bytes is known before its place is wanted."""

SILENT_SECONDS: Final = 10
"""How long the kernel keeps a connection on which nothing has come yet, where it can."""

BACKLOG: Final = 2048
"""Connections that the kernel keeps until they are accepted."""

LAST_SECONDS: Final = 5.0
"""How long clients that were told to go are waited for."""

EVERYWHERE: Final = ("", "0.0.0.0", "::")
"""Addresses that stand for all of this machine's."""


class Listening(Struct, frozen=True, kw_only=True):
    """Where is listened. `url` is how others reach it, where that is not the address itself: the
    name of this machine, or a proxy. `proxy` is the address from which that one comes. `node` is
    how other nodes reach it, None where there are none."""

    host: str = "127.0.0.1"
    port: int = 8260
    certificate: str | None = None
    key: str | None = None
    url: str | None = None
    http2: bool = False
    proxy: str | None = None
    node: str | None = None

    @property
    def outside(self) -> Sequence[str]:
        """How others reach it, as somebody has said."""
        return [it for it in (self.url, self.node) if it is not None]

    @property
    def is_local(self) -> bool:
        """Whether this machine alone can reach it."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def check(self) -> None:
        """Refuse what cannot be, and to send what is said through a network where others can read
        it; SettingsError."""
        if self.http2 and find_spec("hypercorn") is None:
            raise SettingsError(
                "--http2 takes hypercorn, which is not there: pip install acphold[http2]"
            )
        if self.node is not None and NODE_TOKEN not in os.environ:
            raise SettingsError(
                f"nodes come to each other with a token, which {NODE_TOKEN} has at each of them: "
                "`acphold token create --node` prints one"
            )
        is_encrypted = self.certificate is not None or (self.url or "").startswith("https:")
        if not (self.is_local or is_encrypted):
            raise SettingsError(
                f"other machines reach {self.host}, so what is said has to be encrypted: give "
                "--tls-cert and --tls-key, or with --url the https address of the proxy in front; "
                "or leave out --listen, and reach it with `ssh -L 8260:localhost:8260`"
            )

    def origins(self, port: int) -> list[str]:
        """By what origins it is known, the one to tell others first."""
        scheme = "https" if self.certificate is not None else "http"
        names = ["localhost", "127.0.0.1", "[::1]"]
        if self.host not in (*EVERYWHERE, *names):
            names.insert(0, f"[{self.host}]" if ":" in self.host else self.host)
        return [
            *(origin_of(it) for it in self.outside),
            *(origin_of(f"{scheme}://{name}:{port}") for name in names),
        ]

    def running(self, journal: str, origins: Sequence[str]) -> Running:
        """What this machine is told of it, where these are the origins by which it is known."""
        known_as = localhost(origins)
        is_here = self.is_local or self.host in EVERYWHERE
        here = known_as if is_here else origins[len(self.outside)]
        return Running(journal, here, origins[0], known_as)


class Serving(Struct, frozen=True):
    """What is told once somebody may come: the address, a code to pair with, and the agents, the
    default one first."""

    url: str
    pair: str
    agents: tuple[str, ...] = ()


async def serve(
    services: Mapping[str, Service],
    default: str,
    listening: Listening,
    *,
    ready: Callable[[Serving], None],
    stop: asyncio.Event,
    called: Callable[[SessionRow], str] = attrgetter("agent"),
    linger: float = LINGER_SECONDS,
    export: Export | None = None,
) -> None:
    """Serve these agents until `stop` is set; tokens are those of the default one's journal.
    `called` and `linger` are as `Endpoints` has them, `export` as `Reports` has it.

    Raises SettingsError, JournalError, and OSError where the address is taken.
    """
    listening.check()
    with _bound(listening) as bound:
        origins = listening.origins(bound.getsockname()[1])
        tokens = served_journal(services[default].journal)
        try:
            connections = _connections(listening)
            proxies = () if listening.proxy is None else (listening.proxy,)
            gate = Gate(tokens, origins, connections, proxies=proxies)
            pairing = Pairing(asyncio.get_running_loop().time)
            await _let_this_user_in(gate, tokens, origins)
            kept = KeptSubscriptions(named(services[default].journal))
            stirrings = Stirrings()
            services = {
                name: replace(service, stirred=stirrings) for name, service in services.items()
            }
            async with (
                gate.audit.kept(),
                Endpoints(
                    services, default, tokens, called=called, linger=linger, node=listening.node
                ) as endpoints,
                HttpClients(endpoints, gate) as http,
                _looking(gate.look, TOKENS_SECONDS),
                _looking(connections.look, LOOK_SECONDS),
                JournalReader(services[default].journal) as reader,
                ListFeed(reader, gate, stirrings) as feed,
                PushSender() as sender,
                Notices(reader, gate, sender, kept, _answers_for(origins[0]), stirrings) as notices,
            ):
                metrics = Metrics(reader, http, feed)
                pages, reports = JournalPages(reader), Reports(reader, export)
                app = application(
                    endpoints,
                    gate,
                    pairing,
                    http,
                    pages,
                    feed,
                    metrics,
                    PageFiles(),
                    reports,
                    notices,
                )
                limit = max(service.options.max_message for service in services.values())
                async with _running(app, bound, listening, connections, limit):
                    with noted(listening.running(services[default].journal, origins)):
                        ready(Serving(origins[0], pairing.new_code(Worth(SCOPES)), tuple(services)))
                        await stop.wait()
                    gate.stop()
        finally:
            await tokens.aclose()


@contextmanager
def _bound(listening: Listening) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    host = "127.0.0.1" if listening.host == "localhost" else listening.host
    with socket.create_server((host, listening.port), family=family) as bound:
        yield bound


def _answers_for(origin: str) -> str:
    """Whom a push service may ask about what we send (RFC 8292, 2.1): https, or mail."""
    return origin if origin.startswith("https:") else "mailto:nobody@example.com"


def localhost(origins: Sequence[str]) -> str:
    """The one for which the commands of this user have a token."""
    return next(it for it in reversed(origins) if urlsplit(it).hostname == "localhost")


async def _let_this_user_in(gate: Gate, tokens: Access, origins: list[str]) -> None:
    """Keep a token for the commands of this user on this machine, where they look for one."""
    origin = localhost(origins)
    kept = token_for(origin)
    if kept is not None:
        for token in await tokens.access_tokens():
            if token.id == token_id(kept) and token.is_of(kept) and token.is_good(now_ms()):
                return
    remember(origin, await gate.grant("this machine", SCOPES))


def _connections(listening: Listening) -> Connections:
    """None yet, within what this process may open."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_proxied = listening.url is not None and listening.certificate is None
    return Connections(bounds(descriptors), is_proxied=is_proxied)


@asynccontextmanager
async def _looking(look: Callable[[], Awaitable[None]], seconds: float) -> AsyncIterator[None]:
    """Look every so many seconds, for the block."""

    async def keep_looking() -> None:
        while True:
            await asyncio.sleep(seconds)
            await look()

    looking = asyncio.create_task(keep_looking(), name=look.__qualname__)
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


@asynccontextmanager
async def _running(
    app: Application,
    bound: socket.socket,
    listening: Listening,
    connections: Connections,
    limit: int,
) -> AsyncIterator[None]:
    """Answer requests for the block."""
    if listening.http2:
        from acphold.web import http2  # an extra

        async with http2.running(
            app,
            partial(_accepting, bound=bound),
            connections,
            certificate=listening.certificate,
            key=listening.key,
            limit=limit,
            heartbeat=HEARTBEAT_SECONDS,
            last=LAST_SECONDS,
        ):
            yield
        return
    # What strangers send that is no HTTP is nothing to warn of, and would fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = _Server(
        connections,
        uvicorn.Config(
            app,
            http=HttpProtocol,
            ws=DirectSocketProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ssl_certfile=listening.certificate,
            ssl_keyfile=listening.key,
            ws_max_size=limit,
            ws_ping_interval=HEARTBEAT_SECONDS,
            ws_ping_timeout=HEARTBEAT_SECONDS,
            # It would take memory for each connection, and time for each message.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=int(LAST_SECONDS),
        ),
    )
    running = asyncio.create_task(server.serve(sockets=[bound]), name="uvicorn")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait({running})
    running.result()


async def _accepting(arrival: Callable[[], Arrival], bound: socket.socket) -> asyncio.Server:
    """Take in whoever comes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(arrival, sock=bound, backlog=AT_ONCE)
    bound.listen(BACKLOG)
    if sys.platform == "linux":
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_SECONDS)
    return server


class _Server(uvicorn.Server):
    """That of uvicorn, whose connections are counted from their first moment."""

    def __init__(self, connections: Connections, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = [await _accepting(self._arrival, each) for each in sockets or ()]
        self.started = True

    def _arrival(self) -> Arrival:
        return Arrival(
            self._connections,
            self.config.ssl,
            lambda state: HttpProtocol(self.config, self.server_state, state),
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `stop` is what ends us
