"""Texts of the picker in so many columns: paths, titles, and the letters and colours of agents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from prompt_toolkit.formatted_text import StyleAndTextTuples
from rich.cells import cell_len, set_cell_size

from acphold.known_agents import KNOWN_AGENTS

AGENTS: Final = ("ansigreen", "ansimagenta", "ansiblue", "ansicyan")
"""The colours of agents, beside two letters that tell them apart."""


def end_of(path: str, width: int) -> str:
    """Return a path in so many columns, without its beginning: from a `/` on, if one fits."""
    if cell_len(path) <= width:
        return path
    path = path.rstrip("/")[-width:]  # no more than that fits, however long it is
    fitting = [end for place in range(len(path)) if cell_len(end := path[place:]) < width]
    whole = (end for end in fitting if end.startswith("/"))
    return f"…{next(whole, fitting[0] if fitting else '')}"


def shorten(text: str, width: int) -> str:
    """Return a text in so many columns, cut at its end."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def highlight(text: str, words: Sequence[str], style: str) -> StyleAndTextTuples:
    """Return a text with all places of these words (casefolded) marked."""
    folded = text.casefold()
    if not words or len(folded) != len(text):  # places would be wrong
        return [(style, text)]
    pieces: StyleAndTextTuples = []
    end = 0
    for match in re.finditer("|".join(map(re.escape, words)), folded):
        pieces += [(style, text[end : match.start()])]
        pieces += [(f"{style} class:match".strip(), text[match.start() : match.end()])]
        end = match.end()
    return [*pieces, (style, text[end:])]


class AgentLetters:
    """Gives each agent two letters of its name that no other has."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        for name in KNOWN_AGENTS:
            self.of(name)

    def of(self, agent: str) -> str:
        """Return the letters of an agent, always the same ones."""
        if agent not in self._given:
            taken = {*self._given.values()}
            first, rest = agent[:1].upper(), [*filter(str.isalnum, agent[1:]), *"123456789"]
            both = (first + letter for letter in rest if cell_len(first + letter) == 2)
            self._given[agent] = next((it for it in both if it not in taken), first)
        return self._given[agent]

    def shown(self, agent: str) -> tuple[str, str]:
        """Return the letters of an agent in their columns, with their style."""
        letters = self.of(agent)
        colour = AGENTS[sum(map(ord, letters)) % len(AGENTS)]
        return f"{colour} bold", set_cell_size(letters, 3)
