"""The difference between two states of a queue: what a client that knows the first has to be sent.

The page applies it too: `web/page/model/queue.js`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from acphold.record.history.prompt_queue import EndedPrompt, PromptQueue, WaitingPrompt


class WaitingDelta(Struct, frozen=True, omit_defaults=True):
    """A change of the prompts that wait: first those with the ids `gone` leave, then each of `put`
    is inserted at its index, in this order."""

    gone: tuple[str, ...] = ()
    put: tuple[tuple[int, WaitingPrompt], ...] = ()


class EndedDelta(Struct, frozen=True, omit_defaults=True):
    """A change of the prompts that have left the queue, as WaitingDelta."""

    gone: tuple[str, ...] = ()
    put: tuple[tuple[int, EndedPrompt], ...] = ()


class QueueDelta(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The members of a PromptQueue that are different, as they are now; of its lists the change."""

    waiting: WaitingDelta | UnsetType = UNSET
    begun: WaitingPrompt | UnsetType | None = UNSET
    held: str | UnsetType = UNSET
    until: int | UnsetType | None = UNSET
    ended: EndedDelta | UnsetType = UNSET
    goes_on: bool | UnsetType = UNSET
    restarts: bool | UnsetType = UNSET


MEMBERS = ("begun", "held", "until", "goes_on", "restarts")
"""The members of a queue that are no lists."""

Prompt = TypeVar("Prompt", WaitingPrompt, EndedPrompt)


def difference(before: PromptQueue, after: PromptQueue) -> QueueDelta:
    """Return what makes the second state of the first one."""
    delta = QueueDelta()
    for name in MEMBERS:
        if (now := getattr(after, name)) != getattr(before, name):
            delta = replace(delta, **{name: now})
    if after.waiting is not before.waiting:
        delta = replace(delta, waiting=WaitingDelta(*_edits(before.waiting, after.waiting)))
    if after.ended is not before.ended:
        delta = replace(delta, ended=EndedDelta(*_edits(before.ended, after.ended)))
    return delta


def apply_delta(before: PromptQueue, delta: QueueDelta) -> PromptQueue:
    """Return the state after `before` that the delta describes."""
    queue = before
    for name in MEMBERS:
        if (now := getattr(delta, name)) is not UNSET:
            queue = replace(queue, **{name: now})
    if delta.waiting is not UNSET:
        edits = delta.waiting
        queue = replace(queue, waiting=_edit(queue.waiting, edits.gone, edits.put))
    if delta.ended is not UNSET:
        queue = replace(queue, ended=_edit(queue.ended, delta.ended.gone, delta.ended.put))
    return queue


def _edits(
    before: Sequence[Prompt], after: Sequence[Prompt]
) -> tuple[tuple[str, ...], tuple[tuple[int, Prompt], ...]]:
    """Return the ids that leave, and what is inserted where."""
    known, now = {it.id: it for it in before}, {it.id: it for it in after}
    kept = [it.id for it in after if known.get(it.id) == it]
    stay = [it.id for it in before if now.get(it.id) == it]
    first = 0
    while kept[first:] and kept[first] == stay[first]:
        first += 1
    last = len(kept)
    while last > first and kept[last - 1] == stay[last - 1]:
        last -= 1
    moved = stay[first:last]  # what is between has another order
    if moved[1:] == kept[first : last - 1]:
        moved = moved[:1]
    elif moved[:-1] == kept[first + 1 : last]:
        moved = moved[-1:]
    rest = set(kept).difference(moved)
    gone = tuple(it.id for it in before if it.id not in rest)
    return gone, tuple((at, it) for at, it in enumerate(after) if it.id not in rest)


def _edit(
    before: Sequence[Prompt], gone: Sequence[str], put: Sequence[tuple[int, Prompt]]
) -> tuple[Prompt, ...]:
    ids = set(gone)
    rest = [it for it in before if it.id not in ids]
    for at, it in put:
        rest.insert(at, it)
    return tuple(rest)
