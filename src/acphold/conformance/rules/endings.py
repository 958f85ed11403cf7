"""The rules for `session/close` and `session/delete`."""

from __future__ import annotations

from acphold.conformance import bounds
from acphold.conformance.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acphold.conformance.dialogue import AnswerLine
from acphold.conformance.errands import GREET
from acphold.conformance.record import Record, WireLine
from acphold.conformance.rules.beginnings import plain_session
from acphold.conformance.rules.listings import (
    entries,
    load,
    pages,
    pages_after_restart,
    past,
    restarted,
)
from acphold.conformance.rules.prompt_turns import begin_long_turn, cancel, is_of_turn, plain_turn
from acphold.conformance.stage import Stage
from acphold.conformance.verdicts import NotObservable, RuleSource, Violation
from acphold.schema.session_requests import CloseSessionResponse, DeleteSessionResponse

RULES = Rules()

CLOSING = RuleSource("Session Setup", "Closing a Session")
DELETING = RuleSource("Session Delete", "Deleting a Session")
SEMANTICS = RuleSource("Session Delete", "Semantics")

# -- close ----------------------------------------------------------------------------------


@RULES.case("close.answer", MUST, CLOSING, "close")
async def close_answer(stage: Stage) -> None:
    """`session/close` is answered with an empty result."""
    dialogue, session = await stage.session_after(plain_session)
    answer = await dialogue.ask("session/close", {"sessionId": session.id})
    answer.fitting(CloseSessionResponse)


Closed = tuple[AnswerLine, AnswerLine, tuple[WireLine, ...]]
"""The answers to a prompt and to closing its session, and the lines."""


async def closed_in_turn(stage: Stage) -> Closed:
    """Close a session while its turn runs."""
    await stage.given(plain_turn)
    for _ in range(bounds.CANCEL_ATTEMPTS):
        dialogue = await stage.main()
        session = await stage.new_session(dialogue)
        call = await begin_long_turn(stage, dialogue, session)
        closing = dialogue.begin("session/close", {"sessionId": session.id})
        closed = await dialogue.answered(closing, 3 * dialogue.timeout)
        ended = await dialogue.answered(call, 3 * dialogue.timeout)
        await dialogue.settled()
        if ended.stop_reason == "cancelled":
            break
    return ended, closed, (call.asked, closing.asked, ended.line, closed.line)


@RULES.case("close.cancels", MUST, CLOSING, "close")
async def cancels(stage: Stage) -> None:
    """Closing a session cancels its turn: the prompt is answered with `cancelled`."""
    ended, closed, lines = await stage.judge(closed_in_turn)
    ended.cancelled(*lines)
    closed.succeeded()


@RULES.case("close.no-other", MUST, CLOSING, "close")
async def close_no_other(stage: Stage) -> None:
    """Closing a session does not affect the turns of other sessions."""
    turn = await stage.given(plain_turn)
    dialogue = await stage.main()
    idle = await stage.new_session(dialogue)
    call = await begin_long_turn(stage, dialogue, turn.session)
    closing = dialogue.begin("session/close", {"sessionId": idle.id})
    closed = await dialogue.answered(closing)
    await dialogue.caught_up()
    if call.answer is not None and call.answer.stop_reason != "end_turn":
        raise Violation("the turn of another session ended", *closed.lines, call.answer.line)
    cancel(dialogue, turn.session)
    await dialogue.answered(call, 3 * dialogue.timeout)
    await stage.prompt(dialogue, turn.session, GREET)


@RULES.observer("close.silent", EXPECTED, CLOSING, "close", unless="no session was closed")
def silent(record: Record, witness: Witness) -> None:
    """The agent sends nothing more about a closed session."""
    answers = {
        number: exchange.request.session_id
        for number, exchange in record.answered("client", "session/close").items()
        if not exchange.is_refused
    }
    closed: dict[str | None, WireLine] = {}
    for line in record.lines:
        if line.number in answers:
            witness.saw()
            closed[answers[line.number]] = line
        elif line.by == "client":
            closed.pop(line.session_id, None)
        elif line.session_id in closed and is_of_turn(line):
            witness.accuse("the session was closed before", closed[line.session_id], line)


