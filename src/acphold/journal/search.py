"""The search index: what entries say in words, putting that in, taking it out, asking for it.

The index keeps no copy of the text, and takes a document out by its text: for bytes that are
indexed `searchable_text` must never change its answer. A change there needs a migration that
builds the index anew. What takes a connection runs inside a transaction of the caller's and may
raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from acphold.journal.entries import PARAMS, PROMPT, TERMINAL, UPDATE, Entry, Segment
from acphold.journal.journal import SearchHit
from acphold.journal.location import resolved_folder
from acphold.journal.migrations import SEQ_BITS
from acphold.journal.raw_update import (
    ROLES,
    UNREADABLE,
    items,
    members,
    storable,
    string,
    update_kind,
)
from acphold.journal.segments import NAMES

TEXT_CHARACTERS: Final = 64 << 10
"""How much of one entry is searched."""

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
    WHERE words MATCH ?1 AND (?2 IS NULL OR agent = ?2) AND (?3 IS NULL OR folder = ?3)
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
    folder = None if cwd is None else resolved_folder(cwd)
    rows = connection.execute(_SEARCH, (query, agent, folder, limit)).fetchall()
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
    starts = [start for word in sought if (start := folded.find(word)) >= 0]
    middle = min(starts, default=0)
    start, end = max(0, middle - BEFORE), middle + AFTER
    before = "…" if start else ""
    return f"{before}{text[start:end]}{'…' if end < len(text) else ''}"


def searchable_text(entry: Entry) -> str:
    """The text of messages and thoughts, and of tool calls their titles, input and output.

    Empty for an entry that says nothing. Parts stand on lines of their own.
    """
    return "\n".join(_parts(entry))[:TEXT_CHARACTERS]


def _parts(entry: Entry) -> Iterator[str]:
    if entry.kind == PROMPT:
        for block in items(entry.raw):
            yield from _block_text(block)
    elif entry.kind in (UPDATE, TERMINAL):
        yield from _update_text(entry.raw)
    elif entry.kind == PARAMS:
        yield from _update_text(members(entry.raw).get("update", b""))


def _update_text(raw: bytes) -> Iterator[str]:
    kind = update_kind(raw)
    if kind in ROLES:
        yield from _block_text(members(raw).get("content", b""))
    elif kind in ("tool_call", "tool_call_update"):
        parts = members(raw)
        yield string(parts.get("title")) or ""
        yield from _strings(parts.get("rawInput"))
        for produced in items(parts.get("content", b"")):
            yield from _produced_text(members(produced))
        yield from _strings(parts.get("rawOutput"))


def _block_text(block: bytes) -> Iterator[str]:
    parts = members(block)
    # Links and embedded resources have what a person would look for in these; `data` and `blob`
    # are base64.
    parts |= members(parts.get("resource", b""))
    for name in ("text", "title", "name", "uri"):
        if text := string(parts.get(name)):
            yield text


def _produced_text(parts: dict[str, bytes]) -> Iterator[str]:
    yield from _block_text(parts.get("content", b""))
    for name in ("path", "newText", "oldText"):
        if text := string(parts.get(name)):
            yield text


def _strings(raw: bytes | None) -> Iterator[str]:
    """All strings in a JSON value, in their order, without the names of members."""
    if raw is None:
        return
    try:
        waiting: list[object] = [msgspec.json.decode(raw)]
    except UNREADABLE:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
