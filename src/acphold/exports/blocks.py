"""What content blocks and tool calls say, in plain values; each form of an export writes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import assert_never

import msgspec

from acphold.errors import InvalidParamsError
from acphold.exports.visible_text import counted, size, visible
from acphold.journal.timeline import ToolCall, TurnEnd, TurnOutcome
from acphold.journal.transcript import Decision, ModeChanged, Noticed, TurnOpen, reason
from acphold.schema import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    Diff,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
    decode_blocks,
)

DIFF_LINES = 5000
"""Lines of a file beyond which two versions are not compared: that takes too long."""

DIFF_CONTEXT = 3
"""Lines that stay the same around a change."""

SPEAKERS = {"user": "You", "agent": "Agent", "thought": "Thought"}
"""Who speaks, by the role of a message."""

STATUS_MARKS = {"pending": "○", "in_progress": "◐", "completed": "●", "failed": "✗"}
"""How a tool call or a step of a plan stands."""

ENDINGS: dict[TurnOutcome, str] = {
    "completed": "ended",
    "limited": "stopped at a limit",
    "refused": "refused: for the agent, this prompt and the answer were never said",
    "cancelled": "cancelled",
    "failed": "failed",
    "interrupted": "interrupted: a crash or a kill cut it off",
}
"""How a turn ended, in words."""


def aside(
    scene: Noticed | ModeChanged | Decision | TurnEnd | TurnOpen,
) -> tuple[str, str] | None:
    """What stands beside the conversation: its kind, and the words; None for a plain end."""
    match scene:
        case Noticed():
            said = ". ".join(filter(None, (scene.title, scene.description)))
            return "notice", f"Notice: {said}"
        case ModeChanged():
            return "mode", f"Mode: {scene.mode}"
        case Decision():
            return "asked", f"Asked: {scene.question} → {scene.outcome}"
        case TurnEnd():
            why = reason(scene)
            if scene.outcome == "completed" and not why:
                return None
            words = f"Turn {ENDINGS[scene.outcome]}"
            return f"end {scene.outcome}", f"{words}: {why}" if why else words
        case TurnOpen():
            return "end open", f"Turn {scene.words}"
        case _:
            assert_never(scene)


def blocks_of(content: Sequence[bytes]) -> Sequence[ContentBlock]:
    """Raw content blocks, decoded; none where they cannot be read."""
    try:
        return decode_blocks(b"[%b]" % b",".join(content)).value
    except InvalidParamsError:
        return ()


def described(block: ContentBlock) -> str:
    """A block in words: its text, or what it is and how large."""
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
    """What a tool printed, without the fence that adapters of agents put around it."""
    fenced = _FENCED.fullmatch(text)
    return text if fenced is None or fenced[1] in fenced[2] else fenced[2]


def embedded_text(block: ContentBlock) -> str | None:
    """The text of a resource that came with a message; None for all else."""
    if not isinstance(block, EmbeddedResource):
        return None
    inside = block.resource
    return None if isinstance(inside, BlobResourceContents) else inside.text


def indented(raw: bytes) -> str:
    """JSON for people: over several lines, or if it is one text, that text."""
    text = raw.decode(errors="replace")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    if isinstance(value, str):
        return value
    return msgspec.json.format(text, indent=2)


def diff_lines(diff: Diff) -> list[str]:
    """The lines of a unified diff, without the two that name the file; visible text."""
    old = [] if diff.old_text is None else visible(diff.old_text).splitlines()
    new = visible(diff.new_text).splitlines()
    if max(len(old), len(new)) > DIFF_LINES:
        return [f"@@ {counted(len(old), 'line')} became {counted(len(new), 'line')} @@"]
    return list(difflib.unified_diff(old, new, lineterm="", n=DIFF_CONTEXT))[2:]


def headline(call: ToolCall) -> str:
    """What a tool call is and how it stands, in one line of visible text."""
    mark = STATUS_MARKS.get(call.status, "○")
    title = " ".join((call.title or call.tool_call_id).split())
    return visible(f"{mark} {title} — {call.kind}, {call.status.replace('_', ' ')}")
