"""Text as the search index of a file sees it, in memory: for entries in no index yet.

The tokenizer and the queries are those of SQLite's FTS5, for every store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from acphold.record.history.entries import Entry
from acphold.record.history.raw_update import storable
from acphold.record.history.words import Document, camel_parts, document, indexable, with_spaces

if TYPE_CHECKING:
    from acphold.record.journal.hits import Term

TOKENIZER: Final = "tokenize = 'unicode61 remove_diacritics 2'"
"""The definition of a word in the search index. A change needs a new index, so it needs another
step in the migrations of each store."""


LONGEST: Final = 500
"""Letters of a word that count, for a store that splits text with this tokenizer."""


class Tokenizer:
    """Splits texts into words as the index does. Use it from one thread at a time, and close it."""

    def __init__(self) -> None:
        self._index = sqlite3.connect(":memory:", isolation_level=None)
        self._index.execute(f"CREATE VIRTUAL TABLE texts USING fts5 (text, {TOKENIZER})")
        self._index.execute("CREATE VIRTUAL TABLE found USING fts5vocab (texts, 'instance')")

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the words of each text, in order."""
        self._index.execute("DELETE FROM texts")
        self._index.executemany(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)",
            [(number, storable(text)) for number, text in enumerate(texts)],
        )
        found: list[list[str]] = [[] for _ in texts]
        for number, word in self._index.execute("SELECT doc, term FROM found ORDER BY doc, offset"):
            found[number].append(word[:LONGEST])
        return found

    def close(self) -> None:
        self._index.close()


def columns(words: Document) -> tuple[str, str, str]:
    """The texts of a document by column, as the tokenizer gets them."""
    return (
        storable(indexable(words.messages)),
        storable(indexable(words.tools)),
        storable(indexable(words.diffs)),
    )


def fitting(entries: Sequence[Entry], asked: str, *, rank: bool = False) -> list[int]:
    """Return the places of the entries that match a query, in order; with `rank`, the best
    first."""
    if not entries:
        return []
    index = sqlite3.connect(":memory:")
    try:
        index.execute(
            f"CREATE VIRTUAL TABLE words USING fts5 (messages, tools, diffs, {TOKENIZER})"
        )
        index.executemany(
            "INSERT INTO words (rowid, messages, tools, diffs) VALUES (?, ?, ?, ?)",
            (
                (place, *columns(words))
                for place, entry in enumerate(entries)
                if (words := document(entry))
            ),
        )
        found = index.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY {'rank, ' * rank}rowid",
            (storable(asked),),
        )
        return [place for (place,) in found]
    finally:
        index.close()


def query(found: Iterable[Term], part: str | None) -> str:
    """Return the FTS5 query for all of the terms; nothing in them is taken for an operator."""
    terms: list[str] = []
    for term in found:  # as written; or, for `camelCase`, its parts in a row
        ways = [_quote(with_spaces(term.text), term.is_prefix)]
        if parts := camel_parts(term.text):
            ways.append(_quote(parts, term.is_prefix))
        terms.append(f"({' OR '.join(ways)})")
    asked = " AND ".join(terms)
    return asked if part is None else f"{{{part}}} : ({asked})"


def _quote(text: str, is_prefix: bool) -> str:
    escaped = text.replace('"', '""').strip()
    return f'"{escaped}"' + ("*" if is_prefix else "")
