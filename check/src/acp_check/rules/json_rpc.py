"""The rules of JSON-RPC itself, and of its lines on stdio."""

from __future__ import annotations

from collections.abc import Callable

from acp_check import verdicts
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.dialogue import AgentGone, Call, Silence
from acp_check.grammar import kind_mismatch
from acp_check.record import (
    NOT_UTF_8,
    Json,
    Record,
    Side,
    WireLine,
    id_of,
    loose_id,
    messages_of_array,
)
from acp_check.rules.beginnings import MESSAGES, plain_session
from acp_check.rules.tool_reports import CALLS
from acp_check.stage import Stage, introduce
from acp_wire import errors

RULES = Rules(over=MESSAGES)

STDIO = verdicts.RuleSource("Transports", "stdio")
ENCODING = verdicts.RuleSource("Transports", "")
OVERVIEW = verdicts.RuleSource("Overview", "Communication Model")
ERRORS = verdicts.RuleSource("Overview", "Error Handling")
CUSTOM = verdicts.RuleSource("Extensibility", "Custom Requests")


def json_rpc(section: str) -> verdicts.RuleSource:
    """Return a section of the JSON-RPC specification as a source."""
    return verdicts.RuleSource("JSON-RPC 2.0", section)


RESPONSE = json_rpc("5 Response object")
ERROR_OBJECT = json_rpc("5.1 Error object")

ALWAYS = "the agent sent nothing"

# -- every line -----------------------------------------------------------------------------


@RULES.observer("stdio.utf-8", MUST, ENCODING, ALWAYS, only=verdicts.Reach.PROGRAM)
def utf_8(record: Record, witness: Witness) -> None:
    """Everything on stdout is UTF-8."""
    for line in record.by("agent"):
        witness.check(line.problem != NOT_UTF_8, line.problem, line)


@RULES.observer("stdio.only-messages", MUST, STDIO, ALWAYS, over=())
def only_messages(record: Record, witness: Witness) -> None:
    """Each line on stdout is one whole message."""
    # The checker sends one, and JSON-RPC answers it with another.
    asked_by_array = any(messages_of_array(line) for line in record.by("client"))
    for line in record.by("agent"):
        witness.saw()
        if line.problem in ("", NOT_UTF_8):
            continue
        answers_array = asked_by_array and all(
            isinstance(it, dict) and "id" in it and ("result" in it or "error" in it)
            for it in messages_of_array(line) or [None]
        )
        if not answers_array:
            witness.accuse(line.problem, line)


@RULES.observer("json-rpc.version", MUST, json_rpc("4 Request object, 5 Response object"), ALWAYS)
def version(record: Record, witness: Witness) -> None:
    """Each message has `"jsonrpc": "2.0"`."""
    for line in record.by("agent"):
        if line.message:
            version = line.message.get("jsonrpc")
            witness.check(version == "2.0", f"its version is {version!r}", line)


@RULES.observer("json-rpc.kinds", MUST, json_rpc("4.1 Notification"), "the agent called no method")
def kinds(record: Record, witness: Witness) -> None:
    """A request has an id, and a notification has none."""
    check_kinds(record, "agent", witness)


def check_kinds(record: Record, side: Side, witness: Witness) -> None:
    """Accuse requests that come as notifications, and the other way round."""
    for line in record.by(side):
        if line.method is not None:
            witness.check(not (wrong := kind_mismatch(line)), wrong, line)


@RULES.observer(
    "json-rpc.own-ids", MUST, json_rpc("4 Request object"), "the agent sent no request", over=CALLS
)
def own_ids(record: Record, witness: Witness) -> None:
    """Pending requests of the agent have different ids."""
    for line in record.by("agent"):
        id = line.message.get("id")
        if line.is_request and (not isinstance(id, str | int) or isinstance(id, bool)):
            witness.accuse(f"{id!r} is not an id", line)
    check_pending(record, "agent", loose_id, witness)


