"""The rules for prompt turns: content, answers, updates in between, and cancellation."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.dialogue import (
    AgentGone,
    Call,
    Dialogue,
    Silence,
)
from acp_check.errands import COUNT, GREET
from acp_check.record import Json, Record, WireLine, result_of
from acp_check.rules.beginnings import plain_session
from acp_check.stage import CheckedSession, CheckedTurn, Stage, begin_prompt
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.errors import METHOD_NOT_FOUND, REQUEST_CANCELLED

PAGE = "Prompt Turn"
COMPLETION = RuleSource(PAGE, "4. Check for Completion")
STOP_REASONS = RuleSource(PAGE, "Stop Reasons")
OUTPUT = RuleSource(PAGE, "3. Agent Reports Output")
BASELINE = RuleSource("Initialization", "Prompt capabilities")
CONTENT = RuleSource("Content", "Content Types")
CANCELLATION = RuleSource(PAGE, "Cancellation")
CANCEL_REQUEST = RuleSource("Cancellation", "`$/cancel_request` Notification")

TURNS = (
    *("prompt.*", "cancel.*", "cancel-request.*", "tool.*", "permission.*", "close.cancels"),
    *("load.goes-on", "resume.goes-on"),
)
"""The cases with turns of every kind, and their replays."""

RULES = Rules(over=TURNS)

REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}


async def plain_turn(stage: Stage) -> CheckedTurn:
    """Send a first prompt in the main process, then nothing for a while."""
    dialogue, session = await stage.session_after(plain_session)
    turn = await stage.prompt(dialogue, session, GREET)
    await dialogue.settle()
    return turn


@RULES.case("prompt.answer", MUST, COMPLETION)
async def answer(stage: Stage) -> None:
    """A prompt gets a stop reason."""
    turn = await stage.judge(plain_turn)
    reason = turn.answer.stop_reason
    if reason not in REASONS:
        raise Violation(f"{reason!r} is not a stop reason", *turn.answer.lines)
    if reason == "cancelled":
        raise Violation(
            "the turn ended as `cancelled`, but nobody cancelled it", *turn.answer.lines
        )


@RULES.case("prompt.next", MUST, CANCELLATION)
async def next_prompt(stage: Stage) -> None:
    """A session accepts another prompt after a turn."""
    dialogue, session = await session_with_turn(stage)
    await stage.prompt(dialogue, session, GREET)


async def session_with_turn(stage: Stage) -> tuple[Dialogue, CheckedSession]:
    """Make a session in the main process in which a turn has ended."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.need_turn(dialogue, session, GREET)
    return dialogue, session


