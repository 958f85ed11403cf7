"""The rules for cancelling turns and requests."""

from __future__ import annotations

import asyncio
import re

from msgspec import Struct

from acphold.conformance.catalogue import EXPECTED, MUST, SHOULD, Rules, Witness
from acphold.conformance.dialogue import AnswerLine, Dialogue, SentRequest, Silence
from acphold.conformance.errands import COUNT, GREET
from acphold.conformance.record import Record, WireLine, result_of
from acphold.conformance.rules.prompt_turns import plain_turn
from acphold.conformance.stage import CheckedSession, Stage, begin_prompt
from acphold.conformance.verdicts import NotObservable, RuleSource, Violation
from acphold.errors import METHOD_NOT_FOUND, REQUEST_CANCELLED

RULES = Rules()

CANCELLATION = RuleSource("Prompt Turn", "Cancellation")
CANCEL_REQUEST = RuleSource("Cancellation", "`$/cancel_request` Notification")

SOON_SECONDS = 5.0
"""Seconds for an agent to end a cancelled turn before people think it is not listening."""


TURN_UPDATES = {
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
}
"""Updates that are part of a turn; titles, usage, modes and commands may come at any time."""


def is_of_turn(line: WireLine) -> bool:
    """Return True if an update is part of a turn."""
    return line.update_kind in TURN_UPDATES


class Cancelled(Struct, frozen=True):
    """A turn that was cancelled while it ran; `cancel` is the line that did it."""

    session: CheckedSession
    asked: WireLine
    cancel: WireLine
    answer: AnswerLine
    late: tuple[WireLine, ...]
    seconds: float

    @property
    def lines(self) -> tuple[WireLine, ...]:
        return self.asked, self.cancel, self.answer.line


async def begun(stage: Stage, dialogue: Dialogue, session: CheckedSession) -> SentRequest:
    """Begin a long turn and wait for its first update; raises NotObservable if it ends before."""
    call = begin_prompt(dialogue, session, COUNT)

    def has_begun() -> bool | None:
        if call.answer is not None:
            return False
        since = dialogue.record.updates(session.id, since=call.asked.number)
        return True if any(is_of_turn(line) for line in since) else None

    try:
        running = await dialogue.until(has_begun, 2 * dialogue.timeout)
        await dialogue.hush_briefly()  # a turn about to end would end by itself just now
    except Silence:
        running = True  # it is silent, but can be cancelled as well
    if not running or call.answer is not None:
        raise NotObservable("the turn was over before it could be stopped: the answer is short")
    return call


def cancel(dialogue: Dialogue, session: CheckedSession) -> WireLine:
    """Cancel the turn of a session, and answer its pending questions."""
    told = dialogue.tell("session/cancel", {"sessionId": session.id})
    dialogue.host.release()
    return told


class Busy(Struct, frozen=True):
    """A running turn, and whether another request was answered meanwhile, as `lines` show."""

    session: CheckedSession
    call: SentRequest
    answered_meanwhile: bool
    lines: tuple[WireLine, ...]


async def busy_turn(stage: Stage) -> Busy:
    """Begin a long turn, and send another request in the middle of it."""
    turn = await stage.given(plain_turn)
    dialogue = await stage.main()
    call = await begun(stage, dialogue, turn.session)
    other = dialogue.begin("check/no_such_method", {})
    try:
        answer = await dialogue.answered(other)
        meanwhile = call.answer is None
        if not meanwhile:
            raise NotObservable("the turn was over before anything else could be asked")
        return Busy(turn.session, call, True, answer.lines)
    except Silence:
        return Busy(turn.session, call, False, (other.asked,))


@RULES.case("prompt.alive-meanwhile", EXPECTED, RuleSource("Overview", "Communication Model"))
async def alive_meanwhile(stage: Stage) -> None:
    """While a turn runs, other requests are answered."""
    busy = await stage.given(busy_turn)
    if not busy.answered_meanwhile:
        raise Violation("a request was not answered while a turn ran", *busy.lines)


