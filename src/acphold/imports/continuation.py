"""The place where a conversation continues one that the journal has already.

A source in the agent's own folder is identified by the agent's id, and compared by its prompts:
agents change their white space, add text before or after, and lose cancelled ones. A source in a
folder named with `--from` may have any id: it continues a session only if all the turns both have
are the same.
"""

# See docs/decisions.md, 29.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from acphold.history import Message
from acphold.history.timeline import Item, TurnEnd

ENOUGH: Final = 50
"""After this many matching prompts, earlier ones are not compared."""


class PastTurn(Struct, frozen=True):
    """A person's text, and a digest of the agent's answer, both without white space.

    If sent into a running turn, or not answered to the end, it may be missing in a transcript.
    """

    prompt: str
    answer: str
    may_be_missing: bool = False


class KnownPart(Struct, frozen=True):
    """The journal's part of a conversation: the number of told entries and their digest, or its
    turns.

    `relation` says how a source's turns must be related to these for it to have news. With `same`
    and `alike` the news follow the common part; with `none` all of it is new.
    """

    taken: int = 0
    digest: str = ""
    turns: list[PastTurn] = []
    relation: Literal["same", "alike", "none"] = "alike"

    def place_behind(self, told: Sequence[PastTurn]) -> int | None:
        """Return how many of the told turns the journal has; None if they are not so related."""
        if self.relation == "none":
            ours = {turn.prompt for turn in self.turns}
            return None if any(turn.prompt in ours for turn in told) else 0
        both = list(zip(self.turns, told, strict=False))
        if self.relation == "same":
            same = all((a.prompt, a.answer) == (b.prompt, b.answer) for a, b in both)
            return len(self.turns) if both and same else None
        if both and all(_is_like(one.prompt, other.prompt) for one, other in both):
            return len(self.turns)
        found = [(_agreement(self.turns, told, place), place) for place in range(1, len(told) + 1)]
        agreement, place = max(found, default=(0, 0))
        return place if agreement else None


NOTHING: Final = KnownPart()


def _agreement(known: Sequence[PastTurn], told: Sequence[PastTurn], place: int) -> int:
    """Return how many prompts match up to the last known one and `place`; 0 if inconclusive.

    It is conclusive if all match from the beginning of both; otherwise one has to be identical and,
    if both have earlier prompts, another one has to match.
    """
    ours, theirs = len(known), place
    alike = same = 0
    while ours and theirs and alike < ENOUGH:
        one, other = known[ours - 1], told[theirs - 1]
        if _is_like(one.prompt, other.prompt):
            alike += 1
            same += one.prompt == other.prompt
            theirs -= 1
        elif not one.may_be_missing:
            break
        ours -= 1
    if not ours and not theirs:
        return alike
    return alike if same and (alike > 1 or not ours or not theirs) else 0


def _is_like(one: str, other: str) -> bool:
    """Return True if two texts are one prompt: agents add text before and after it."""
    return one == other or (bool(one) and bool(other) and (one in other or other in one))


def squeezed(words: str) -> str:
    """Return a text normalised for comparison."""
    return " ".join(words.split())


def turns(timeline: Iterable[Item], read: Callable[[str], str] = str) -> list[PastTurn]:
    """Return the turns of a timeline: a user message begins one. `read` is applied to texts."""
    prompts: list[str] = []
    answers: list[list[str]] = []
    unsure: set[int] = set()
    is_over = True
    for item in timeline:
        if isinstance(item, Message) and item.role == "user":
            if not is_over:
                unsure.add(len(prompts))
            prompts.append(item.text)
            answers.append([])
            is_over = False
        elif isinstance(item, Message) and item.role == "agent" and prompts:
            answers[-1].append(item.text)
        elif isinstance(item, TurnEnd) and prompts:
            is_over = True
            if item.outcome != "completed":
                unsure.add(len(prompts) - 1)
    if not is_over:
        unsure.add(len(prompts) - 1)
    told: list[PastTurn] = []
    for place, (prompt, said) in enumerate(zip(prompts, answers, strict=True)):
        answer = squeezed(read(" ".join(said))).encode(errors="replace")
        digest = blake2b(answer, digest_size=16).hexdigest()
        told.append(PastTurn(squeezed(read(prompt)), digest, place in unsure))
    return told
