"""Modes and models of a session, as a person changes them with keys and commands."""

from __future__ import annotations

import pytest

from acphold.faces.screen.flow import Flow
from acphold.faces.screen.session_options import next_mode, set_mode
from acphold.faces.screen.turns import ChatHost, ChatScreen
from acphold.testing import WatchedSession, connect
from tests.library.test_in_process import choosing
from tests.library.test_turn import agent_that
from tests.screen.test_chat import Keys


def mode(session: WatchedSession) -> str:
    """The present mode."""
    assert session.mode is not None
    return session.mode


async def test_the_key_for_the_next_mode_goes_round() -> None:
    async with connect(choosing()) as client:
        session = await client.new_session()
        seen = [mode(session)]
        for _ in range(2):
            await next_mode(session, ChatScreen(Flow(), ChatHost()))
            seen.append(mode(session))
        assert seen == ["ask", "code", "ask"]


async def test_without_modes_a_hint_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hints: list[str] = []
    monkeypatch.setattr(ChatScreen, "show_hint", lambda _, words: hints.append(words))
    async with connect(agent_that(lambda turn: turn.say("hello"))) as client:
        session = await client.new_session()
        await next_mode(session, ChatScreen(Flow(), ChatHost()))
        assert hints == ["this agent has no modes"]


async def test_a_mode_is_named_by_its_beginning_or_picked() -> None:
    async with connect(choosing()) as client:
        session = await client.new_session()
        screen = ChatScreen(Flow(), ChatHost())
        await set_mode(session, screen, "co")
        assert mode(session) == "code"
        screen.face = Keys("1")
        await set_mode(session, screen, "nothing of the kind")
        assert mode(session) == "ask"