@RULES.case("close.load-again", EXPECTED, CLOSING, "close", "load")
async def load_again(stage: Stage) -> None:
    """A closed session can be loaded again."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.prompt(dialogue, session, GREET)
    (await dialogue.ask("session/close", {"sessionId": session.id})).succeeded()
    loaded = await load(stage, dialogue, session)
    if not loaded.has_prompt(GREET.words):
        raise Violation("the load does not replay its prompt", *loaded.all_lines)


@RULES.case("close.listed", EXPECTED, CLOSING, "close", "list")
async def listed(stage: Stage) -> None:
    """A closed session is still listed."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.prompt(dialogue, session, GREET)
    if session.id not in entries(await pages(dialogue, cwd=session.cwd)):
        raise NotObservable("the session was not listed before either")
    (await dialogue.ask("session/close", {"sessionId": session.id})).succeeded()
    found = await pages(dialogue, cwd=session.cwd)
    if session.id not in entries(found):
        raise Violation("the session is no longer listed", *found[0].answer.lines)


# -- delete ---------------------------------------------------------------------------------


async def deleted(stage: Stage) -> AnswerLine:
    """Delete the other session of `past` in another process."""
    dialogue = await stage.given(restarted)
    session = (await stage.given(past)).other
    return await dialogue.ask("session/delete", {"sessionId": session.id})


@RULES.case("delete.answer", MUST, DELETING, "delete")
async def delete_answer(stage: Stage) -> None:
    """`session/delete` is answered with an empty result."""
    (await stage.judge(deleted)).fitting(DeleteSessionResponse)


@RULES.case("delete.gone", MUST, SEMANTICS, "delete", "list")
async def gone(stage: Stage) -> None:
    """A deleted session is no longer listed, even after a restart."""
    answer = await stage.given(deleted)
    if answer.error is not None:
        raise NotObservable("the session was not deleted", *answer.lines)
    other = (await stage.given(past)).other
    dialogue = await stage.meet("after a delete", is_restart=True)
    for where in (await stage.given(restarted), dialogue):
        for found in (await pages(where, cwd=other.cwd), await pages(where)):
            if other.id in entries(found):
                raise Violation("it is still listed", *answer.lines, *found[0].answer.lines)
    await stage.leave(dialogue)


@RULES.case("delete.no-other", EXPECTED, SEMANTICS, "delete", "list")
async def no_other(stage: Stage) -> None:
    """Deleting a session does not delete others."""
    answer = await stage.given(deleted)
    session = (await stage.given(past)).session
    if session.id not in entries(await stage.given(pages_after_restart)):
        raise NotObservable("the other session was not listed before")
    found = await pages(await stage.given(restarted), cwd=session.cwd)
    if session.id not in entries(found):
        raise Violation("another session was deleted, too", *answer.lines, *found[0].answer.lines)


@RULES.case("delete.twice", SHOULD, SEMANTICS, "delete")
async def twice(stage: Stage) -> None:
    """Deleting a session again succeeds."""
    if (await stage.given(deleted)).error is not None:
        raise NotObservable("the session was not deleted")
    dialogue = await stage.given(restarted)
    session = (await stage.given(past)).other
    (await dialogue.ask("session/delete", {"sessionId": session.id})).succeeded()


@RULES.case("delete.unknown-id", SHOULD, SEMANTICS, "delete")
async def delete_unknown(stage: Stage) -> None:
    """Deleting a session that never existed succeeds."""
    await stage.given(plain_session)
    dialogue = await stage.main()
    (await dialogue.ask("session/delete", {"sessionId": "check-no-such-session"})).succeeded()
