"""A server has no agents and no sessions: it may end, and its daemon may, without the other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

import acphold
from acp_wire.transports.streams import memory_pair
from acphold.errors import InvalidParamsError
from acphold.live.server import bounds
from acphold.live.server.relay_protocol import RelayedClient, read_relayed
from acphold.machine import unix
from acphold.machine.runtime_folder import is_of_daemon
from tests.editor import DEADLINE, received, scripted_agent
from tests.watched_processes import until
from tests.web.conftest import Served, serving

pytestmark = pytest.mark.slow

CLIENT = RelayedClient("mark", 7, "agent", 1 << 20, "phone", ("watch",), "alice", None, False)


def socket_of(served: Served) -> str:
    """The socket of its daemon."""
    paths = map(str, Path(served.env["XDG_RUNTIME_DIR"]).rglob("*.sock"))
    return next(path for path in paths if is_of_daemon(path))


async def test_a_turn_goes_on_while_its_server_is_killed_and_the_next_one_shows_it(
    tmp_path: Path,
) -> None:
    log, end = tmp_path / "log", tmp_path / "end"
    with serving(tmp_path, agent=tuple(scripted_agent(log=str(log)))) as served:
        token = served.token()
        async with served.session(token, cwd=tmp_path) as session:
            words = [{"say": "begun"}, {"until": str(end)}, {"say": "done"}]
            session.prompt(json.dumps(words))
            await until(lambda: "begun" in str(session.state.timeline))
            daemon = served.daemon
            await asyncio.to_thread(served.start_alone_again)
        async with acphold.connect(served.url, token=token) as agent:
            again = await agent.load_session(session.id, cwd=tmp_path)
            assert "begun" in str(again.state.timeline)
            end.touch()
            await until(lambda: "done" in str(again.state.timeline))
        assert served.daemon == daemon
        assert len(received(log, "initialize")) == 1
        assert len(received(log, "session/prompt")) == 1


async def test_a_server_whose_daemon_was_killed_serves_with_the_next_one(served: Served) -> None:
    token = served.token()
    async with served.session(token) as session:
        assert "one" in (await session.prompt("quick: one")).text
    first = served.daemon
    first.kill()
    await asyncio.to_thread(first.wait, DEADLINE)
    async with acphold.connect(served.url, token=token) as agent:
        again = await agent.load_session(session.id, cwd=served.folder)
        assert "one" in str(again.state.timeline)
        assert "two" in (await again.prompt("quick: two")).text
    assert served.daemon != first


async def test_a_daemon_serves_no_client_of_a_server_that_it_does_not_know(served: Served) -> None:
    transport = await unix.connect(socket_of(served), DEADLINE)
    transport.send(CLIENT.line)
    async with asyncio.timeout(DEADLINE):
        assert await transport.receive() == b""
    await transport.aclose()


async def test_a_client_of_the_network_cannot_say_that_it_is_somebody_else(
    served: Served,
) -> None:
    headers = {"Authorization": f"Bearer {served.token('--scope', 'watch')}"}
    address = served.url.replace("http", "ws", 1) + "/acp"
    async with connect(address, additional_headers=headers) as socket:
        await socket.send(CLIENT.line.decode())
        asked = [
            ("initialize", {"protocolVersion": 1}),
            ("session/new", {"cwd": str(served.folder), "mcpServers": []}),
        ]
        for id_, (method, params) in enumerate(asked):
            call = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
            await socket.send(json.dumps(call))
            async with asyncio.timeout(DEADLINE):
                answer = json.loads(await socket.recv())
            assert answer["id"] == id_
        assert "manage" in answer["error"]["message"]


@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_the_line_of_a_client_is_read_in_any_pieces_and_what_follows_is_the_clients_own(
    step: int,
) -> None:
    near, far = memory_pair()
    sent = CLIENT.line + b'{"jsonrpc":"2.0"}\n'
    reading = asyncio.create_task(read_relayed(far))
    for at in range(0, len(sent), step):
        near.send(sent[at : at + step])
        await asyncio.sleep(0)
    transport, client = await reading
    assert client == CLIENT
    rest = b""
    while len(rest) < len(b'{"jsonrpc":"2.0"}\n'):
        rest += await transport.receive()
    assert rest == b'{"jsonrpc":"2.0"}\n'


@pytest.mark.parametrize("sent", [b'{"jsonrpc":"2.0","method":"x"}\n', CLIENT.line[:20], b"x" * 99])
async def test_a_connection_of_anybody_else_is_read_from_its_first_byte(sent: bytes) -> None:
    near, far = memory_pair()
    near.send(sent)
    await near.aclose()
    transport, client = await read_relayed(far)
    assert client is None
    assert await transport.receive() == sent


async def test_a_line_that_is_too_long_or_says_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = memory_pair()
    near.send(CLIENT.line.replace(b'"phone"', b"7"))
    with pytest.raises(InvalidParamsError, match=r"Expected `str`, got `int` - at `\$\.name`"):
        await read_relayed(far)
    monkeypatch.setattr(bounds, "RELAYED_BYTES", 100)
    near, far = memory_pair()
    near.send(CLIENT.line[:120])
    with pytest.raises(InvalidParamsError):
        await read_relayed(far)
