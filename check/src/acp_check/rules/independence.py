"""The rule that sessions are independent: what is asked about one, or about all, ends no other.

Beside a turn that runs, and a session that waits, others are made, set, listed, reopened, closed
and deleted, also in vain. Then the rest is prompted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from acp_check.checks import EXPECTED, Rules
from acp_check.errands import GREET
from acp_check.record import Json, objects
from acp_check.rules.prompt_turns import long_turn, plain_turn
from acp_check.rules.selections import SET_OPTION, available_modes, option_values
from acp_check.stage import CheckedSession, Stage, advertises
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.schema import AgentCapabilities

RULES = Rules()


@RULES.case("session.independent", EXPECTED, RuleSource("Session Setup", ""))
async def independent(stage: Stage) -> None:
    """Requests about all sessions, or about one, end no turn of others, and close none."""
    await stage.need(plain_turn)
    can = await stage.capabilities()
    dialogue = await stage.meet("side by side")
    running, waiting, changed, gone = [await stage.new_session(dialogue) for _ in range(4)]
    for session in (waiting, changed, gone):
        await stage.need_turn(dialogue, session, GREET)
    async with long_turn(stage, dialogue, running) as call:
        for method, params in (*_choices(changed), *_lives(stage, can, gone)):
            await dialogue.ask(method, params)
        await dialogue.catch_up()
        asked = [it for it in dialogue.record.since(call.asked.number) if it.by == "client"]
        if call.answer is not None:
            if call.stop_reason != "cancelled":
                raise NotObservable("the turn ended before the other requests were answered")
            raise Violation(
                "one of these requests ended the turn of another session", *asked, call.answer
            )
    for session in (waiting, changed):
        try:
            await stage.prompt(dialogue, session, GREET)
        except Violation as violation:
            why = f"once the others had been asked for, a session failed: {violation.why}"
            raise Violation(why, *asked, *violation.lines) from None


def _choices(session: CheckedSession) -> Iterator[tuple[str, Json]]:
    """Yield requests that set modes and options of a session, or fail to."""
    opened, at = session.answer.result, {"sessionId": session.id}
    modes = opened.get("modes")
    if isinstance(modes, dict):
        for mode in (*available_modes(modes)[-1:], "check-no-such-mode"):
            yield "session/set_mode", {**at, "modeId": mode}
    for option in objects(opened.get("configOptions")):
        if option.get("type") == "select":
            for value in (*option_values(option)[-1:], "check-no-value"):
                yield SET_OPTION, {**at, "configId": option.get("id"), "value": value}
            return


def _lives(
    stage: Stage, can: AgentCapabilities, session: CheckedSession
) -> Iterator[tuple[str, Json]]:
    """Yield requests that list sessions, make one, and reopen, close and delete this one."""
    if advertises(can, "list"):
        for asked in ({}, {"cwd": session.cwd}, {"cursor": "check-no-such-cursor"}):
            yield "session/list", asked
    yield "session/new", stage.params()
    for name in ("load", "resume", "close", "delete"):
        if advertises(can, name):
            setup = stage.params(cwd=session.cwd) if name in ("load", "resume") else {}
            yield f"session/{name}", {**setup, "sessionId": session.id}
