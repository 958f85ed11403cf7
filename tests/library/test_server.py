"""One server for many clients: its cost, its end, and its place in an application."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import uvicorn
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio import client as websockets
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, Frame, Opcode

import acphold
from acp_wire import over_websocket
from acp_wire.rpc import eager_tasks
from acp_wire.transports.streams import memory_pair
from acphold.conversation.history.entries import now_ms
from acphold.journal.access import SCOPES, new_token
from acphold.journal.stores import open_journal
from acphold.library import bounds as library_bounds
from acphold.live.hub import bounds
from acphold.live.hub.desk import Desk
from acphold.live.server.service import ConnectedClient
from acphold.machine.runtime_folder import sockets
from tests.editor import DEADLINE, Refused
from tests.served import Caller
from tests.watched_processes import until


def _soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def desk() -> acphold.Agent:
    agent = acphold.Agent("desk", version="1.0")

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None:
        await turn.say(f"for {turn.session.tenant or 'everybody'}: {turn.text}")
        if turn.text == "wait":
            await asyncio.Event().wait()

    return agent


@pytest.fixture(name="server")
async def _server(journal: Path) -> AsyncIterator[acphold.Server]:
    async with desk().server(journal=journal) as found:
        yield found


async def come(
    server: acphold.Server, principal: acphold.Principal | None = None
) -> tuple[Caller, list[asyncio.Task[None]]]:
    near, far = memory_pair()
    caller = Caller(near)
    attending = server.attend(far, principal=principal)
    tasks = [asyncio.create_task(attending), asyncio.create_task(caller.read())]
    await caller.initialize()
    return caller, tasks


async def test_a_few_of_the_clients_that_come_at_once_are_let_in_in_each_pass(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_tasks, "PASS_SECONDS", 0.0)
    initialize, now, heard = Desk.initialize, 0, list[int]()

    async def noted(desk: Desk, params: bytes, *, starts: bool, anew: bool) -> bytes:
        heard.append(now)
        return await initialize(desk, params, starts=starts, anew=anew)

    monkeypatch.setattr(Desk, "initialize", noted)
    async with desk().server(journal=journal) as server:
        await come(server)  # the first client starts the agent
        crowd = asyncio.gather(*(come(server) for _ in range(3 * bounds.OPENED_AT_ONCE)))
        async with asyncio.timeout(DEADLINE):
            while not crowd.done():
                now += 1
                await asyncio.sleep(0)
        assert len(heard) == 1 + 3 * bounds.OPENED_AT_ONCE
        assert max(map(heard.count, heard)) <= bounds.OPENED_AT_ONCE
        for caller, tasks in crowd.result():
            await caller.leave()
            await asyncio.wait(tasks)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_clients_and_sessions_cost_no_descriptors(journal: Path) -> None:
    async with desk().server(journal=journal) as server:
        first, tasks = await come(server)
        await first.talk("hello")
        before = descriptors()
        for _ in range(100):
            caller, more = await come(server)
            await caller.talk("hello")
            tasks += more
        assert descriptors() <= before + 8
    assert [str(task.exception()) for task in tasks if task.exception()] == []


async def test_at_the_end_of_a_server_turns_are_over_and_clients_are_told(journal: Path) -> None:
    async with desk().server(journal=journal) as server:
        caller, tasks = await come(server)
        session = await caller.new()
        turn = caller.begin_prompt(session, "wait")
        await caller.until(lambda: "wait" in caller.text())
    await asyncio.wait(tasks)
    assert await turn == {"stopReason": "cancelled"}
    assert "acphold has stopped" in str(caller.messages)


async def test_who_leaves_ends_no_turn_of_others(server: acphold.Server) -> None:
    stays, _ = await come(server)
    session = await stays.new()
    turn = stays.begin_prompt(session, "wait")
    goes, more = await come(server)
    await goes.load(session)
    await goes.leave()
    await asyncio.wait(more)
    assert not turn.done()
    stays.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}


async def test_of_the_sessions_that_clients_left_the_last_stay_open_and_others_go_on_when_loaded(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_bounds, "LEFT_SESSIONS", 2)
    monkeypatch.setattr(library_bounds, "LEFT_LOOK_SECONDS", 0.02)
    agent, closed = desk(), list[str]()

    @agent.on_close
    async def on_close(session: acphold.Session) -> None:
        closed.append(session.id)

    async def leave(*words: str) -> str:
        caller, tasks = await come(server)
        id = await caller.new()
        for each in words:
            await caller.prompt(id, each)
        await caller.leave()
        await asyncio.wait(tasks)
        return id

    async with agent.server(journal=journal) as server:
        stays, _ = await come(server)
        opened = await stays.new()
        busy, tasks = await come(server)
        working = await busy.new()
        busy.begin_prompt(working, "wait")
        await busy.until(lambda: "wait" in busy.text())
        await busy.leave()
        await asyncio.wait(tasks)
        first, second, third = [await leave("hello") for _ in range(3)]
        await until(lambda: first in closed)
        fourth = await leave("hello")
        await until(lambda: second in closed)
        assert closed == [first, second]
        assert all(map(agent.session, (third, fourth, opened, working)))
        await stays.load(first)
        await stays.prompt(first, "again")
        assert stays.text() == "for everybody: hellofor everybody: again"


@pytest.mark.parametrize("are_closed", [True, False])
async def test_of_sessions_that_are_closed_no_object_is_left(
    journal: Path, monkeypatch: pytest.MonkeyPatch, *, are_closed: bool
) -> None:
    monkeypatch.setattr(library_bounds, "LEFT_SESSIONS", 0 if are_closed else 3)
    monkeypatch.setattr(library_bounds, "LEFT_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(bounds, "CLOSED_SESSIONS", 3)

    def live() -> Counter[str]:
        gc.collect()
        of_ours = [
            type(it) for it in gc.get_objects() if str(type(it).__module__).startswith("acphold")
        ]
        return Counter(it.__qualname__ for it in of_ours)

    async def visit(number: int) -> None:
        for _ in range(number):
            caller, tasks = await come(server)
            session = await caller.talk("hello")
            if are_closed:
                await caller.call("session/close", {"sessionId": session})
            await caller.leave()
            await asyncio.wait(tasks)

    async with desk().server(journal=journal) as server:
        await visit(5)
        await until(lambda: live()["Session"] <= 3)
        before = live()
        await visit(10)

        def left() -> dict[str, int]:  # one after the other is closed
            more = live() - before
            return {name: more[name] for name in more if more[name] >= 5}

        await until(lambda: live()["Session"] <= 3 and not left())


async def test_each_session_knows_the_client_that_has_opened_it(journal: Path) -> None:
    agent = acphold.Agent("mirror", version="1.0")

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None:
        info, can = turn.session.client_info, turn.session.client_capabilities
        await turn.say(f"{info and info.name} {can.terminal}")

    async with agent.server(journal=journal) as server:
        for name, terminal in (("first", True), ("second", False)):
            near, far = memory_pair()
            caller = Caller(near)
            tasks = [asyncio.create_task(server.attend(far)), asyncio.create_task(caller.read())]
            introduction = {
                "protocolVersion": 1,
                "clientCapabilities": {"terminal": terminal},
                "clientInfo": {"name": name, "version": "1"},
            }
            await caller.call("initialize", introduction)
            session = await caller.talk("hello")
            assert caller.text() == f"{name} {terminal}"
            await caller.call("session/close", {"sessionId": session})
            await caller.load(session)
            await caller.prompt(session, "again")
            assert caller.text().endswith(f"{name} {terminal}")
            await caller.leave()
            await asyncio.wait(tasks)


@pytest.mark.parametrize("share", [True, False])
async def test_a_server_that_does_not_share_opens_no_socket(journal: Path, share: bool) -> None:
    before = set(sockets())
    async with desk().server(journal=journal, share=share):
        assert bool(set(sockets()) - before) == share


async def test_a_server_that_is_not_open_serves_nobody(journal: Path) -> None:
    server = desk().server(journal=journal)
    with pytest.raises(RuntimeError, match="not open"):
        await server.attend(memory_pair()[0])


# -- whose sessions they are ----------------------------------------------------------------------

ANN = acphold.Principal(name="ann", tenant="acme")


async def test_a_client_of_whom_nothing_is_said_reaches_no_tenant(server: acphold.Server) -> None:
    ann, _ = await come(server, ANN)
    session = await ann.talk("gold")
    stranger, _ = await come(server)
    assert await stranger.sessions() == []
    for method, params in (
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/", "mcpServers": []}),
        ("session/prompt", {"prompt": [{"type": "text", "text": "hello"}]}),
    ):
        error = await stranger.refused(method, {"sessionId": session, **params})
        assert error.code == -32002, method
    shared = await stranger.talk("tin")
    other, _ = await come(server)
    assert [row["sessionId"] for row in await other.sessions()] == [shared]


async def test_a_principal_that_does_not_say_which_sessions_is_not_served(
    server: acphold.Server,
) -> None:
    near, far = memory_pair()
    with pytest.raises(ValueError, match=r"'bob'.*tenant, a session_id or sees_all"):
        await server.attend(far, principal=acphold.Principal(name="bob"))
    assert await near.receive() == b""


async def test_only_who_is_said_to_see_all_has_the_sessions_of_all_tenants(
    server: acphold.Server,
) -> None:
    ann, _ = await come(server, ANN)
    session = await ann.talk("gold")
    admin, _ = await come(server, acphold.Principal(name="admin", sees_all=True))
    assert [row["sessionId"] for row in await admin.sessions()] == [session]
    await admin.load(session)
    await admin.prompt(session, "silver")
    assert "silver" in ann.text()


# -- disconnecting clients -------------------------------------------------------------------------


async def test_who_is_disconnected_is_told_why_and_its_turn_goes_on(server: acphold.Server) -> None:
    ann, hers = await come(server, ANN)
    bob, _ = await come(server, replace(ANN, name="bob"))
    session = await ann.new()
    await bob.load(session)
    turn = ann.begin_prompt(session, "wait")
    await bob.until(lambda: "wait" in bob.text())
    assert server.disconnect(lambda who: who.name == "ann", reason="ann has left acme") == 1
    with pytest.raises(Refused) as refused:
        await turn
    assert (refused.value.code, refused.value.message) == (-32000, "ann has left acme")
    await asyncio.wait_for(asyncio.wait(hers), DEADLINE)
    [live] = (await bob.call("_acphold/presence"))["sessions"]
    assert (live["running"], live["clients"]) == (True, 1)
    assert server.disconnect(lambda who: who.name == "ann") == 0


async def test_who_has_signed_in_is_disconnected_by_their_tenant(journal: Path) -> None:
    agent = desk()

    @agent.auth("name", "Name")
    async def sign_in(visitor: acphold.Visitor) -> str:
        return str(visitor.meta["name"])

    async with agent.server(journal=journal) as server:
        (ann, hers), (bob, _) = await come(server), await come(server)
        for caller, name in ((ann, "acme"), (bob, "globex")):
            signing = {"methodId": "name", "_meta": {"name": name}}
            await caller.call("authenticate", signing)
        assert server.disconnect(lambda who: who.tenant == "acme") == 1
        await asyncio.wait_for(asyncio.wait(hers), DEADLINE)
        await bob.talk("hello")


async def test_a_connection_ends_when_the_access_of_its_client_expires(
    server: acphold.Server,
) -> None:
    ends = replace(ANN, expires_at=_soon(1.5))
    ann, hers = await come(server, ends)
    turn = ann.begin_prompt(await ann.new(), "wait")
    with pytest.raises(Refused, match="expired"):
        await asyncio.wait_for(turn, DEADLINE)
    await asyncio.wait_for(asyncio.wait(hers), DEADLINE)


async def test_a_client_that_has_left_is_not_kept_until_its_access_expires(
    server: acphold.Server,
) -> None:
    ann, hers = await come(server, replace(ANN, expires_at=_soon(3600)))
    await ann.leave()
    await asyncio.wait_for(asyncio.wait(hers), DEADLINE)
    del ann, hers
    gc.collect()
    assert [it for it in gc.get_objects() if type(it) is ConnectedClient] == []


async def test_the_end_of_a_server_leaves_its_journal_closed(journal: Path) -> None:
    async with desk().server(journal=journal) as server:
        ann, _ = await come(server, ANN)
        await ann.talk("hello")
        assert _opened(journal)
    assert not _opened(journal)


def _opened(journal: Path) -> list[str]:
    """Return the open files of this process that belong to a journal."""
    files = (file.path for file in psutil.Process().open_files())
    return [path for path in files if path.startswith(str(journal))]


# -- mounted ---------------------------------------------------------------------------------------


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[str]:
    """An ASGI server with this application; its port on this machine."""
    config = uvicorn.Config(
        app, port=0, ws="websockets-sansio", log_config=None, timeout_graceful_shutdown=1
    )
    server = _Uvicorn(config)
    task = asyncio.create_task(server.serve())
    await asyncio.wait_for(server.is_up.wait(), DEADLINE)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def mounted(server: acphold.Server, **options: Any) -> AsyncIterator[str]:
    """The server below /agents of an application that opens it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with server:
            yield

    app = Starlette(routes=[Mount("/agents", server.asgi(**options))], lifespan=lifespan)
    async with running(app) as place:
        yield place


