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
from acphold.history.timeline import Item
from acphold.schema.splice import members

TOOL_BYTES = 2 * 1024
"""Bytes of what one tool call did, in it: enough to see what came of it."""

DIFF_BYTES = 64 * 1024
"""Bytes of a file of which the changed lines are looked for; of a longer one it is said that it
changed."""

MARK_BYTES = 40
"""What the mark takes that says how much is missing."""

SPEAKERS = {"user": "User", "agent": "Assistant"}
"""Who is quoted; thoughts are not: models are not to take up old ones."""

TOLD = "User, as the agent of then told it"
"""Who is quoted where only an agent says that the user said it."""

BEGINNINGS = re.compile(r"^(?=(?:User|Assistant)\b[^\n]*:|\[(?:Tool:|… ))", re.MULTILINE)
"""How what stands in the text begins: a line in what somebody said must not, or it would speak for
another."""


def written(item: Item) -> str:
    """What stands in the text for one item of the timeline; empty for what is not told."""
    match item:
        case Message():
            return _written_message(item)
        case ToolCall():
            return _written_tool(item)
        case _:  # the end of a turn; a summary, which repeats what is told here
            return ""


def quoted(text: str) -> str:
    """Words of others, none of whose lines begins like a part of the text."""
    return BEGINNINGS.sub("> ", text)


def is_prompt(item: Item) -> bool:
    """Whether the user says this."""
    return isinstance(item, Message) and item.role == "user"


def shortened(text: str, limit: int) -> str:
    """`text` in `limit` bytes: its beginning and its end, and how much is missing between them."""
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
    """The words of a content block; what stands for the rest: `[image]`, the URI of a resource."""
    try:
        found = msgspec.json.decode(block, type=_Block)
    except msgspec.MsgspecError:
        return string(_members(block).get("text")) or ""  # half a surrogate pair, say
    uri = found.uri if found.resource is None else found.resource.uri
    if found.text or not (uri or found.type in MEDIA):
        return found.text
    return f"[{uri or found.type}]"


MEDIA = ("image", "audio")
"""Content blocks whose content no text can tell."""


class _Resource(Struct):
    uri: str = ""


class _Block(Struct):
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
