"""The queued prompts, on a screen: an agent without acphold in front of it keeps none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acphold.conversation.history.prompt_queue import PromptQueue, WaitingPrompt
from acphold.faces.screen.queued_prompts import change_by_words, heading, prompt_lines
from tests.client.far_agent import FarAgent
from tests.screen.test_chat import Keys, chat
from tests.screen.test_flow import taken


def texts(far: FarAgent) -> list[str]:
    """The prompts that an agent got."""
    got = [it["params"] for it in far.got if it.get("method") == "session/prompt"]
    return [params["prompt"][0]["text"] for params in got]


def held_up(far: FarAgent) -> dict[str, asyncio.Future[str]]:
    """Have the agent end each turn with the stop reason that is set here for its prompt."""
    ends: dict[str, asyncio.Future[str]] = {}

    @far.on("session/prompt")
    async def prompt(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
        text = params["prompt"][0]["text"]
        ends[text] = asyncio.get_running_loop().create_future()
        return {"stopReason": await ends[text]}

    return ends


async def test_an_agent_that_keeps_no_queue_gets_no_prompt_for_a_moment() -> None:
    keys = Keys()
    async with chat(keys) as (at, _):
        at.submit("/later 9000-01-01T02:00 one")
        while not keys.back:
            await keys.next_change()
        assert keys.back == ["/later 9000-01-01T02:00 one"]
        [(_, told)] = taken(at.flow)
        assert "cannot keep a queue of prompts: that takes an acphold in front of it" in told
        assert not at.in_turn


async def test_what_is_typed_while_its_turn_runs_comes_back_into_the_input() -> None:
    keys = Keys()
    async with chat(keys) as (at, far):
        ends = held_up(far)
        at.submit("one")
        await far.until("session/prompt")
        at.submit("two")
        while keys.back != ["two"]:
            await keys.next_change()
        ends["one"].set_result("end_turn")
        while at.in_turn:
            await keys.next_change()
        assert texts(far) == ["one"]


@pytest.mark.parametrize("words", ["drop", "drop 0", "drop 2", "drop x", "next 1", "sort"])
async def test_a_command_that_means_nothing_changes_nothing_and_says_why(words: str) -> None:
    async with chat(Keys()) as (at, _):
        with pytest.raises(ValueError, match=r"no prompt|/queue lists the prompts"):
            await change_by_words(at.turns.queue, words)


def test_a_long_queue_is_cut_and_its_rest_counted() -> None:
    waiting = tuple(WaitingPrompt(str(it), it, f"prompt {it}") for it in range(1, 8))
    queue = PromptQueue(waiting, held="failed")
    assert heading(queue) == "7 queued prompts; paused: the last turn failed (/queue resume)"
    assert prompt_lines(queue, 2) == ["1  prompt 1", "2  prompt 2", "… 5 more (/queue)"]


def test_words_of_another_client_play_no_tricks_on_the_terminal() -> None:
    queue = PromptQueue((WaitingPrompt("a", 1, "red \x1b[31m"),))
    assert prompt_lines(queue) == ["1  red \\x1b[31m"]


async def test_words_for_a_turn_that_is_over_are_a_prompt_of_their_own() -> None:
    keys = Keys()
    async with chat(keys, _meta={"steering": {"supported": True}}) as (at, far):
        ends = held_up(far)

        @far.on("_session/steering")
        async def steering(far: FarAgent, params: dict[str, Any]) -> dict[str, Any]:
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}

        at.submit("one")
        await far.until("session/prompt")
        at.submit("/now use the other file")
        while keys.back != ["use the other file"]:  # nobody keeps a queue for this agent
            await keys.next_change()
        ends["one"].set_result("end_turn")
        while at.in_turn:
            await keys.next_change()
        at.submit("/now /quit")  # without a turn they are a prompt, whatever they are
        await far.until("session/prompt", 2)
        assert texts(far)[-1] == "/quit"
        ends["/quit"].set_result("end_turn")


async def test_an_agent_that_hears_nothing_in_a_turn_is_offered_the_words_behind_it() -> None:
    keys = Keys()
    async with chat(keys) as (at, far):
        ends = held_up(far)
        at.submit("one")
        await far.until("session/prompt")
        at.submit("/now use the other file")
        while keys.back != ["use the other file"]:
            await keys.next_change()
        assert at.status()[0].startswith("Enter sends it after the turn; ")
        assert "_session/steering" not in far.methods()
        ends["one"].set_result("end_turn")
