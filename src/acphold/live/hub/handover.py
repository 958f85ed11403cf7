"""A conversation handed over as text to an agent that has lost it, or never had it:

User: Make it friendlier
Assistant: I will change the greeting.
[Tool: Edit hello.py (edit), completed]
changed /home/me/hello.py:
-hi
+hello

The text is sent with the next prompt, within a limit. It contains every prompt of the person,
because those are short and say what the rest was for, and the newest of everything else. Where
something was left out, the text says so.

It stands before the prompt, as it was said before it. Only a slash command stays in front: agents
look for one at the very beginning of a prompt.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.conversation.history.fold import SessionState
from acphold.conversation.history.handovers import (
    BEGINNING,
    HEADING,
    MISSING,
    WITHOUT,
    WORDS_NOW,
    HandOver,
    text_digest,
    with_mark,
)
from acphold.conversation.history.raw_update import is_the_persons, members, string
from acphold.conversation.history.timeline import (
    Item,
    Message,
    SubAgent,
    ToolCall,
    with_those_inside,
)
from acphold.live.hub import bounds

MARK_BYTES = 40
"""Bytes of the mark that says how much is missing."""

SPEAKERS = {"user": "User", "agent": "Assistant"}
"""Roles that are quoted; thoughts are not: models must not take up old ones."""

TOLD = "User, as the agent of then told it"
"""The speaker if only an agent reports that the user said it."""

BEGINNINGS = (
    rf"(?m)^(?=(?:User|Assistant)\b[^\n]*:|\[(?:Tool:|Sub-agent:|… )|{re.escape(WORDS_NOW)})"
)
"""Matches the beginning of each part of the text. No line that somebody said may begin like this:
it would pass for another speaker's."""


def text_of(item: Item) -> str:
    """Return the text of one item of the timeline; "" if it is left out."""
    match item:
        case Message():
            speaker = SPEAKERS.get(item.role)
            if item.role == "user" and not is_the_persons(item.message_id):
                speaker = TOLD
            text = "\n".join(filter(None, map(block_text, item.content)))
            return f"{speaker}: {quote(text)}" if speaker and text else ""
        case ToolCall():
            return _tool_text(item)
        case SubAgent():
            return _child_text(item)
        case _:  # the end of a turn; a summary, which repeats what is told here
            return ""


def quote(text: str) -> str:
    """Return quoted words, none of whose lines begins like a part of the text."""
    return re.sub(BEGINNINGS, "> ", text)


def is_prompt(item: Item) -> bool:
    """Return True if the user says this."""
    return isinstance(item, Message) and item.role == "user"


def shorten(text: str, limit: int) -> str:
    """Return `text` in `limit` bytes: its beginning and end, and between them how much is
    missing."""
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    half = max(0, limit - MARK_BYTES) // 2
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    # The end begins in the middle of a line, and must not look like the beginning of one.
    return f"{head}\n[… {len(raw) - 2 * half} bytes left out …]\n…{tail}"


def block_text(block: bytes) -> str:
    """Return the words of a content block, or what stands for it: `[image]`, the URI of a
    resource."""
    parts = members(block)
    text, kind = string(parts.get("text")) or "", string(parts.get("type"))
    uri = string(members(parts.get("resource", b"")).get("uri") or parts.get("uri"))
    return text if text or not (uri or kind in MEDIA) else f"[{uri or kind}]"


MEDIA = ("image", "audio")
"""Content blocks that text cannot represent."""


# -- tool calls -----------------------------------------------------------------------------------


