"""One hub in this process: an agent that says what a test says, and clients in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_wire.rpc import Transport
from acp_wire.rpc.requests import Answer
from acp_wire.schema import AgentCapabilities, decode
from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import MemoryTransport, memory_pair
from acphold.errors import JournalUnavailableError, RemoteError
from acphold.journal.journal import Journal
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import (
    AgentCall,
    AgentListener,
    AgentRequest,
    HubAgent,
    Updates,
)
from acphold.live.agents.terms import Terms
from acphold.live.hub import bounds
from acphold.live.hub.alerts import NO_ALERTS, Alerts
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.server.connection import ClientConnection
from acphold.live.server.directory import Directory
from acphold.live.server.principals import THIS_USER, Door, Principal
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE
from tests.served import Caller


class PuppetAgent(HubAgent):
    """An agent whose strings a test pulls."""

    def __init__(self, listener: AgentListener) -> None:
        super().__init__(Surroundings.here())
        self._terms = Terms()
        self.key = "puppet"
        self.takes_a_moment = True
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.calls: list[AgentCall] = []  # a call's id is its place
        self.cancelled = asyncio.Event()
        self.results: dict[str, Answer] = {}
        self.opened: dict[str, Any] = {}  # fields of the answer to session/new beside the id
        self.lists: list[dict[str, Any]] = []  # a folder is asked for letter by letter
        self.replays: dict[str, list[bytes]] = {}
        self.replays_behind: dict[str, list[bytes]] = {}  # its answer
        self.replays_of: dict[str, list[bytes]] = {}  # a load, by the session
        self.replayed = asyncio.Event()
        self.says_behind: dict[str, str] = {}
        self.notice_behind_new = b""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.heeds_cancel = True
        self.withdrawn: list[str] = []
        self._withdrawn: set[AgentCall] = set()
        self.hangs_after: dict[str, int] = {}
        self.listener = listener
        self.first_id = 0  # of the sessions it makes
        self._made = 0
        self.made = ""  # the newest session
        self._turns: dict[str, AgentCall] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    # -- pulled by the test -----------------------------------------------------------------

    def can(self, *session_capabilities: str) -> None:
        """Advertise these, and open sessions so; "load" is `loadSession`."""
        can = {
            "loadSession": "load" in session_capabilities,
            "sessionCapabilities": {name: {} for name in session_capabilities if name != "load"},
        }
        self.capabilities = decode(AgentCapabilities, json.dumps(can).encode()).value
        for name in {"load", "resume"}.intersection(session_capabilities):
            self.results.setdefault(f"session/{name}", b"{}")

    async def say(self, session: str, *texts: str) -> None:
        """A chunk of text for each, all in one read."""
        await self.listener.hear(Updates(session, "update", [said(text) for text in texts]))

    async def flood(self, session: str) -> None:
        """Say four megabytes: a client that reads nothing lags behind then."""
        for _ in range(400):
            await self.say(session, f"{'x' * 10_000} ")

    async def ask_client(self, method: str, **params: Any) -> Any:
        """The clients' answer to a request of this agent."""
        return json.loads(
            await self.listener.answer(AgentRequest(method, json.dumps(params).encode()))
        )

    async def end(self, session: str, answer: Answer = b'{"stopReason":"end_turn"}') -> None:
        """Answer the prompt of the running turn."""
        await self._turns.pop(session).take(answer)

    async def prompted(self, session: str) -> None:
        """Wait until a turn runs in this session."""
        async with asyncio.timeout(DEADLINE):
            while session not in self._turns:
                self._news.clear()
                await self._news.wait()

    @property
    def at_work(self) -> list[str]:
        """Its sessions in which a turn runs."""
        return [*self._turns]

    async def until_at_work(self) -> None:
        """Wait until a turn runs in any session."""
        async with asyncio.timeout(DEADLINE):
            while not self._turns:
                self._news.clear()
                await self._news.wait()

    async def was_asked(self, method: str) -> None:
        """Wait until this has been sent to it."""
        async with asyncio.timeout(DEADLINE):
            while method not in [asked for asked, _ in self.asked]:
                self._news.clear()
                await self._news.wait()

    # -- as the hub sees it -----------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.generation > 0

    @property
    def terms(self) -> Terms:
        return self._terms

    @terms.setter
    def terms(self, terms: Terms) -> None:
        self._terms = terms

    async def initialize(self, params: bytes) -> bytes:
        self.generation += 1
        return b'{"protocolVersion":1,"agentCapabilities":{}}'

    async def ensure(self) -> None:
        self.generation = self.generation or 1

    async def restart(self) -> None:
        self.generation += 1

    async def stop(self) -> bool:
        return False

    def accept_terms(self, method: str, params: bytes) -> None:
        self.terms = self.terms.after(method, params)

    def forget_sign_in(self) -> None:
        self.terms = self.terms.without_sign_in()

    def send(self, call: AgentCall) -> None:
        asked = json.loads(call.params)
        times = sum(method == call.method for method, _ in self.asked)
        self.asked.append((call.method, asked))
        self.calls.append(call)
        self._news.set()
        if call.method == "session/prompt":
            self._turns[asked["sessionId"]] = call
        elif times < self.hangs_after.get(call.method, times + 1):
            self._answering.add(asyncio.create_task(self._answer(call)))

    async def _answer(self, call: AgentCall) -> None:
        result = self.results.get(call.method)
        session = json.loads(call.params).get("sessionId", "")
        raws: list[bytes] | None = self.replays.get(call.method)
        if call.method == "session/load":
            raws = self.replays_of.get(session, raws)
        if raws:
            await self.listener.hear(Updates(session, "update", raws))
            self.replayed.set()
        await self.may_answer.wait()
        if call.method == "session/list" and self.lists:
            cwd = json.loads(call.params).get("cwd")
            found = [info for info in self.lists if cwd in (None, info["cwd"])]
            result = json.dumps({"sessions": found}).encode()
        if call.method == "session/new":
            answer = {"sessionId": f"s{self.first_id + self._made}", **self.opened}
            result = json.dumps(answer).encode()
            self.made = f"s{self._made}"
            self._made += 1
        if isinstance(result, bytes):
            await call.take(result)
        else:
            await call.take(result or RemoteError(-32601, "no such"))
        if call.method == "session/new" and self.notice_behind_new:
            made = f"s{self.first_id + self._made - 1}"
            await self.listener.hear(Updates(made, "update", [self.notice_behind_new]))
        if raws := self.replays_behind.get(call.method):
            await self.listener.hear(Updates(session, "update", raws))
        if text := self.says_behind.get(call.method):
            await self.say(session, text)

    def withdraw(self, call: AgentCall) -> None:
        self.withdrawn.append(call.method)
        self._withdrawn.add(call)

    def call_of(self, number: int) -> AgentCall | None:
        call = dict(enumerate(self.calls)).get(number)
        return None if call in self._withdrawn else call

    async def tell(self, method: str, params: bytes) -> None:
        self.told.append((method, json.loads(params)))
        if method == "session/cancel":
            session = json.loads(params)["sessionId"]
            self.cancelled.set()
            if session in self._turns and self.heeds_cancel:
                await self.end(session, b'{"stopReason":"cancelled"}')


