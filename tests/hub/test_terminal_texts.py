"""The output of a client's terminals stays in the conversation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from acphold.conversation.history.display_terminals import CUT, TEXT_BYTES
from acphold.conversation.history.timeline import ToolCall
from acphold.journal.journal import state_of
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds
from acphold.live.hub.handover import earlier_conversation
from tests.editor import Refused
from tests.hub.shared import Onlooker, Shared, full


class Screen:
    """The terminals of a client; each shows `text`, and has the same id."""

    def __init__(self, client: Onlooker, text: str = "", id_: str = "term-1") -> None:
        self.text = text
        self._id = id_
        self.asked: list[str] = []
        self.has_ended = False
        for method in ("create", "output", "wait_for_exit", "release"):
            client.answers[f"terminal/{method}"] = getattr(self, f"_{method}")

    def _create(self, _: dict[str, Any]) -> Any:
        self.asked.append("create")
        return {"terminalId": self._id}

    def _output(self, params: dict[str, Any]) -> Any:
        assert params["terminalId"] == self._id
        self.asked.append("output")
        status = {"exitCode": 0} if self.has_ended else None
        return {"output": self.text, "truncated": False, "exitStatus": status}

    def _wait_for_exit(self, _: dict[str, Any]) -> Any:
        self.has_ended = True
        return {"exitCode": 0}

    def _release(self, _: dict[str, Any]) -> Any:
        self.asked.append("release")
        return {}


async def names_terminal(house: Shared, session: str, **fields: Any) -> None:
    """The agent tells of a tool call that shows terminal `term-1`."""
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "run",
        "content": [
            {"type": "content", "content": {"type": "text", "text": "Look:"}},
            {"type": "terminal", "terminalId": "term-1"},
        ],
        **fields,
    }
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(update).encode()]))


async def begun(house: Shared, client: Onlooker) -> tuple[str, asyncio.Future[Any]]:
    """A session with a turn in which the agent runs a command in a terminal of the client."""
    session = await client.new()
    turn = await house.begun(client, session, "run it")
    made = await house.agent.ask_client("terminal/create", sessionId=session, command="ls")
    assert made == {"terminalId": "term-1"}
    await names_terminal(house, session, sessionUpdate="tool_call", title="ls", kind="execute")
    return session, turn


def shown(client: Onlooker) -> list[list[dict[str, Any]]]:
    """The contents of tool calls that this client has been told, one after the other."""
    return [update["content"] for update in client.updates() if "toolCallId" in update]


def texts(content: list[dict[str, Any]]) -> list[str]:
    assert all(item["type"] == "content" for item in content), content
    return [item["content"]["text"] for item in content]


def terminals(content: list[dict[str, Any]]) -> list[str]:
    return [item["terminalId"] for item in content if item["type"] == "terminal"]


async def test_each_client_is_told_of_its_own_terminals_alone(house: Shared) -> None:
    one, two = await house.client(terminal=True), await house.client(terminal=True)
    Screen(one, "of one", "term-1")
    Screen(two, "of two", "term-2")
    session, turn = await begun(house, one)
    await house.ended(session, turn)
    await two.load(session)
    turn = await house.begun(two, session, "and there")
    await house.agent.ask_client("terminal/create", sessionId=session, command="ls")
    both = [{"type": "terminal", "terminalId": f"term-{number}"} for number in (1, 2)]
    await names_terminal(house, session, toolCallId="one", content=both[:1])
    await names_terminal(house, session, toolCallId="two", content=both[1:])
    await names_terminal(house, session, toolCallId="both", content=both)
    own = {"type": "terminal", "terminalId": "of the agent's own"}
    await names_terminal(house, session, toolCallId="own", content=[own])
    await one.until(lambda: len(shown(one)) >= 4)
    await two.until(lambda: len(shown(two)) >= 4)
    assert list(map(terminals, shown(one)[-4:])) == [["term-1"], [], ["term-1"], []]
    assert list(map(terminals, shown(two)[-4:])) == [[], ["term-2"], ["term-2"], []]
    for number in (1, 2):
        named = {"sessionId": session, "terminalId": f"term-{number}"}
        await house.agent.ask_client("terminal/release", **named)
    await house.ended(session, turn)
    await one.until(lambda: "of two" in json.dumps(shown(one)))
    await two.until(lambda: "of one" in json.dumps(shown(two)))
    for client in (one, two):
        told = {
            update["toolCallId"]: texts(update["content"])
            for update in client.updates()
            if "toolCallId" in update and update["content"] and not terminals(update["content"])
        }
        assert told["both"] == ["of one", "of two"]


async def test_a_client_that_shows_an_agents_terminals_is_not_told_of_anothers(
    house: Shared,
) -> None:
    one, two = [
        await house.client(terminal=True, _meta={"terminal_output": True}) for _ in range(2)
    ]
    Screen(one, "of one", "term-1")
    session, _ = await begun(house, one)
    await two.load(session)
    both = [{"type": "terminal", "terminalId": id_} for id_ in ("term-1", "of the agent's own")]
    await names_terminal(house, session, toolCallId="both", content=both)
    await one.until(lambda: one.updates()[-1].get("toolCallId") == "both")
    await two.until(lambda: two.updates()[-1].get("toolCallId") == "both")
    assert (shown(one)[-1], shown(two)[-1]) == (both, both[1:])


async def released(house: Shared, session: str) -> None:
    terminal = {"sessionId": session, "terminalId": "term-1"}
    await house.agent.ask_client("terminal/wait_for_exit", **terminal)
    await house.agent.ask_client("terminal/release", **terminal)


async def test_what_a_terminal_showed_is_asked_for_before_its_release_and_replayed(
    house: Shared,
) -> None:
    one, two = await house.client(terminal=True), await house.client()
    screen = Screen(one, "a.py\nb.py\n")
    session, turn = await begun(house, one)
    await two.load(session)
    await released(house, session)
    assert screen.asked == ["create", "output", "release"]
    await house.ended(session, turn)
    await two.until(lambda: len(shown(two)) == 2)
    assert texts(shown(two)[-1]) == ["Look:", "a.py\nb.py\n"]
    assert len(shown(one)) == 1  # it has the terminal itself
    three = await house.loaded(session, terminal=True)
    assert texts(shown(three)[-1]) == ["Look:", "a.py\nb.py\n"]


async def test_what_a_terminal_showed_is_in_the_history_and_in_what_an_agent_is_handed(
    house: Shared,
) -> None:
    client = await house.client(terminal=True)
    Screen(client, "42 passed")
    session, turn = await begun(house, client)
    await released(house, session)
    await names_terminal(house, session, status="completed")  # told again, behind the release
    await house.ended(session, turn)
    state = await state_of(house.journal, session)
    [call] = [item for item in state.timeline if isinstance(item, ToolCall)]
    assert (call.status, len(call.content)) == ("completed", 2)
    context = earlier_conversation(state)
    assert context is not None
    assert "42 passed" in context.text


async def test_what_is_known_at_the_end_of_a_turn_is_kept_without_a_release(house: Shared) -> None:
    client = await house.client(terminal=True)
    screen = Screen(client, "listening on :80")
    session, turn = await begun(house, client)
    terminal = {"sessionId": session, "terminalId": "term-1"}
    await house.agent.ask_client("terminal/output", **terminal)
    await client.leave()
    await house.agent.end(session)
    turn.cancel()
    two = await house.loaded(session)
    assert texts(shown(two)[-1]) == ["Look:", "listening on :80"]
    assert screen.asked == ["create", "output"]


async def test_what_the_journal_could_not_take_is_kept_with_the_end_of_the_next_turn(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client = await house.client(terminal=True)
    Screen(client, "listening on :80")
    session, turn = await begun(house, client)
    terminal = {"sessionId": session, "terminalId": "term-1"}
    await house.agent.ask_client("terminal/output", **terminal)
    with monkeypatch.context() as patch:
        patch.setattr(house.journal, "append", full)
        await house.agent.end(session)
        with pytest.raises(Refused, match="the disk is full"):
            await turn
    await house.turn(client, session, "and now?")
    two = await house.loaded(session)
    assert "listening on :80" in json.dumps(two.updates())


async def test_of_too_many_calls_that_show_a_terminal_the_last_has_its_text(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client = await house.client(terminal=True)
    Screen(client, "listening on :80")
    session, turn = await begun(house, client)
    monkeypatch.setattr(bounds, "TERMINAL_CALLS_BYTES", 200)  # one call
    for call in ("second", "third", "last"):
        await names_terminal(house, session, toolCallId=call)
    terminal = {"sessionId": session, "terminalId": "term-1"}
    await house.agent.ask_client("terminal/output", **terminal)
    await house.ended(session, turn)
    kept = await house.entries(session, "terminal")
    assert [it["toolCallId"] for it in kept] == ["last"]


async def test_a_terminal_that_goes_on_is_kept_again_with_what_it_shows_later(
    house: Shared,
) -> None:
    one, two = await house.client(terminal=True), await house.client(terminal=True)
    screen = Screen(one, "one\n")
    session, turn = await begun(house, one)
    terminal = {"sessionId": session, "terminalId": "term-1"}
    await house.agent.ask_client("terminal/output", **terminal)
    await house.ended(session, turn)
    screen.text = "one\ntwo\n"
    await two.load(session)
    turn = await house.begun(two, session, "and now?")
    # Asked of the client that has the terminal, not of the one that prompts now.
    await house.agent.ask_client("terminal/release", **terminal)
    await house.ended(session, turn)
    state = await state_of(house.journal, session)
    [call] = [item for item in state.timeline if isinstance(item, ToolCall)]
    assert b"one\\ntwo\\n" in call.content[-1]


async def test_a_client_that_does_not_say_what_was_shown_does_not_hold_up_the_release(
    house: Shared,
) -> None:
    client = await house.client(terminal=True)
    screen = Screen(client)
    del client.answers["terminal/output"]
    session, turn = await begun(house, client)
    await released(house, session)
    assert screen.asked == ["create", "release"]
    await house.ended(session, turn)
    two = await house.loaded(session)
    assert texts(shown(two)[-1]) == ["Look:"]


async def test_a_tool_call_that_names_the_terminal_no_longer_keeps_what_it_has_now(
    house: Shared,
) -> None:
    client = await house.client(terminal=True)
    Screen(client, "noise")
    session, turn = await begun(house, client)
    content = [{"type": "content", "content": {"type": "text", "text": "in short"}}]
    await names_terminal(house, session, content=content)
    await released(house, session)
    await house.ended(session, turn)
    two = await house.loaded(session)
    assert texts(shown(two)[-1]) == ["in short"]


async def test_the_end_of_a_long_output_is_kept_and_no_line_gets_too_long(house: Shared) -> None:
    client = await house.client(terminal=True)
    Screen(client, "".join(f"\x1b[32mline {n}\x1b[0m\n" for n in range(100_000)))
    session, turn = await begun(house, client)
    await released(house, session)
    await house.ended(session, turn)
    two = await house.loaded(session)
    text = texts(shown(two)[-1])[-1]
    assert text.startswith(CUT + "\x1b[32mline ")
    assert text.endswith("line 99999\x1b[0m\n")
    assert TEXT_BYTES / 2 < max(map(len, two.lines)) < 64 * 1024


async def test_a_terminal_outside_of_a_turn_is_made_by_one_client_alone(house: Shared) -> None:
    one, two = await house.client(terminal=True), await house.client(terminal=True)
    screens = Screen(one), Screen(two)
    session = await one.new()
    await two.load(session)
    await house.agent.ask_client("terminal/create", sessionId=session, command="ls")
    assert [screen.asked for screen in screens] == [["create"], []]
