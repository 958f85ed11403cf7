"""The rules of the schema: the members, methods and notifications an agent may send."""

from __future__ import annotations

from collections.abc import Iterator

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.dialogue import Call
from acp_check.grammar import (
    CALLED,
    DRAFTED_METHODS,
    NEEDS,
    TypedMessage,
    agent_capabilities,
    data_of,
    is_base64,
    problem,
    schema_messages,
    unknown_members,
)
from acp_check.record import Record, Side, objects
from acp_check.rules.beginnings import MESSAGES, plain_session
from acp_check.rules.tool_reports import CALLS
from acp_check.stage import Stage
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.errors import METHOD_NOT_FOUND
from acp_wire.schema.updates import UPDATE_KINDS, has_capability

RULES = Rules(over=MESSAGES)

SCHEMA = RuleSource("Schema", "")
EXTENSIBILITY = "Extensibility"
CUSTOM = RuleSource(EXTENSIBILITY, "Custom Requests")


def fits(message: TypedMessage, witness: Witness) -> None:
    """Accuse a message that does not fit the schema."""
    wrong = problem(message)
    witness.check(not wrong, f"{message.method}: {wrong}", message.line)


def own_members(record: Record, side: Side, witness: Witness) -> None:
    """Accuse custom members beside those of the protocol."""
    for message in schema_messages(record, side):
        custom, drafted = unknown_members(message)
        witness.check(not custom, f"{custom} is not part of the protocol", message.line)
        for path in drafted:
            witness.remark(f"{path} of {message.method} is only in a draft of the protocol")


def own_methods(record: Record, side: Side, witness: Witness) -> None:
    """Accuse calls of custom methods that do not begin with an underscore."""
    for line in record.by(side):
        if (method := line.method) is not None:
            is_known = method in CALLED[side] or method in DRAFTED_METHODS
            why = f"{method!r} is not a method of the protocol"
            witness.check(is_known or method.startswith("_"), why, line)
            if method in DRAFTED_METHODS:
                witness.remark(f"{method} is only in a draft of the protocol")


def _results(record: Record) -> Iterator[TypedMessage]:
    """Yield the results of methods that the agent has; others may be answered in any way."""
    can = agent_capabilities(record)
    for message in schema_messages(record, "agent"):
        needed = NEEDS.get(message.method)
        if message.is_result and (needed is None or has_capability(can, *needed)):
            yield message


@RULES.observer("schema.results", MUST, SCHEMA, "nothing was answered with a result")
def results(record: Record, witness: Witness) -> None:
    """Every result fits the schema."""
    for message in _results(record):
        fits(message, witness)


@RULES.observer("schema.empty-results", MUST, SCHEMA, "nothing was answered with a result")
def empty_results(record: Record, witness: Witness) -> None:
    """An empty result is `{}`; that of `session/load` may be null."""
    for message in _results(record):
        if message.method != "session/load":
            witness.check(
                message.value is not None, f"the result of {message.method} is null", message.line
            )


@RULES.observer("schema.updates", MUST, SCHEMA, "the agent sent no update")
def updates(record: Record, witness: Witness) -> None:
    """Every `session/update` fits the schema."""
    for message in schema_messages(record, "agent"):
        if message.method == "session/update":
            fits(message, witness)


@RULES.observer("schema.requests", MUST, SCHEMA, "the agent sent no request", over=CALLS)
def requests(record: Record, witness: Witness) -> None:
    """All requests of the agent fit the schema."""
    for message in schema_messages(record, "agent"):
        if not message.is_result and message.method != "session/update":
            fits(message, witness)


@RULES.observer(
    "extension.members",
    MUST,
    RuleSource(EXTENSIBILITY, "The `_meta` Field"),
    "the agent sent no message that the schema knows",
)
def members(record: Record, witness: Witness) -> None:
    """Custom members are in `_meta`, not beside those of the protocol."""
    own_members(record, "agent", witness)