class InMemory(Caller):
    """A client that may have a name."""

    async def introduce(self, name: str | None, capabilities: dict[str, Any]) -> None:
        """Send `initialize`."""
        params: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": capabilities}
        if name is not None:
            params["clientInfo"] = {"name": name, "version": "1.0"}
        await self.call("initialize", params)


async def nowhere(transport: Transport) -> None:
    """No session of these clients is anywhere else."""
    raise AssertionError("a line to this process")


class Onlooker(InMemory):
    """One that is attached to a hub of this process."""

    def __init__(self, transport: MemoryTransport, connection: ClientConnection) -> None:
        super().__init__(transport)
        self.connection = connection
        self.left = asyncio.Event()


PERMISSION = "session/request_permission"


class Person:
    """Answers a permission request, or another one, when told to."""

    def __init__(self, client: InMemory, method: str = PERMISSION) -> None:
        self.asked = asyncio.Event()
        self.times = 0
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        client.answers[method] = self._asked

    async def _asked(self, _: dict[str, Any]) -> Any:
        self.times += 1
        self.asked.set()
        return await self.answer


def methods(client: Onlooker) -> list[str]:
    """The methods of all messages that this client got, in order."""
    return [message["method"] for message in client.messages if "method" in message]


class Shared:
    """A hub with one desk, its agent, and a way to more clients."""

    def __init__(self, desk: Desk, agent: PuppetAgent, journal: Journal) -> None:
        self.desk = desk
        self.hub = desk.hub
        self.agent = agent
        self.journal = journal
        self.unstable = False  # True if new clients are offered unstable methods
        self._tasks: list[asyncio.Task[None]] = []

    async def client(self, *, name: str | None = None, **capabilities: Any) -> Onlooker:
        """One more client, introduced, by name if it has one.

        While its `reads` is cleared it takes nothing.
        """
        client = self.stranger()
        await client.introduce(name, capabilities)
        return client

    def stranger(self, principal: Principal = THIS_USER, door: Door | None = None) -> Onlooker:
        """One more client, which has not introduced itself."""
        near, far = memory_pair()
        connection = ClientConnection(
            Directory(self.desk),
            far,
            unstable=self.unstable,
            principal=principal,
            door=door,
            attend_here=nowhere,
        )
        client = Onlooker(near, connection)
        self._tasks.append(asyncio.create_task(self._serve(client)))
        self._tasks.append(asyncio.create_task(client.read()))
        return client

    async def give_way(self) -> None:
        """From now on another process may take its sessions: there is no way to it otherwise."""
        await self.journal.renew(retiring=True)

    async def opened(self, folder: Path | str = "/", **capabilities: Any) -> tuple[Onlooker, str]:
        """One more client, and a session that it has made."""
        client = await self.client(**capabilities)
        return client, await client.new(folder)

    async def pair(self, **capabilities: Any) -> tuple[Onlooker, Onlooker, str]:
        """Two more clients, and a session that the first has made and the second has loaded."""
        one, session = await self.opened(**capabilities)
        return one, await self.loaded(session, **capabilities), session

    async def loaded(self, session: str, /, **capabilities: Any) -> Onlooker:
        """One more client, which has loaded a session."""
        client = await self.client(**capabilities)
        await client.load(session)
        return client

    async def begun(
        self, client: Onlooker, session: str, text: str, *, own: str = ""
    ) -> asyncio.Future[Any]:
        """A turn that runs at the agent, which may know the session by an id of its own."""
        turn = client.begin_prompt(session, text)
        await self.agent.prompted(own or session)
        return turn

    async def at_work(self, client: Onlooker, folder: Path | str = "/") -> str:
        """A session in this folder, with a turn of this client that runs."""
        session = await client.new(folder)
        await self.begun(client, session, "do it")
        return session

    async def told(self, client: Onlooker, session: str, text: str) -> None:
        """The agent says this, and the client has been told so."""
        await self.agent.say(session, text)
        await client.until_text(text)

    async def talked(self, text: str, *says: str, **capabilities: Any) -> tuple[Onlooker, str]:
        """One more client, and a session in which it has had this turn."""
        client, session = await self.opened(**capabilities)
        await self.turn(client, session, text, *says)
        return client, session

    async def in_turn(
        self, text: str, **capabilities: Any
    ) -> tuple[Onlooker, str, asyncio.Future[Any]]:
        """One more client, a session that it has made, and a turn there that runs."""
        client, session = await self.opened(**capabilities)
        return client, session, await self.begun(client, session, text)

    async def ended(self, session: str, turn: Awaitable[Any]) -> Any:
        """The answer to a prompt, whose turn the agent ends now."""
        await self.agent.end(session)
        return await turn

    async def turn(
        self, client: Onlooker, session: str, text: str, *says: str, own: str = ""
    ) -> Any:
        """A whole turn, in which the agent says these one after the other; its answer."""
        turn = await self.begun(client, session, text, own=own)
        for said in says:
            await self.agent.say(own or session, said)
        await self.agent.end(own or session)
        return await turn

    async def entries(self, session: str, *kinds: str) -> list[Any]:
        """The entries of these kinds, decoded."""
        segments = await self.journal.read(session, 0)
        found = [entry for segment in segments for entry in segment.entries()]
        return [json.loads(entry.raw) for entry in found if entry.kind in kinds]

    async def leave(self, client: Onlooker) -> None:
        """Have a client leave, and wait until it has."""
        await client.leave()
        await self.gone(client)

    async def gone(self, client: Onlooker) -> None:
        """Wait until this client has left."""
        await asyncio.wait_for(client.left.wait(), DEADLINE)

    async def _serve(self, client: Onlooker) -> None:
        connection = client.connection
        try:
            await connection.peer.pump()
        finally:
            await connection.aclose()
            await connection.peer.aclose()
            client.left.set()

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def small_pages() -> Iterator[None]:
    """Replays read a few entries at once, so that anything can happen between two reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "FIRST_PAGE_BYTES", 64)
        patch.setattr(bounds, "PAGE_BYTES", 256)
        yield


def said(text: str, kind: str = "agent_message_chunk") -> bytes:
    """An update of an agent that says this."""
    content = {"type": "text", "text": text}
    return json.dumps({"sessionUpdate": kind, "content": content}).encode()


@asynccontextmanager
async def apart(journal: Path | str) -> AsyncIterator[tuple[Shared, Shared]]:
    """Two hubs on one journal that share nothing, and give way to each other."""
    async with shared(journal) as first, shared(journal) as second:
        await first.give_way()
        await second.give_way()
        yield first, second


@asynccontextmanager
async def shared(
    journal: Path | str,
    *,
    alerts: Alerts = NO_ALERTS,
    **options: Any,
) -> AsyncIterator[Shared]:
    """A hub over a puppet agent; at the end all of its clients are gone."""
    opened = open_journal(journal)
    agents: list[PuppetAgent] = []

    def make(listener: AgentListener) -> HubAgent:
        agents.append(PuppetAgent(listener))
        return agents[0]

    hub = Hub(opened)
    desk = Desk(hub, make, ServeOptions(**{"cancel_grace": 0.2, **options}), alerts=alerts)
    try:
        async with hub.open():
            house = Shared(desk, agents[0], opened)
            try:
                yield house
            finally:
                await house.aclose()
    finally:
        await opened.aclose()


async def until(what: Sequence[Onlooker], text: str) -> None:
    """Wait until each of these clients has been told this by the agent."""
    for client in what:
        await client.until_text(text)


async def full(*_: object, **__: object) -> Any:
    """As a journal writes on a full disk."""
    raise JournalUnavailableError("the disk is full")
