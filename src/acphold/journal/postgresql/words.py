"""Words as FTS5 sees them, for PostgreSQL: what is found is the same in both.

PostgreSQL's own parser takes `a.b` for a host and `x-y` for a compound. So texts are cut up by the
tokenizer of SQLite, and given to it as a `tsvector`: words with their places. The three parts of a
document have a weight each, and stand so far apart that no phrase goes from one to the next.

PostgreSQL knows places up to 16,383: a phrase that stands behind that in one entry is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from acphold.history.words import Document, camel_parts, indexable, with_spaces
from acphold.journal.hits import Term
from acphold.journal.words_in_memory import Tokenizer

WEIGHTS: Final = {"messages": "A", "tools": "B", "diffs": "C"}
"""The weight of each part. Source: PostgreSQL, Text Search Types."""

_GAP: Final = 100
"""Places between two parts: longer than a phrase that somebody types."""

_MOST_PLACES: Final = 255
_LAST_PLACE: Final = 16_383


def vectors(tokenizer: Tokenizer, said: Sequence[Document]) -> list[str]:
    """Each document as the text of a `tsvector`."""
    parts = [getattr(document, part) for document in said for part in WEIGHTS]
    words = iter(tokenizer.words([indexable(text) for text in parts]))
    return [_vector(zip(WEIGHTS.values(), words, strict=False)) for _ in said]


def _vector(parts: Iterable[tuple[str, list[str]]]) -> str:
    places: dict[str, list[str]] = {}
    place = 1
    for _, (weight, words) in zip(range(len(WEIGHTS)), parts, strict=False):
        for word in words:
            known = places.setdefault(word, [])
            if len(known) < _MOST_PLACES:
                known.append(f"{min(place, _LAST_PLACE)}{weight}")
            place += 1
        place += _GAP
    return " ".join(f"'{word}':{','.join(known)}" for word, known in places.items())


def query(tokenizer: Tokenizer, terms: Iterable[Term], part: str | None) -> str:
    """The text of a `tsquery` for all of the terms; "" for one that nothing can fit."""
    weight = WEIGHTS[part] if part is not None else ""
    wanted: list[str] = []
    for term in terms:
        ways = [with_spaces(term.text)]
        if parts := camel_parts(term.text):
            ways.append(parts)
        phrases: list[str] = []
        for words in tokenizer.words(ways):
            marks = [weight] * len(words)
            if words and term.is_prefix:
                marks[-1] += "*"
            quoted = [f"'{w}'" + (f":{m}" if m else "") for w, m in zip(words, marks, strict=True)]
            if quoted:
                phrases.append(f"({' <-> '.join(quoted)})")
        if not phrases:
            return ""
        wanted.append(f"({' | '.join(phrases)})")
    return " & ".join(wanted)
