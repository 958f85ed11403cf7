"""The rules for much at once: floods, slow clients, long replays, agents that stay alive."""

from __future__ import annotations

import re

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, Rules, Witness
from acp_check.dialogue import Dialogue
from acp_check.errands import COUNT, GREET
from acp_check.record import Record
from acp_check.rules.json_rpc import unknown_request
from acp_check.rules.listings import load_after_restart, load_elsewhere, text_of
from acp_check.rules.prompt_turns import plain_turn
from acp_check.stage import CheckedTurn, Stage, begin_prompt
from acp_check.verdicts import NotObservable, RuleSource, Violation

RULES = Rules()

STDIO = RuleSource("Transports", "stdio")


@RULES.case("pressure.unread-answers", EXPECTED, STDIO)
async def unread_answers(stage: Stage) -> None:
    """A client can send a thousand requests before reading answers."""
    await stage.need(unknown_request)
    dialogue = await stage.meet("flood of requests")
    dialogue.stop_reading()
    calls = [
        dialogue.begin("check/no_such_method", {"number": n}) for n in range(bounds.FLOOD_REQUESTS)
    ]
    await _pause(dialogue)
    dialogue.resume_reading()
    for call in calls:
        await dialogue.answer_to(call, 2 * dialogue.timeout)


async def _pause(dialogue: Dialogue) -> None:
    for _ in range(4):
        await dialogue.pause_briefly()


@RULES.case("pressure.notifications", EXPECTED, STDIO)
async def notifications(stage: Stage) -> None:
    """The agent copes with thousands of notifications in a row."""
    await stage.need(unknown_request)
    dialogue = await stage.meet("flood of notifications")
    for number in range(3 * bounds.FLOOD_REQUESTS):
        dialogue.notify("_check/no_such_notification", {"number": number})
    await dialogue.ask("check/no_such_method", {}, seconds=2 * dialogue.timeout)


async def unread_count(stage: Stage) -> tuple[CheckedTurn, CheckedTurn]:
    """Have the agent count to 300 while nobody reads, and greet; then leave it."""
    await stage.need(plain_turn)
    dialogue = await stage.meet("slow client")
    session = await stage.new_session(dialogue)
    call = begin_prompt(dialogue, session, COUNT)
    await dialogue.pause_briefly()
    dialogue.stop_reading()
    await _pause(dialogue)
    dialogue.resume_reading()
    turn = await stage.turn(dialogue, session, call, 6 * dialogue.timeout)
    after = await stage.prompt(dialogue, session, GREET)
    await stage.leave_gracefully(dialogue)
    return turn, after


@RULES.case("pressure.slow-client", EXPECTED, STDIO)
async def slow_client(stage: Stage) -> None:
    """A client that stops reading for a while still gets the whole turn."""
    turn, after = await stage.judge(unread_count)
    counted = _numbers(turn.text)
    if len(counted) < COUNTED or "result" not in after.answer.line.message:
        raise NotObservable("the agent did not count when it was asked to")
    missing = set(range(1, max(counted))) - counted
    if missing:
        why = f"the agent counted to {max(counted)}, but {min(missing)} is missing"
        raise Violation(why, turn.asked, turn.answer.line)


@RULES.case("pressure.long-replay", MUST, RuleSource("Session Setup", "Loading a Session"), "load")
async def long_replay(stage: Stage) -> None:
    """A load replays hundreds of updates to the last one."""
    turn, after = await stage.need(unread_count)
    await stage.need(load_after_restart)
    _, loaded = await load_elsewhere(stage, "a long replay", turn.session)
    counted = _numbers(turn.text)
    if len(counted) < COUNTED:
        raise NotObservable("the agent did not count when it was asked to")
    again = text_of(loaded.replay, "agent_message_chunk")
    missing = counted - _numbers(again)
    if missing:
        why = f"the agent counted to {max(counted)}, but {min(missing)} is not replayed"
        raise Violation(why, loaded.asked, *loaded.replay[-3:], loaded.answer.line)
    if after.text[-FEW:] not in again:
        why = f"the next message, which ends with {after.text[-FEW:]!r}, is not replayed"
        raise Violation(why, loaded.asked, *loaded.replay[-3:], loaded.answer.line)


FEW = 10
"""Letters of the last message that are sought in the replay."""


def _numbers(text: str) -> set[int]:
    """Return the numbers in a text, among other words: some agents add warnings with numbers."""
    return {int(number) for number in re.findall(r"\d+", text)} & set(range(1, 301))


COUNTED = 20
"""Least numbers for a count."""


@RULES.observer("stdio.stays", EXPECTED, STDIO, "the check never connected to the agent")
def stays(record: Record, witness: Witness) -> None:
    """The agent runs until its client leaves."""
    if record.lines and not record.broken:
        witness.saw()
        if record.ended:
            words = f"the agent ended by itself in “{record.name}”: {record.ended}"
            witness.accuse(words, *record.lines[-3:])
