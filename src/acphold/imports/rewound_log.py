"""Logs whose messages have no parents, and a record where the person went back.

Left behind is what a newer prompt of the person was put in the place of. Going back alone takes
nothing away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from acphold.imports.sources import Source
from acphold.imports.values import Missed


class _LeftBehind(NamedTuple):
    """The ids of messages that the person went back from, in order, those of their prompts, and
    the ids of messages after that."""

    messages: list[str]
    prompts: list[str]
    behind: list[str]


class RewoundLog:
    """The messages of a log by their ids, in order."""

    def __init__(self) -> None:
        self._kept: dict[str, bool] = {}
        """The messages so far, each with True for a prompt."""
        self._rewound: dict[str, bool] = {}
        self._left: list[_LeftBehind] = []

    def go_back(self, name: str) -> None:
        """Go back to before a message."""
        if name in self._kept:
            names = [*self._kept]
            gone = {it: self._kept.pop(it) for it in names[names.index(name) :]}
            self._rewound = gone | self._rewound

    def add(self, name: str, *, is_prompt: bool) -> None:
        """Add the next message; one with an id that is known adds nothing."""
        if not name or name in self._kept or name in self._rewound:
            return
        self._kept[name] = is_prompt
        for one in self._left:
            one.behind.append(name)
        if is_prompt and self._rewound:
            if prompts := [it for it, is_one in self._rewound.items() if is_one]:
                self._left.append(_LeftBehind([*self._rewound], prompts, [name]))
            self._rewound = {}

    def untold(self, source: Source, missed: Missed) -> set[str]:
        """Return the messages that are not told: of the log, whose prompts are counted, or of the
        branch that is the item of `source`."""
        out: set[str] = set()
        for one in self._left:
            if source.item in one.prompts:
                return out.union(one.behind)
            out.update(one.messages)
        if not source.item:
            missed.count_abandoned(sum(len(one.prompts) for one in self._left))
        return out

    def branches(self, source: Source) -> Iterator[Source]:
        """Yield what the log was before each time that the person went back."""
        for one in self._left:
            yield source.tail(one.prompts[0], item=one.prompts[0])