ATTEMPTS = 3
"""A turn may end by itself just when it is cancelled, but not three times in a row."""


async def cancelled_turn(stage: Stage) -> Cancelled:
    """Return a turn that was cancelled while it ran."""
    for attempt in range(ATTEMPTS):
        found = await _cancelled_turn(stage, first=attempt == 0)
        if found.answer.stop_reason == "cancelled":
            return found
    return found


async def _cancelled_turn(stage: Stage, *, first: bool) -> Cancelled:
    loop = asyncio.get_running_loop()
    dialogue = await stage.main()
    if first:
        busy = await stage.given(busy_turn)
        session, call = busy.session, busy.call
    else:
        session = (await stage.given(plain_turn)).session
        call = await begun(stage, dialogue, session)
    began = loop.time()
    told = cancel(dialogue, session)
    answer = await dialogue.answered(call, 3 * dialogue.timeout)
    seconds = loop.time() - began
    await dialogue.settled()
    since = dialogue.record.updates(session.id, since=answer.line.number)
    return Cancelled(session, call.asked, told, answer, tuple(filter(is_of_turn, since)), seconds)


@RULES.case("cancel.stop-reason", MUST, CANCELLATION)
async def stop_reason(stage: Stage) -> None:
    """The prompt of a cancelled turn is answered with the stop reason `cancelled`, never an
    error.
    """
    cancelled = await stage.judge(cancelled_turn)
    cancelled.answer.cancelled(*cancelled.lines)


@RULES.case("cancel.updates-first", MUST, CANCELLATION)
async def updates_first(stage: Stage) -> None:
    """Updates of a cancelled turn come before its prompt is answered."""
    cancelled = await stage.given(cancelled_turn)
    if cancelled.late:
        raise Violation("an update came behind the answer", *cancelled.lines, cancelled.late[0])


@RULES.case("cancel.at-once", MUST, CANCELLATION)
async def at_once(stage: Stage) -> None:
    """A cancel right after its prompt ends the turn, too."""
    if (await stage.given(cancelled_turn)).answer.stop_reason != "cancelled":
        raise NotObservable("a cancel that comes later does not end a turn, either")
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    call = begin_prompt(dialogue, session, COUNT)
    told = cancel(dialogue, session)
    answer = await dialogue.answered(call, 3 * dialogue.timeout)
    answer.cancelled(call.asked, told, answer.line)


@RULES.case("cancel.soon", SHOULD, CANCELLATION)
async def soon(stage: Stage) -> None:
    """A cancelled turn ends as soon as possible."""
    cancelled = await stage.given(cancelled_turn)
    if cancelled.seconds > SOON_SECONDS:
        raise Violation(f"it took {cancelled.seconds:.1f} s", *cancelled.lines)


@RULES.case("cancel.next-prompt", EXPECTED, CANCELLATION)
async def next_prompt(stage: Stage) -> None:
    """After a cancelled turn the session takes the next prompt."""
    cancelled = await stage.given(cancelled_turn)
    turn = await stage.prompt(await stage.main(), cancelled.session, GREET)
    if turn.answer.stop_reason == "cancelled":
        raise Violation("the next turn is cancelled, too", cancelled.cancel, *turn.answer.lines)


@RULES.case("cancel.idle", EXPECTED, CANCELLATION)
async def idle(stage: Stage) -> None:
    """A cancel while nothing runs does no harm to the next turn."""
    turn = await stage.given(plain_turn)
    dialogue = await stage.main()
    told = cancel(dialogue, turn.session)
    await dialogue.caught_up()
    after = await stage.prompt(dialogue, turn.session, GREET)
    if after.answer.stop_reason == "cancelled":
        raise Violation("the next turn is cancelled", told, *after.answer.lines)


