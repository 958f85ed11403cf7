"""Words as FTS5 sees them, for PostgreSQL: what is found is the same in both.

PostgreSQL's own parser takes `a.b` for a host and `x-y` for a compound. So texts are cut up by the
tokenizer of SQLite, and given to it as a `tsvector`: words with their places. The three parts of a
document have a weight each, and stand so far apart that no phrase goes from one to the next.

PostgreSQL knows places up to 16,383: a phrase that stands behind that in one entry is not found.
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
"""Places between two parts: longer than a phrase that somebody types."""

MOST_PLACES: Final = 255
"""Of one word in a document that PostgreSQL keeps."""

_LAST_PLACE: Final = 16_383


def vectors(tokenizer: Tokenizer, said: Sequence[Document]) -> list[tuple[str, int]]:
    """Each document as the text of a `tsvector`, and how many words it has."""
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
    """Words in a row, the last of which may be the beginning of one."""

    words: tuple[str, ...]
    is_prefix: bool = False

    def query(self, part: str | None) -> str:
        """The text of a `tsquery` for it in a part of documents, or in all of them."""
        marks = [WEIGHTS[part] if part is not None else ""] * len(self.words)
        if self.is_prefix:
            marks[-1] += "*"
        quoted = (f"'{w}'" + (f":{m}" if m else "") for w, m in zip(self.words, marks, strict=True))
        return f"({' <-> '.join(quoted)})"


def phrases(tokenizer: Tokenizer, terms: Iterable[Term]) -> list[list[Phrase]]:
    """Each term in the ways in which texts may have it: as it is written, and its parts in a row
    where it is in `camelCase`. No way at all is one that nothing can fit."""
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
