"""A train in a tunnel: nothing is missing, nothing comes twice, and nothing is silent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import acphold
from acp_wire.rpc import connected
from acphold.client.far_line import ServerEndpoint
from tests.web.conftest import Served
from tests.web.far_client import ALL_AGENTS, POSITIONS, FarClient
from tests.web.network import Network, network, served_through
from tests.web.soak import soak

pytestmark = pytest.mark.slow


@pytest_asyncio.fixture
async def failing() -> AsyncIterator[Network]:
    async with network() as made:
        yield made


@pytest_asyncio.fixture
async def far(failing: Network, tmp_path: Path) -> AsyncIterator[Served]:
    """A server whose address leads through a network that fails."""
    with served_through(failing, tmp_path) as served:
        yield served


async def test_a_turn_that_runs_while_the_connection_is_cut_is_shown_once_and_whole(
    far: Served, failing: Network
) -> None:
    async with far.session() as session:
        turn = session.prompt("slow")
        words = 0
        async with asyncio.timeout(60):
            async for _ in turn:
                words += 1
                if words in (5, 20, 40):
                    failing.cut()
                if words == 60:
                    break
        session.cancel()
        await turn
        seen = str(session.state.timeline)
        assert failing.connections >= 4
    async with acphold.connect(far.url, token=far.token()) as agent:
        again = await agent.load_session(session.id, cwd=far.folder)
    said = re.findall(r"\d+", seen.partition("text=")[2])
    kept = re.findall(r"\d+", str(again.state.timeline).partition("text=")[2])
    assert said[:40] == kept[:40]


async def test_a_forked_session_is_there_again_after_the_connection_was_lost(
    far: Served, failing: Network
) -> None:
    endpoint = ServerEndpoint(far.url, far.token(), seconds=30, limit=1 << 20)
    client = FarClient(await endpoint.open())
    async with connected(client.peer):
        await client.introduce(ALL_AGENTS | POSITIONS)
        here: dict[str, Any] = {"cwd": str(far.folder), "mcpServers": []}
        first = (await client.ask("session/new", **here))["sessionId"]
        await client.say(first, "quick: one")
        fork = (await client.ask("session/fork", sessionId=first, **here))["sessionId"]
        failing.cut()
        async with asyncio.timeout(60):
            await client.say(fork, "quick: two")
    await endpoint.aclose()
    assert far.run("show", fork).count("quick: two") == 2


async def test_whoever_waits_on_a_line_that_is_dead_is_told_and_goes_on_later(
    far: Served, failing: Network
) -> None:
    lost, back = asyncio.Event(), asyncio.Event()

    def hear(_: str, update: bytes) -> None:
        for words, event in ((b"is lost", lost), (b"is back", back)):
            if words in update:
                event.set()

    async with far.session(on_update=hear) as session:
        failing.go_down()
        async with asyncio.timeout(60):
            await lost.wait()
            failing.come_up()
            await back.wait()
        assert "here" in (await session.prompt("quick: here")).text


async def test_rounds_of_loss_and_return_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    await soak(20, 1, tmp_path)
