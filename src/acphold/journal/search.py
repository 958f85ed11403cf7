"""A search: a person's words as a query of the index, and the entries that have them.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from acphold.journal import unsettled
from acphold.journal.entries import Entry, Segment
from acphold.journal.hits import Held, Term, hit, patterns_of
from acphold.journal.journal import SearchHit, Sought
from acphold.journal.location import resolved_folder
from acphold.journal.migrations import SEQ_MASK
from acphold.journal.packed_rows import plain
from acphold.journal.raw_update import storable
from acphold.journal.search_index import TIME_BITS
from acphold.journal.segments import NAMES
from acphold.journal.words import camel_parts, with_spaces

RANKED_AT_MOST: Final = 50_000
"""Of how many hits, the newest, `rank` takes the best: ranking one costs a microsecond."""

TERMS_AT_MOST: Final = 64
"""Words of a query that count: FTS5 refuses some hundreds; who pastes a page means its start."""


_WHERE: Final = """
    FROM words
    CROSS JOIN documents ON documents.number = words.rowid
    CROSS JOIN sessions ON sessions.number = entry >> 32
    WHERE words MATCH :query AND words.rowid >= :since
        AND (:agent IS NULL OR agent = :agent) AND (:folder IS NULL OR folder = :folder)
        ORDER BY words.rowid DESC
"""
# CROSS keeps the planner from turning the walk around.

_NEWEST: Final = f"SELECT words.rowid, entry {_WHERE} LIMIT :limit"

_BEST: Final = f"""
    SELECT rowid, entry FROM (
        SELECT words.rowid AS rowid, entry, words.rank AS rank {_WHERE} LIMIT {RANKED_AT_MOST}
    ) ORDER BY rank, rowid DESC LIMIT :limit
"""

_HIT: Final = """
    SELECT session_id, agent, cwd, title, archived, key & 4294967295, first_seq, at, kind, raw
    FROM sessions CROSS JOIN segments ON key = (
        SELECT key FROM segments WHERE key >= ?1 ORDER BY key LIMIT 1
    )
    WHERE number = ?1 >> 32
"""


def search(connection: sqlite3.Connection, sought: Sought) -> list[SearchHit]:
    """The entries that have all that is sought, the newest or the best first."""
    found = terms(sought.words)
    if not found:
        return []
    values = {
        "query": _query(found, sought.part),
        "since": sought.since >> TIME_BITS,
        "agent": sought.agent,
        "folder": None if sought.cwd is None else resolved_folder(sought.cwd),
        "limit": sought.limit,
    }
    if not _has_sessions(connection, values):
        return []  # without walking through all that has the words
    rows = connection.execute(_BEST if sought.rank else _NEWEST, values).fetchall()
    patterns = patterns_of(found)
    indexed = [
        hit(*known, patterns, sought.part)
        for _, entry in rows
        if (known := _known(connection, entry)) is not None
    ]
    if not sought.unsettled:
        return indexed
    fresh = unsettled.matching(connection, sought, str(values["query"]))
    newer = [hit(held, entry, patterns, sought.part) for held, entry in fresh]
    if not newer:
        return indexed
    if sought.rank:  # what is not in the index has no rank there, but is the freshest
        return [*newer, *indexed][: sought.limit]
    return sorted([*newer, *indexed], key=lambda found: -found.at)[: sought.limit]


def _known(connection: sqlite3.Connection, number: int) -> tuple[Held, Entry] | None:
    """The entry behind a document, and its session; None when it was deleted, and not swept yet."""
    row = connection.execute(_HIT, (number,)).fetchone()
    if row is None:
        return None
    session_id, agent, cwd, title, archived, last, first, at, kind, raw = row
    segment = Segment(first, last, NAMES.get(kind, kind), at, plain(raw))
    seq = number & SEQ_MASK
    entry = next((entry for entry in segment.entries() if entry.seq == seq), None)
    return (
        None
        if entry is None
        else (
            Held(session_id, agent, cwd, title, bool(archived)),
            entry,
        )
    )


def _has_sessions(connection: sqlite3.Connection, values: Mapping[str, object]) -> bool:
    """Whether there is any session of the agent and the folder."""
    row = connection.execute(
        "SELECT 1 FROM sessions WHERE (:agent IS NULL OR agent = :agent)"
        " AND (:folder IS NULL OR folder = :folder) LIMIT 1",
        values,
    ).fetchone()
    return row is not None


# -- the query ---------------------------------------------------------------------------------

_TERM: Final = re.compile(r'"([^"]*)"(\*?)|(\S+)')


def terms(words: str) -> list[Term]:
    """What is sought: words, "phrases in quotes", and beginnings of either with a `*` behind."""
    found = []
    # FTS5 reads a query up to its first NUL.
    for phrase, star, word in _TERM.findall(storable(words.replace("\0", " "))):
        term = Term(phrase, bool(star)) if not word else Term(word.rstrip("*"), word.endswith("*"))
        # What has no letter or digit is not in the index, and would match nothing.
        if any(map(str.isalnum, term.text)):
            found.append(term)
    return found[:TERMS_AT_MOST]


def _query(found: Iterable[Term], part: str | None) -> str:
    """The FTS5 query for all of the terms, nothing in them taken for an operator."""
    query = " AND ".join(map(_alternatives, found))
    return query if part is None else f"{{{part}}} : ({query})"


def _alternatives(term: Term) -> str:
    """A term as it is written; or, of `camelCase`, its parts in a row."""
    ways = [_quoted(with_spaces(term.text), term.is_prefix)]
    if parts := camel_parts(term.text):
        ways.append(_quoted(parts, term.is_prefix))
    return f"({' OR '.join(ways)})"


def _quoted(text: str, is_prefix: bool) -> str:
    escaped = text.replace('"', '""').strip()
    return f'"{escaped}"' + ("*" if is_prefix else "")