@RULES.observer(
    "extension.methods",
    MUST,
    RuleSource(EXTENSIBILITY, "Extension Methods"),
    "the agent called no method",
)
def methods(record: Record, witness: Witness) -> None:
    """Custom methods begin with an underscore."""
    own_methods(record, "agent", witness)


@RULES.observer(
    "schema.base64", EXPECTED, RuleSource("Content", "Content Types"), "the agent sent no such data"
)
def data_is_base64(record: Record, witness: Witness) -> None:
    """The data of images, audio and files is base64."""
    for line in record.by("agent"):
        content = line.update.get("content")
        parts = [content] if isinstance(content, dict) else objects(content)
        for part in parts:
            inner = part.get("content")
            data = data_of(inner if isinstance(inner, dict) else part)
            if data is not None:
                witness.check(is_base64(data), "the data is not base64", line)


@RULES.observer(
    "schema.offered-updates",
    MUST,
    RuleSource("Schema", "SessionUpdate"),
    "the agent sent no updates, or only some that the client offered to show",
)
def updates_on_offer(record: Record, witness: Witness) -> None:
    """Notices, compactions and sub-agents go only to clients that offer them."""
    for line in record.updates():
        kind = UPDATE_KINDS.get(line.update_kind)
        places = () if kind is None else kind.needs
        if not places:
            witness.saw()
        elif not any(has_capability(record.offers, *place) for place in places):
            witness.saw()
            witness.accuse(f"the client did not offer {'.'.join(places[0])}", line)


# -- custom requests ------------------------------------------------------------------------


async def custom_request(stage: Stage) -> Call:
    """Send a custom request that no agent knows."""
    dialogue = await stage.main()
    return await dialogue.ask("_check.example/no_such_request", {"some": "thing"})


@RULES.case("extension.answered", MUST, CUSTOM)
async def custom_answer(stage: Stage) -> None:
    """A custom request is answered, known or not."""
    await stage.judge(custom_request)


@RULES.case("extension.unknown-request", SHOULD, CUSTOM)
async def unknown_request(stage: Stage) -> None:
    """An unknown custom request gets -32601."""
    answer = await stage.need(custom_request)
    if answer.line.message.get("result"):
        raise NotObservable("the agent answers as if it knew the request", *answer.lines)
    if answer.code != METHOD_NOT_FOUND:
        found = f"the code {answer.code}" if answer.is_refused else "an empty result"
        raise Violation(f"the request was answered with {found}", *answer.lines)


@RULES.case(
    "extension.unknown-notification", SHOULD, RuleSource(EXTENSIBILITY, "Custom Notifications")
)
async def unknown_notification(stage: Stage) -> None:
    """An unknown custom notification is ignored."""
    await stage.need(plain_session)
    dialogue = await stage.main()
    before = len(dialogue.record.lines)
    notification = dialogue.notify("_check.example/no_such_notification", {"some": "thing"})
    await dialogue.catch_up()
    if unasked := dialogue.record.stray_answers(before):
        raise Violation("the notification was answered", notification, unasked[0])
    if dialogue.ended:
        raise Violation("the agent ended", notification)


@RULES.observer(
    "extension.advertised",
    SHOULD,
    RuleSource(EXTENSIBILITY, "Advertising Custom Capabilities"),
    "the agent sent no custom message",
)
def custom_in_meta(record: Record, witness: Witness) -> None:
    """Custom messages are advertised in the `_meta` of a capability."""
    can = [it.result.get("agentCapabilities") for it in record.exchanges("client", "initialize")]
    for line in record.by("agent"):
        if (line.method or "").startswith("_"):
            witness.check(any(map(_has_meta, can)), "no capability has a `_meta`", line)


def _has_meta(can: object) -> bool:
    """Return True if capabilities, or some among them, have a `_meta`."""
    return isinstance(can, dict) and (
        bool(can.get("_meta")) or any(_has_meta(it) for it in can.values())
    )
