"""Rules that no page states and everybody relies on: floods, slow clients, agents that stay
alive."""

from __future__ import annotations

import re
from collections.abc import Sequence

from acphold.conformance.catalogue import EXPECTED, Rules, Witness
from acphold.conformance.dialogue import Call, Dialogue
from acphold.conformance.errands import COUNT, GREET
from acphold.conformance.record import Record
from acphold.conformance.rules.json_rpc import unknown_request
from acphold.conformance.rules.prompt_turns import plain_turn
from acphold.conformance.stage import Stage, begin_prompt
from acphold.conformance.verdicts import NotObservable, Source, Violation

RULES = Rules()

STDIO = Source("Transports", "stdio")

FLOOD = 1000
"""Requests sent without reading: their answers exceed a pipe's buffer (64 KiB)."""


@RULES.case(
    "pressure.unread-answers",
    "A client may send a thousand requests before it reads the first answer.",
    EXPECTED,
    STDIO,
)
async def unread_answers(stage: Stage) -> None:
    await stage.given(unknown_request)
    dialogue = await stage.meet("flood of requests")
    dialogue.stop_reading()
    calls = [dialogue.begin("check/no_such_method", {"number": n}) for n in range(FLOOD)]
    await _paused(dialogue)
    dialogue.go_on_reading()
    await _all_answered(dialogue, calls)
    await stage.leave(dialogue)


async def _paused(dialogue: Dialogue) -> None:
    for _ in range(4):
        await dialogue.hush_briefly()


async def _all_answered(dialogue: Dialogue, calls: Sequence[Call]) -> None:
    for call in calls:
        await dialogue.answered(call, 2 * dialogue.timeout)


@RULES.case(
    "pressure.notifications",
    "Thousands of notifications in a row do no harm.",
    EXPECTED,
    STDIO,
)
async def notifications(stage: Stage) -> None:
    await stage.given(unknown_request)
    dialogue = await stage.meet("flood of notifications")
    for number in range(3 * FLOOD):
        dialogue.tell("_check/no_such_notification", {"number": number})
    await dialogue.ask("check/no_such_method", {}, seconds=2 * dialogue.timeout)
    await stage.leave(dialogue)


@RULES.case(
    "pressure.slow-client",
    "A client that does not read for a while finds all of a turn afterwards.",
    EXPECTED,
    STDIO,
)
async def slow_client(stage: Stage) -> None:
    await stage.given(plain_turn)
    dialogue = await stage.meet("slow client")
    session = await stage.new_session(dialogue)
    call = begin_prompt(dialogue, session, COUNT)
    await dialogue.hush_briefly()
    dialogue.stop_reading()
    await _paused(dialogue)
    dialogue.go_on_reading()
    turn = await stage.turn(dialogue, session, call, 6 * dialogue.timeout)
    after = await stage.prompt(dialogue, session, GREET)
    await stage.leave(dialogue)
    # Found among other words: some agents add greetings or warnings with numbers.
    counted = {int(number) for number in re.findall(r"\d+", turn.text)} & set(range(1, 301))
    if len(counted) < COUNTED or "result" not in after.answer.line.message:
        raise NotObservable("the agent did not count when it was asked to")
    missing = set(range(1, max(counted))) - counted
    if missing:
        why = f"it counted to {max(counted)}, and {min(missing)} is missing"
        raise Violation(why, turn.asked, turn.answer.line)


COUNTED = 20
"""Least numbers for a count."""


@RULES.observer(
    "stdio.stays",
    "The agent runs until its client leaves.",
    EXPECTED,
    STDIO,
    unless="the agent was never met",
)
def stays(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        if record.lines and not record.broken:
            witness.saw()
            if record.ended:
                words = f"it ended by itself in “{record.name}”: {record.ended}"
                witness.accuse(words, *record.lines[-3:])
