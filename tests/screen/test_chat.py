"""A person at a session: their keys, and the screen's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from acphold.client import RemoteSession
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue
from acphold.faces.screen.chat import Chat
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import Passage
from acphold.faces.screen.panels import Field, KeyChoice
from acphold.faces.screen.turns import ChatHost
from acphold.live.reading.one_question import PRESENCE
from acphold.machine.foreground import ForegroundProgram
from tests.client.far_agent import DEADLINE, FarAgent, talking
from tests.screen.test_flow import shown, taken, tool


class Keys:
    """A face on which these keys are pressed, one for each choice. `menus` are the choices shown,
    `queue` the waiting prompts, and `back` the texts that came back into the input."""

    asks = False
    closed = False

    def __init__(self, *keys: str) -> None:
        self.menus: list[KeyChoice] = []
        self.queue = NO_QUEUE
        self.back: list[str] = []
        self._keys = list(keys)
        self._news = asyncio.Event()

    def refresh(self) -> None:
        self._news.set()

    async def choose(self, choice: KeyChoice) -> str | None:
        self.menus.append(choice)
        return choice.answer(self._keys.pop(0))

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        raise AssertionError("nothing is asked here")

    async def in_front(self, program: ForegroundProgram) -> int:
        raise AssertionError("nothing is started here")

    async def read(self, passages: Sequence[Passage]) -> None:
        raise AssertionError("nothing is read here")

    def ring(self) -> None:
        """Nobody hears it."""

    def insert(self, text: str) -> None:
        raise AssertionError("nothing is typed here")

    def put_back(self, text: str) -> None:
        self.back.append(text)
        self.refresh()

    def show_queue(self, queue: PromptQueue) -> None:
        self.queue = queue
        self.refresh()

    def close(self) -> None:
        self.closed = True

    async def next_change(self) -> None:
        """Wait until something else is to be shown."""
        async with asyncio.timeout(DEADLINE):
            await self._news.wait()
        self._news.clear()


def select(option_id: str, *values: str, **fields: Any) -> dict[str, Any]:
    options = [{"value": value, "name": value.title()} for value in values]
    current = {"currentValue": values[0] if values else "none", "options": options}
    return {"id": option_id, "name": option_id.title(), "type": "select", **current, **fields}


@asynccontextmanager
async def chat(
    keys: Keys, *options: dict[str, Any], **initialize: Any
) -> AsyncIterator[tuple[Chat, FarAgent]]:
    """Somebody at a session of an agent with these options, and members of its `initialize`."""
    far = FarAgent(**initialize)

    @far.on("session/new")
    async def new(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessionId": "s1", "configOptions": options}

    @far.on("session/set_config_option")
    async def set_option(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
        return {"configOptions": options}

    async with talking(far) as agent:
        at = Chat(Flow())
        at.screen.face = keys
        at.begin(agent, await agent.new_session("/tmp"))
        try:
            yield at, far
        finally:
            await at.aclose()


MODELS = [f"model-{number}" for number in range(1, 41)]


@pytest.mark.parametrize(
    ("pressed", "value"),
    [
        ("2", "model-2"),
        ("f", "model-15"),
        ("m1", "model-16"),
        ("mma", "model-40"),
        ("mmm1", "model-1"),
    ],
)
async def test_each_value_of_an_option_can_be_picked_however_many_there_are(
    pressed: str, value: str
) -> None:
    keys = Keys("1", *pressed)
    async with chat(keys, select("model", *MODELS)) as (at, far):
        at.commands.start("options")
        await far.until("session/set_config_option")
        assert far.params("session/set_config_option")["value"] == value
        assert "there are 40" in keys.menus[1].keys[-2].words


async def test_a_menu_that_is_left_changes_nothing() -> None:
    keys = Keys("1", "escape", "escape")
    async with chat(keys, select("model", "a", "b")) as (at, far):
        for menus in (2, 3):
            at.commands.start("options")
            await keys.next_change()
            assert len(keys.menus) == menus
        assert "session/set_config_option" not in far.methods()


async def test_a_mode_option_without_any_value_is_no_mode() -> None:
    keys = Keys()
    async with chat(keys, select("mode", category="mode")) as (at, _):
        at.commands.start("next mode")
        await keys.next_change()
        assert at.status() == ("this agent has no modes",)


@pytest.mark.parametrize("name", ["new", "resume"])
async def test_who_only_watches_begins_nothing_elsewhere(name: str) -> None:
    keys = Keys()
    at = Chat(Flow(), reads_only=True)
    at.screen.face = keys
    at.commands.start(name, "another")
    await keys.next_change()
    assert at.commands.goes_to is None
    assert "not available here" in "".join(at.status())


async def test_a_turn_is_over_before_what_comes_behind_its_answer() -> None:
    far, at = FarAgent(), Chat(Flow())

    @far.on("session/new")
    async def new(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessionId": "s1"}

    @far.on("session/prompt")
    async def prompt(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
        far.say("s1", "of ours")
        answer = {"jsonrpc": "2.0", "id": far.got[-1]["id"], "result": {"stopReason": "cancelled"}}
        said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "next"}}
        update = {"sessionId": "s1", "update": said}
        behind = {"jsonrpc": "2.0", "method": "session/update", "params": update}
        far.line(f"{json.dumps(answer)}\n{json.dumps(behind)}")  # read together
        await asyncio.Event().wait()  # it is answered
        return {}

    at.screen.face = keys = Keys()
    async with talking(far, on_update=at.on_update) as agent:
        at.begin(agent, await agent.new_session("/tmp"))
        at.submit("hello")
        while at.in_turn and "next" not in str(shown(at.flow.live())):
            await keys.next_change()
        assert taken(at.flow) == [("you", "hello"), ("agent", "of ours"), ("turn", "cancelled")]
        assert shown(at.flow.live()) == [("agent", "next")]
        await at.aclose()


async def test_a_prompt_behind_the_turn_of_another_client_does_not_cut_into_it() -> None:
    keys = Keys()
    async with chat(keys) as (at, far):

        @far.on(PRESENCE)
        async def presence(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
            live = {"sessionId": "s1", "clients": 2, "running": True}
            return {"pid": 1, "agent": "far", "sessions": [live]}

        @far.on("session/prompt")
        async def prompt(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
            await asyncio.Event().wait()  # behind the other
            return {}

        tool(at.flow, status="in_progress")
        at.screen.start(at.turns.prompt("mine"), "prompt")
        await far.until("session/prompt")
        assert "queued after another client's turn" in at.status()[0]
        assert (taken(at.flow), shown(at.flow.live())) == (
            [],
            [("tool", "◐ Run it  other · in progress")],
        )


async def test_what_fails_unforeseen_is_told_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("nobody thought of it")

    keys = Keys()
    monkeypatch.setattr(RemoteSession, "prompt", fails)
    async with chat(keys) as (at, _):
        at.submit("hello")
        while at.in_turn:
            await keys.next_change()
        [_, told] = at.flow.take()
        assert "nobody thought of it" in told.lines[0].plain


async def test_an_incident_says_where_its_traceback_is() -> None:
    said = "internal error (incident 0123abcd)"

    class Failed(ChatHost):
        def stderr(self) -> str:
            return "should not have failed, incident 0123abcd\nTraceback"

    at = Chat(Flow(), host=Failed())
    assert at.screen.with_traceback(said) == f"{said}; F4 shows its traceback"
    elsewhere = Chat(Flow())
    assert elsewhere.screen.with_traceback(said).endswith(
        "the log of the process that runs the session"
    )
    assert at.screen.with_traceback("no such model") == "no such model"
