"""Another node needs a token for nodes, and reaches live sessions and nothing else."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from acp_wire.errors import SilentPeerError
from acp_wire.schema.splice import members
from acphold.conversation.history.entries import now_ms
from acphold.errors import ConnectionLostError, JournalBusyError
from acphold.faces.cli.command_line import Exit
from acphold.journal.access import NODE, SCOPES, new_token
from acphold.live.agents.capabilities import LINE, TENANT
from acphold.live.server.principals import OTHER_NODE
from acphold.machine import addresses
from tests.cli.command_line import CommandLine
from tests.web.in_process import Site, address, site


async def node_token(web: Site) -> str:
    text, kept = new_token("nodes", (NODE,), now_ms())
    await web.journal.access.keep_token(kept)
    assert kept in await web.journal.access.tokens()
    return text


async def upgrade(web: Site, path: str, token: str) -> int:
    """The status with which a WebSocket is refused."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = web.scope(path, token, "GET", {})
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    scope |= {"type": "websocket", "subprotocols": [], "extensions": extensions}
    await web.app(scope, receive, send)
    return int(sent[0]["status"])


async def test_a_token_of_nodes_opens_what_is_for_nodes_and_a_persons_all_else(web: Site) -> None:
    (line,) = web.relay._lines.values()
    nodes, persons = await node_token(web), await web.new_token(*SCOPES)
    for path in ("/sessions", "/search?q=a", "/sessions/feed", "/metrics", address("s1")):
        assert (await web.get(path, nodes)).status == 403, path
    assert (await web.post("/codes", nodes)).status == 403
    assert (await web.post("/codes", persons, scopes=["node"])).status == 400
    owner = f"/owners/{line.node_mark}/agent"
    assert await upgrade(web, owner, persons) == 403
    assert await upgrade(web, owner, "wrong") == 401
    # That of a process that was there before.
    assert await upgrade(web, "/owners/another/agent", nodes) == 410


async def test_who_comes_while_no_token_can_be_looked_up_is_told_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_busy() -> None:
        raise JournalBusyError("another program holds it")

    async with site(tmp_path) as web:
        token, _ = new_token("a", SCOPES, now_ms())
        monkeypatch.setattr(web.journal.access, "tokens", is_busy)
        refused = await web.get("/sessions", token)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert await upgrade(web, "/acp", token) == 503


def test_a_node_says_whom_it_has_let_in_and_lends_no_files_of_its_own() -> None:
    said = (
        b'{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true,'
        b'"_meta":{"acphold/line":true,"acphold/tenant":"alice"}}}'
    )
    can = members(members(OTHER_NODE.restrict_introduction(said))["clientCapabilities"])
    assert can.keys() == {"_meta"}
    assert members(can["_meta"]) == {LINE: b"true", TENANT: b'"alice"'}


async def test_a_socket_of_another_machine_is_not_looked_for_on_this_one(tmp_path: Path) -> None:
    here = addresses.unix_address(str(tmp_path / "s.sock"))
    path, _, mark = here.rpartition("=")
    there = f"{path}={'0' if mark[0] != '0' else '1'}{mark[1:]}"
    assert not addresses.are_here([here])  # nor one of a container with the same kernel
    (tmp_path / "s.sock").touch()
    assert addresses.are_here([here])
    assert not addresses.are_here([there, "https://one.example/owners/a"])
    with pytest.raises(ConnectionLostError, match="none of its addresses"):
        await addresses.connect([there], 1.0)


async def test_other_nodes_are_asked_though_our_own_pairings_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(addresses.NODE_TOKEN, "token")
    (tmp_path / "acphold").mkdir()
    (tmp_path / "acphold" / "servers.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}/owners/a"
    with pytest.raises(ConnectionLostError, match="nothing listens there"):
        await addresses.connect([nobody], 1.0)
    assert await addresses.are_deserted([nobody], 1.0)
    with pytest.raises(SilentPeerError, match="not encrypted"):  # which proves nothing
        await addresses.connect(["http://192.0.2.1/owners/a"], 1.0)


def test_serving_as_a_node_takes_a_token_and_an_address_that_is_encrypted(tmp_path: Path) -> None:
    acphold = CommandLine(tmp_path / "journal.db")
    serve = ("serve", "--listen", "127.0.0.1:0", "--node")
    without = acphold.run_as_process(*serve, "https://one.example", "--", "agent")
    assert "access token --node" in without.err
    plain = acphold.run_as_process(*serve, "http://one.example", "--", "agent")
    assert (plain.code, "encrypted" in plain.err) == (Exit.USAGE, True)
    assert acphold.run("access", "token", "--node", "--scope", "watch").code != Exit.OK
    assert acphold.run("access", "token", "--node").code == Exit.OK
    assert "  node  " in acphold.run("access", "list").out