async def _with(stage: Stage, *blocks: Json) -> None:
    """Run a turn with these blocks after a text; raises Violation if it is not answered well."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.prompt(dialogue, session, GREET, *blocks)


@RULES.case("prompt.text-blocks", MUST, CONTENT)
async def text_blocks(stage: Stage) -> None:
    """A prompt can have several blocks of text."""
    await _with(
        stage, {"type": "text", "text": "Be brief."}, {"type": "text", "text": "Thank you."}
    )


async def link_turn(stage: Stage) -> Json:
    """Run a turn with a link to a file; return the link."""
    path = stage.new_file("linked.txt", "linked\n")
    link: Json = {"type": "resource_link", "uri": path.as_uri(), "name": path.name}
    await _with(stage, {**link, "mimeType": "text/plain", "size": 7})
    return link


@RULES.case("prompt.resource-link", MUST, BASELINE)
async def resource_link(stage: Stage) -> None:
    """A prompt can link to a file."""
    await stage.judge(link_turn)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


PIXEL = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + _png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _png_chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    + _png_chunk(b"IEND", b"")
).decode()
"""A red pixel, PNG."""

SILENT = base64.b64encode(
    b"RIFF\x28\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00"
    b"\x02\x00\x10\x00data\x04\x00\x00\x00\x00\x00\x00\x00"
).decode()
"""Two samples of silence, WAV."""


@RULES.case("prompt.image", MUST, BASELINE, "image")
async def image(stage: Stage) -> None:
    """A prompt can contain an image."""
    await _with(stage, {"type": "image", "mimeType": "image/png", "data": PIXEL})


@RULES.case("prompt.audio", MUST, BASELINE, "audio")
async def audio(stage: Stage) -> None:
    """A prompt can contain audio."""
    await _with(stage, {"type": "audio", "mimeType": "audio/wav", "data": SILENT})


async def text_file_turn(stage: Stage) -> None:
    """Run a turn with a file of text in its prompt."""
    uri = (stage.work / "inside.txt").as_uri()
    resource = {"uri": uri, "mimeType": "text/plain", "text": "inside\n"}
    await _with(stage, {"type": "resource", "resource": resource})


@RULES.case("prompt.embedded", MUST, BASELINE, "embedded")
async def text_file(stage: Stage) -> None:
    """A prompt can contain a file."""
    await stage.judge(text_file_turn)


@RULES.case("prompt.blob", MUST, BASELINE, "embedded")
async def blob(stage: Stage) -> None:
    """A prompt can contain a binary file."""
    await stage.need(text_file_turn)
    uri = (stage.work / "inside.png").as_uri()
    resource = {"uri": uri, "mimeType": "image/png", "blob": PIXEL}
    await _with(stage, {"type": "resource", "resource": resource})


@RULES.case("prompt.annotations", MUST, CONTENT)
async def with_annotations(stage: Stage) -> None:
    """A block can have annotations."""
    told = {
        "audience": ["user", "assistant"],
        "priority": 0.5,
        "lastModified": "2026-01-02T03:04:05Z",
    }
    dialogue, session = await stage.session_after(plain_turn)
    await stage.prompt(
        dialogue, session, {"type": "text", "text": GREET.words, "annotations": told}
    )
    await _with(stage, {**await stage.need(link_turn), "annotations": told})


@RULES.case("prompt.meta", MUST, RuleSource("Extensibility", "The `_meta` Field"))
async def meta(stage: Stage) -> None:
    """A prompt, and each of its blocks, can have `_meta`."""
    dialogue, session = await stage.session_after(plain_turn)
    trace = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}
    block = {"type": "text", "text": GREET.words, "_meta": {"check.example": {"deep": True}}}
    call = begin_prompt(dialogue, session, block, _meta={**trace, "check.example": [1, None]})
    await stage.turn(dialogue, session, call)


@RULES.case("prompt.two-sessions", EXPECTED, RuleSource("Session Setup", ""))
async def two_sessions(stage: Stage) -> None:
    """Two sessions can run turns at once."""
    dialogue, first = await stage.session_after(plain_turn)
    second = await stage.new_session(dialogue, cwd=stage.new_folder("beside"))
    calls = [begin_prompt(dialogue, session, GREET) for session in (first, second)]
    for session, call in zip((first, second), calls, strict=True):
        await stage.turn(dialogue, session, call)


# -- over all turns -------------------------------------------------------------------------

CHUNKS = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}

TURN_UPDATES = {*CHUNKS, "tool_call", "tool_call_update", "plan"}
"""Updates that are part of a turn; titles, usage, modes and commands may come at any time."""


def is_of_turn(line: WireLine) -> bool:
    """Return True if an update is part of a turn."""
    return line.update_kind in TURN_UPDATES


@RULES.observer("prompt.updates-first", EXPECTED, COMPLETION, "no prompt was answered")
def updates_first(record: Record, witness: Witness) -> None:
    """All updates of a turn precede its answer."""
    busy: set[object] = set()
    over: dict[object, WireLine] = {}
    asked = record.exchanges_by_answer("client")
    for line in record.lines:
        if line.by == "client" and line.method in ("session/prompt", "session/load"):
            busy.add(line.session_id)
            over.pop(line.session_id, None)
        elif line.number in asked:
            request = asked[line.number].asked
            busy.discard(request.session_id)
            result = line.message.get("result")
            # There is another rule for an error and a cancelled turn.
            is_whole = isinstance(result, dict) and result.get("stopReason") != "cancelled"
            if request.method == "session/prompt" and is_whole:
                over[request.session_id] = line
                witness.saw()
        elif line.session_id in over and line.session_id not in busy and is_of_turn(line):
            why = f"a {line.update_kind} arrived after the answer"
            witness.accuse(why, over[line.session_id], line)


@RULES.observer("prompt.own-session", MUST, OUTPUT, "the agent sent no message during a turn")
def own_session(record: Record, witness: Witness) -> None:
    """Updates during a turn have the id of its session."""
    # An agent may say something to a mode or an option that is set.
    asking = ("session/prompt", "session/load", "session/resume", "session/set_mode")
    used: set[object] = set()
    for line in record.lines:
        if line.by == "client" and line.method in (*asking, "session/set_config_option"):
            used.add(line.session_id)
        elif line.update_kind in CHUNKS and used:
            witness.check(line.session_id in used, "no request was sent for this session", line)


@RULES.observer(
    "prompt.message-ids",
    MUST,
    RuleSource(PAGE, "Message IDs"),
    "the agent gives its messages no ids",
)
def message_ids(record: Record, witness: Witness) -> None:
    """Chunks with one message id are of one kind, in one turn."""
    kinds: dict[tuple[object, object], WireLine] = {}
    turns: dict[tuple[object, object], tuple[WireLine, WireLine]] = {}
    # The prompt of each session's turn; None in a replay, which may have messages of all turns.
    prompts: dict[object, WireLine | None] = {}
    for line in record.lines:
        if line.by == "client":
            if line.method == "session/prompt":
                prompts[line.session_id] = line
            elif line.method == "session/load":
                prompts[line.session_id] = None
            continue
        message_id = line.update.get("messageId")
        if line.update_kind not in CHUNKS or message_id is None:
            continue
        witness.saw()
        key = line.session_id, message_id
        first = kinds.setdefault(key, line)
        if first.update_kind != line.update_kind:
            witness.accuse("messages of two kinds have the same id", first, line)
        prompt = prompts.get(line.session_id)
        if line.update_kind == "agent_message_chunk" and prompt is not None:
            earlier, first = turns.setdefault(key, (prompt, line))
            if earlier is not prompt:
                witness.accuse("a message of an earlier turn has the same id", first, line)


@RULES.observer(
    "prompt.usage", MUST, RuleSource(PAGE, "Session Usage Updates"), "the agent reported no usage"
)
def usage(record: Record, witness: Witness) -> None:
    """Usage has whole numbers of tokens, and a currency of ISO 4217."""
    for line in record.updates():
        update = line.update
        if update.get("sessionUpdate") != "usage_update":
            continue
        witness.saw()
        for name in ("used", "size"):
            count = update.get(name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                witness.accuse(f"`{name}` is not a number of tokens", line)
        cost = update.get("cost")
        if isinstance(cost, dict):
            currency = cost.get("currency")
            if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
                witness.accuse(f"{currency!r} is not a currency code", line)


RULES.unseen(
    "prompt.all-stop-reasons",
    "The stop reason says why the turn ended.",
    MUST,
    STOP_REASONS,
    "the check cannot make a model reach a limit or refuse",
)


# -- cancellation ---------------------------------------------------------------------------


class Cancelled(Struct, frozen=True):
    """A turn that was cancelled; `cancel` is the line that did it, `late` came after the end."""

    session: CheckedSession
    call: Call
    cancel: WireLine
    late: tuple[WireLine, ...]

    @property
    def lines(self) -> tuple[WireLine, ...]:
        return self.call.asked, self.cancel, self.call.line

    @property
    def seconds(self) -> float:
        """The time from the cancel to the answer."""
        return self.call.line.at - self.cancel.at

    def require_cancelled(self) -> None:
        """Raise Violation unless it was answered so."""
        self.call.require_cancelled(*self.lines)

    def require_updates_first(self) -> None:
        """Raise Violation if an update arrived after the answer."""
        if self.late:
            raise Violation("an update arrived after the answer", *self.lines, self.late[0])


async def begin_long_turn(stage: Stage, dialogue: Dialogue, session: CheckedSession) -> Call:
    """Begin a long turn and wait for its first update; raises NotObservable if it ends before."""
    call = begin_prompt(dialogue, session, COUNT)

    def has_begun() -> bool | None:
        if call.answer is not None:
            return False
        since = dialogue.record.updates(session.id, since=call.asked.number)
        return True if any(is_of_turn(line) for line in since) else None

    try:
        running = await dialogue.until(has_begun, 2 * dialogue.timeout)
        await dialogue.pause_briefly()  # a turn about to end would end by itself just now
    except Silence:
        running = True  # it is silent, but can be cancelled as well
    if not running or call.answer is not None:
        raise NotObservable("the turn ended before the check could act: the answer is short")
    return call


def cancel(dialogue: Dialogue, session: CheckedSession) -> WireLine:
    """Cancel the turn of a session, and answer its pending questions."""
    cancellation = dialogue.notify("session/cancel", {"sessionId": session.id})
    dialogue.host.release()
    return cancellation


async def end_by_cancel(
    dialogue: Dialogue, session: CheckedSession, call: Call, *, wait: float = 0.0
) -> Cancelled:
    """Cancel a turn, wait for its answer and `wait` seconds, and then for late updates."""
    cancellation = cancel(dialogue, session)
    await dialogue.answer_to(call, 3 * dialogue.timeout)
    await asyncio.sleep(wait)
    await dialogue.settle()
    late = filter(is_of_turn, dialogue.record.updates(session.id, since=call.line.number))
    return Cancelled(session, call, cancellation, tuple(late))


@asynccontextmanager
async def long_turn(
    stage: Stage, dialogue: Dialogue, session: CheckedSession
) -> AsyncIterator[Call]:
    """Run a long turn beside the block, and cancel it at the block's end."""
    call = await begin_long_turn(stage, dialogue, session)
    try:
        yield call
    finally:
        if call.answer is None:
            cancel(dialogue, session)
            with suppress(Silence, AgentGone):  # another rule is about that
                await dialogue.answer_to(call, 3 * dialogue.timeout)


