"""The earlier conversation, written out for a model that has lost it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.journal import Message, SessionState, ToolCall
from acphold.journal.timeline import Item, TurnEnd
from acphold.schema.splice import items, members

CONTEXT_BYTES = 96 * 1024
"""Bytes of earlier conversation that are handed over, the newest kept: about 25,000 tokens."""

TOOL_BYTES = 2 * 1024
"""Bytes of one tool's output in it: enough to see what came of it."""

HEADING = "\n\n# Earlier in this conversation\n\n"
"""What separates it from the person's own words, which stand before it."""

BEGINNING = "You have no memory of this conversation. Its earlier part, from a journal"
"""How its text begins."""

CUT_OFF = (
    "Your last turn was cut off by a crash. From a journal, what the user had asked and been shown "
    "of it"
)
"""How the text begins for an agent that only lacks that turn."""

ENDING = "It is for you to know, and has been answered already:"
"""How it goes on before it quotes."""

SPEAKERS = {"user": "User", "agent": "Assistant"}
"""Who is quoted; thoughts are not: models are not to take up old ones."""


class Context(Struct, frozen=True):
    """A content block for the prompt, and what the person is told about it."""

    block: bytes
    title: str
    description: str


def earlier_conversation(state: SessionState) -> Context | None:
    """The conversation in `state`; None when nothing was said.

    Plain text: agents do not show a model every embedded resource they are sent, and some forget
    it at their next restart.
    """
    kept, left_out = _newest(state.timeline)
    if not kept:
        return None
    omitted = f" The oldest {left_out} items are left out." if left_out else ""
    return Context(
        _block(f"{BEGINNING}.{omitted} {ENDING}", kept),
        "The agent lost this conversation and was given it to read",
        f"{len(kept)} earlier messages and tool calls were handed over with your prompt"
        + (f", {left_out} older ones were left out." if left_out else "."),
    )


def cut_off_turn(state: SessionState) -> Context | None:
    """The last turn in `state`, which a crash cut off: an agent that restored the rest lacks it."""
    prompts = [place for place, item in enumerate(state.timeline) if _is_prompt(item)]
    kept, _ = _newest(state.timeline[prompts[-1] :] if prompts else ())
    if not kept:
        return None
    return Context(
        _block(f"{CUT_OFF}. {ENDING}", kept),
        "The agent was told of the turn that was cut off",
        "It may have lost what it had said and done in it.",
    )


def _newest(timeline: Sequence[Item]) -> tuple[list[str], int]:
    """What is handed over of these, oldest first, and how many older ones are left out."""
    parts = [text for item in timeline if (text := _written(item))]
    kept: list[str] = []
    room = CONTEXT_BYTES
    for part in reversed(parts):
        room -= len(part.encode())
        if room < 0 and kept:
            break
        kept.append(part.encode()[-CONTEXT_BYTES:].decode(errors="ignore"))
    return kept[::-1], len(parts) - len(kept)


def is_context(block: bytes) -> bool:
    """Whether this content block is an earlier conversation: some agents send prompts back."""
    if BEGINNING.encode() not in block and CUT_OFF.encode() not in block:
        return False
    return _text(block).startswith((HEADING + BEGINNING, HEADING + CUT_OFF))


def _is_prompt(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _written(item: Item) -> str:
    if isinstance(item, ToolCall):
        return _written_tool(item)
    if isinstance(item, TurnEnd):
        return ""
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


def _block(preface: str, parts: Sequence[str]) -> bytes:
    text = HEADING + "\n\n".join((preface, *parts)) + "\n"
    return msgspec.json.encode({"type": "text", "text": text})
