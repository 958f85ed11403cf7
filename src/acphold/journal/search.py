"""Asking the search index: a person's words as a query, and what is shown of each hit.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from acphold.journal.entries import PARAMS, PROMPT, Entry, Segment
from acphold.journal.journal import SearchHit, Sought, Speaker
from acphold.journal.location import resolved_folder
from acphold.journal.packed_rows import plain
from acphold.journal.raw_update import ROLES, members, storable, string, update_kind
from acphold.journal.search_index import TIME_BITS
from acphold.journal.segments import NAMES
from acphold.journal.words import camel_parts, document, with_spaces

RANKED_AT_MOST: Final = 50_000
"""Of how many hits, the newest, `rank` takes the best: ranking one costs a microsecond."""

TERMS_AT_MOST: Final = 64
"""Words of a query that count: FTS5 refuses some hundreds; who pastes a page means its start."""

EXCERPT: Final = 160
"""Characters of an excerpt, ellipses aside."""

BEFORE: Final = 40
"""How many of them stand before the first word found, if there are so many."""

MATCHES_AT_MOST: Final = 100
"""Places of one term in one text that are looked at, for the best excerpt."""

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


class Term(NamedTuple):
    """A word, or a phrase of several, that is sought; or the beginning of one."""

    text: str
    is_prefix: bool = False


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
    patterns = _patterns(found)
    hits = (_hit(connection, entry, patterns, sought.part) for _, entry in rows)
    return [hit for hit in hits if hit is not None]


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


# -- a hit -------------------------------------------------------------------------------------


class _Text(NamedTuple):
    """One of the texts of an entry that a hit can be shown in."""

    speaker: Speaker
    text: str


def _hit(
    connection: sqlite3.Connection,
    entry: int,
    patterns: Sequence[re.Pattern[str]],
    part: str | None,
) -> SearchHit | None:
    row = connection.execute(_HIT, (entry,)).fetchone()
    if row is None:
        return None  # deleted, and not swept yet
    session_id, agent, cwd, title, archived, last, first, at, kind, raw = row
    segment = Segment(first, last, NAMES.get(kind, kind), at, plain(raw))
    seq = entry & 0xFFFFFFFF
    (this,) = (this for this in segment.entries() if this.seq == seq)
    excerpts = [(text.speaker, _excerpt(text.text, patterns)) for text in _texts(this, part)]
    who, (_, excerpt, marks) = max(excerpts, key=lambda shown: shown[1].terms)
    tool = tool_title(this) if who in ("tool", "diff") else None
    return SearchHit(
        *(session_id, seq, at, this.kind, who, excerpt, marks),
        agent=agent,
        cwd=cwd,
        title=title,
        archived=bool(archived),
        tool=tool,
    )


def _texts(entry: Entry, part: str | None) -> Iterator[_Text]:
    said = document(entry)
    if said.messages and part in (None, "messages"):
        yield _Text(speaker(entry), said.messages)
    if said.tools and part in (None, "tools"):
        yield _Text("tool", said.tools)
    if said.diffs and part in (None, "diffs"):
        yield _Text("diff", said.diffs)


def speaker(entry: Entry) -> Speaker:
    """Whose words an entry with a message has."""
    return "user" if entry.kind == PROMPT else ROLES[_kind(entry)]


def _kind(entry: Entry) -> str:
    return update_kind(_update(entry))


def _update(entry: Entry) -> bytes:
    return members(entry.raw).get("update", b"") if entry.kind == PARAMS else entry.raw


def tool_title(entry: Entry) -> str | None:
    """What a tool call is called, where this entry tells it."""
    return string(members(_update(entry)).get("title"))


# -- excerpts ----------------------------------------------------------------------------------


class _Excerpt(NamedTuple):
    """A piece of a text on one line, how many of the terms are in it, and where."""

    terms: int
    text: str
    marks: tuple[tuple[int, int], ...]


def _patterns(found: Iterable[Term]) -> list[re.Pattern[str]]:
    """What finds the terms in a text without capitals and accents, as the index may have it."""
    patterns = []
    for term in found:
        parts = re.findall(r"[^\W_]+", _plain(camel_parts(term.text) or with_spaces(term.text)))
        # A literal in front, and no option: then the search is as fast as one for a string.
        rest = r"[^\W_]*" if term.is_prefix else ""
        patterns.append(re.compile(r"[\W_]*".join(map(re.escape, parts)) + rest))
    return patterns


def _excerpt(text: str, patterns: Sequence[re.Pattern[str]]) -> _Excerpt:
    """The piece of the text that has the most of the terms; of such pieces the first."""
    line = " ".join(text.split())
    plain = _plain(line)
    places = sorted(
        (start, end, number)
        for number, pattern in enumerate(patterns)
        for start, end in _places(plain, pattern)
    )
    start, most = _best_start(places, len(patterns))
    start = max(0, min(start, len(line) - EXCERPT))
    piece = line[start : start + EXCERPT]
    before = "…" if start else ""
    shift = len(before) - start
    marks = [(b + shift, e + shift) for b, e, _ in places if start <= b and e <= start + EXCERPT]
    after = "…" if start + EXCERPT < len(line) else ""
    return _Excerpt(most, f"{before}{piece}{after}", tuple(_apart(marks)))


def _best_start(places: Sequence[tuple[int, int, int]], terms: int) -> tuple[int, int]:
    """Where the excerpt begins, and how many of the terms are in it."""
    start, most = 0, 0
    for at, (begin, _, _) in enumerate(places):
        limit = begin + EXCERPT - BEFORE
        inside = {number for _, end, number in places[at : at + MATCHES_AT_MOST] if end <= limit}
        if len(inside) > most:
            start, most = max(0, begin - BEFORE), len(inside)
        if most == terms:
            break
    return start, most


def _apart(marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The marks without those that begin inside another."""
    end = 0
    for mark in marks:
        if mark[0] >= end:
            yield mark
            end = mark[1]


def _places(plain: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where the index may have found a term: where it is a whole word, else a part of one."""
    found = [match.span() for match in islice(pattern.finditer(plain), MATCHES_AT_MOST)]
    whole = [
        (start, end)
        for start, end in found
        if not plain[start - 1 : start].isalnum() and not plain[end : end + 1].isalnum()
    ]
    return whole or found


def _plain(text: str) -> str:
    """`text`, character by character, without what the index does not look at: case, accents."""
    return text.lower() if text.isascii() else text.translate(_PLAIN)


class _PlainCharacters(dict[int, str]):
    """The plain form of each character that was met; one character for one."""

    def __missing__(self, code: int) -> str:
        from unicodedata import combining, normalize

        decomposed = normalize("NFD", chr(code))
        base = decomposed[0] if all(map(combining, decomposed[1:])) else chr(code)
        lower = base.lower()
        self[code] = plain = lower if len(lower) == 1 else base
        return plain


_PLAIN: Final = _PlainCharacters()
