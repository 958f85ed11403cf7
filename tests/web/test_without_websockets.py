"""Behind a proxy without WebSockets, our client uses HTTP, and nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import acphold
from tests.watched_processes import until
from tests.web.conftest import ACPHOLD, Served
from tests.web.network import Network, network, served_through

pytestmark = pytest.mark.slow

FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


@pytest_asyncio.fixture
async def forbidding() -> AsyncIterator[Network]:
    async with network() as made:
        made.refusal = FORBIDDEN
        yield made


@pytest_asyncio.fixture
async def far(forbidding: Network, tmp_path: Path) -> AsyncIterator[Served]:
    """A server whose address leads through a proxy that lets no WebSocket through."""
    with served_through(forbidding, tmp_path) as served:
        yield served


async def test_http_is_found_by_itself_and_kept_when_the_connection_is_cut(
    far: Served, forbidding: Network
) -> None:
    for refusal in (FORBIDDEN, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b""):
        forbidding.refusal = refusal
        forbidding.upgrades = 0
        async with acphold.connect(far.url, token=far.token()) as agent:
            session = await agent.new_session(cwd=far.folder)
            assert "one" in (await session.prompt("quick: one")).text
            forbidding.cut()
            async with asyncio.timeout(60):
                assert "two" in (await session.prompt("quick: two")).text
            again = await agent.load_session(session.id, cwd=far.folder)
            assert str(again.state.timeline).count("quick: two") == 2  # the prompt, and its echo
        assert forbidding.upgrades == 1


async def test_a_client_comes_again_to_a_server_that_says_when(
    far: Served, forbidding: Network
) -> None:
    forbidding.refusal = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n"

    async def let_through() -> None:
        await until(lambda: forbidding.upgrades)
        forbidding.refusal = None

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(let_through())
        async with acphold.connect(far.url, token=far.token()) as agent:
            await agent.new_session(cwd=far.folder)
    assert forbidding.upgrades == 1  # the second is not counted, as nothing refuses it


async def test_an_editor_asks_and_is_asked_over_http_when_the_url_says_so(
    far: Served, forbidding: Network, tmp_path: Path
) -> None:
    state = {**far.env, "XDG_STATE_HOME": str(tmp_path / "laptop")}
    url = f"{far.url}?transport=http#pair={far.pair}"
    async with acphold.connect(*ACPHOLD, "connect", url, env=state, permission="allow") as editor:
        session = await editor.new_session(cwd=far.folder)
        assert "hi" in (await session.prompt("quick: hi")).text
        turn = await session.prompt("write a file, please")
        assert turn.stop_reason == "end_turn"
        assert [info.session_id async for info in editor.sessions()] == [session.id]
    assert forbidding.upgrades == 0


async def test_who_is_let_in_no_more_is_told_so_over_http_too(
    far: Served, forbidding: Network
) -> None:
    with pytest.raises(acphold.AcpError, match="the token was revoked"):
        async with acphold.connect(far.url, token="acphold_no_token"):
            pass
    with pytest.raises(acphold.AcpError, match="no agent at that address"):
        async with acphold.connect(f"{far.url}/acp/nobody", token=far.token()):
            pass
    token = far.token()
    async with far.session(token) as session:
        await session.prompt("quick: one")
        far.run("access", "revoke", token.split("_")[1])
        async with asyncio.timeout(60):
            with pytest.raises(acphold.AcpError, match="the token was revoked"):
                await _until_refused(session)


async def test_a_transport_that_there_is_not_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(acphold.DeclarationError, match="websocket or http"):
        async with acphold.connect("http://localhost:1/?transport=pigeon"):
            pass


async def _until_refused(session: acphold.RemoteSession) -> None:
    while True:
        await session.prompt("quick: two")