def check_pending(
    record: Record, side: Side, form: Callable[[WireLine], bytes | str], witness: Witness
) -> None:
    """Accuse requests with the id, in this form, of one that still waits for its answer."""
    waiting: dict[bytes | str, WireLine] = {}
    for line in record.lines:
        if line.by != side and line.is_response:
            waiting.pop(form(line), None)
        elif line.by == side and line.is_request:
            witness.saw()
            if (before := waiting.get(form(line))) is not None:
                witness.accuse("two pending requests share an id", before, line)
            waiting[form(line)] = line


# -- answers --------------------------------------------------------------------------------


@RULES.observer("json-rpc.result-or-error", MUST, RESPONSE, ALWAYS)
def result_or_error(record: Record, witness: Witness) -> None:
    """A response has a result or an error; an error has an integer code and a message."""
    for line in record.by("agent"):
        if not line.is_response:
            continue
        witness.saw()
        match line.message:
            case {"result": _, "error": _}:
                witness.accuse("it has both a result and an error", line)
            case {"result": _}:
                pass
            case {"error": {"code": bool()}}:
                witness.accuse("the error has no integer code", line)
            case {"error": {"code": int(), "message": str()}}:
                pass
            case {"error": {"code": int()}}:
                witness.accuse("the error has no message", line)
            case {"error": dict()}:
                witness.accuse("the error has no integer code", line)
            case {"error": _}:
                witness.accuse("the error is not an object", line)
            case _:
                witness.accuse("it has neither a result nor an error", line)


@RULES.observer("json-rpc.same-id", MUST, RESPONSE, ALWAYS)
def same_id(record: Record, witness: Witness) -> None:
    """A response has exactly the id of its request."""
    asked: set[bytes] = set()
    notified = -1
    missed = [it.asked for it in record.exchanges("client") if it.answer is None]
    for line in record.lines:
        if line.by == "client" and line.is_request:
            asked.add(id_of(line))
        elif line.by == "client" and not line.is_response:
            notified = line.number
        elif line.by == "agent" and line.is_response:
            witness.saw()
            # The id for an unreadable message is null; other rules say when.
            if line.message.get("id") is None:
                is_of_request = line.error.get("code") not in UNREADABLE and not record.broken
                before = [it for it in missed if notified < it.number < line.number]
                if is_of_request and before:
                    witness.accuse("a request gets no answer but this one", before[-1], line)
            elif id_of(line) not in asked:
                witness.accuse("no request has this id", line)


UNREADABLE = (errors.PARSE_ERROR, errors.INVALID_REQUEST)
"""The codes for messages whose id cannot be read."""


@RULES.observer("json-rpc.one-answer", MUST, RESPONSE, ALWAYS, over=())
def one_answer(record: Record, witness: Witness) -> None:
    """A request is answered once."""
    answered: dict[str, WireLine] = {}
    for line in record.by("agent"):
        if line.is_response and line.message.get("id") is not None:
            witness.saw()
            if (before := answered.get(loose_id(line))) is not None:
                witness.accuse("this is the second answer to one request", before, line)
            answered[loose_id(line)] = line


@RULES.observer("json-rpc.in-time", EXPECTED, RESPONSE, ALWAYS, over=())
def in_time(record: Record, witness: Witness) -> None:
    """A request is answered while the check waits."""
    for exchange in record.exchanges("client"):
        is_late = exchange.asked in record.awaited
        why = f"{exchange.asked.method} was not answered in time"
        witness.check(not is_late, why, *exchange.lines)


@RULES.observer("json-rpc.error-message", SHOULD, ERROR_OBJECT, "the agent sent no error")
def error_message(record: Record, witness: Witness) -> None:
    """The message of an error is one sentence on one line."""
    for line, error in _errors(record):
        witness.saw()
        message = error.get("message")
        if isinstance(message, str) and (not message.strip() or "\n" in message.strip()):
            fault = "has several lines" if message.strip() else "is empty"
            witness.accuse(f"the message {fault}", line)


BASELINE = ("initialize", "session/new", "session/prompt")

KNOWN_CODES = {
    errors.PARSE_ERROR,
    errors.INVALID_REQUEST,
    errors.METHOD_NOT_FOUND,
    errors.INVALID_PARAMS,
    errors.INTERNAL_ERROR,
    errors.REQUEST_CANCELLED,
}


