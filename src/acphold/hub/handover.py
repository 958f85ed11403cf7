"""The earlier conversation as text, for an agent that has lost it or never had it.

It goes along with the next prompt, within a limit. Every prompt of the person is in it, because
those are short and say what the rest was for; of everything else it has the newest. Where something
was left out, the text says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.history import SessionState
from acphold.history.timeline import Item
from acphold.hub.conversation_text import block_text, is_prompt, shortened, written

CONTEXT_BYTES = 96 * 1024
"""Bytes of earlier conversation that are handed over: about 25,000 tokens."""

PROMPT_BYTES = 72 * 1024
"""Bytes of these that prompts have at most, so that there is room for what came of the last."""

LEAST_PROMPT_BYTES = 128
"""What stays of the longest prompts when there are so many that all must be shortened; beyond that
the oldest are left out."""

PART_BYTES = 24
"""What stands around a part: an empty line, and how many are left out before it."""

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

LOST = "The agent lost this conversation and was given it to read"
GIVEN = "The agent was given this conversation to read"
"""The first is for an agent that has held it, the second for one that has not."""


class Context(Struct, frozen=True):
    """A content block for the prompt, and what the person is told about it."""

    block: bytes
    title: str
    description: str


def earlier_conversation(
    state: SessionState, held_with: str | None = None, *, is_new: bool = False
) -> Context | None:
    """The conversation in `state`; None when nothing was said.

    `held_with` names another agent that it began with; `is_new` says that this one never had it.
    Plain text: agents do not show a model every embedded resource they are sent, and some forget
    it at their next restart.
    """
    kept = _kept(state.timeline)
    if not kept.parts:
        return None
    began = f" It began with another agent, {held_with}." if held_with else ""
    left_out = _counted(kept.left_out, "", "is", "are")
    omitted = f" {left_out} left out." if kept.left_out else ""
    title = f"{GIVEN}; it was held with {held_with}" if held_with else GIVEN
    return Context(
        _block(f"{BEGINNING}.{began}{omitted} {ENDING}", kept.parts),
        title if is_new or held_with else LOST,
        f"{_counted(kept.number, 'earlier ', 'was', 'were')} handed over with your prompt"
        + (f", {kept.left_out} were left out." if kept.left_out else "."),
    )


def cut_off_turn(state: SessionState) -> Context | None:
    """The last turn in `state`, which a crash cut off: an agent that restored the rest lacks it."""
    prompts = [index for index, item in enumerate(state.timeline) if is_prompt(item)]
    kept = _kept(state.timeline[prompts[-1] :] if prompts else ())
    if not kept.parts:
        return None
    return Context(
        _block(f"{CUT_OFF}. {ENDING}", kept.parts),
        "The agent was told of the turn that was cut off",
        "It may have lost what it had said and done in it.",
    )


def is_context(block: bytes) -> bool:
    """Whether this content block is an earlier conversation: some agents send prompts back."""
    if BEGINNING.encode() not in block and CUT_OFF.encode() not in block:
        return False
    return block_text(block).startswith((HEADING + BEGINNING, HEADING + CUT_OFF))


# -- what there is room for ------------------------------------------------------------------------


class _Kept(Struct):
    """What is handed over, oldest first, with a line where something is missing; and how much."""

    parts: list[str]
    number: int = 0
    left_out: int = 0


def _kept(timeline: Sequence[Item]) -> _Kept:
    told = [(is_prompt(item), text) for item in timeline if (text := written(item))]
    prompts = _shortened([text for is_first, text in told if is_first])
    others = [text for is_first, text in told if not is_first]
    newest = _newest(others, CONTEXT_BYTES - sum(map(_size, prompts)))
    skipped = {True: len(told) - len(others) - len(prompts), False: len(others) - len(newest)}
    remaining = {True: iter(prompts), False: iter(newest)}
    kept = _Kept([])
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
    """The prompts in PROMPT_BYTES: the longest are shortened, and only then the oldest left out."""
    prompts = prompts[-(PROMPT_BYTES // LEAST_PROMPT_BYTES) :]
    room = PROMPT_BYTES
    for index, size in enumerate(sorted(map(_size, prompts))):
        share = room // (len(prompts) - index)
        if size > share:  # this one and all that are longer get the same
            return [shortened(prompt, share - PART_BYTES) for prompt in prompts]
        room -= size
    return prompts


def _newest(texts: Sequence[str], room: int) -> list[str]:
    """The newest of these that there is room for; the very newest is shortened to it."""
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


def _block(preface: str, parts: Sequence[str]) -> bytes:
    text = HEADING + "\n\n".join((preface, *parts)) + "\n"
    return msgspec.json.encode({"type": "text", "text": text})
