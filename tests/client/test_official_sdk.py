"""The client with an agent on the official Python SDK, as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import acphold
from acphold.schema import AgentMessageChunk

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