@RULES.observer("json-rpc.error-codes", MUST, ERROR_OBJECT, "the agent sent no error")
def error_codes(record: Record, witness: Witness) -> None:
    """Error codes that JSON-RPC reserves are used as defined."""
    for exchange in record.exchanges("client", *BASELINE):
        code = exchange.error.get("code")
        if code in (errors.METHOD_NOT_FOUND, errors.PARSE_ERROR):
            why = f"{exchange.asked.method}, which every agent has, was answered with {code}"
            witness.accuse(why, *exchange.lines)
    for line, error in _errors(record):
        code = error.get("code")
        if not isinstance(code, int):
            continue
        witness.saw()
        if -32768 <= code < -32099 and code not in KNOWN_CODES:
            witness.accuse(f"{code} is reserved, but not defined", line)


def _errors(record: Record) -> list[tuple[WireLine, Json]]:
    return [
        (line, line.message["error"])
        for line in record.by("agent")
        if line.is_response and isinstance(line.message.get("error"), dict)
    ]


# -- ids ------------------------------------------------------------------------------------


async def _check_echo(stage: Stage, id: int | str) -> None:
    """Send a request with this id that any agent answers somehow, and judge the answer's id."""
    await stage.need(unknown_request)
    dialogue = await stage.main()
    answer = await dialogue.answer_to(dialogue.begin("check/no_such_method", {}, id=id))
    if id_of(answer.line) != id_of(answer.asked):
        raise verdicts.Violation("the answer has another id", *answer.lines)


STRING_IDS = ("check-7f3a", "990071", "00990072", "9.5", 'check \u00fc"\n', "null", "")
"""Ids, some of which look like something else; the empty one is a valid string."""


@RULES.case("json-rpc.string-id", MUST, RESPONSE)
async def string_id(stage: Stage) -> None:
    """A string as a request's id is kept."""
    for id in STRING_IDS:
        await _check_echo(stage, id)


@RULES.case("json-rpc.zero-id", MUST, RESPONSE)
async def zero_id(stage: Stage) -> None:
    """An id of 0, or a negative one, is kept."""
    for id in (0, -1):
        await _check_echo(stage, id)


@RULES.case("json-rpc.large-id", MUST, RESPONSE)
async def large_id(stage: Stage) -> None:
    """An id of more than 32 bits is kept."""
    await _check_echo(stage, 2**53 - 1)


# -- what cannot be answered ----------------------------------------------------------------


async def unknown_request(stage: Stage) -> Call:
    """Send a request that no agent knows, without a leading underscore."""
    dialogue = await stage.main()
    return await dialogue.ask("check/no_such_method", {"some": "thing"})


@RULES.case("json-rpc.unknown-method", MUST, ERROR_OBJECT)
async def unknown_method(stage: Stage) -> None:
    """An unknown method gets -32601."""
    answer = await stage.judge(unknown_request)
    if answer.code != errors.METHOD_NOT_FOUND:
        found = f"the code {answer.code}" if answer.is_refused else "a result"
        raise verdicts.Violation(f"the request was answered with {found}", *answer.lines)


async def misfits(stage: Stage) -> list[Call]:
    """Send requests with invalid parameters."""
    dialogue = await stage.main()
    asked: list[tuple[str, Json]] = [
        ("session/new", {"mcpServers": "none"}),
        ("session/new", {"cwd": 7, "mcpServers": []}),
    ]
    try:
        _, session = await stage.session_after(plain_session)
    except verdicts.Signal:  # the other requests need one
        pass
    else:
        hello = [{"type": "text", "text": "Hello"}]
        asked += [
            ("session/prompt", {"prompt": hello}),
            ("session/prompt", {"sessionId": session.id, "prompt": "Hello"}),
        ]
    return [await dialogue.ask(method, params) for method, params in asked]


@RULES.case("json-rpc.invalid-params", MUST, ERRORS)
async def invalid_params(stage: Stage) -> None:
    """Invalid parameters get an error."""
    for answer in await stage.judge(misfits):
        answer.require_error(f"`{answer.asked.method}` accepted invalid parameters")