@RULES.case("prompt.alive-meanwhile", EXPECTED, RuleSource("Overview", "Communication Model"))
async def alive_meanwhile(stage: Stage) -> None:
    """Other requests are answered during a turn."""
    dialogue, session = await stage.session_after(plain_turn)
    async with long_turn(stage, dialogue, session) as call:
        other = dialogue.begin("check/no_such_method", {})
        try:
            await dialogue.answer_to(other)
        except Silence:
            why = "a request was not answered while a turn was running"
            raise Violation(why, call.asked, other.asked) from None
        if call.answer is not None:
            raise NotObservable("the turn ended before another request could be sent")


async def cancel_turn(stage: Stage) -> Cancelled:
    """Return a turn that was cancelled while it ran."""
    dialogue, session = await session_with_turn(stage)
    for _ in range(bounds.CANCEL_ATTEMPTS):
        call = await begin_long_turn(stage, dialogue, session)
        cancelled = await end_by_cancel(dialogue, session, call)
        if call.stop_reason == "cancelled":
            break
    return cancelled


@RULES.case("cancel.stop-reason", MUST, CANCELLATION)
async def stop_reason(stage: Stage) -> None:
    """The prompt of a cancelled turn is answered with the stop reason `cancelled`, never an
    error.
    """
    (await stage.judge(cancel_turn)).require_cancelled()


