"""The earlier conversation as text, for an agent that has lost it or never had it.

It is sent with the next prompt, within a limit. It contains every prompt of the person, because
those are short and say what the rest was for, and the newest of everything else. Where something
was left out, the text says so.

It stands before the prompt, as it was said before it. Only a slash command stays in front: agents
look for one at the very beginning of a prompt.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.history import SessionState
from acphold.history.raw_update import members, string, update_kind
from acphold.history.timeline import Item
from acphold.hub.conversation_text import WORDS_NOW, block_text, is_prompt, shortened, written
from acphold.schema.splice import splice

CONTEXT_BYTES = 96 * 1024
"""Most bytes of earlier conversation that are handed over: about 25,000 tokens."""

PROMPT_BYTES = 72 * 1024
"""Most bytes of prompts in it, so that there is room for what came of the last."""

LEAST_PROMPT_BYTES = 128
"""Bytes that stay of the longest prompts if all must be shortened; beyond that the oldest are left
out."""

PART_BYTES = 24
"""Bytes around a part: an empty line, and how many are left out before it."""

HEADING = "# Earlier in this conversation"
"""The line that it begins under. Behind a slash command, it ends what the person says."""

BEGINNING = "You have no memory of this conversation. Its earlier part, from a journal"
"""The first words of its text."""

CUT_OFF = (
    "Your last turn was cut off by a crash. From a journal, what the user had asked and been shown "
    "of it"
)
"""The first words for an agent that only lacks the last turn."""

ENDING = "It is for you to know, and has been answered already:"
"""The words before the quoted conversation."""

CUT_TITLE = 12
"""Characters of the heading by which a title that was cut short is known."""

LOST = "The agent had lost this conversation; it was passed on again"
GIVEN = "The agent was given this conversation to read"
"""Titles of the notice: for an agent that has held the conversation, and for one that has not."""


class Context(Struct, frozen=True):
    """A text for the prompt, and what the person is told about it."""

    text: str
    title: str
    description: str

    def joined(self, prompt: Sequence[bytes]) -> list[bytes]:
        """The content blocks of a prompt, with this one among them."""
        if prompt and block_text(prompt[0]).lstrip().startswith("/"):
            return [*prompt, _text_block(f"\n\n{self.text}")]
        return [_text_block(f"{self.text}\n{WORDS_NOW}\n\n"), *prompt]


def earlier_conversation(
    state: SessionState, held_with: str | None = None, *, is_new: bool = False
) -> Context | None:
    """Return the conversation in `state`; None if nothing was said.

    `held_with` names another agent that it began with; `is_new` says that this agent never had it.
    It is plain text: agents do not show a model every embedded resource, and some forget it at
    their next restart.
    """
    kept = _kept(state.timeline)
    if not kept.parts:
        return None
    began = f" It began with another agent, {held_with}." if held_with else ""
    left_out = _counted(kept.left_out, "", "is", "are")
    omitted = f" {left_out} left out." if kept.left_out else ""
    title = f"{GIVEN}; it was held with {held_with}" if held_with else GIVEN
    return Context(
        _quote(f"{BEGINNING}.{began}{omitted} {ENDING}", kept.parts),
        title if is_new or held_with else LOST,
        f"{_counted(kept.number, 'earlier ', 'was', 'were')} passed on with your prompt"
        + (f", {kept.left_out} were left out." if kept.left_out else "."),
    )


def cut_off_turn(state: SessionState) -> Context | None:
    """Return the last turn in `state`, which a crash cut off: an agent that restored the rest lacks
    it."""
    prompts = [index for index, item in enumerate(state.timeline) if is_prompt(item)]
    kept = _kept(state.timeline[prompts[-1] :] if prompts else ())
    if not kept.parts:
        return None
    return Context(
        _quote(f"{CUT_OFF}. {ENDING}", kept.parts),
        "The interrupted turn was passed on to the agent",
        "The agent may have forgotten what it said and did in it.",
    )


def own_words(text: str) -> str:
    """Return a person's text without an earlier conversation: some agents send prompts back.

    The first line of `WORDS_NOW` is ours: no quoted line begins with it.
    """
    before, _, handed_over = text.partition(HEADING)
    if not handed_over.lstrip().startswith((BEGINNING, CUT_OFF)):
        return text
    return before.rstrip() + handed_over.partition(f"\n{WORDS_NOW}\n")[2].lstrip("\n")


def is_named_by_it(title: str) -> bool:
    """Return True if an agent made this title from the first words of an earlier conversation."""
    words = " ".join(title.strip("#….").split()).casefold()
    heading = HEADING.strip("# ").casefold()
    return words.startswith(heading) or (len(words) >= CUT_TITLE and heading.startswith(words))


def without_its_title(update: bytes) -> bytes:
    """Return the agent's update without a title that it made from an earlier conversation."""
    if b'"title"' not in update or update_kind(update) != "session_info_update":
        return update
    title = string(members(update).get("title"))
    return splice(update, {"title": None}) if title and is_named_by_it(title) else update


# -- what there is room for ------------------------------------------------------------------------


class _HandedParts(Struct):
    """The parts handed over, oldest first, with a line where something is missing; and their
    number."""

    parts: list[str]
    number: int = 0
    left_out: int = 0


def _kept(timeline: Sequence[Item]) -> _HandedParts:
    told = [(is_prompt(item), text) for item in timeline if (text := written(item))]
    prompts = _shortened([text for is_first, text in told if is_first])
    others = [text for is_first, text in told if not is_first]
    newest = _newest(others, CONTEXT_BYTES - sum(map(_size, prompts)))
    skipped = {True: len(told) - len(others) - len(prompts), False: len(others) - len(newest)}
    remaining = {True: iter(prompts), False: iter(newest)}
    kept = _HandedParts([])
    missing = 0
    for is_first, _ in told:
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


def _shortened(prompts: list[str]) -> list[str]:
    """Return the prompts in PROMPT_BYTES: shorten the longest first; leave out the oldest only
    then."""
    prompts = prompts[-(PROMPT_BYTES // LEAST_PROMPT_BYTES) :]
    room = PROMPT_BYTES
    for index, size in enumerate(sorted(map(_size, prompts))):
        share = room // (len(prompts) - index)
        if size > share:  # this one and all longer ones get the same
            return [shortened(prompt, share - PART_BYTES) for prompt in prompts]
        room -= size
    return prompts


def _newest(texts: Sequence[str], room: int) -> list[str]:
    """Return the newest of these for which there is room; the very newest is shortened to fit."""
    kept: list[str] = []
    for text in reversed(texts):
        if not kept:
            text = shortened(text, room - PART_BYTES)
        room -= _size(text)
        if room < 0:
            break
        kept.append(text)
    return kept[::-1]


def _counted(number: int, which: str, one: str, many: str) -> str:
    if number == 1:
        return f"1 {which}message or tool call {one}"
    return f"{number} {which}messages and tool calls {many}"


def _size(text: str) -> int:
    return len(text.encode(errors="replace")) + PART_BYTES


def _quote(preface: str, parts: Sequence[str]) -> str:
    return "\n\n".join((HEADING, preface, *parts)) + "\n"


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})
