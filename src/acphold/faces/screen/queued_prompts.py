"""The queued prompts, on a screen: above the input, as a list with numbers, and changed by
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from acphold.conversation.history.prompt_queue import (
    PromptQueue,
    WaitingPrompt,
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
        when += "being edited · " * (prompt.id in queue.edited)
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


QUEUE_USAGE = "/queue lists the prompts; /queue resume, pause, drop N, next N, back N"


async def change_by_words(waiting: RemoteQueue, words: str) -> str | None:
    """Carry out `pause`, `resume`, `drop N` or `next N`; return a message, None if the change
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
        case ["next", number]:
            await waiting.move(prompt_at(queue, number).id, queue.waiting[0].id)
        case _:
            raise ValueError(QUEUE_USAGE)
    return None