@RULES.case("cancel.updates-first", MUST, CANCELLATION)
async def updates_before_cancelled(stage: Stage) -> None:
    """Updates of a cancelled turn precede its answer."""
    (await stage.need(cancel_turn)).require_updates_first()


@RULES.case("cancel.at-once", MUST, CANCELLATION)
async def at_once(stage: Stage) -> None:
    """A cancel right after the prompt ends the turn."""
    if (await stage.need(cancel_turn)).call.stop_reason != "cancelled":
        raise NotObservable("a cancel that is sent later does not end a turn either")
    dialogue, session = await stage.session_after(plain_turn)
    call = begin_prompt(dialogue, session, COUNT)
    cancellation = cancel(dialogue, session)
    fence = dialogue.begin_fence()
    answer = await dialogue.answer_to(call, 3 * dialogue.timeout)
    read = await dialogue.fence_answer(fence)
    is_read = read is not None and read.number < answer.line.number
    if answer.stop_reason != "cancelled" and not is_read:
        raise NotObservable("the turn ended before the agent had read what was sent")
    answer.require_cancelled(call.asked, cancellation, answer.line)


@RULES.case("cancel.soon", SHOULD, CANCELLATION)
async def soon(stage: Stage) -> None:
    """A cancelled turn ends as soon as possible."""
    cancelled = await stage.need(cancel_turn)
    if cancelled.seconds > bounds.CANCELLED_TURN_SECONDS:
        raise Violation(f"it took {cancelled.seconds:.1f} s to end the turn", *cancelled.lines)


@RULES.case("cancel.next-prompt", EXPECTED, CANCELLATION)
async def prompt_after_cancel(stage: Stage) -> None:
    """After a cancelled turn the session accepts prompts."""
    cancelled = await stage.need(cancel_turn)
    turn = await stage.prompt(await stage.main(), cancelled.session, GREET)
    if turn.answer.stop_reason == "cancelled":
        raise Violation("the next turn was cancelled, too", cancelled.cancel, *turn.answer.lines)


