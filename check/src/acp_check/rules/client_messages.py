"""The rules for the lines and messages of clients: their form, their ids, and the answers."""

from __future__ import annotations

import re

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.grammar import schema_messages
from acp_check.record import Record, WireLine, id_of
from acp_check.rules.client_answers import was_given_up, was_passed_over
from acp_check.rules.json_rpc import check_kinds, check_pending
from acp_check.rules.messages_fit import fits, own_members, own_methods
from acp_check.verdicts import RuleSource

RULES = Rules()

STDIO = RuleSource("Transports", "stdio")
SILENT = "the client sent nothing"


@RULES.observer("client.messages", MUST, STDIO, SILENT)
def messages(record: Record, witness: Witness) -> None:
    """Each line is one whole message in UTF-8."""
    for line in record.by("client"):
        witness.saw()
        if line.problem:
            witness.accuse(line.problem, line)
        elif line.message.get("jsonrpc") != "2.0":
            witness.accuse('the message has no `"jsonrpc": "2.0"`', line)


@RULES.observer("client.schema", MUST, RuleSource("Schema", ""), SILENT)
def schema(record: Record, witness: Witness) -> None:
    """All messages of the client fit the schema."""
    for message in schema_messages(record, "client"):
        fits(message, witness)


@RULES.observer("client.members", MUST, RuleSource("Extensibility", "The `_meta` Field"), SILENT)
def members(record: Record, witness: Witness) -> None:
    """Custom members are in `_meta`, not beside those of the protocol."""
    own_members(record, "client", witness)


@RULES.observer("client.methods", MUST, RuleSource("Extensibility", "Extension Methods"), SILENT)
def methods(record: Record, witness: Witness) -> None:
    """Custom methods begin with an underscore."""
    own_methods(record, "client", witness)


@RULES.observer(
    "client.answers", MUST, RuleSource("Overview", "Error Handling"), "the agent sent no request"
)
def answers(record: Record, witness: Witness) -> None:
    """Each request is answered once, with a result or an error."""
    for exchange in record.exchanges("agent", *UNATTENDED):
        asked = exchange.asked
        is_open = exchange.answer is None
        if is_open and was_given_up(record, asked) and was_passed_over(record, asked):
            witness.accuse("the request was not answered while its turn ran", asked)
    known = {id_of(line) for line in record.by("agent") if line.is_request}
    answered: dict[bytes, WireLine] = {}
    for line in record.by("client"):
        if not line.is_response:
            continue
        witness.saw()
        if id_of(line) not in known:
            witness.accuse("no request has this id", line)
        elif id_of(line) in answered:
            witness.accuse("this is the second answer to one request", answered[id_of(line)], line)
        elif ("result" in line.message) == ("error" in line.message):
            witness.accuse("it has both a result and an error, or neither", line)
        answered[id_of(line)] = line


UNATTENDED = (
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/kill",
    "terminal/release",
)
"""Requests a client answers by itself; a person, or a command, may take any time."""


@RULES.observer("client.kinds", MUST, RuleSource("Overview", "Communication Model"), SILENT)
def kinds(record: Record, witness: Witness) -> None:
    """A request has an id, and a notification has none."""
    check_kinds(record, "client", witness)


@RULES.observer("client.request-ids", MUST, RuleSource("Schema", "RequestId"), SILENT)
def request_ids(record: Record, witness: Witness) -> None:
    """The id of a request is a string or a whole number."""
    for line in record.by("client"):
        if line.is_request:
            id = line.message["id"]
            is_whole = isinstance(id, int) and not isinstance(id, bool)
            is_id = id is None or isinstance(id, str) or is_whole
            witness.check(is_id, f"{id!r} is neither a string nor a whole number", line)


@RULES.observer("client.null-ids", SHOULD, RuleSource("Schema", "RequestId"), SILENT)
def null_ids(record: Record, witness: Witness) -> None:
    """The id of a request is not null."""
    for line in record.by("client"):
        if line.is_request:
            witness.check(line.message["id"] is not None, "the id is null", line)


@RULES.observer(
    "client.unique-ids", EXPECTED, RuleSource("Overview", "Communication Model"), SILENT
)
def unique_ids(record: Record, witness: Witness) -> None:
    """No two pending requests share an id."""
    check_pending(record, "client", id_of, witness)


@RULES.observer(
    "client.errors", MUST, RuleSource("Overview", "Error Handling"), "the client sent no error"
)
def errors(record: Record, witness: Witness) -> None:
    """An error has a whole number as `code`, and a text as `message`."""
    for line in record.by("client"):
        if line.is_response and "error" in line.message:
            code, message = line.error.get("code"), line.error.get("message")
            is_whole = type(code) is int and isinstance(message, str)
            why = f"this error lacks one of them: {line.message['error']!r}"
            witness.check(is_whole, why, line)


@RULES.observer(
    "client.trace-context",
    SHOULD,
    RuleSource("Extensibility", "The `_meta` Field"),
    "the client sent no `traceparent`",
)
def trace_context(record: Record, witness: Witness) -> None:
    """`traceparent` in `_meta` has the form of the W3C's Trace Context."""
    for line in record.by("client"):
        meta = line.params.get("_meta")
        if isinstance(meta, dict) and "traceparent" in meta:
            value = str(meta["traceparent"])
            witness.check(TRACEPARENT.fullmatch(value), f"{value!r} does not have this form", line)


TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
