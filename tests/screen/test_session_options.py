"""Modes and models of a session, as a person changes them with keys and commands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acphold.faces.screen.flow import Flow
from acphold.faces.screen.session_options import edit_mode, next_mode, set_mode
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


@pytest.mark.parametrize(
    ("id_", "name", "is_one"),
    [
        ("acceptEdits", "Accept Edits", True),  # Claude Code
        ("auto-edit", "Auto Edit", True),  # Qwen Code
        ("autoEdit", "Auto-accept edits", True),  # Gemini CLI
        ("m1", "Accept edits", True),
        ("bypassPermissions", "Bypass Permissions", False),
        ("yolo", "YOLO", False),
        ("auto", "Auto", False),
        ("code", "Edit and accept everything", False),
    ],
)
async def test_only_a_mode_that_accepts_edits_and_nothing_else_is_one(
    id_: str, name: str, is_one: bool
) -> None:
    set_to: list[str] = []

    async def set_mode(mode: str) -> None:
        set_to.append(mode)

    def session(current: str) -> Any:
        modes = [SimpleNamespace(id=it, name=words) for it, words in (("ask", "Ask"), (id_, name))]
        return SimpleNamespace(config_options=(), mode=current, modes=modes, set_mode=set_mode)

    assert edit_mode(session(id_)) is None  # it is in it
    found = edit_mode(session("ask"))
    assert (found is not None) is is_one
    if found is not None:
        await found.enter()
        assert (found.name, set_to) == (name, [id_])
