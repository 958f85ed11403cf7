"""The search index: putting segments in, taking them out, and asking it.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from holdfast.journal.entries import Segment
from holdfast.journal.interface import SearchHit
from holdfast.journal.migrations import SEQ_BITS
from holdfast.journal.searchable import searchable_text
from holdfast.journal.sessions import storable

BEFORE: Final = 40
AFTER: Final = 120
"""Characters of an excerpt on either side of the beginning of the first word found."""

_SEARCH: Final = """
    SELECT session_id, segments.key & 4294967295, first_seq, at, kind, raw
    FROM words
    CROSS JOIN documents ON documents.number = words.rowid
    CROSS JOIN segments ON segments.key = documents.segment
    CROSS JOIN sessions ON sessions.number = segments.key >> 32
    WHERE words MATCH ? AND (?2 IS NULL OR agent = ?2) AND (?3 IS NULL OR cwd = ?3)
    ORDER BY words.rowid DESC LIMIT ?4
"""
# Newest first: by rank, a word that is everywhere costs more than reading everything. CROSS
# keeps the planner from turning the walk around.


def segment_text(segment: Segment) -> str:
    """All that the entries of a segment say."""
    texts = (searchable_text(entry) for entry in segment.entries())
    return "\n".join(filter(None, texts))


def index(
    connection: sqlite3.Connection, session: int, documents: Iterable[tuple[int, str]]
) -> None:
    """Put segments in, each given as its `last_seq` and its text."""
    for last_seq, text in documents:
        number = connection.execute(
            "INSERT INTO documents (segment) VALUES (?)", (session << SEQ_BITS | last_seq,)
        ).lastrowid
        connection.execute(
            "INSERT INTO words (rowid, text) VALUES (?, ?)", (number, storable(text))
        )


def unindex(
    connection: sqlite3.Connection, session: int, documents: Iterable[tuple[int, str]]
) -> None:
    """Take segments out, given as for `index`; those that are not in are passed over."""
    for last_seq, text in documents:
        row = connection.execute(
            "SELECT number FROM documents WHERE segment = ?", (session << SEQ_BITS | last_seq,)
        ).fetchone()
        if row is not None:
            connection.execute(
                "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)",
                (row[0], storable(text)),
            )
            connection.execute("DELETE FROM documents WHERE number = ?", row)


def search(
    connection: sqlite3.Connection, words: str, agent: str | None, cwd: str | None, limit: int
) -> list[SearchHit]:
    """The newest entries that hold all `words`; a word that ends in `*` is a beginning."""
    if not (query := _query(words)):
        return []
    rows = connection.execute(_SEARCH, (query, agent, cwd, limit)).fetchall()
    return [
        _hit(session_id, Segment(first, last, kind, at, raw), words)
        for session_id, last, first, at, kind, raw in rows
    ]


def _query(words: str) -> str:
    """The FTS5 query for all of the words, none of them taken for an operator."""
    terms = []
    # FTS5 reads a query up to its first NUL.
    for word in words.replace("\0", " ").encode(errors="replace").decode().split():
        stem = word.rstrip("*")
        # What has no letter or digit is not in the index, and would match nothing.
        if any(map(str.isalnum, stem)):
            quoted = stem.replace('"', '""')
            terms.append(f'"{quoted}"' + ("*" if word != stem else ""))
    return " ".join(terms)


def _hit(session_id: str, segment: Segment, words: str) -> SearchHit:
    sought = [word.rstrip("*").casefold() for word in words.split()]
    found = [(entry, " ".join(searchable_text(entry).split())) for entry in segment.entries()]
    # A segment can hold several entries; the one with the most of the words is meant.
    entry, text = max(found, key=lambda pair: sum(word in pair[1].casefold() for word in sought))
    return SearchHit(session_id, entry.seq, entry.at, entry.kind, _excerpt(text, sought))


def _excerpt(text: str, sought: Iterable[str]) -> str:
    folded = text.casefold()
    places = [place for word in sought if (place := folded.find(word)) >= 0]
    middle = min(places, default=0)
    start, end = max(0, middle - BEFORE), middle + AFTER
    before = "…" if start else ""
    return f"{before}{text[start:end]}{'…' if end < len(text) else ''}"
