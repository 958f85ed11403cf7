"""The search index: putting segments in, taking them out, and asking it.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from acphold.journal.entries import Segment
from acphold.journal.history import NAMES
from acphold.journal.interface import SearchHit
from acphold.journal.migrations import SEQ_BITS
from acphold.journal.searchable import searchable_text
from acphold.journal.sessions import storable

PURGE_PAGES: Final = 64
"""Pages of the index that one `purge` merges: some milliseconds."""

BEFORE: Final = 40
AFTER: Final = 120
"""Characters of an excerpt on either side of the beginning of the first word found."""

_SEARCH: Final = """
    SELECT session_id, entry & 4294967295, key & 4294967295, first_seq, at, kind, raw
    FROM words
    CROSS JOIN documents ON documents.number = words.rowid
    CROSS JOIN segments ON key = (
        SELECT key FROM segments WHERE key >= entry ORDER BY key LIMIT 1
    )
    CROSS JOIN sessions ON sessions.number = entry >> 32
    WHERE words MATCH ?1 AND (?2 IS NULL OR agent = ?2) AND (?3 IS NULL OR cwd = ?3)
    ORDER BY words.rowid DESC LIMIT ?4
"""
# Newest first: by rank, a word that is everywhere costs more than reading everything. CROSS
# keeps the planner from turning the walk around.

Document = tuple[int, str]
"""The `seq` of an entry and what it says."""


def documents(segments: Iterable[Segment]) -> list[Document]:
    """The entries of these segments that say something."""
    entries = (entry for segment in segments for entry in segment.entries())
    return [(entry.seq, text) for entry in entries if (text := searchable_text(entry))]


def index(connection: sqlite3.Connection, session: int, found: Iterable[Document]) -> None:
    """Put documents in."""
    for seq, text in found:
        number = connection.execute(
            "INSERT INTO documents (entry) VALUES (?)", (session << SEQ_BITS | seq,)
        ).lastrowid
        connection.execute(
            "INSERT INTO words (rowid, text) VALUES (?, ?)", (number, storable(text))
        )


def unindex(connection: sqlite3.Connection, session: int, found: Iterable[Document]) -> None:
    """Take documents out; those that are not in are passed over."""
    for seq, text in found:
        row = connection.execute(
            "SELECT number FROM documents WHERE entry = ?", (session << SEQ_BITS | seq,)
        ).fetchone()
        if row is not None:
            connection.execute(
                "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)",
                (row[0], storable(text)),
            )
            connection.execute("DELETE FROM documents WHERE number = ?", row)


def purge(connection: sqlite3.Connection) -> bool:
    """Drop some of what was taken out from the index's pages; whether there may be more.

    FTS5 marks a document as gone and keeps its words until it merges the pages they are in.
    """
    before = connection.total_changes
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-PURGE_PAGES,))
    return connection.total_changes - before > 1


def search(
    connection: sqlite3.Connection, words: str, agent: str | None, cwd: str | None, limit: int
) -> list[SearchHit]:
    """The newest entries that hold all `words`; a word that ends in `*` is a beginning."""
    if not (query := _query(words)):
        return []
    rows = connection.execute(_SEARCH, (query, agent, cwd, limit)).fetchall()
    return [
        _hit(session_id, seq, Segment(first, last, NAMES.get(kind, kind), at, raw), words)
        for session_id, seq, last, first, at, kind, raw in rows
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


def _hit(session_id: str, seq: int, segment: Segment, words: str) -> SearchHit:
    (entry,) = (entry for entry in segment.entries() if entry.seq == seq)
    text = " ".join(searchable_text(entry).split())
    sought = [word.rstrip("*").casefold() for word in words.split()]
    return SearchHit(session_id, seq, entry.at, entry.kind, _excerpt(text, sought))


def _excerpt(text: str, sought: Iterable[str]) -> str:
    folded = text.casefold()
    places = [place for word in sought if (place := folded.find(word)) >= 0]
    middle = min(places, default=0)
    start, end = max(0, middle - BEFORE), middle + AFTER
    before = "…" if start else ""
    return f"{before}{text[start:end]}{'…' if end < len(text) else ''}"
