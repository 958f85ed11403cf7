"""Comparison of messages with the schema: missing, mistyped and unknown members.

The types of `acp_wire.schema` are the schema of ACP version 1; a test compares the two.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from acp_check.record import Json, Record, Side, WireLine
from acp_wire import schema
from acp_wire.errors import InvalidParamsError
from acp_wire.schema.session_requests import (
    ListSessionsRequest,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    PromptRequest,
    ResumeSessionRequest,
    ResumeSessionResponse,
    UnknownMcpServer,
)
from acp_wire.schema.shapes import UnknownVariant

DRAFTED: dict[type, set[str]] = {
    schema.AgentCapabilities: {"providers"},
    schema.AuthMethodAgent: {"link", "vars"},
    schema.AgentAuthCapabilities: {"status"},
    schema.McpCapabilities: {"acp"},
    schema.SessionCapabilities: {
        *("archive", "cancel", "fork", "status", "subagents", "systemPrompt", "title"),
    },
    schema.SessionInfo: {"archived"},
    schema.PromptResponse: {"usage"},
    schema.NewSessionResponse: {"models"},
    LoadSessionResponse: {"models"},
    ResumeSessionResponse: {"models"},
    schema.ClientCapabilities: {"nes", "plan", "positionEncodings", "subagents"},
    NewSessionRequest: {"systemPrompt"},
    LoadSessionRequest: {"systemPrompt"},
    ResumeSessionRequest: {"systemPrompt"},
    ListSessionsRequest: {"archived"},
    PromptRequest: {"messageId"},
}
"""Members from the protocol's own drafts, past and present, which are not custom members."""

DRAFTED_METHODS = {
    *("auth/status", "auth/status_update", "mcp/connect", "mcp/disconnect", "mcp/message"),
    *("providers/disable", "providers/list", "providers/set"),
    *("proxy/initialize", "proxy/successor"),
    *("session/archive", "session/fork", "session/set_model", "session/set_title"),
    *("session/status", "session/unarchive"),
}
"""Methods of either side from these drafts."""


class TypedMessage(msgspec.Struct, frozen=True):
    """The value in a line and its type: the params of `method`, or the result of one."""

    line: WireLine
    method: str
    kind: type
    value: object

    @property
    def is_result(self) -> bool:
        return self.line.is_response


CALLED: dict[Side, Mapping[str, schema.Method[Any, Any] | schema.Notification[Any]]] = {
    "agent": schema.CLIENT_METHODS | schema.PROTOCOL_METHODS,
    "client": schema.AGENT_METHODS | schema.PROTOCOL_METHODS,
}
"""The methods that each side may call."""


def schema_messages(record: Record, side: Side) -> Iterator[TypedMessage]:
    """Yield one side's messages in a record that the schema knows."""
    for line in record.by(side):
        if (known := CALLED[side].get(line.method or "")) is not None:
            yield TypedMessage(line, known.name, known.params, line.message.get("params"))
    asking: Side = "agent" if side == "client" else "client"
    others = schema.CLIENT_METHODS if side == "client" else schema.AGENT_METHODS
    for exchange in record.exchanges(asking, *others):
        method = others[exchange.asked.method or ""]
        answered = exchange.answer
        if not isinstance(method, schema.Method) or answered is None:
            continue
        if "result" in answered.message and "error" not in answered.message:
            yield TypedMessage(answered, method.name, method.result, answered.message["result"])


CAPABILITIES = {
    "load": ("loadSession",),
    **{name: ("sessionCapabilities", name) for name in ("list", "resume", "close", "delete")},
    "directories": ("sessionCapabilities", "additionalDirectories"),
    "image": ("promptCapabilities", "image"),
    "audio": ("promptCapabilities", "audio"),
    "embedded": ("promptCapabilities", "embeddedContext"),
    "http": ("mcpCapabilities", "http"),
    "sse": ("mcpCapabilities", "sse"),
    "logout": ("auth", "logout"),
}
"""The capabilities a rule may need, and where an agent advertises them."""