@RULES.case("cancel.other-session", EXPECTED, CANCELLATION)
async def other_session(stage: Stage) -> None:
    """A cancel ends only the turn of its own session."""
    turn = await stage.given(plain_turn)
    dialogue = await stage.main()
    idle_one = await stage.new_session(dialogue)
    call = await begun(stage, dialogue, turn.session)
    told = cancel(dialogue, idle_one)
    await dialogue.caught_up()
    if call.answer is not None and call.answer.stop_reason == "cancelled":
        raise Violation("the turn of another session was cancelled", told, call.answer.line)
    cancel(dialogue, turn.session)
    await dialogue.answered(call, 3 * dialogue.timeout)


# -- $/cancel_request -----------------------------------------------------------------------


@RULES.case("cancel-request.answered", MUST, CANCEL_REQUEST)
async def request_answered(stage: Stage) -> None:
    """A request that is cancelled by `$/cancel_request` is answered with a result or with
    -32800.
    """
    turn = dialogue, session = await stage.session_after(plain_turn)
    del turn
    call = await begun(stage, dialogue, session)
    told = dialogue.tell("$/cancel_request", {"requestId": call.asked.message["id"]})
    await dialogue.caught_up()
    if call.answer is None:  # the agent may ignore the cancellation
        cancel(dialogue, session)
    answer = await dialogue.answered(call, 3 * dialogue.timeout)
    if answer.error is not None and answer.code != REQUEST_CANCELLED:
        raise Violation(
            f"it was answered with the error {answer.code}", call.asked, told, answer.line
        )


@RULES.observer(
    "cancel-request.code",
    SHOULD,
    RuleSource("Cancellation", "Internal Cancellation"),
    unless="no error says so",
)
def cancelled_code(record: Record, witness: Witness) -> None:
    """An error that says of a request that it was cancelled has the code -32800."""
    for line in record.by("agent"):
        if SAYS_CANCELLED.fullmatch(str(line.error.get("message"))):
            code = line.error.get("code")
            witness.check(code == REQUEST_CANCELLED, f"the code is {code!r}", line)


SAYS_CANCELLED = re.compile(
    r"((the|this) )?((request|operation|prompt|turn) )?((was|is|has been) )?"
    r"(cancell?ed|aborted)\W*",
    re.IGNORECASE,
)


@RULES.case("cancel-request.unknown", EXPECTED, CANCEL_REQUEST)
async def request_unknown(stage: Stage) -> None:
    """`$/cancel_request` for a request that does not exist is not answered, and does no harm."""
    dialogue = await stage.main()
    before = len(dialogue.record.lines)
    over = await dialogue.ask("check/no_such_method", {})
    dialogue.tell("$/cancel_request", {"requestId": over.asked.message["id"]})
    told = dialogue.tell("$/cancel_request", {"requestId": 999_999})
    await dialogue.caught_up()
    if unasked := dialogue.record.unasked(before):
        raise Violation("it was answered", told, unasked[0])
    answer = await dialogue.ask("check/no_such_method", {})
    if answer.code not in (None, METHOD_NOT_FOUND):
        raise Violation("what is asked next is answered differently", told, *answer.lines)


@RULES.observer(
    "cancel.only-asked",
    EXPECTED,
    RuleSource("Prompt Turn", "Stop Reasons"),
    unless="no prompt was answered",
)
def only_asked(record: Record, witness: Witness) -> None:
    """A turn that nobody has cancelled is not answered `cancelled`."""
    for exchange in record.exchanges("client", "session/prompt"):
        if exchange.answer is None:
            continue
        witness.saw()
        meanwhile = record.lines[exchange.request.number : exchange.answer.number]
        if exchange.result.get("stopReason") == "cancelled" and not any(map(_ends, meanwhile)):
            witness.accuse("nobody did", *exchange.lines)


def _ends(line: WireLine) -> bool:
    """Return True for a line of the client that may end a turn; a refused permission ends some."""
    ending = ("session/cancel", "$/cancel_request", "session/close", "session/delete")
    return line.by == "client" and (line.method in ending or "outcome" in result_of(line))


RULES.unseen(
    "cancel.stops-work",
    "Requests to the model and tools are stopped by a cancel.",
    SHOULD,
    CANCELLATION,
    "what goes on between the agent and its model is not seen from here",
)