@RULES.case("cancel.idle", EXPECTED, CANCELLATION)
async def idle(stage: Stage) -> None:
    """A cancel between turns does not affect the next."""
    dialogue, session = await session_with_turn(stage)
    cancellation = cancel(dialogue, session)
    await dialogue.catch_up()
    after = await stage.prompt(dialogue, session, GREET)
    if after.answer.stop_reason == "cancelled":
        raise Violation("the cancel ended the next turn", cancellation, *after.answer.lines)


@RULES.case("cancel.other-session", EXPECTED, CANCELLATION)
async def other_session(stage: Stage) -> None:
    """A cancel ends only its own session's turn."""
    dialogue, session = await stage.session_after(plain_turn)
    idle_one = await stage.new_session(dialogue)
    async with long_turn(stage, dialogue, session) as call:
        cancellation = cancel(dialogue, idle_one)
        await dialogue.catch_up()
        if call.answer is not None and call.stop_reason == "cancelled":
            why = "the turn of another session was cancelled"
            raise Violation(why, cancellation, call.answer)


# -- $/cancel_request -----------------------------------------------------------------------


@RULES.case("cancel-request.answered", MUST, CANCEL_REQUEST)
async def request_answered(stage: Stage) -> None:
    """A request cancelled with `$/cancel_request` gets a result or -32800."""
    dialogue, session = await stage.session_after(plain_turn)
    call = await begin_long_turn(stage, dialogue, session)
    cancellation = dialogue.notify("$/cancel_request", {"requestId": call.asked.message["id"]})
    await dialogue.catch_up()
    if call.answer is None:  # the agent may ignore the cancellation
        cancel(dialogue, session)
    answer = await dialogue.answer_to(call, 3 * dialogue.timeout)
    if answer.is_refused and answer.code != REQUEST_CANCELLED:
        raise Violation(
            f"the cancelled request was answered with the error {answer.code}",
            call.asked,
            cancellation,
            answer.line,
        )


@RULES.observer(
    "cancel-request.code",
    SHOULD,
    RuleSource("Cancellation", "Internal Cancellation"),
    "the agent reported no request as cancelled",
)
def cancellation_code(record: Record, witness: Witness) -> None:
    """A cancelled request's error is -32800."""
    for line in record.by("agent"):
        if SAYS_CANCELLED.fullmatch(str(line.error.get("message"))):
            code = line.error.get("code")
            witness.check(code == REQUEST_CANCELLED, f"the code of the error is {code!r}", line)


SAYS_CANCELLED = re.compile(
    r"((the|this) )?((request|operation|prompt|turn) )?((was|is|has been) )?"
    r"(cancell?ed|aborted)\W*",
    re.IGNORECASE,
)


@RULES.case("cancel-request.unknown", EXPECTED, CANCEL_REQUEST)
async def request_unknown(stage: Stage) -> None:
    """`$/cancel_request` for an unknown request is ignored."""
    dialogue = await stage.main()
    before = len(dialogue.record.lines)
    over = await dialogue.ask("check/no_such_method", {})
    dialogue.notify("$/cancel_request", {"requestId": over.asked.message["id"]})
    cancellation = dialogue.notify("$/cancel_request", {"requestId": 999_999})
    await dialogue.catch_up()
    if unasked := dialogue.record.stray_answers(before):
        raise Violation("the notification was answered", cancellation, unasked[0])
    answer = await dialogue.ask("check/no_such_method", {})
    if answer.code not in (None, METHOD_NOT_FOUND):
        raise Violation("the next request was answered differently", cancellation, *answer.lines)


@RULES.observer("cancel.only-asked", EXPECTED, STOP_REASONS, "no prompt was answered")
def only_asked(record: Record, witness: Witness) -> None:
    """Only cancelled turns end with `cancelled`."""
    for exchange in record.exchanges("client", "session/prompt"):
        if exchange.answer is None:
            continue
        witness.saw()
        # A refused permission ends some.
        may_end = any(
            line.by == "client" and (line.method in ENDING or "outcome" in result_of(line))
            for line in record.since(exchange.asked.number)
            if line.number < exchange.answer.number
        )
        if exchange.result.get("stopReason") == "cancelled" and not may_end:
            witness.accuse("nobody cancelled this turn", *exchange.lines)


ENDING = ("session/cancel", "$/cancel_request", "session/close", "session/delete")
"""Messages of a client that may end a turn."""


RULES.unseen(
    "cancel.stops-work",
    "A cancel stops requests to the model, and tools.",
    SHOULD,
    CANCELLATION,
    "the check cannot see the connection between the agent and its model",
)
