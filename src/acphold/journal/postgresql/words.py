"""Words as FTS5 sees them, for PostgreSQL: a search finds the same in both.

PostgreSQL's own parser takes `a.b` for a host and `x-y` for a compound. So texts are split by
SQLite's tokenizer, and passed to PostgreSQL as a `tsvector`: words with their places. The three
parts of a document have a weight each, and are so far apart that no phrase spans two of them.

PostgreSQL counts places up to 16,383: a phrase beyond that in an entry is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from acphold.history.words import Document, camel_parts, indexable, with_spaces
from acphold.journal.hits import Term
from acphold.journal.words_in_memory import Tokenizer

WEIGHTS: Final = {"messages": "A", "tools": "B", "diffs": "C"}
"""The weight of each part. Source: PostgreSQL, Text Search Types."""

_GAP: Final = 100
"""Places between two parts: more than the words of a phrase that somebody types."""

MOST_PLACES: Final = 255
"""Places of one word in a document that PostgreSQL keeps."""

_LAST_PLACE: Final = 16_383


def vectors(tokenizer: Tokenizer, said: Sequence[Document]) -> list[tuple[str, int]]:
    """The text of a `tsvector` for each document, and its number of words."""
    parts = [getattr(document, part) for document in said for part in WEIGHTS]
    words = iter(tokenizer.words([indexable(text) for text in parts]))
    return [_vector(zip(WEIGHTS.values(), words, strict=False)) for _ in said]


def _vector(parts: Iterable[tuple[str, list[str]]]) -> tuple[str, int]:
    places: dict[str, list[str]] = {}
    place, size = 1, 0
    for _, (weight, words) in zip(range(len(WEIGHTS)), parts, strict=False):
        for word in words:
            known = places.setdefault(word, [])
            if len(known) < MOST_PLACES:
                known.append(f"{min(place, _LAST_PLACE)}{weight}")
            place += 1
        size += len(words)
        place += _GAP
    return " ".join(f"'{word}':{','.join(known)}" for word, known in places.items()), size


class Phrase(NamedTuple):
    """Consecutive words; with `is_prefix`, the last one is only the beginning of a word."""

    words: tuple[str, ...]
    is_prefix: bool = False

    def query(self, part: str | None) -> str:
        """The text of a `tsquery` for the phrase, in one part of the documents or in all."""
        marks = [WEIGHTS[part] if part is not None else ""] * len(self.words)
        if self.is_prefix:
            marks[-1] += "*"
        quoted = (f"'{w}'" + (f":{m}" if m else "") for w, m in zip(self.words, marks, strict=True))
        return f"({' <-> '.join(quoted)})"


def phrases(tokenizer: Tokenizer, terms: Iterable[Term]) -> list[list[Phrase]]:
    """The ways in which texts may have each term: as written, and for `camelCase` its parts in a
    row. A term without any way matches nothing."""
    found: list[list[Phrase]] = []
    for term in terms:
        ways = [with_spaces(term.text)]
        if parts := camel_parts(term.text):
            ways.append(parts)
        words = tokenizer.words(ways)
        found.append([Phrase(tuple(way), term.is_prefix) for way in words if way])
    return found


def query(wanted: Iterable[Iterable[Phrase]], part: str | None) -> str:
    """The text of a `tsquery` for all of the terms."""
    return " & ".join(f"({' | '.join(way.query(part) for way in ways)})" for ways in wanted)
