"""The rules for `session/close` and `session/delete`."""

from __future__ import annotations

from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.dialogue import Call, Dialogue
from acp_check.errands import GREET
from acp_check.record import Json, Record, WireLine
from acp_check.rules.beginnings import plain_session
from acp_check.rules.listings import entries, load, pages
from acp_check.rules.prompt_turns import (
    begin_long_turn,
    is_of_turn,
    long_turn,
    plain_turn,
    session_with_turn,
)
from acp_check.stage import CheckedSession, Stage, advertises
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.schema.session_requests import CloseSessionResponse, DeleteSessionResponse

RULES = Rules()

CLOSING = RuleSource("Session Setup", "Closing a Session")
DELETING = RuleSource("Session Delete", "Deleting a Session")
SEMANTICS = RuleSource("Session Delete", "Semantics")

# -- close ----------------------------------------------------------------------------------


@RULES.case("close.answer", MUST, CLOSING, "close")
async def close_answer(stage: Stage) -> None:
    """`session/close` gets an empty result."""
    dialogue, session = await stage.session_after(plain_session)
    answer = await dialogue.ask("session/close", {"sessionId": session.id})
    answer.fitting(CloseSessionResponse)


Closed = tuple[Call, Call, tuple[WireLine, ...]]
"""The answers to a prompt and to closing its session, and the lines."""


async def close_in_turn(stage: Stage) -> Closed:
    """Close a session while its turn runs."""
    await stage.need(plain_turn)
    for _ in range(bounds.CANCEL_ATTEMPTS):
        dialogue = await stage.main()
        session = await stage.new_session(dialogue)
        call = await begin_long_turn(stage, dialogue, session)
        closing = dialogue.begin("session/close", {"sessionId": session.id})
        closed = await dialogue.answer_to(closing, 3 * dialogue.timeout)
        ended = await dialogue.answer_to(call, 3 * dialogue.timeout)
        await dialogue.settle()
        if ended.stop_reason == "cancelled":
            break
    return ended, closed, (call.asked, closing.asked, ended.line, closed.line)


@RULES.case("close.cancels", MUST, CLOSING, "close")
async def cancels(stage: Stage) -> None:
    """Closing a session ends its turn with `cancelled`."""
    ended, closed, lines = await stage.judge(close_in_turn)
    ended.require_cancelled(*lines)
    closed.require_result()


@RULES.case("close.no-other", MUST, CLOSING, "close")
async def close_no_other(stage: Stage) -> None:
    """Closing a session does not affect others' turns."""
    dialogue, session = await session_with_turn(stage)
    idle = await stage.new_session(dialogue)
    async with long_turn(stage, dialogue, session) as call:
        closing = dialogue.begin("session/close", {"sessionId": idle.id})
        closed = await dialogue.answer_to(closing)
        await dialogue.catch_up()
        # A turn may end by itself meanwhile, for whatever reason.
        if call.answer is not None and call.stop_reason in (None, "cancelled"):
            raise Violation("the turn of another session ended", *closed.lines, call.answer)
    await stage.prompt(dialogue, session, GREET)


@RULES.observer(
    "close.silent", EXPECTED, CLOSING, "no session was closed", "close", over=("close.*",)
)
def silent(record: Record, witness: Witness) -> None:
    """The agent sends nothing more about a closed session."""
    answers = {
        number: exchange.asked.session_id
        for number, exchange in record.exchanges_by_answer("client", "session/close").items()
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
    await stage.need_turn(dialogue, session, GREET)
    (await dialogue.ask("session/close", {"sessionId": session.id})).require_result()
    loaded = await load(stage, dialogue, session)
    if not loaded.has_prompt(GREET.words):
        raise Violation("the load does not replay its prompt", *loaded.all_lines)


@RULES.case("close.listed", EXPECTED, CLOSING, "close", "list")
async def listing(stage: Stage) -> None:
    """A closed session is still listed."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.need_turn(dialogue, session, GREET)
    if session.id not in entries(await pages(dialogue, cwd=session.cwd)):
        raise NotObservable("the session was not listed before either")
    (await dialogue.ask("session/close", {"sessionId": session.id})).require_result()
    found = await pages(dialogue, cwd=session.cwd)
    if session.id not in entries(found):
        raise Violation("the session is no longer listed", *found[0].answer.lines)


# -- delete ---------------------------------------------------------------------------------


class Deleted(Struct, frozen=True):
    """A session deleted in a process that never opened it; `kept` is another one of its folder.

    `before` are the sessions listed before, none if the agent has no list.
    """

    dialogue: Dialogue
    session: CheckedSession
    kept: CheckedSession
    before: dict[str, Json]
    answer: Call


async def delete_one(stage: Stage) -> Deleted:
    """Make two sessions, leave their processes, and delete one in another process.

    Nobody has it open: an agent may refuse to delete an active session.
    """
    await stage.need(plain_turn)
    session = await stage.session_to_reopen("before a delete", GREET)
    kept = await stage.session_to_reopen("beside a delete", GREET)
    dialogue = await stage.meet("a delete", is_restart=True, stays=True)
    has_list = advertises(await stage.capabilities(), "list")
    before = entries(await pages(dialogue, cwd=kept.cwd)) if has_list else {}
    answer = await dialogue.ask("session/delete", {"sessionId": session.id})
    return Deleted(dialogue, session, kept, before, answer)


@RULES.case("delete.answer", MUST, DELETING, "delete")
async def delete_answer(stage: Stage) -> None:
    """`session/delete` gets an empty result."""
    (await stage.judge(delete_one)).answer.fitting(DeleteSessionResponse)


async def _deletion(stage: Stage) -> Deleted:
    """Return the deletion; raises NotObservable if it was refused."""
    found = await stage.need(delete_one)
    if found.answer.is_refused:
        raise NotObservable("the session was not deleted", *found.answer.lines)
    return found


@RULES.case("delete.gone", MUST, SEMANTICS, "delete", "list")
async def not_in_list(stage: Stage) -> None:
    """A deleted session is no longer listed, even after a restart."""
    found = await _deletion(stage)
    dialogue = await stage.meet("after a delete", is_restart=True)
    for where in (found.dialogue, dialogue):
        for listed in (await pages(where, cwd=found.session.cwd), await pages(where)):
            if found.session.id in entries(listed):
                lines = (*found.answer.lines, *listed[0].answer.lines)
                raise Violation("it is still listed", *lines)


@RULES.case("delete.no-other", EXPECTED, SEMANTICS, "delete", "list")
async def no_other(stage: Stage) -> None:
    """Deleting a session does not delete others."""
    found = await _deletion(stage)
    if found.kept.id not in found.before:
        raise NotObservable("the other session was not listed before")
    listed = await pages(found.dialogue, cwd=found.kept.cwd)
    if found.kept.id not in entries(listed):
        lines = (*found.answer.lines, *listed[0].answer.lines)
        raise Violation("another session was deleted, too", *lines)


@RULES.case("delete.twice", SHOULD, SEMANTICS, "delete")
async def twice(stage: Stage) -> None:
    """Deleting a session again succeeds."""
    found = await _deletion(stage)
    again = await found.dialogue.ask("session/delete", {"sessionId": found.session.id})
    again.require_result()


@RULES.case("delete.unknown-id", SHOULD, SEMANTICS, "delete")
async def delete_unknown(stage: Stage) -> None:
    """Deleting a session that never existed succeeds."""
    await stage.need(plain_session)
    dialogue = await stage.main()
    (await dialogue.ask("session/delete", {"sessionId": "check-no-such-session"})).require_result()
