"""The rules for prompts and their turns: content, answers, updates in between."""

from __future__ import annotations

import base64
import struct
import zlib

from acphold.conformance.catalogue import EXPECTED, MUST, Rules, Witness
from acphold.conformance.errands import GREET
from acphold.conformance.record import Json, Record, WireLine
from acphold.conformance.rules.new_sessions import plain_session, second_session
from acphold.conformance.stage import CheckedTurn, Stage, begin_prompt
from acphold.conformance.verdicts import RuleSource, Violation

RULES = Rules()

PAGE = "Prompt Turn"
COMPLETION = RuleSource(PAGE, "4. Check for Completion")
STOP_REASONS = RuleSource(PAGE, "Stop Reasons")
OUTPUT = RuleSource(PAGE, "3. Agent Reports Output")
BASELINE = RuleSource("Initialization", "Prompt capabilities")
CONTENT = RuleSource("Content", "Content Types")

REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}


async def plain_turn(stage: Stage) -> CheckedTurn:
    """Send a first prompt in the main process, then nothing for a while."""
    session = await stage.given(plain_session)
    dialogue = await stage.main()
    turn = await stage.prompt(dialogue, session, GREET)
    await dialogue.settled()
    return turn


@RULES.case("prompt.answer", MUST, COMPLETION)
async def answer(stage: Stage) -> None:
    """A prompt is answered with a stop reason."""
    turn = await stage.judge(plain_turn)
    reason = turn.answer.stop_reason
    if reason not in REASONS:
        raise Violation(f"there is no stop reason {reason!r}", *turn.answer.lines)
    if reason == "cancelled":
        raise Violation("nobody has cancelled it", *turn.answer.lines)


@RULES.case("prompt.next", MUST, RuleSource(PAGE, "Cancellation"))
async def next_prompt(stage: Stage) -> None:
    """A session takes another prompt when the turn before is over."""
    turn = await stage.given(plain_turn)
    await stage.prompt(await stage.main(), turn.session, GREET)


async def _with(stage: Stage, *blocks: Json) -> None:
    """Run a turn with these blocks after a text; raises Violation if it is not answered well."""
    turn = await stage.given(plain_turn)
    await stage.prompt(await stage.main(), turn.session, GREET, *blocks)


@RULES.case("prompt.text-blocks", MUST, CONTENT)
async def text_blocks(stage: Stage) -> None:
    """A prompt may have several blocks of text."""
    await _with(
        stage, {"type": "text", "text": "Be brief."}, {"type": "text", "text": "Thank you."}
    )


@RULES.case("prompt.resource-link", MUST, BASELINE)
async def resource_link(stage: Stage) -> None:
    """A prompt may link a file."""
    path = stage.new_file("linked.txt", "linked\n")
    link = {"type": "resource_link", "uri": path.as_uri(), "name": path.name}
    await _with(stage, {**link, "mimeType": "text/plain", "size": 7})


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
    """A prompt may hold an image."""
    await _with(stage, {"type": "image", "mimeType": "image/png", "data": PIXEL})


@RULES.case("prompt.audio", MUST, BASELINE, "audio")
async def audio(stage: Stage) -> None:
    """A prompt may hold a sound."""
    await _with(stage, {"type": "audio", "mimeType": "audio/wav", "data": SILENT})


@RULES.case("prompt.embedded", MUST, BASELINE, "embedded")
async def embedded(stage: Stage) -> None:
    """A prompt may hold a file."""
    uri = (stage.work / "inside.txt").as_uri()
    resource = {"uri": uri, "mimeType": "text/plain", "text": "inside\n"}
    await _with(stage, {"type": "resource", "resource": resource})


@RULES.case("prompt.meta", MUST, RuleSource("Extensibility", "The `_meta` Field"))
async def meta(stage: Stage) -> None:
    """A prompt may carry `_meta`, and so may each of its blocks."""
    turn = await stage.given(plain_turn)
    dialogue = await stage.main()
    trace = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}
    block = {"type": "text", "text": GREET.words, "_meta": {"check.example": {"deep": True}}}
    call = begin_prompt(dialogue, turn.session, block, _meta={**trace, "check.example": [1, None]})
    await stage.turn(dialogue, turn.session, call)


@RULES.case("prompt.two-sessions", EXPECTED, RuleSource("Session Setup", ""))
async def two_sessions(stage: Stage) -> None:
    """Two sessions may have a turn each at the same time."""
    turn = await stage.given(plain_turn)
    other = await stage.given(second_session)
    dialogue = await stage.main()
    calls = [begin_prompt(dialogue, session, GREET) for session in (turn.session, other)]
    for session, call in zip((turn.session, other), calls, strict=True):
        await stage.turn(dialogue, session, call)


