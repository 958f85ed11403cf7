"""Turns that were made outside acphold, for example in the agent's own terminal.

When the agent opens a session again it replays what it knows. Turns that are in the replay and not
in our journal are taken over. Both have the earlier turns, so they are compared by the person's
words; everything in the replay behind our last turn is new.
"""

from __future__ import annotations

from collections.abc import Sequence

from acphold.history import Message, SessionState
from acphold.history.raw_update import members, string, update_kind
from acphold.hub.handover import own_words

MARGIN_MS = 5000
"""Milliseconds by which the agent's list must be ahead of our last entry: some write a title behind
a turn."""

CAPTURED_BYTES = 64 * 1024 * 1024
"""Most bytes of an agent's replay that are kept to look for such turns; a longer one is not
searched."""


def missing_turns(state: SessionState, replay: Sequence[bytes]) -> list[bytes] | None:
    """Return the updates of the agent's replay behind our last turn; None if the two do not
    meet."""
    ours = [
        _plain(item.text)
        for item in state.timeline
        if isinstance(item, Message) and item.role == "user"
    ]
    turns = _turns(replay)
    theirs = [_plain(said) for said, _ in turns]
    if not ours:
        return None
    index, best = -1, 0
    for end in range(len(theirs)):
        # The longest run of the same prompts wins; of equals the first, as prompts may repeat.
        if (length := _common_end(ours, theirs[: end + 1])) > best:
            index, best = end, length
    if index < 0:
        return None
    return [raw for _, raws in turns[index + 1 :] for raw in raws]


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    length = 0
    for mine, yours in zip(reversed(one), reversed(other), strict=False):
        if mine != yours:
            break
        length += 1
    return length


def _turns(replay: Sequence[bytes]) -> list[tuple[str, list[bytes]]]:
    """Return the person's words, and all updates from there to their next words."""
    turns: list[tuple[str, list[bytes]]] = []
    is_speaking = False
    for raw in replay:
        if update_kind(raw) == "user_message_chunk":
            text = string(members(members(raw).get("content", b"{}")).get("text")) or ""
            if is_speaking:
                said, raws = turns[-1]
                turns[-1] = (said + text, raws)
            else:
                turns.append((text, []))
            is_speaking = True
        else:
            is_speaking = False
        if turns:
            turns[-1][1].append(raw)
    return turns


def _plain(text: str) -> str:
    """Return a text with single spaces, without the conversation that we handed over with it."""
    return " ".join(own_words(text).split())