@RULES.case("json-rpc.invalid-params-code", MUST, ERROR_OBJECT)
async def invalid_params_code(stage: Stage) -> None:
    """Invalid parameters get -32602."""
    for answer in await stage.need(misfits):
        if not answer.is_refused:
            raise verdicts.NotObservable("the invalid parameters were answered with a result")
        if answer.code == errors.AUTH_REQUIRED:
            raise verdicts.SignInNeeded(f"{answer.asked.method} requires a sign-in", *answer.lines)
        if answer.code != errors.INVALID_PARAMS:
            raise verdicts.Violation(f"the code is {answer.code}", *answer.lines)


@RULES.case("json-rpc.no-answer-to-notifications", MUST, ERRORS)
async def no_answer_to_notifications(stage: Stage) -> None:
    """A notification is never answered, known or not."""
    dialogue = await stage.main()
    before = len(dialogue.record.lines)
    notification = dialogue.notify("check/no_such_notification", {"some": "thing"})
    dialogue.notify("session/cancel", {"sessionId": "check-no-such-session"})
    await dialogue.catch_up()
    if unasked := dialogue.record.stray_answers(before):
        raise verdicts.Violation("a notification was answered", notification, unasked[0])


@RULES.case("json-rpc.after-errors", EXPECTED, ERRORS)
async def after_errors(stage: Stage) -> None:
    """After errors, requests are answered as before."""
    await stage.need(unknown_request)
    await stage.need(plain_session)
    dialogue = await stage.meet("after an error")
    await dialogue.ask("check/no_such_method", {})
    await stage.new_session(dialogue)


@RULES.case("json-rpc.many-at-once", EXPECTED, OVERVIEW)
async def many_at_once(stage: Stage) -> None:
    """Fifty requests sent at once are all answered, each with its id."""
    await stage.need(unknown_request)
    dialogue = await stage.main()
    calls = [dialogue.begin("check/no_such_method", {"number": n}) for n in range(50)]
    for call in calls:
        await dialogue.answer_to(call)


# -- framing ----------------------------------------------------------------------------------


@RULES.case("stdio.pieces", EXPECTED, STDIO, only=verdicts.Reach.PROGRAM)
async def pieces(stage: Stage) -> None:
    """A message can arrive in pieces, and several in one piece."""
    await stage.need(unknown_request)
    dialogue = await stage.main()
    line = b'{"jsonrpc":"2.0","id":"check-piece-%d","method":"check/no_such_method","params":{}}'
    lines = [line % n for n in range(3)]
    calls = [dialogue.expect(dialogue.note(line)) for line in lines]
    whole = b"".join(line + b"\n" for line in lines)
    for start, end in ((0, 9), (9, 70), (70, len(whole))):
        dialogue.running.transport.send(whole[start:end])
        await dialogue.pause_briefly()
    for call in calls:
        await dialogue.answer_to(call)


@RULES.case("stdio.line-separators", MUST, STDIO)
async def line_separators(stage: Stage) -> None:
    r"""Only \n ends a line: U+2028, U+0085 and \u000b inside a text do not."""
    await stage.need(unknown_request)
    dialogue = await stage.main()
    await dialogue.ask("check/no_such_method", {"text": "a\u2028b\u2029c\u0085d\u000be"})


LONG = 1 << 20


@RULES.case("stdio.long-lines", EXPECTED, STDIO)
async def long_lines(stage: Stage) -> None:
    """The agent reads a message of 1 MiB."""
    await stage.need(unknown_request)
    async with stage.temporary("long lines") as dialogue:
        (await introduce(dialogue)).require_result()
        text = {"text": "x" * LONG}
        await dialogue.ask("check/no_such_method", text, seconds=2 * dialogue.timeout)
        await dialogue.ask("check/no_such_method", {})


# -- invalid messages -------------------------------------------------------------------------


