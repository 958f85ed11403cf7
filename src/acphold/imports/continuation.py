"""Where the news of a conversation begin that the journal has some of already.

A source that the user's own agent keeps is known by the agent's id, and prompts say how much of it
there is: agents change the space in them, put something in front or behind, and lose those that
were cancelled. Whoever wrote a source in a folder that somebody named may have given it any id: it
continues a session when every turn that both have is the same, and in no other case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from acphold.history import Message
from acphold.history.timeline import Item, TurnEnd

ENOUGH: Final = 50
"""After so many prompts that agree, those before them are not compared."""


class Turn(Struct, frozen=True):
    """What a person said, and a digest of what the agent answered, whatever space is in them.

    Said into a running turn, or not answered to the end, it may be missing in a transcript.
    """

    prompt: str
    answer: str
    may_be_missing: bool = False


class Known(Struct, frozen=True):
    """What the journal has of a conversation: how much was told with which digest, or its turns.

    `relation` says how those that a source tells have to be related to these for any news. With
    `same` and `alike` the news are behind what both have; with `none` all of it is new.
    """

    taken: int = 0
    digest: str = ""
    turns: list[Turn] = []
    relation: Literal["same", "alike", "none"] = "alike"

    def place_behind(self, told: Sequence[Turn]) -> int | None:
        """How many of the turns that are told the journal has; None if they are not so related."""
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


NOTHING: Final = Known()


def _agreement(known: Sequence[Turn], told: Sequence[Turn], place: int) -> int:
    """How many prompts agree up to the last known, and the one at `place`; 0 if that says nothing.

    It does from the beginning of both on; else one has to be the same to the letter, and what is
    before it, too, if both have anything.
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
    """Whether two texts are one prompt: agents put things in front of and behind what was sent."""
    return one == other or (bool(one) and bool(other) and (one in other or other in one))


def squeezed(words: str) -> str:
    """A text as it is compared."""
    return " ".join(words.split())


def turns(timeline: Iterable[Item], read: Callable[[str], str] = str) -> list[Turn]:
    """The turns of a timeline: each message of the user begins one. `read` is done to all texts."""
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
    told: list[Turn] = []
    for place, (prompt, said) in enumerate(zip(prompts, answers, strict=True)):
        answer = squeezed(read(" ".join(said))).encode(errors="replace")
        digest = blake2b(answer, digest_size=16).hexdigest()
        told.append(Turn(squeezed(read(prompt)), digest, place in unsure))
    return told
