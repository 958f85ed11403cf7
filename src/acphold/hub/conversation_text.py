"""A conversation in plain text, for a model that has not held it: who said what, and what was done.

User: Make it friendlier
Assistant: I will change the greeting.
[Tool: Edit hello.py (edit), completed]
changed /home/me/hello.py:
-hi
+hello
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.history import Message, ToolCall
from acphold.history.raw_update import string
from acphold.history.speakers import is_the_persons
from acphold.history.timeline import Item, SubAgent, with_those_inside
from acphold.schema.splice import members

TOOL_BYTES = 2 * 1024
"""Bytes of the result of one tool call: enough to see what came of it."""

DIFF_BYTES = 64 * 1024
"""Bytes of a file whose changed lines are quoted; of a longer file it only says that it changed."""

MARK_BYTES = 40
"""Bytes of the mark that says how much is missing."""

SPEAKERS = {"user": "User", "agent": "Assistant"}
"""Roles that are quoted; thoughts are not: models must not take up old ones."""

TOLD = "User, as the agent of then told it"
"""The speaker if only an agent reports that the user said it."""

WORDS_NOW = "# What the user says now"
"""The line that ends the text where a prompt follows it."""

BEGINNINGS = re.compile(
    rf"^(?=(?:User|Assistant)\b[^\n]*:|\[(?:Tool:|Sub-agent:|… )|{re.escape(WORDS_NOW)})",
    re.MULTILINE,
)
"""Matches the beginning of each part of the text. No line that somebody said may begin like this:
it would pass for another speaker's."""


def written(item: Item) -> str:
    """Return the text of one item of the timeline; "" if it is left out."""
    match item:
        case Message():
            return _written_message(item)
        case ToolCall():
            return _written_tool(item)
        case SubAgent():
            return _written_child(item)
        case _:  # the end of a turn; a summary, which repeats what is told here
            return ""


def quoted(text: str) -> str:
    """Return quoted words, none of whose lines begins like a part of the text."""
    return BEGINNINGS.sub("> ", text)


def is_prompt(item: Item) -> bool:
    """Return True if the user says this."""
    return isinstance(item, Message) and item.role == "user"


def shortened(text: str, limit: int) -> str:
    """Return `text` in `limit` bytes: its beginning and end, and between them how much is
    missing."""
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    half = max(0, limit - MARK_BYTES) // 2
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    # The end begins in the middle of a line, and must not look like the beginning of one.
    return f"{head}\n[… {len(raw) - 2 * half} bytes left out …]\n…{tail}"


def _written_message(message: Message) -> str:
    speaker = SPEAKERS.get(message.role)
    if message.role == "user" and not is_the_persons(message.message_id):
        speaker = TOLD
    text = "\n".join(filter(None, map(block_text, message.content)))
    return f"{speaker}: {quoted(text)}" if speaker and text else ""


def block_text(block: bytes) -> str:
    """Return the words of a content block, or what stands for it: `[image]`, the URI of a
    resource."""
    try:
        found = msgspec.json.decode(block, type=_TextBlock)
    except msgspec.MsgspecError:
        return string(_members(block).get("text")) or ""  # half a surrogate pair, say
    uri = found.uri if found.resource is None else found.resource.uri
    if found.text or not (uri or found.type in MEDIA):
        return found.text
    return f"[{uri or found.type}]"


MEDIA = ("image", "audio")
"""Content blocks that text cannot represent."""


class _Resource(Struct):
    uri: str = ""


class _TextBlock(Struct):
    type: str = ""
    text: str = ""
    uri: str | None = None
    resource: _Resource | None = None


# -- tool calls -----------------------------------------------------------------------------------


def _written_tool(call: ToolCall) -> str:
    kind = "" if call.kind == "other" else f" ({call.kind})"
    about = f"{call.title or call.tool_call_id}{kind}, {call.status}"
    line = f"[Tool: {' '.join(about.split())}]"
    shown: list[str] = []
    for item in call.content:
        parts = _members(item)
        is_diff = parts.get("type") == b'"diff"'
        shown.append(_written_diff(parts) if is_diff else block_text(parts.get("content", b"{}")))
    output = "\n".join(filter(None, shown))
    raw = call.raw_output
    if not output and raw is not None and raw != b"null":  # nothing was shown of its result
        output = string(raw) or raw.decode(errors="replace")
    return f"{line}\n{quoted(shortened(output, TOOL_BYTES))}" if output else line


def _written_child(child: SubAgent) -> str:
    told = [child.description or ""]
    for item in with_those_inside(child.timeline):
        match item:
            case Message(role="agent"):
                told.append("\n".join(filter(None, map(block_text, item.content))))
            case ToolCall() | SubAgent():
                told.append(f"[{' '.join((item.title or '').split())}]")
    line = " ".join(f"[Sub-agent: {child.name}, {child.state or 'running'}]".split())
    text = shortened("\n\n".join(filter(None, told)), TOOL_BYTES)
    return f"{line}\n{quoted(text)}" if text else line


def _written_diff(parts: dict[str, bytes]) -> str:
    path = string(parts.get("path")) or "a file"
    before, after = string(parts.get("oldText")), string(parts.get("newText")) or ""
    if before is None:
        return f"wrote {path}:\n{after}"
    if len(before) + len(after) > DIFF_BYTES:
        return f"changed {path}, {len(after.encode(errors='replace'))} bytes now"
    from difflib import unified_diff  # rare, and start-up is not

    lines = [*unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")][2:]
    return "\n".join((f"changed {path}:", *(line for line in lines if not line.startswith("@@"))))


def _members(raw: bytes) -> dict[str, bytes]:
    try:
        return members(raw)
    except InvalidParamsError:
        return {}
