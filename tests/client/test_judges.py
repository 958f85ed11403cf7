"""The client, judged by programs that know the protocol: the official SDK, our own checker."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import acphold
from acp_wire.schema import AgentMessageChunk

pytestmark = pytest.mark.slow

AGENT = Path(__file__).parents[2] / "bench" / "peers" / "sdk_agent.py"


async def test_an_agent_on_the_official_sdk_is_talked_to_like_any_other(tmp_path: Path) -> None:
    async with acphold.connect(sys.executable, str(AGENT), cwd=tmp_path) as agent:
        session = await agent.new_session()
        turn = session.prompt("flood 20")
        updates = [update async for update in turn]
        assert [type(update) for update in updates] == [AgentMessageChunk] * 20
        assert turn.stop_reason == "end_turn"
        with pytest.raises(acphold.CapabilityError):
            await agent.load_session(session.id)


async def test_an_agent_that_watches_its_client_finds_nothing_wrong(tmp_path: Path) -> None:
    report, asked = tmp_path / "report.txt", asyncio.Event()

    async def never_first(question: acphold.PermissionQuestion) -> bool:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return True

    watcher = (sys.executable, "-m", "acphold", "check", "--client", "--report", str(report))
    async with (
        asyncio.timeout(60),
        acphold.connect(
            *watcher, cwd=tmp_path, on_permission=never_first, files=True, terminals=True
        ) as agent,
    ):
        session = await agent.new_session()
        await agent.authenticate(agent.auth_methods[0].id)
        await session.set_mode("code")
        for option in session.config_options:
            await session.set_option(option.id, option.current_value)
        turn = session.prompt("go")
        await asked.wait()
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        assert (await session.prompt("go")).stop_reason == "end_turn"
        async for info in agent.sessions():
            await agent.load_session(info)
    told = report.read_text()
    assert "✗" not in told
    assert "passed" in told
    assert os.listdir(tmp_path) == ["report.txt"]