def _tool_text(call: ToolCall) -> str:
    kind = "" if call.kind == "other" else f" ({call.kind})"
    about = f"{call.title or call.tool_call_id}{kind}, {call.status}"
    line = f"[Tool: {' '.join(about.split())}]"
    shown: list[str] = []
    for item in call.content:
        parts = members(item)
        path = string(parts.get("path")) or "a file"
        before, after = string(parts.get("oldText")), string(parts.get("newText")) or ""
        if parts.get("type") != b'"diff"':
            shown.append(block_text(parts.get("content", b"{}")))
        elif before is None:
            shown.append(f"wrote {path}:\n{after}")
        elif len(before) + len(after) > bounds.DIFF_BYTES:
            shown.append(f"changed {path}, {len(after.encode(errors='replace'))} bytes now")
        else:
            from difflib import unified_diff  # rare, and start-up is not

            lines = [*unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")][2:]
            changed = (line for line in lines if not line.startswith("@@"))
            shown.append("\n".join((f"changed {path}:", *changed)))
    output = "\n".join(filter(None, shown))
    raw = call.raw_output
    if not output and raw is not None and raw != b"null":  # nothing was shown of its result
        output = string(raw) or raw.decode(errors="replace")
    return f"{line}\n{quote(shorten(output, bounds.TOOL_BYTES))}" if output else line


def _child_text(child: SubAgent) -> str:
    words = [child.description or ""]
    for item in with_those_inside(child.timeline):
        match item:
            case Message(role="agent"):
                words.append("\n".join(filter(None, map(block_text, item.content))))
            case ToolCall() | SubAgent():
                words.append(f"[{' '.join((item.title or '').split())}]")
    line = " ".join(f"[Sub-agent: {child.name}, {child.status or 'running'}]".split())
    text = shorten("\n\n".join(filter(None, words)), bounds.TOOL_BYTES)
    return f"{line}\n{quote(text)}" if text else line


PART_BYTES = 24
"""Bytes around a part: an empty line, and how many are left out before it."""

ENDING = "Background only. Do not answer it again:"
"""The words before the quoted conversation."""

LOST = "The agent has lost this conversation"
LOST_PART = "The agent has lost the end of this conversation"
GIVEN = "The agent does not know this conversation yet"
"""Titles of the notice: for an agent that has held the conversation, and for one that has not."""

BRINGS = "Your next prompt brings it {} (about {} tokens){}. Start it with {} to leave that out."
"""The text of the notice."""

TOKEN_BYTES = 4
"""Bytes of a token, roughly."""


class Context(Struct, frozen=True):
    """A text for the prompt, and what the person is told about it."""

    text: str
    title: str
    description: str
    left_out: int = 0

    def mark(self, session_id: str, last_seq: int) -> HandOver:
        """Return the mark of this text, which tells a session up to an entry."""
        return HandOver(session_id, last_seq, text_digest(self.text))

    def join(self, prompt: Sequence[bytes], mark: HandOver) -> list[bytes]:
        """The content blocks of a prompt, with this one among them."""
        text = with_mark(self.text, mark)
        if prompt and block_text(prompt[0]).lstrip().startswith("/"):
            return [*prompt, _text_block(f"\n\n{text}")]
        return [_text_block(f"{text}\n{WORDS_NOW}\n\n"), *prompt]


def earlier_conversation(
    state: SessionState,
    held_with: str | None = None,
    *,
    is_new: bool = False,
    is_part: bool = False,
) -> Context | None:
    """Return the conversation in `state`; None if nothing was said.

    `held_with` names another agent that it began with; `is_new` says that this agent never had it,
    `is_part` that it has what was said before. It is plain text: agents do not show a model every
    embedded resource, and some forget it at their next restart.
    """
    kept = _select(state.timeline)
    if not kept.parts:
        return None
    began = f" It began with another agent, {held_with}." if held_with and not is_part else ""
    omitted = f" {_count(kept.left_out, '', 'is', 'are')} left out." if kept.left_out else ""
    title = LOST_PART if is_part else GIVEN if is_new or held_with else LOST
    if held_with and not is_part:
        title = f"{title}; it began with {held_with}"
    preface = f"{MISSING} and been shown of it." if is_part else f"{BEGINNING}."
    text = _compose(f"{preface}{began}{omitted} {ENDING}", kept.parts)
    brings = BRINGS.format(
        _count(kept.number, "earlier ", "", "").rstrip(),
        max(1, len(text.encode(errors="replace")) // TOKEN_BYTES),
        f"; {_count(kept.left_out, '', 'is', 'are')} left out" if kept.left_out else "",
        WITHOUT,
    )
    return Context(text, title, brings, kept.left_out)


# -- what there is room for ------------------------------------------------------------------------


class _HandedParts(Struct):
    """The parts handed over, oldest first, with a line where something is missing; and their
    number."""

    parts: list[str]
    number: int = 0
    left_out: int = 0


def _select(timeline: Sequence[Item]) -> _HandedParts:
    texts = [(is_prompt(item), text) for item in timeline if (text := text_of(item))]
    prompts = [text for is_first, text in texts if is_first]
    # Shorten the longest of them first; leave out the oldest only then.
    prompts = prompts[-(bounds.PROMPT_BYTES // bounds.LEAST_PROMPT_BYTES) :]
    room = bounds.PROMPT_BYTES
    for index, size in enumerate(sorted(map(_size, prompts))):
        share = room // (len(prompts) - index)
        if size > share:  # this one and all longer ones get the same
            prompts = [shorten(prompt, share - PART_BYTES) for prompt in prompts]
            break
        room -= size
    others = [text for is_first, text in texts if not is_first]
    newest: list[str] = []  # the newest for which there is room; the last is shortened to fit
    room = bounds.CONTEXT_BYTES - sum(map(_size, prompts))
    for text in reversed(others):
        if not newest:
            text = shorten(text, room - PART_BYTES)
        room -= _size(text)
        if room < 0:
            break
        newest.append(text)
    newest.reverse()
    skipped = {True: len(texts) - len(others) - len(prompts), False: len(others) - len(newest)}
    remaining = {True: iter(prompts), False: iter(newest)}
    kept = _HandedParts([])
    missing = 0
    for is_first, _ in texts:
        if skipped[is_first]:
            skipped[is_first] -= 1
            kept.left_out += 1
            missing += 1
            continue
        if missing:
            kept.parts.append(f"[… {missing} left out …]")
            missing = 0
        kept.parts.append(next(remaining[is_first]))
        kept.number += 1
    return kept


def _count(number: int, which: str, one: str, many: str) -> str:
    if number == 1:
        return f"1 {which}message or tool call {one}"
    return f"{number} {which}messages and tool calls {many}"


def _size(text: str) -> int:
    return len(text.encode(errors="replace")) + PART_BYTES


def _compose(preface: str, parts: Sequence[str]) -> str:
    return "\n\n".join((HEADING, preface, *parts)) + "\n"


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})