NEEDS = {
    **{
        f"session/{name}": CAPABILITIES[name]
        for name in ("load", "list", "resume", "close", "delete")
    },
    "logout": CAPABILITIES["logout"],
    "session/fork": ("sessionCapabilities", "fork"),
}
"""The capability that an agent has to advertise for each method; that to fork is a draft."""


def agent_capabilities(record: Record) -> Json:
    """Return the capabilities the agent advertised."""
    for exchange in record.exchanges("client", "initialize"):
        can = exchange.result.get("agentCapabilities")
        return can if isinstance(can, dict) else {}
    return {}


def kind_mismatch(line: WireLine) -> str:
    """Return the problem if a request is sent as a notification, or the other way round; or ""."""
    known = CALLED[line.by].get(line.method or "")
    if isinstance(known, schema.Method) and not line.is_request:
        return f"{known.name} is a request, but has no id"
    if isinstance(known, schema.Notification) and line.is_request:
        return f"{known.name} is a notification, but has an id"
    return ""


def problem(message: TypedMessage) -> str:
    """Return what does not fit the schema, "" for nothing; an empty result may be null here."""
    value = {} if message.value is None else message.value
    try:
        decoded: schema.Decoded[object] = schema.decode(message.kind, msgspec.json.encode(value))
    except InvalidParamsError as error:
        return str(error)
    if decoded.flaws:
        return f"{decoded.flaws[0]} does not fit"
    for path, unknown in variants(decoded.value, "$"):
        if not _is_drafted(unknown):
            return f"{path}: the protocol has no kind {unknown.kind!r}"
    return ""


def _is_drafted(value: UnknownVariant) -> bool:
    """Return True for an MCP server behind the ACP connection, the one variant of a draft that
    clients send."""
    return isinstance(value, UnknownMcpServer) and value.kind == "acp"


def variants(value: object, path: str) -> Iterator[tuple[str, UnknownVariant]]:
    """Yield every part of a value that is a variant unknown to the schema."""
    if isinstance(value, UnknownVariant):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for name, encoded in names(value):
            if isinstance(part := getattr(value, name), (UnknownVariant, msgspec.Struct, tuple)):
                yield from variants(part, f"{path}.{encoded}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from variants(item, f"{path}[{index}]")


def names(value: msgspec.Struct) -> Iterator[tuple[str, str]]:
    """Yield a value's fields: their names, and their names on the wire."""
    # Not `msgspec.structs.fields`, which looks up every type again.
    return zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)


def unknown_members(message: TypedMessage) -> tuple[str, list[str]]:
    """Return the path of a member that is not part of the protocol, "" for none; and the paths of
    all members that only a draft of the protocol has."""
    if not isinstance(message.value, dict):
        return "", []
    try:
        decoded: object = schema.decode(message.kind, msgspec.json.encode(message.value)).value
    except InvalidParamsError:
        return "", []
    found = list(_unknown_members(decoded, message.value, "$"))
    custom = next((path for path, is_draft in found if not is_draft), "")
    return custom, [path for path, is_draft in found if is_draft]


def _unknown_members(value: object, raw: object, path: str) -> Iterator[tuple[str, bool]]:
    """Yield the path of each member of `raw` that the type of `value` does not have; with True if
    a draft of the protocol has it."""
    match value, raw:
        case UnknownVariant(), _ if _is_drafted(value):
            yield path, True
        case msgspec.Struct(), dict():
            known = _fields(type(value))
            for name, member in raw.items():
                if name in known:
                    part = getattr(value, known[name])
                    yield from _unknown_members(part, member, f"{path}.{name}")
                elif name not in (value.__struct_config__.tag_field, "type"):
                    yield f"{path}.{name}", name in DRAFTED.get(type(value), ())
        case tuple(), list() if len(value) == len(raw):
            for index, (item, member) in enumerate(zip(value, raw, strict=True)):
                yield from _unknown_members(item, member, f"{path}[{index}]")


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the names of a type's fields, by their names on the wire."""
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


def data_of(block: Json) -> str | None:
    """Return the data of an image, of audio or of a file in a content block; None for others."""
    held = block.get("resource")
    data = held.get("blob") if isinstance(held, dict) else block.get("data")
    return data if isinstance(data, str) else None


def is_base64(data: str) -> bool:
    """Return True for base64."""
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True