async def _send_garbage(stage: Stage, raw: bytes) -> tuple[WireLine, list[WireLine]]:
    """Send something that is no message; return it and the responses.

    Raises Violation if the agent stops answering.
    """
    await stage.need(unknown_request)
    async with stage.temporary("garbage") as dialogue:
        (await introduce(dialogue)).require_result()
        before = len(dialogue.record.lines)
        garbage = dialogue.write(raw)
        try:
            await dialogue.ask("check/no_such_method", {})
        except (AgentGone, Silence) as violation:
            raise verdicts.Violation(
                f"after this line, {violation.why}", garbage, *violation.lines
            ) from None
        await dialogue.pause_briefly()
        return garbage, dialogue.record.stray_answers(before)


async def not_json(stage: Stage) -> tuple[WireLine, list[WireLine]]:
    """Send a line that is not JSON."""
    return await _send_garbage(stage, b'{"jsonrpc": "2.0", "method": "check/')


async def no_request(stage: Stage) -> tuple[WireLine, list[WireLine]]:
    """Send JSON that is no request."""
    return await _send_garbage(stage, b'{"foo": "bar"}')


@RULES.case("json-rpc.parse-error", EXPECTED, ERROR_OBJECT)
async def parse_error(stage: Stage) -> None:
    """A line that is not JSON does not end the connection."""
    await stage.judge(not_json)


@RULES.case("json-rpc.parse-error-reply", MUST, RESPONSE)
async def parse_error_reply(stage: Stage) -> None:
    """A line that is not JSON gets no answer, or -32700 with the id null."""
    garbage, replies = await stage.need(not_json)
    _judge_replies(garbage, replies, errors.PARSE_ERROR)


@RULES.case("json-rpc.invalid-request", EXPECTED, ERROR_OBJECT)
async def invalid_request(stage: Stage) -> None:
    """JSON that is not a request does not end the connection."""
    await stage.judge(no_request)


@RULES.case("json-rpc.invalid-request-reply", MUST, RESPONSE)
async def invalid_request_reply(stage: Stage) -> None:
    """JSON that is not a request gets no answer, or -32600 with the id null."""
    garbage, replies = await stage.need(no_request)
    _judge_replies(garbage, replies, errors.INVALID_REQUEST)


@RULES.case("json-rpc.array", EXPECTED, OVERVIEW)
async def array(stage: Stage) -> None:
    """An array does not end the connection."""
    await _send_garbage(stage, b"[1, 2, 3]")


def _judge_replies(garbage: WireLine, replies: list[WireLine], code: int) -> None:
    if not replies:
        raise verdicts.NotObservable("it was left unanswered, which the agent may choose", garbage)
    for line in replies:
        if line.message.get("id", "none") is not None:
            raise verdicts.Violation("the answer's id is not null", garbage, line)
        if line.error.get("code") != code:
            raise verdicts.Violation(f"the answer's code is not {code}", garbage, line)


# -- the end --------------------------------------------------------------------------------


async def leave(stage: Stage) -> str | None:
    """Leave the agent and return how it ended."""
    await stage.need(plain_session)
    dialogue = await stage.meet("leaving")
    await stage.new_session(dialogue)
    how = await dialogue.hang_up(stage.settings.timeout)
    if how is not None:
        stage.leftovers = await dialogue.running.leftovers(2.0)
    return how


@RULES.case("stdio.ends-with-stdin", EXPECTED, STDIO, only=verdicts.Reach.PROGRAM)
async def ends_with_stdin(stage: Stage) -> None:
    """The agent ends when its stdin ends."""
    if await stage.judge(leave) is None:
        seconds = stage.settings.timeout
        raise verdicts.Violation(f"the agent still ran {seconds:g} s after the end of its stdin")


@RULES.case("stdio.leaves-nothing", EXPECTED, STDIO, only=verdicts.Reach.PROGRAM)
async def leaves_nothing(stage: Stage) -> None:
    """The agent's processes end with it."""
    if await stage.need(leave) is None:
        raise verdicts.NotObservable("the agent did not end by itself")
    if stage.leftovers is None:
        raise verdicts.NotObservable("the agent does not run as a separate program")
    if stage.leftovers:
        raise verdicts.Violation("a process that the agent started still runs 2 s after its end")
