"""What a rule for secrets is, and how a text is asked about many of them in little time.

Each rule names the letters with which its pattern begins, or which are near. A text is searched
once for the letters of all rules, and a pattern is tried only where its own letters stand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from acphold.redaction.names import Look, look

KEY: Final = "API key"
TOKEN: Final = "token"
PASSWORD: Final = "password"
PRIVATE_KEY: Final = "private key"
WEBHOOK: Final = "webhook"
HASH: Final = "password hash"
SECRET: Final = "secret"

Found = tuple[str, int, int]
"""Of which kind, and from where to where."""


class Rule(NamedTuple):
    """A kind of secret, letters that are in it, and the pattern, which begins with them.

    With `back`, it begins up to so many characters before them. If the pattern has groups, the last
    one that is there is the secret, and that has to look like `least`.
    """

    kind: str
    letters: str
    pattern: str
    back: int = 0
    least: Look = Look.NO_SECRET


def spotter(words: Iterable[str]) -> re.Pattern[str]:
    """Matches where one of these words begins, each of at least two characters.

    Only the first is taken, so that a word may begin inside of another one. Words that begin alike
    are tried together: a text is passed over as quickly for a hundred words as for ten.
    """
    behind: dict[str, set[str]] = defaultdict(set)
    for word in words:
        behind[word[0]].add(word[1:])
    return re.compile(
        "|".join(
            f"{re.escape(first)}(?={'|'.join(map(re.escape, sorted(rest)))})"
            for first, rest in sorted(behind.items())
        )
    )


class Rules:
    """Rules that are asked together."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._letters = spotter(rule.letters for rule in rules)
        self._by_letters: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            self._by_letters[rule.letters[:2]].append(rule)

    def find(self, text: str) -> Iterator[Found]:
        """What these rules find; it may overlap."""
        done: dict[Rule, int] = {}
        for hit in self._letters.finditer(text):
            place = hit.start()
            for rule in self._by_letters[text[place : place + 2]]:
                if not text.startswith(rule.letters, place) or place < done.get(rule, 0):
                    continue
                match = _compiled(rule.pattern).match
                starts = range(max(0, place - rule.back), place + 1)
                if (found := next(filter(None, (match(text, s) for s in starts)), None)) is None:
                    continue
                start, end = found.span(found.lastindex or 0)
                if not rule.least or look(text[start:end]) >= rule.least:
                    done[rule] = end
                    yield rule.kind, start, end


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, made when it is first tried: most never are."""
    return re.compile(pattern)