class Dialled(Caller):
    """A client over a WebSocket."""

    _reading: asyncio.Task[None]

    @classmethod
    async def to(cls, url: str, **headers: str) -> Dialled:
        """One that is introduced."""
        socket = await websockets.connect(url, additional_headers=headers)
        caller = cls(over_websocket(socket))
        caller._reading = asyncio.create_task(caller.read())
        await caller.initialize()
        return caller

    async def leave(self) -> None:
        await super().leave()
        await self._reading


async def by_name(scope: Mapping[str, Any]) -> acphold.Principal | None:
    """Accepts anybody who gives a name; an author would check a cookie, or a signature."""
    name = dict(scope["headers"]).get(b"x-name", b"").decode()
    return acphold.Principal(name=name, tenant=name) if name else None


async def test_a_server_is_mounted_in_an_application_of_starlette(journal: Path) -> None:
    async with mounted(desk().server(journal=journal), admit=by_name) as place:
        ann = await Dialled.to(f"ws://{place}/agents/acp", **{"x-name": "ann"})
        session = await ann.talk("hello")
        assert ann.text() == "for ann: hello"
        bob = await Dialled.to(f"ws://{place}/agents/acp", **{"x-name": "bob"})
        assert await bob.sessions() == []
        assert (
            await bob.refused("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        ).code == -32002
        for caller in (ann, bob):
            await caller.leave()


@pytest.mark.parametrize("looks_at", ["received", "sent", ""])
async def test_messages_go_through_asgi_only_if_middleware_may_look_at_them(
    looks_at: str, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, said = WebSocketsSansIOProtocol.send, set[str]()

    async def send(protocol: Any, message: Any) -> None:
        said.add(message["type"])
        await through(protocol, message)

    monkeypatch.setattr(WebSocketsSansIOProtocol, "send", send)
    server = desk().server(journal=journal)
    app = Starlette(routes=[Mount("/agents", server.asgi(by_name))])

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        async def look() -> Any:
            return await receive()

        async def sender(message: Any) -> None:
            await send(message)

        is_received, is_sent = looks_at == "received", looks_at == "sent"
        await app(scope, look if is_received else receive, sender if is_sent else send)

    async with server, running(middleware) as place:
        ann = await Dialled.to(f"ws://{place}/agents/acp", **{"x-name": "ann"})
        await ann.talk("hello")
        assert ann.text() == "for ann: hello"
        await ann.leave()
    assert "websocket.accept" in said
    assert ("websocket.send" in said) is bool(looks_at)


async def test_a_client_may_close_behind_its_request(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with mounted(desk().server(journal=journal), admit=by_name) as place:
        socket = await websockets.connect(
            f"ws://{place}/agents/acp", additional_headers={"x-name": "ann"}
        )
        assert socket.protocol.extensions, "compression"
        asked = Frame(Opcode.TEXT, b'{"jsonrpc": "2.0", "id": 1, "method": "_none", "params": {}}')
        frames = asked, Frame(Opcode.CLOSE, Close(1000, "").serialize())
        socket.transport.write(b"".join(frame.serialize(mask=True) for frame in frames))
        async with asyncio.timeout(DEADLINE):
            await socket.wait_closed()
    assert [it.getMessage() for it in caplog.records if it.levelname == "ERROR"] == []


async def test_a_flood_over_a_websocket_is_answered_in_order(journal: Path) -> None:
    async with mounted(desk().server(journal=journal), admit=by_name) as place:
        socket = await websockets.connect(
            f"ws://{place}/agents/acp", additional_headers={"x-name": "ann"}
        )
        frames = []
        for id_ in range(100):
            method = "session/prompt" if id_ else "initialize"
            params = {"protocolVersion": 1, "sessionId": "unknown", "prompt": []}
            asked = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
            frame = Frame(Opcode.TEXT, json.dumps(asked).encode())
            frames.append(frame.serialize(mask=True))
        socket.transport.write(b"".join(frames))
        async with asyncio.timeout(DEADLINE):
            answered = [json.loads(await socket.recv())["id"] for _ in frames]
        assert answered == [*range(100)]
        await socket.close()


async def test_a_websocket_does_not_outlive_the_access_by_which_it_came(journal: Path) -> None:
    ends = _soon(2)

    async def until_then(scope: Mapping[str, Any]) -> acphold.Principal:
        return replace(ANN, expires_at=ends)

    async with mounted(desk().server(journal=journal), admit=until_then) as place:
        socket = await websockets.connect(f"ws://{place}/agents/acp")
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), DEADLINE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert "expired" in closed.value.rcvd.reason
        assert datetime.now(UTC) >= ends
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(f"ws://{place}/agents/acp")
        assert refused.value.response.status_code == 401


INTRODUCTION = {"protocolVersion": 1, "clientCapabilities": {}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INTRODUCTION}


async def begun(http: httpx2.AsyncClient) -> dict[str, str]:
    """Introduce a client; return the header of its connection."""
    answer = await http.post("/acp", json=HELLO)
    return {"acp-connection-id": answer.headers["acp-connection-id"]}


async def test_a_connection_over_http_does_not_outlive_the_access_of_who_began_it(
    journal: Path,
) -> None:
    server = desk().server(journal=journal)
    async with (
        mounted(server, admit=by_name) as place,
        httpx2.AsyncClient(base_url=f"http://{place}/agents", headers={"x-name": "ann"}) as http,
    ):
        connection = await begun(http)
        events = {**connection, "accept": "text/event-stream"}
        async with http.stream("GET", "/acp", headers=events) as stream:
            assert server.disconnect(lambda who: who.tenant == "ann") == 1
            async with asyncio.timeout(DEADLINE):
                assert [it async for it in stream.aiter_lines() if it.strip(": ")] == []
        assert (await http.post("/acp", json=HELLO, headers=connection)).status_code == 404


async def test_an_access_that_is_renewed_with_each_request_keeps_the_connection(
    journal: Path,
) -> None:
    tokens: list[str] = []
    came: list[str] = []

    def token() -> str:
        tokens.append(f"token {len(tokens)}")
        return tokens[-1]

    async def for_a_second(scope: Mapping[str, Any]) -> acphold.Principal:
        came.append(dict(scope["headers"])[b"authorization"].decode())
        return replace(ANN, expires_at=_soon(1))

    async with mounted(desk().server(journal=journal), admit=for_a_second) as place:
        first_ends = _soon(1.5)
        url = f"http://{place}/agents/acp?transport=http"
        async with acphold.connect(url, token=token) as agent:
            session = await agent.new_session("/")
            turn = session.prompt("wait")
            while datetime.now(UTC) < first_ends:
                await agent.new_session("/")
                assert not turn.is_over
                await asyncio.sleep(0.1)
            session.cancel()
            assert (await turn).stop_reason == "cancelled"
    assert came == [f"Bearer {it}" for it in tokens]
    assert len(came) > 10


async def test_an_access_over_http_that_is_not_renewed_ends(journal: Path) -> None:
    async def for_a_moment(scope: Mapping[str, Any]) -> acphold.Principal:
        return replace(ANN, expires_at=_soon(0.5))

    async with (
        asyncio.timeout(DEADLINE),
        mounted(desk().server(journal=journal), admit=for_a_moment) as place,
        httpx2.AsyncClient(base_url=f"http://{place}/agents") as http,
    ):
        connection = await begun(http)
        events = {**connection, "accept": "text/event-stream"}
        async with http.stream("GET", "/acp", headers=events) as stream:
            assert [it async for it in stream.aiter_lines() if it.strip(": ")] == []


@pytest.mark.parametrize("kind", ["starlette", "websockets"])
async def test_a_websocket_of_an_author_is_closed_with_the_reason(
    kind: str, server: acphold.Server
) -> None:
    if kind == "starlette":

        async def take(socket: WebSocket) -> None:
            await socket.accept()
            await server.attend(over_websocket(socket), principal=ANN)

        serving = running(Starlette(routes=[WebSocketRoute("/", take)]))
    else:
        serving = plain_sockets(server)
    async with serving as place:
        socket = await websockets.connect(f"ws://{place}/")
        caller = Caller(over_websocket(socket))
        reading = asyncio.create_task(caller.read())
        await caller.initialize()
        server.disconnect(lambda who: who.name == "ann", reason="ann has left " + 200 * "é")
        await asyncio.wait_for(reading, DEADLINE)
        assert socket.close_code == 1008
        assert (socket.close_reason or "").startswith("ann has left éé")


@asynccontextmanager
async def plain_sockets(server: acphold.Server) -> AsyncIterator[str]:
    """Serve connections of the `websockets` library for the block; yields the address."""

    async def take(socket: ServerConnection) -> None:
        await server.attend(over_websocket(socket), principal=ANN)

    async with serve(take, "127.0.0.1", 0) as listening:
        yield f"127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}"


@pytest.mark.parametrize(
    ("admitted", "why"),
    [
        (acphold.Principal(name="bob"), r"'bob' was not let in.* a tenant, \"\" if all share"),
        ("bob", "'bob' is neither a Principal nor None"),
    ],
)
async def test_nobody_is_let_in_of_whom_the_author_forgot_to_say_whose_sessions_they_see(
    journal: Path, caplog: pytest.LogCaptureFixture, admitted: Any, why: str
) -> None:
    async def admit(scope: Mapping[str, Any]) -> Any:
        return admitted

    async with mounted(desk().server(journal=journal), admit=admit) as place:
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(f"ws://{place}/agents/acp")
        assert refused.value.response.status_code == 500
    assert re.search(why, caplog.text)


async def test_whoever_has_the_tenant_without_a_name_shares_their_sessions(journal: Path) -> None:
    async def shared(scope: Mapping[str, Any]) -> acphold.Principal:
        return acphold.Principal(name="somebody", tenant="")

    async with mounted(desk().server(journal=journal), admit=shared) as place:
        one, other = [await Dialled.to(f"ws://{place}/agents/acp") for _ in range(2)]
        session = await one.talk("hello")
        assert [row["sessionId"] for row in await other.sessions()] == [session]
        for caller in (one, other):
            await caller.leave()


async def test_who_has_a_wrong_key_is_told_what_the_server_says_and_not_to_pair(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for admit, words in (
        (by_name, "the server could not identify you"),
        (None, "`acphold access token` makes one for the journal of this server"),
    ):
        async with mounted(desk().server(journal=journal), admit=admit) as place:
            for token in (None, "wrong"):
                with pytest.raises(acphold.RemoteRefusalError) as refused:
                    async with acphold.connect(f"http://{place}/agents/acp", token=token):
                        pass
                told = str(refused.value)
                assert told.startswith(f"http://{place}/agents/acp: it ")
                assert words in told
                assert "prints there" not in told


async def test_without_a_word_of_the_author_it_takes_a_token_and_writes_down_what_is_done_by_it(
    journal: Path,
) -> None:
    async with mounted(desk().server(journal=journal)) as place:
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(f"ws://{place}/agents/acp")
        assert refused.value.response.status_code == 401
        text, token = new_token("a phone", ("watch", "prompt", "manage"), now_ms())
        kept = open_journal(journal)
        await kept.access.keep_token(token)
        caller = await Dialled.to(f"ws://{place}/agents/acp", authorization=f"Bearer {text}")
        session = await caller.talk("hello")
        assert caller.text() == "for everybody: hello"
        await caller.leave()
    done = [(deed.deed, deed.name, deed.session_id) for deed in await kept.access.deeds(0, 10)]
    await kept.aclose()
    by_token = [("session/new", "a phone", session), ("session/prompt", "a phone", session)]
    assert done == [("refused: no token", "", None), *by_token]


async def test_a_mounted_server_that_is_opened_again_sends_revoked_tokens_away(
    journal: Path,
) -> None:
    text, token = new_token("a phone", ("watch", "prompt", "manage"), now_ms())
    kept = open_journal(journal)
    await kept.access.keep_token(token)
    server = desk().server(journal=journal)
    app = server.asgi()
    async with running(app) as place:
        caller = await Dialled.to(f"ws://{place}/acp", authorization=f"Bearer {text}")
        await caller.leave()
    async with running(app) as place:
        caller = await Dialled.to(f"ws://{place}/acp", authorization=f"Bearer {text}")
        await kept.access.keep_token(replace(token, revoked_at=now_ms()))
        await asyncio.wait_for(caller._reading, DEADLINE)
    await kept.aclose()


async def by_headers(scope: Mapping[str, Any]) -> acphold.Principal:
    """The principal that the headers name."""
    said = {name.decode(): value.decode() for name, value in scope["headers"]}
    return acphold.Principal(
        name=said.get("x-name", "ann"),
        tenant=said.get("x-tenant"),
        session_id=said.get("x-session", "one"),
        scopes=frozenset({"watch"} if "x-watch" in said else SCOPES),
    )


@pytest.mark.parametrize(
    "other",
    [{"x-name": "bob"}, {"x-tenant": "None"}, {"x-session": "s"}, {"x-watch": "1"}],
    ids=str,
)
async def test_a_connection_is_for_nobody_who_is_another_or_may_something_else(
    journal: Path, other: dict[str, str]
) -> None:
    async with (
        mounted(desk().server(journal=journal), admit=by_headers) as place,
        httpx2.AsyncClient(base_url=f"http://{place}/agents") as http,
    ):
        connection = await begun(http)
        assert (await http.delete("/acp", headers={**connection, **other})).status_code == 404
        assert (await http.delete("/acp", headers=connection)).status_code == 202


async def test_a_page_of_another_host_is_refused(journal: Path) -> None:
    async with mounted(desk().server(journal=journal), admit=by_name) as place:
        with pytest.raises(InvalidStatus) as refused:
            await Dialled.to(
                f"ws://{place}/agents/acp", **{"x-name": "ann", "origin": "https://evil.example"}
            )
        assert refused.value.response.status_code == 403
        caller = await Dialled.to(
            f"ws://{place}/agents/acp", **{"x-name": "ann", "origin": f"http://{place}"}
        )
        await caller.leave()


async def test_the_coroutines_of_a_sign_in_get_the_headers(journal: Path) -> None:
    agent = desk()

    @agent.auth("header", "By a header")
    async def sign_in(visitor: acphold.Visitor) -> str:
        raise acphold.AuthRequiredError("send the header")

    @agent.signed_in
    async def signed_in(visitor: acphold.Visitor) -> str | bool:
        return visitor.headers.get("x-tenant") or False

    async def anybody(scope: Mapping[str, Any]) -> acphold.Principal:
        return acphold.Principal(name="somebody")

    async with mounted(agent.server(journal=journal), admit=anybody) as place:
        caller = await Dialled.to(f"ws://{place}/agents/acp", **{"x-tenant": "acme"})
        await caller.talk("hello")
        assert caller.text() == "for acme: hello"
        stranger = await Dialled.to(f"ws://{place}/agents/acp")
        assert (await stranger.refused("session/list")).code == -32000
        for each in (caller, stranger):
            await each.leave()


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_a_websocket_that_is_refused_is_no_error_of_the_server(
    journal: Path, caplog: pytest.LogCaptureFixture, *, is_mounted: bool
) -> None:
    async with AsyncExitStack() as stack:
        server = desk().server(journal=journal)
        if is_mounted:
            place = await stack.enter_async_context(mounted(server, admit=by_name)) + "/agents"
        else:
            await stack.enter_async_context(server)
            place = await stack.enter_async_context(running(server.asgi(admit=by_name)))
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(f"ws://{place}/acp")
        assert refused.value.response.status_code == 401
    assert [it.message for it in caplog.records if it.levelname == "ERROR"] == []
