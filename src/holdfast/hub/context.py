"""The earlier conversation, written out for a model that has lost it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from holdfast.errors import InvalidParamsError
from holdfast.journal.fold import Message, SessionState, ToolCall
from holdfast.schema.splice import items, members

CONTEXT_BYTES = 96 * 1024
"""Bytes of earlier conversation that are handed over, the newest kept: about 25,000 tokens."""

TOOL_BYTES = 2 * 1024
"""Bytes of one tool's output in it: enough to see what came of it."""

URI = "holdfast://session/"
"""How the URI of an earlier conversation begins."""

BEGINNING = (
    "This is the earlier part of the same conversation, restored from a journal because you have "
    "no memory of it"
)
"""How its text begins."""

SPEAKERS = {"user": "User", "agent": "Assistant"}
"""Who is quoted; thoughts are not: models are not to take up old ones."""


class Context(Struct, frozen=True):
    """A content block for the prompt, and what the person is told about it."""

    block: bytes
    title: str
    description: str


def earlier_conversation(state: SessionState, session_id: str, *, embedded: bool) -> Context | None:
    """The conversation in `state`; None when nothing was said.

    An embedded resource where the agent takes them (spec v1, content), else a text block.
    """
    parts = [text for item in state.timeline if (text := _written(item))]
    kept: list[str] = []
    room = CONTEXT_BYTES
    for part in reversed(parts):
        room -= len(part.encode())
        if room < 0 and kept:
            break
        kept.append(part.encode()[-CONTEXT_BYTES:].decode(errors="ignore"))
    if not kept:
        return None
    left_out = len(parts) - len(kept)
    text = _preface(left_out) + "\n\n".join(reversed(kept)) + "\n"
    return Context(
        _block(text, session_id, embedded=embedded),
        "The agent lost this conversation and was given it to read",
        f"{len(kept)} earlier messages and tool calls were handed over with your prompt"
        + (f", {left_out} older ones were left out." if left_out else "."),
    )


def is_context(block: bytes) -> bool:
    """Whether this content block is an earlier conversation: some agents send prompts back."""
    if URI.encode() not in block and BEGINNING.encode() not in block:
        return False
    try:
        found = msgspec.json.decode(block, type=_Block)
    except msgspec.MsgspecError:
        return False
    uri = found.uri if found.resource is None else found.resource.uri
    return uri.startswith(URI) or found.text.startswith(BEGINNING)


def _preface(left_out: int) -> str:
    omitted = f" The oldest {left_out} items are left out." if left_out else ""
    return f"{BEGINNING}.{omitted} Go on from here; do not answer it again.\n\n"


def _written(item: Message | ToolCall) -> str:
    if isinstance(item, ToolCall):
        return _written_tool(item)
    speaker = SPEAKERS.get(item.role)
    text = "\n".join(filter(None, map(_text, item.content)))
    return f"{speaker}: {text}" if speaker and text else ""


def _written_tool(call: ToolCall) -> str:
    title = _string(call.fields.get("title")) or call.tool_call_id
    status = _string(call.fields.get("status")) or "pending"
    line = f"[Tool: {title}, {status}]"
    try:
        contents = [members(item).get("content", b"{}") for item in items(call.fields["content"])]
    except (InvalidParamsError, KeyError):
        return line
    output = "\n".join(filter(None, map(_text, contents)))[:TOOL_BYTES]
    return f"{line}\n{output}" if output else line


def _text(block: bytes) -> str:
    """The words of a content block; for an embedded or linked resource, where it is."""
    try:
        found = msgspec.json.decode(block, type=_Block)
    except msgspec.MsgspecError:
        return ""
    uri = found.uri if found.resource is None else found.resource.uri
    return found.text or (f"[{uri}]" if uri else "")


def _string(raw: bytes | None) -> str:
    try:
        return msgspec.json.decode(raw or b'""', type=str)
    except msgspec.MsgspecError:
        return ""


class _Resource(Struct):
    uri: str = ""


class _Block(Struct):
    text: str = ""
    uri: str = ""
    resource: _Resource | None = None


def _block(text: str, session_id: str, *, embedded: bool) -> bytes:
    if not embedded:
        return msgspec.json.encode({"type": "text", "text": text})
    resource = {
        "uri": f"{URI}{session_id}/earlier",
        "mimeType": "text/plain",
        "text": text,
    }
    return msgspec.json.encode({"type": "resource", "resource": resource})
