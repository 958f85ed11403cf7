"""The types of MCP servers' offers, their results, and the requests to them.

They are decoded leniently: a bad item is dropped alone. Source: MCP 2025-11-25, schema. Content
blocks are ACP's, which come from MCP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from acp_wire import schema
from acp_wire.errors import InvalidParamsError
from acp_wire.surroundings import Surroundings
from acphold.mcp_servers.faults import BadResultError
from acphold.mcp_servers.transports import Channel

T = TypeVar("T", bound=Struct)

Answerer: TypeAlias = Callable[[str, dict[str, object]], Awaitable[dict[str, object]]]
"""Answers a server's request: takes the server's name and the params, returns the result.

Both are in MCP's form. An exception becomes an error for the server.
"""

MEDIA = ("data", "blob")
"""Content members with the bytes of an image, a sound or a file."""


class OurSide(Struct, frozen=True, kw_only=True):
    """Our side of a session's connections: facts about us, and answers to servers.

    `cwd` is the folder their programs start in, within `surroundings`; the roots are absolute
    paths. Features without an answerer are not offered, and refused if requested; so are roots if
    there are none. `name` and `version` identify us. A server has `deadline` seconds to answer
    `initialize`, and again to list its tools. `channel` leads to the servers over ACP.
    """

    cwd: str
    surroundings: Surroundings
    roots: tuple[str, ...] = ()
    name: str = "acphold"
    version: str = ""
    elicitation: Answerer | None = None
    deadline: float = 10.0
    channel: Channel | None = None


class ServerOffer(Struct, frozen=True, rename="camel", kw_only=True):
    """The common part of all listed items; `server` is the name of the server."""

    name: str
    title: str | None = None
    description: str | None = None
    server: str = ""


class Tool(ServerOffer, frozen=True, kw_only=True):
    """A tool; the schemas are JSON Schemas, `annotations` the server's own hints about it."""

    input_schema: dict[str, object]
    output_schema: dict[str, object] | None = None
    annotations: dict[str, object] | None = None


class Resource(ServerOffer, frozen=True, kw_only=True):
    """`size` in bytes."""

    uri: str
    mime_type: str | None = None
    size: int | None = None


class PromptArgument(Struct, frozen=True, rename="camel"):
    """Its value is text."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(ServerOffer, frozen=True, kw_only=True):
    """A prompt that the server makes from arguments."""

    arguments: tuple[PromptArgument, ...] = ()


class PromptMessage(Struct, frozen=True):
    """A message of a prompt that was made; `role` is `user` or `assistant`."""

    role: str
    content: schema.ContentBlock


class MadePrompt(Struct, frozen=True):
    """A prompt made from its arguments."""

    messages: tuple[PromptMessage, ...]
    description: str | None = None


class CallResult(Struct, frozen=True):
    """The result of a tool call.

    `failed`: the tool or the server reports an error, as for bad arguments. `structured` is an
    object by the tool's output schema. `raw` is the undecoded result.
    """

    content: tuple[schema.ContentBlock, ...]
    structured: dict[str, object] | None
    failed: bool
    raw: dict[str, object]

    @property
    def text(self) -> str:
        """Its texts, a line each."""
        texts = []
        for block in self.content:
            match block:
                case schema.TextContent(text=text):
                    texts.append(text)
                case schema.EmbeddedResource(resource=schema.TextResourceContents(text=text)):
                    texts.append(text)
        return "\n".join(texts)

    @property
    def output(self) -> dict[str, object]:
        """`raw` without the bytes of images, sounds and files, which `content` holds."""
        items = self.raw.get("content")
        if not isinstance(items, list):
            return self.raw
        return {**self.raw, "content": [_without_media(item) for item in items]}


class Progress(Struct, frozen=True):
    """The progress of a call; `total` is in the same unit as `done`, None if unknown."""

    done: float
    total: float | None
    message: str | None


def offers(kind: type[T], found: list[object], server: str) -> tuple[tuple[T, ...], int]:
    """Return the valid items, without duplicate names, and the number of invalid ones."""
    key = "uri" if kind is Resource else "name"
    good: dict[object, T] = {}
    bad = 0
    for item in found:
        try:
            offer = msgspec.convert(item, kind)
        except msgspec.ValidationError:
            bad += 1
        else:
            good.setdefault(getattr(offer, key), msgspec.structs.replace(offer, server=server))
    return tuple(good.values()), bad


def call_result(raw: dict[str, object]) -> CallResult:
    """Return the result of `tools/call`; raises BadResultError."""
    structured = raw.get("structuredContent")
    return CallResult(
        content=_blocks(raw.get("content", [])),
        structured=structured if isinstance(structured, dict) else None,
        failed=raw.get("isError") is True,
        raw=raw,
    )


def refusal_result(message: str, code: int) -> CallResult:
    """Return the result of a call that the server answered with a JSON-RPC error."""
    raw: dict[str, object] = {"error": {"code": code, "message": message}}
    return CallResult((schema.TextContent(text=message),), None, True, raw)


def parse_prompt(raw: dict[str, object]) -> MadePrompt:
    """Return the result of `prompts/get`; raises BadResultError."""
    description = raw.get("description")
    messages = raw.get("messages")
    if not isinstance(messages, list):
        raise BadResultError("`messages` is not an array")
    made = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            raise BadResultError("a message has no role")
        made.append(PromptMessage(role, _blocks([message.get("content")])[0]))
    return MadePrompt(tuple(made), description if isinstance(description, str) else None)


def resource_contents(
    raw: dict[str, object],
) -> tuple[schema.TextResourceContents | schema.BlobResourceContents, ...]:
    """Return the result of `resources/read`; raises BadResultError."""
    contents = raw.get("contents")
    if not isinstance(contents, list):
        raise BadResultError("`contents` is not an array")
    found: list[schema.TextResourceContents | schema.BlobResourceContents] = []
    for item in contents:
        is_blob = isinstance(item, dict) and "blob" in item
        raw_item = msgspec.json.encode(item)
        try:
            if is_blob:
                found.append(schema.decode(schema.BlobResourceContents, raw_item).value)
            else:
                found.append(schema.decode(schema.TextResourceContents, raw_item).value)
        except InvalidParamsError as exc:
            raise BadResultError(f"contents: {exc}") from None
    return tuple(found)


def _blocks(content: object) -> tuple[schema.ContentBlock, ...]:
    try:
        return schema.decode_blocks(msgspec.json.encode(content)).value
    except InvalidParamsError as exc:
        raise BadResultError(f"content: {exc}") from None


def _without_media(item: object) -> object:
    if not isinstance(item, dict):
        return item
    slim = {name: value for name, value in item.items() if name not in MEDIA}
    return {**slim, "resource": _without_media(slim["resource"])} if "resource" in slim else slim
