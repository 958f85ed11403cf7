"""The text of content blocks and tool calls as plain values; each face draws them its own way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

import msgspec

from acphold.errors import InvalidParamsError
from acphold.history.timeline import ToolCall
from acphold.presentation.scenes import step_mark
from acphold.presentation.visible_text import size, visible
from acphold.schema import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
    decode_blocks,
)


def blocks_of(content: Sequence[bytes]) -> Sequence[ContentBlock]:
    """Return raw content blocks decoded; none if they cannot be read."""
    try:
        return decode_blocks(b"[%b]" % b",".join(content)).value
    except InvalidParamsError:
        return ()


def described(block: ContentBlock) -> str:
    """Return a block in words: its text, or its kind and size."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, {size(len(data) * 3 // 4)}]"
        case ResourceLink(uri=uri):
            return f"[{uri}]"
        case EmbeddedResource(resource=resource):
            inside = resource.blob if isinstance(resource, BlobResourceContents) else resource.text
            return f"[{resource.uri}, {size(len(inside))}]"
        case UnknownContent(kind=kind):
            return f"[{kind}]"
        case _:
            assert_never(block)


_FENCED = re.compile(r"\s*(`{3,}|~{3,})[^\n`]*\n(.*?)\n?\1\s*", re.DOTALL)


def unfenced(text: str) -> str:
    """Return a tool's output without the fence that agents' adapters put around it."""
    fenced = _FENCED.fullmatch(text)
    return text if fenced is None or fenced[1] in fenced[2] else fenced[2]


def embedded_text(block: ContentBlock) -> str | None:
    """Return the text of a resource embedded in a message; None for all other blocks."""
    if not isinstance(block, EmbeddedResource):
        return None
    inside = block.resource
    return None if isinstance(inside, BlobResourceContents) else inside.text


def indented(raw: bytes) -> str:
    """Return JSON for people: over several lines, or if it is one string, that text."""
    text = raw.decode(errors="replace")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    if isinstance(value, str):
        return value
    return msgspec.json.format(text, indent=2)


def headline(call: ToolCall) -> str:
    """Return a tool call's title and status in one line of visible text."""
    title = " ".join((call.title or call.tool_call_id).split())
    return visible(
        f"{step_mark(call.status)} {title} — {call.kind}, {call.status.replace('_', ' ')}"
    )