# -- over all turns -------------------------------------------------------------------------

CHUNKS = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}


@RULES.observer("prompt.updates-first", EXPECTED, COMPLETION, unless="no prompt was answered")
def updates_first(record: Record, witness: Witness) -> None:
    """All updates of a turn come before its prompt is answered."""
    busy: set[object] = set()
    over: dict[object, WireLine] = {}
    asked = record.answered("client")
    for line in record.lines:
        if line.by == "client" and line.method in ("session/prompt", "session/load"):
            busy.add(line.session_id)
            over.pop(line.session_id, None)
        elif line.number in asked:
            request = asked[line.number].request
            busy.discard(request.session_id)
            if request.method == "session/prompt" and not _is_cancelled(line):
                over[request.session_id] = line
                witness.saw()
        elif line.session_id in over and line.session_id not in busy:
            kind = line.update_kind
            if kind in CHUNKS or kind in ("tool_call", "tool_call_update", "plan"):
                witness.accuse(f"a {kind} came behind the answer", over[line.session_id], line)


@RULES.observer("prompt.own-session", MUST, OUTPUT, unless="nothing was told in a turn")
def own_session(record: Record, witness: Witness) -> None:
    """Updates during a turn carry the id of its session."""
    # An agent may say something to a mode or an option that is set.
    asking = ("session/prompt", "session/load", "session/resume", "session/set_mode")
    used: set[object] = set()
    for line in record.lines:
        if line.by == "client" and line.method in (*asking, "session/set_config_option"):
            used.add(line.session_id)
        elif line.update_kind in CHUNKS and used:
            witness.check(line.session_id in used, "nothing was asked in this session", line)


def _is_cancelled(answer: WireLine) -> bool:
    """Return True for an error or a cancelled turn, for which there is another rule."""
    result = answer.message.get("result")
    return not isinstance(result, dict) or result.get("stopReason") == "cancelled"


@RULES.observer(
    "prompt.message-ids",
    MUST,
    RuleSource(PAGE, "Message IDs"),
    unless="the agent gives its messages no ids",
)
def message_ids(record: Record, witness: Witness) -> None:
    """Chunks with one message id belong to one message of one side."""
    kinds: dict[tuple[object, object], WireLine] = {}
    for line in record.updates():
        update = line.update
        kind, message_id = update.get("sessionUpdate"), update.get("messageId")
        if kind in CHUNKS and message_id is not None:
            witness.saw()
            first = kinds.setdefault((line.session_id, message_id), line)
            if first.update_kind != kind:
                witness.accuse("one id for messages of two kinds", first, line)
    _in_one_turn(record, witness)


def _in_one_turn(record: Record, witness: Witness) -> None:
    """Accuse a message that goes on in another turn; a replay is no turn."""
    turns: dict[object, int] = {}
    met: dict[tuple[object, object], tuple[int, WireLine]] = {}
    loading: set[object] = set()
    for line in record.lines:
        asks = line.method if line.by == "client" else None
        if asks == "session/prompt":
            turns[line.session_id] = turns.get(line.session_id, 0) + 1
            loading.discard(line.session_id)
        elif asks == "session/load":
            loading.add(line.session_id)
        message_id = line.update.get("messageId")
        if line.update_kind != "agent_message_chunk" or message_id is None:
            continue
        turn = turns.get(line.session_id, 0)
        if turn and line.session_id not in loading:
            number, first = met.setdefault((line.session_id, message_id), (turn, line))
            if number != turn:
                witness.accuse("a message of an earlier turn has its id", first, line)


@RULES.observer(
    "prompt.usage",
    MUST,
    RuleSource(PAGE, "Session Usage Updates"),
    unless="the agent told no usage",
)
def usage(record: Record, witness: Witness) -> None:
    """Usage has whole numbers of tokens, and its cost has a currency of ISO 4217."""
    for line in record.updates():
        update = line.update
        if update.get("sessionUpdate") != "usage_update":
            continue
        witness.saw()
        for name in ("used", "size"):
            count = update.get(name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                witness.accuse(f"`{name}` is no number of tokens", line)
        cost = update.get("cost")
        if isinstance(cost, dict):
            currency = cost.get("currency")
            if not isinstance(currency, str) or not _is_currency(currency):
                witness.accuse(f"{currency!r} is no currency code", line)


def _is_currency(code: str) -> bool:
    return len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()


RULES.unseen(
    "prompt.all-stop-reasons",
    "The stop reason says why the turn ended.",
    MUST,
    STOP_REASONS,
    "limits and refusals are the model's",
)
