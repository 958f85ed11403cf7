"""The queued prompts, on a screen: above the input, as a list with numbers, and changed by them.

An agent behind acphold has them in its session. For any other agent they wait in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Raw
from rich.text import Text

from acp_wire.schema import ContentBlock, encode
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.prompt_queue import (
    NO_QUEUE,
    PromptQueue,
    QueueChange,
    WaitingPrompt,
    after_change,
    moment,
    prompt_quantity,
    rules,
    why_held,
)
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.faces.screen.layout import Passage

if TYPE_CHECKING:
    from acphold.client import RemoteQueue

MOST_SHOWN = 4
"""Prompts that are shown above the input."""


class LocalQueue:
    """The queued prompts in this process, like `acphold.client.RemoteQueue`; none has a time.

    `on_change` is called after each change.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.state: PromptQueue = NO_QUEUE
        self._on_change = on_change
        self._numbers = count(1)
        self._content: dict[str, tuple[ContentBlock, ...]] = {}

    async def add(self, *blocks: ContentBlock) -> None:
        """Add a prompt."""
        added = str(next(self._numbers))
        self._content[added] = blocks
        self._change(QueueChange("add", added, Raw(encode(blocks))))

    async def content(self, prompt_id: str) -> tuple[ContentBlock, ...]:
        """Return the content of a prompt."""
        return self._content[prompt_id]

    async def move(self, prompt_id: str, before: str = "") -> None:
        """Put a prompt in front of another one, or last."""
        self._change(QueueChange("move", prompt_id, before=before))

    async def drop(self, prompt_id: str) -> None:
        """Take a prompt out."""
        self._change(QueueChange("drop", prompt_id))

    async def hold(self) -> None:
        """Begin nothing more until `go`."""
        self._change(QueueChange("hold"))

    async def go(self) -> None:
        """Start the queued prompts again."""
        self._change(QueueChange("go"))

    def take_next(self) -> tuple[ContentBlock, ...] | None:
        """Take the next prompt out, to begin it; None if none may begin."""
        if (found := self.state.next(now_ms())) is None:
            return None
        self._change(QueueChange("drop", found.id))
        return self._content.pop(found.id)

    def turn_ended(self, outcome: str) -> None:
        """Hold the queued prompts after a turn that was not completed."""
        if outcome != "completed" and self.state.waiting:
            self._change(QueueChange("hold", why=outcome))

    def _change(self, change: QueueChange) -> None:
        self.state = after_change(self.state, change, 0, now_ms())
        self._on_change()


def heading(queue: PromptQueue) -> str:
    """Return the number of queued prompts, and when they go on or why they are held."""
    why = why_held(queue.held, queue.until_ms)
    how = rules(goes_on=queue.goes_on, restarts=queue.restarts)
    facts = prompt_quantity(len(queue.waiting)), how, why and f"{why} (/queue resume)"
    return "; ".join(filter(None, facts))


def prompt_lines(queue: PromptQueue, most: int | None = None) -> list[str]:
    """Return a line for each queued prompt, at most so many, and one that counts the rest."""
    lines = []
    for number, prompt in enumerate(queue.waiting[:most], 1):
        when = "" if prompt.at_ms is None else f"{moment(prompt.at_ms)} · "
        lines.append(f"{number}  {when}{on_one_line(prompt.words)}")
    if (more := len(queue.waiting) - len(lines)) > 0:
        lines.append(f"… {more:,} more (/queue)")
    return lines


def page(queue: PromptQueue) -> Passage:
    """Return the list of all that wait."""
    lines = [heading(queue), *prompt_lines(queue)]
    return Passage("queue", "acphold", [Text(line) for line in lines])


def prompt_at(queue: PromptQueue, number: str) -> WaitingPrompt:
    """Return the prompt with this number on the list; ValueError if there is none."""
    if not number.isdecimal() or not 0 < int(number) <= len(queue.waiting):
        raise ValueError(f"there is no prompt {on_one_line(number)}; {heading(queue)}")
    return queue.waiting[int(number) - 1]


QUEUE_USAGE = "/queue lists the prompts; /queue resume, pause, drop N, move N M, back N"


async def change_by_words(waiting: RemoteQueue | LocalQueue, words: str) -> str | None:
    """Carry out `pause`, `resume`, `drop N` or `move N M`; return a message, None if the change
    shows. ValueError for other words."""
    queue = waiting.state
    match words.split():
        case ["pause"]:
            await waiting.hold()
        case ["resume"] if not (queue.waiting or queue.held):
            return "no queued prompts"
        case ["resume"]:
            await waiting.go()
        case ["drop", number]:
            dropped = prompt_at(queue, number)
            await waiting.drop(dropped.id)
            return f"taken back: {on_one_line(dropped.words)}"
        case ["move", number, place] if place.isdecimal():
            moved = prompt_at(queue, number)
            others = [it for it in queue.waiting if it is not moved]
            after = others[max(0, int(place) - 1) :]
            await waiting.move(moved.id, after[0].id if after else "")
        case _:
            raise ValueError(QUEUE_USAGE)
    return None
