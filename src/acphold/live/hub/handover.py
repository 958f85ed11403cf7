"""A conversation passed on: as text to an agent that lacks it, or from an agent's replay to us.

An agent that has lost the conversation, or never had it, gets it as text, which reads like this:

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

When the agent opens a session again it replays what it knows. Turns that are in the replay and not
in our journal were made outside of acphold, and are taken over. Both have the earlier turns, so
they are compared by the person's words; everything in the replay after our last turn is new.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import msgspec
from msgspec import Struct

from acphold.conversation.history.fold import SessionState
from acphold.conversation.history.handovers import (
    BEGINNING,
    HEADING,
    WORDS_NOW,
    HandOver,
    own_words,
    text_digest,
    with_mark,
)
from acphold.conversation.history.raw_update import is_the_persons, members, string, update_kind
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
    line = " ".join(f"[Sub-agent: {child.name}, {child.state or 'running'}]".split())
    text = shorten("\n\n".join(filter(None, words)), bounds.TOOL_BYTES)
    return f"{line}\n{quote(text)}" if text else line


PART_BYTES = 24
"""Bytes around a part: an empty line, and how many are left out before it."""

CUT_OFF = (
    "Your last turn was cut off by a crash. From a journal, what the user had asked and been shown "
    "of it"
)
"""The first words for an agent that only lacks the last turn."""

ENDING = "Background only. Do not answer it again:"
"""The words before the quoted conversation."""

LOST = "The agent had lost this conversation, so it was passed on again"
GIVEN = "This conversation was passed on to the agent"
"""Titles of the notice: for an agent that has held the conversation, and for one that has not."""


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
    state: SessionState, held_with: str | None = None, *, is_new: bool = False
) -> Context | None:
    """Return the conversation in `state`; None if nothing was said.

    `held_with` names another agent that it began with; `is_new` says that this agent never had it.
    It is plain text: agents do not show a model every embedded resource, and some forget it at
    their next restart.
    """
    kept = _select(state.timeline)
    if not kept.parts:
        return None
    began = f" It began with another agent, {held_with}." if held_with else ""
    left_out = _count(kept.left_out, "", "is", "are")
    omitted = f" {left_out} left out." if kept.left_out else ""
    title = f"{GIVEN}; it began with {held_with}" if held_with else GIVEN
    return Context(
        _compose(f"{BEGINNING}.{began}{omitted} {ENDING}", kept.parts),
        title if is_new or held_with else LOST,
        f"{_count(kept.number, 'earlier ', 'was', 'were')} passed on with your prompt"
        + (f"; {left_out} left out." if kept.left_out else "."),
        kept.left_out,
    )


def cut_off_turn(state: SessionState) -> Context | None:
    """Return the last turn in `state`, which a crash cut off: an agent that restored the rest lacks
    it."""
    prompts = [index for index, item in enumerate(state.timeline) if is_prompt(item)]
    kept = _select(state.timeline[prompts[-1] :] if prompts else ())
    if not kept.parts:
        return None
    return Context(
        _compose(f"{CUT_OFF}. {ENDING}", kept.parts),
        "The interrupted turn was passed on to the agent",
        "The agent may have forgotten what it said and did in it.",
    )


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


def missing_turns(state: SessionState, replay: Sequence[bytes]) -> list[bytes] | None:
    """Return the updates of the agent's replay after our last turn; None if the two do not
    meet."""
    ours = [
        _plain(item.text)
        for item in state.timeline
        if isinstance(item, Message) and item.role == "user"
    ]
    # The person's words in the replay, and all updates from there to their next words.
    turns: list[tuple[str, list[bytes]]] = []
    is_speaking = False
    for raw in replay:
        was_speaking, is_speaking = is_speaking, update_kind(raw) == "user_message_chunk"
        if is_speaking:
            text = string(members(members(raw).get("content", b"{}")).get("text")) or ""
            if was_speaking:
                prompt, raws = turns[-1]
                turns[-1] = (prompt + text, raws)
            else:
                turns.append((text, []))
        if turns:
            turns[-1][1].append(raw)
    in_replay = [_plain(prompt) for prompt, _ in turns]
    if not ours:
        return None
    index, best = -1, 0
    for end in range(len(in_replay)):
        # The longest run of the same prompts wins; of equals the first, as prompts may repeat.
        ends = zip(reversed(ours), reversed(in_replay[: end + 1]), strict=False)
        if (length := sum(1 for _ in takewhile(lambda each: each[0] == each[1], ends))) > best:
            index, best = end, length
    if index < 0:
        return None
    return [raw for _, raws in turns[index + 1 :] for raw in raws]


def _plain(text: str) -> str:
    """Return a text with single spaces, without the conversation that we handed over with it."""
    return " ".join(own_words(text).split())
