"""The application in the test's own process, asked as an ASGI server asks it: no agent, no port."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from acp_wire.rpc import Transport
from acp_wire.surroundings import Surroundings
from acp_wire.transports.pipes import PipeTransport
from acphold.conversation.history.entries import now_ms
from acphold.faces.cli.serve import export_page
from acphold.journal.access import Scope, new_token
from acphold.journal.journal import Journal
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import HubAgent
from acphold.live.hub.alerts import Activity
from acphold.live.server.daemon import serve_journal
from acphold.live.server.pool import PreparedAgent
from acphold.live.server.relay_protocol import AskedAgent
from acphold.live.server.service import Service
from acphold.machine.first_frame import SERVER, FirstFrame
from acphold.machine.runtime_folder import own_socket
from acphold.machine.unix import connect
from acphold.serve_options import ServeOptions
from acphold.version import __version__
from acphold.web.application import Application, ServedMoves
from acphold.web.connections import Asgi
from acphold.web.devices import Devices, Pairing
from acphold.web.exchange import HttpExchange
from acphold.web.gate import Gate
from acphold.web.http_clients import HttpClients
from acphold.web.import_requests import Importing, ImportRequests
from acphold.web.journal_pages import JournalPages, JournalReader
from acphold.web.list_feed import ListFeed
from acphold.web.metrics import Metrics
from acphold.web.notices import Notices, Send
from acphold.web.page_files import PageFiles
from acphold.web.push import KeptSubscriptions, Order, PushOutcome
from acphold.web.relay import Reach, ReachedDaemon, Relay, RelayedAgent
from acphold.web.reports import Reports
from acphold.web.rule_requests import RuleRequests
from tests.empty_journal import empty
from tests.journal.conversations import Pieces, append

ORIGIN = "http://localhost:8260"


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def answered(app: Asgi, scope: dict[str, Any], body: bytes = b"") -> Answer:
    """The answer of an application to one request of a client that stays connected."""
    sent: list[dict[str, Any]] = []
    asked = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if asked.is_set():
            await asyncio.Event().wait()
        asked.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(30):
        await app(scope, receive, send)
    head, *bodies = sent
    return Answer(
        head["status"],
        {name.decode(): value.decode() for name, value in head["headers"]},
        b"".join(each.get("body", b"") for each in bodies),
    )


def request(headers: Mapping[str, str], came: str = "") -> HttpExchange:
    """A request with these headers, from this address."""

    async def receive() -> dict[str, Any]:
        raise NotImplementedError

    async def send(message: Any) -> None:
        raise NotImplementedError

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    return HttpExchange({"type": "http", "client": (came, 1), "headers": fields}, receive, send)


@dataclass
class Site:
    """The application, and the journal that it reads."""

    app: Asgi
    journal: Journal
    gate: Gate
    feed: ListFeed
    relay: Relay
    activity: Activity
    notices: Notices
    token: str = ""

    async def new_token(
        self,
        *scopes: Scope,
        session_id: str | None = None,
        expires_at: int | None = None,
        tenant: str | None = None,
    ) -> str:
        """A token with these scopes, watch if there are none."""
        text, kept = new_token(
            *("test", scopes or ("watch",), now_ms()),
            session_id=session_id,
            expires_at=expires_at,
            tenant=tenant,
        )
        await self.journal.access.keep_token(kept)
        return text

    async def get(
        self,
        url: str,
        token: str | None = None,
        *,
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> Answer:
        """Send a request; without `token`, with one that may watch everything."""
        return await answered(self.app, self.scope(url, token, method, headers), body)

    async def post(self, url: str, token: str | None = None, **said: Any) -> Answer:
        """Send something as JSON."""
        body = json.dumps(said).encode()
        return await self.get(url, token, method="POST", body=body, content_type="application/json")

    def scope(
        self, url: str, token: str | None, method: str, headers: dict[str, str]
    ) -> dict[str, Any]:
        """The ASGI scope of a request."""
        from urllib.parse import unquote

        path, _, query = url.partition("?")
        fields = {
            "host": urlsplit(ORIGIN).netloc,
            "authorization": f"Bearer {self.token if token is None else token}",
            **{name.replace("_", "-").lower(): value for name, value in headers.items()},
        }
        return {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        }

    async def remember(
        self,
        session_id: str,
        pieces: Pieces,
        *,
        settled: bool = True,
        agent: str = "scripted",
        cwd: str = "/w",
        title: str | None = None,
        at: int | None = None,
        tenant: str = "",
    ) -> None:
        """A session with these entries."""
        new = NewSession(session_id, agent, cwd, title=title, created_at=at, tenant=tenant)
        lease = await self.journal.create(new)
        await append(self.journal, lease, pieces)
        await self.journal.change(lease, RowChange(prompted=True))
        if settled:
            await self.journal.settle(lease, lease.next_seq - 1)
        await self.journal.release(lease)


def absent(journal: str | Path) -> Service:
    """No agent, over this journal."""
    options = ServeOptions(journal=journal)
    return Service(make_agent=lambda *_: HubAgent(), options=options)


@asynccontextmanager
async def daemon_of(journal: str, services: Mapping[str, Service]) -> AsyncIterator[Reach]:
    """A daemon in this process for the block, which prepares these services for fronts whose words
    are their names."""

    @asynccontextmanager
    async def prepare(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        yield PreparedAgent(services[frame.words[0]], linger=600)

    listens, stop = asyncio.Event(), asyncio.Event()
    path = own_socket()

    @asynccontextmanager
    async def reach(journal: str) -> AsyncIterator[ReachedDaemon]:
        reached = InProcessDaemon(path)
        try:
            yield reached
        finally:
            await reached.aclose()

    serving = serve_journal(
        *(path, absent(journal), prepare),
        called=str,
        note=bool,
        stop=stop,
        stays=True,
        ready=listens.set,
    )
    task = asyncio.create_task(serving)
    try:
        await listens.wait()
        yield reach
    finally:
        stop.set()
        await task


class InProcessDaemon:
    """That daemon, once our front has come to it."""

    def __init__(self, path: str) -> None:
        self._path = path
        its_stdin, writing = os.pipe()
        reading, its_stdout = os.pipe()
        streams = [its_stdin, its_stdout, os.open(os.devnull, os.O_WRONLY)]
        self.transport: Transport = PipeTransport(reading, writing)
        self._front = socket.socket(socket.AF_UNIX)
        self._front.connect(path)
        frame = FirstFrame(__version__, (), (), Surroundings.here(), SERVER).encode()
        socket.send_fds(self._front, [frame], streams)
        for descriptor in streams:
            os.close(descriptor)

    async def connect(self) -> Transport:
        return await connect(self._path, 10)

    async def aclose(self) -> None:
        self._front.close()
        await self.transport.aclose()


async def reach_nobody(order: Order) -> PushOutcome:
    """There is no push service."""
    return PushOutcome(0, "none")


class NothingToImport:
    """No agent has left anything."""

    async def find(self) -> tuple[Mapping[str, int], bool]:
        return {}, True

    async def left(self) -> dict[str, dict[str, int]]:
        return {}

    async def run(self) -> str:
        return ""


@asynccontextmanager
async def site(
    folder: Path,
    *origins: str,
    services: Mapping[str, Service] | None = None,
    page: PageFiles | None = None,
    send: Send = reach_nobody,
    importing: Importing | None = None,
    turn_seconds: float = 60.0,
) -> AsyncIterator[Site]:
    """The application for the block, with a journal of its own in the folder; of the services the
    first is the default one."""
    path = folder / "journal.db"
    services = services or {"agent": absent(path)}
    journal = open_journal(empty(path))
    gate = Gate(journal.access, origins or (ORIGIN,))
    pairing = Pairing()
    activity = Activity()
    agents = [
        RelayedAgent(AskedAgent(name, (name,), ()), str(path), it.options.max_message)
        for name, it in services.items()
    ]
    try:
        async with (
            daemon_of(str(path), services) as reach,
            Relay(agents, reach, activity) as relay,
            HttpClients(relay, gate) as http,
            JournalReader(str(path)) as reader,
            ListFeed(reader, gate, activity) as feed,
            Notices(
                *(reader, gate, send, KeptSubscriptions(str(path)), "mailto:a@b.c", activity),
                turn_seconds=lambda: turn_seconds,
            ) as notices,
            AsyncExitStack() as more,
        ):
            imports = ImportRequests(importing or NothingToImport())
            more.push_async_callback(imports.aclose)
            app = Application(
                relay=relay,
                gate=gate,
                devices=Devices(gate, pairing, report=bool),
                http=http,
                pages=JournalPages(reader),
                feed=feed,
                metrics=Metrics(reader, http, feed, relay),
                moves=ServedMoves(journal),
                page=page or PageFiles(folder / "no page"),
                reports=Reports(reader, export_page),
                rules=RuleRequests(reader),
                notices=notices,
                imports=imports,
            )
            found = Site(app, journal, gate, feed, relay, activity, notices)
            found.token = await found.new_token()
            yield found
    finally:
        await journal.aclose()


def address(session_id: str, **parameters: object) -> str:
    """That of the entries of a session."""
    query = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
    return f"/sessions/{quote(session_id, safe='')}/entries?{query}"


def texts(entries: Sequence[Any]) -> list[int]:
    """The numbers of entries."""
    return [entry["seq"] for entry in entries]
