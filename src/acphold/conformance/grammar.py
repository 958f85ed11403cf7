"""Comparison of messages with the schema: missing, mistyped and unknown members.

The types of `acphold.schema` are the schema of ACP version 1; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from acphold.conformance.record import Json, Line, Record, Side
from acphold.errors import InvalidParamsError
from acphold.schema import (
    AGENT_METHODS,
    CLIENT_METHODS,
    PROTOCOL_METHODS,
    AgentAuthCapabilities,
    AgentCapabilities,
    AuthMethodAgent,
    Decoded,
    McpCapabilities,
    Method,
    NewSessionResponse,
    Notification,
    SessionCapabilities,
    SessionInfo,
    decode,
)
from acphold.schema.session_requests import (
    LoadSessionResponse,
    ResumeSessionResponse,
)
from acphold.schema.shapes import UnknownVariant

DRAFTED: dict[type, set[str]] = {
    AgentCapabilities: {"providers"},
    AuthMethodAgent: {"link", "vars"},
    AgentAuthCapabilities: {"status"},
    McpCapabilities: {"acp"},
    SessionCapabilities: {
        *("archive", "cancel", "fork", "status", "subagents", "systemPrompt", "title"),
    },
    SessionInfo: {"archived"},
    NewSessionResponse: {"models"},
    LoadSessionResponse: {"models"},
    ResumeSessionResponse: {"models"},
}
"""Members from the protocol's own drafts, past and present: not inventions of the agent."""


class Message(msgspec.Struct, frozen=True):
    """The value in a line and its type: the params of `method`, or the result of one."""

    line: Line
    method: str
    kind: type
    value: object

    @property
    def is_result(self) -> bool:
        return self.line.is_response


def said(record: Record) -> Iterator[Message]:
    """Yield the agent's messages in a record that the schema knows."""
    return spoken(record, "agent")


def spoken(record: Record, side: Side) -> Iterator[Message]:
    """Yield one side's messages in a record that the schema knows."""
    own, others = CLIENT_METHODS, AGENT_METHODS
    if side == "client":
        own, others = others, own
    for line in record.by(side):
        known = own.get(line.method or "") or PROTOCOL_METHODS.get(line.method or "")
        if known is not None:
            yield Message(line, known.name, known.params, line.message.get("params"))
    for exchange in record.exchanges("agent" if side == "client" else "client", *others):
        method = others[exchange.request.method or ""]
        answered = exchange.answer
        if not isinstance(method, Method) or answered is None:
            continue
        if "result" in answered.message and "error" not in answered.message:
            yield Message(answered, method.name, method.result, answered.message["result"])


def odd_kind(line: Line) -> str:
    """Say what is wrong if a request is sent as a notification, or the other way round; else ""."""
    own = CLIENT_METHODS if line.by == "agent" else AGENT_METHODS
    known = own.get(line.method or "") or PROTOCOL_METHODS.get(line.method or "")
    if isinstance(known, Method) and not line.is_request:
        return f"{known.name} is a request, and has no id"
    if isinstance(known, Notification) and line.is_request:
        return f"{known.name} is a notification, and has an id"
    return ""


def problem(message: Message) -> str:
    """Return what does not fit the schema, "" for nothing; an empty result may be null here."""
    value = {} if message.value is None else message.value
    try:
        decoded: Decoded[object] = decode(message.kind, msgspec.json.encode(value))
    except InvalidParamsError as error:
        return str(error)
    if decoded.flaws:
        return f"{decoded.flaws[0]} does not fit"
    unknown = next(variants(decoded.value, "$"), None)
    return f"{unknown[0]}: {unknown[1].kind!r} is none of its kinds" if unknown else ""


def variants(value: object, path: str) -> Iterator[tuple[str, UnknownVariant]]:
    """Yield every part of a value that is a variant unknown to the schema."""
    if isinstance(value, UnknownVariant):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for name, encoded in names(value):
            yield from variants(getattr(value, name), f"{path}.{encoded}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from variants(item, f"{path}[{index}]")


def names(value: msgspec.Struct) -> Iterator[tuple[str, str]]:
    """Yield a value's fields: their names, and their names on the wire."""
    # Not `msgspec.structs.fields`, which looks up every type again.
    return zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)


def custom_member(message: Message) -> str:
    """Return the path of a member that is not part of the protocol, "" for none."""
    if not isinstance(message.value, dict):
        return ""
    try:
        decoded: object = decode(message.kind, msgspec.json.encode(message.value)).value
    except InvalidParamsError:
        return ""
    return next(strangers(decoded, message.value, "$"), "")


def strangers(value: object, raw: object, path: str) -> Iterator[str]:
    """Yield the paths of members of `raw` that the type of `value` does not have."""
    if isinstance(value, msgspec.Struct) and isinstance(raw, dict):
        yield from _strange_members(value, raw, path)
    elif isinstance(value, tuple) and isinstance(raw, list) and len(value) == len(raw):
        for index, (item, rest) in enumerate(zip(value, raw, strict=True)):
            yield from strangers(item, rest, f"{path}[{index}]")


def _strange_members(value: msgspec.Struct, raw: Json, path: str) -> Iterator[str]:
    known = {encoded: name for name, encoded in names(value)}
    tag = value.__struct_config__.tag_field
    free = {tag, "type", *DRAFTED.get(type(value), ())}
    for name, rest in raw.items():
        if name in known:
            yield from strangers(getattr(value, known[name]), rest, f"{path}.{name}")
        elif name not in free:
            yield f"{path}.{name}"
