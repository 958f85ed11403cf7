"""Words into a running turn, from a client's side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold import CapabilityError, RemoteSession
from acphold.conversation.history.timeline import Message
from tests.client.test_remote_queue import wrapped

STEERS: dict[str, Any] = {
    "meta": {"steering": {"supported": True}},
    "replies": {
        "_session/steering": [{"outcome": "injected"}, {"outcome": "promptRequired"}],
    },
}


def spoken(session: RemoteSession) -> list[tuple[str, str]]:
    """The messages after the prompt that began the turn, with their roles."""
    said = [item for item in session.state.timeline if isinstance(item, Message)]
    return [(item.role, item.text) for item in said[1:]]


async def test_words_into_a_turn_stand_in_it_as_the_users_live_and_in_a_replay(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with wrapped(journal, **STEERS) as agent:
        session = await agent.new_session(tmp_path)
        assert session.has_steering
        updates = session.updates()
        prompt = [{"say": "before"}, {"until": str(go)}, {"say": "behind"}]
        turn = session.prompt(json.dumps(prompt))
        await anext(updates)
        assert await session.steer("in French, please")
        assert not await session.steer("too late")
        go.touch()
        await turn
        live = spoken(session)
        assert live == [("agent", "before"), ("user", "in French, please"), ("agent", "behind")]
        await session.close()
        again = await agent.load_session(session.id, cwd=tmp_path)
        assert spoken(again) == live


async def test_an_agent_without_it_is_asked_nothing(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with wrapped(journal, log=str(log), meta={"steering": {"supported": "yes"}}) as agent:
        session = await agent.new_session(tmp_path)
        assert not session.has_steering
        with pytest.raises(CapabilityError, match="accept messages in a running turn"):
            await session.steer("in French, please")
    assert "_session/steering" not in log.read_text(encoding="utf-8")
