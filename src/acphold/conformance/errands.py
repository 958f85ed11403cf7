"""Tasks for an agent under test: sentences that a model understands and a program can find.

The same sentences steer the stand-in model and the bundled agents.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Task = Literal["greet", "count", "read", "write", "run", "call", "remember", "recall", "plan"]


class Errand(Struct, frozen=True):
    """One task; `what` is the path, command, tool or word it is about."""

    task: Task
    what: str = ""
    text: str = ""

    @property
    def words(self) -> str:
        """The sentence."""
        return SENTENCES[self.task].format(what=self.what, text=self.text)


SENTENCES: dict[Task, str] = {
    "greet": "Say hello in one short sentence. Do not use any tool.",
    "count": "Count from 1 to 300, each number on a line of its own. Do not use any tool.",
    "read": "Read the file `{what}` with your tool for reading files, and repeat what it says.",
    "write": "With your tool for writing files, write the text `{text}` into the file `{what}`.",
    "run": "Run the command `{what}` in a shell, and repeat what it printed.",
    "call": "Call the tool `{what}` with no arguments, and repeat what it answered.",
    "remember": "Remember the code word `{what}`. Answer with OK, and do not use any tool.",
    "recall": "Which code word did I tell you? Answer with it alone, and do not use any tool.",
    "plan": "Plan three steps for baking bread, with your tool for plans if you have one.",
}

_PATTERNS: dict[Task, re.Pattern[str]] = {
    task: re.compile(
        re.escape(sentence)
        .replace(r"\{what\}", "(?P<what>[^`]+)")
        .replace(r"\{text\}", "(?P<text>[^`]+)")
    )
    for task, sentence in SENTENCES.items()
}


def errand(words: str) -> Errand | None:
    """Return the last errand in a text, or None."""
    found = errands(words)
    return found[-1] if found else None


def errands(words: str) -> list[Errand]:
    """Return all errands in a text, in order."""
    found = [
        (match.start(), Errand(task, **match.groupdict()))
        for task, pattern in _PATTERNS.items()
        for match in pattern.finditer(words)
    ]
    return [one for _, one in sorted(found, key=lambda it: it[0])]


GREET = Errand("greet")
COUNT = Errand("count")
RECALL = Errand("recall")
PLAN = Errand("plan")
