"""Rules for secrets, and a fast search for many of them at once.

Each rule names letters with which its pattern begins, or which are near. A text is searched once
for the letters of all rules, and a pattern is tried only where its own letters occur.
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
"""A kind, and a span."""


class SecretRule(NamedTuple):
    """A kind of secret, letters that are in it, and the pattern, which begins with them.

    With `back`, it begins up to that many characters before them. If the pattern has groups, the
    last one that matches is the secret, and has to look like `least`.
    """

    kind: str
    letters: str
    pattern: str
    back: int = 0
    least: Look = Look.NO_SECRET


def spotter(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the starts of these words, each of at least two characters.

    It consumes one character, so that a word may begin inside another one. Words with the same
    start are tried together: a hundred words are as fast as ten.
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


class SecretRules:
    """Rules that are searched together."""

    def __init__(self, rules: Sequence[SecretRule]) -> None:
        self._letters = spotter(rule.letters for rule in rules)
        self._by_letters: dict[str, list[SecretRule]] = defaultdict(list)
        for rule in rules:
            self._by_letters[rule.letters[:2]].append(rule)

    def find(self, text: str) -> Iterator[Found]:
        """Yield the findings of these rules, which may overlap."""
        done: dict[SecretRule, int] = {}
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
    """Return a compiled pattern, on first use: most are never needed."""
    return re.compile(pattern)
