"""Full-text search: words as FTS5 sees them, indexed piece by piece, and ranked.

PostgreSQL's own parser takes `a.b` for a host and `x-y` for a compound. So texts are split by
SQLite's tokenizer, and passed to PostgreSQL as a `tsvector`: words with their places. The three
parts of a document have a weight each, and are so far apart that no phrase spans two of them.

PostgreSQL counts places up to 16,383: a phrase beyond that in an entry is not found.

Hits are ranked by PostgreSQL: by how often and how close together the words occur, in relation to
the length of the document. A journal in a file orders some of them differently.

Each session has a number up to which it is indexed, `indexed_through`. It lags behind the settled
entries: for moments after a turn, for longer after a large import.

The functions may raise psycopg errors. `index_piece` makes a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from acphold.conversation.history.words import Document, document, indexable
from acphold.journal import bounds
from acphold.journal.hits import Held, Term, Tokenizer
from acphold.journal.seams import Sought
from acphold.journal.sql import entry_rows
from acphold.journal.sql.search import Indexed
from acphold.journal.sql.tables import Tables

WEIGHTS: Final = {"messages": "A", "tools": "B", "diffs": "C"}
"""The weight of each part. Source: PostgreSQL, Text Search Types."""

_GAP: Final = 100
"""Places between two parts: more than the words of a phrase that somebody types."""

MOST_PLACES: Final = 255
"""Places of one word in a document that PostgreSQL keeps."""

_LAST_PLACE: Final = 16_383


def vectors(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[str]:
    """The text of a `tsvector` for each document."""
    parts = [getattr(document, part) for document in documents for part in WEIGHTS]
    words = iter(tokenizer.words([indexable(text) for text in parts]))
    made: list[str] = []
    for _ in documents:
        places: dict[str, list[str]] = {}
        place = 1
        for weight, of_part in zip(WEIGHTS.values(), words, strict=False):
            for word in of_part:
                known = places.setdefault(word, [])
                if len(known) < MOST_PLACES:
                    known.append(f"{min(place, _LAST_PLACE)}{weight}")
                place += 1
            place += _GAP
        made.append(" ".join(f"'{word}':{','.join(known)}" for word, known in places.items()))
    return made


def query(tokenizer: Tokenizer, terms: Iterable[Term], part: str | None) -> str | None:
    """The text of a `tsquery` for all of the terms, in one part of the documents or in all; None if
    one has no words, and so matches nothing."""
    weight = "" if part is None else WEIGHTS[part]
    wanted: list[str] = []
    for term in terms:
        ways: list[str] = []
        for words in filter(None, tokenizer.words(term.ways)):
            marks = [weight] * len(words)
            marks[-1] += "*" * term.is_prefix
            quoted = (
                f"'{word}'" + (f":{its}" if its else "")
                for word, its in zip(words, marks, strict=True)
            )
            ways.append(f"({' <-> '.join(quoted)})")
        if not ways:
            return None
        wanted.append(f"({' | '.join(ways)})")
    return " & ".join(wanted)


# -- putting in -------------------------------------------------------------------------------


def index_piece(tables: Tables, session_id: str | None, since: int) -> bool:
    """Index some of the missing entries of a session, or of all sessions, the newest first; False
    if none are missing.

    Skips sessions last active before `since` (ms since the epoch).
    """
    if not (lags := entry_rows.index_lags(tables, session_id, since, 1)):
        return False
    [(name, after, settled)] = lags
    found, through = entry_rows.not_indexed(tables, name, after, settled, bounds.INDEXED_BYTES)
    documents = [
        (entry, words)
        for segment in found
        for entry in segment.entries()
        if (words := document(entry))
    ]
    rows: list[tuple[Any, ...]] = []
    latest = 0
    with closing(Tokenizer()) as tokenizer:
        found_vectors = vectors(tokenizer, [words for _, words in documents])
    for (entry, _), vector in zip(documents, found_vectors, strict=True):
        latest = max(latest, entry.at)  # keeps the session's order if the clock went back
        if vector:
            rows.append((entry.seq, latest, vector))
    with tables.writing():
        tenant = entry_rows.note_indexed(tables, name, after, through)
        if tenant is not None:
            tables.executemany(
                "INSERT INTO acphold.documents (session_id, tenant, seq, at, words)"
                " VALUES (%s, %s, %s, %s, %s::tsvector) ON CONFLICT DO NOTHING",
                [(name, tenant, *its) for its in rows],
            )
    return True


# -- searching --------------------------------------------------------------------------------

_SHARED: Final = """
    SELECT session_id FROM acphold.shares JOIN acphold.sessions USING (session_id)
    WHERE shares.tenant = %(tenant)s AND sessions.tenant <> %(tenant)s
"""
"""Sessions that others share with a tenant."""

_THEIRS: Final = "tenant = %(tenant)s AND tenant <> ''"
"""True for a tenant's own rows; their partial index needs the second condition."""

_NOBODYS: Final = "tenant = ''"

_FOUND_IN: Final = "session_id, agent, cwd, title, archived, seq"
"""The columns read for each entry found."""

_FOUND: Final = """
    FROM {documents} JOIN acphold.sessions USING (session_id)
    WHERE words @@ %(query)s::tsquery AND documents.at >= %(since)s {asked}
"""

_NEWEST_FIRST: Final = "ORDER BY documents.at DESC, documents.number DESC"

_WALK: Final = f"""
    SELECT session_id, seq, at, number, words FROM acphold.documents
    WHERE {{which}} AND at >= %(since)s {_NEWEST_FIRST} LIMIT %(walked)s
"""

_EVERY: Final = "SELECT session_id, seq, at, number, words FROM acphold.documents WHERE {which}"

_OF_THE_NEWEST: Final = f"""
    SELECT {_FOUND_IN} FROM (
        SELECT * FROM ({{walks}}) AS documents {_NEWEST_FIRST} LIMIT %(walked)s
    ) AS documents JOIN acphold.sessions USING (session_id)
    WHERE words @@ %(query)s::tsquery {{asked}} {_NEWEST_FIRST} LIMIT %(limit)s
"""

# `+ 0` makes an order that no index has. The planner cannot know how rare a word is that is in few
# documents or none, and would walk through all documents by time, expecting to be done soon.
_OF_ALL: Final = f"""
    SELECT {_FOUND_IN} {_FOUND}
    ORDER BY documents.at + 0 DESC, documents.number DESC LIMIT %(limit)s
"""

_RANKED: Final = f"""
    SELECT {_FOUND_IN} FROM (
        SELECT documents.at, documents.number, words, {_FOUND_IN} {_FOUND}
        {_NEWEST_FIRST} LIMIT {bounds.RANKED_DOCUMENTS}
    ) AS documents
    ORDER BY ts_rank_cd('{{{{1, 1, 1, 1}}}}', words, %(query)s::tsquery, 1) DESC,
        at DESC, number DESC
    LIMIT %(limit)s
"""
"""All words weigh the same, and of two documents with as many of them the shorter one is better.

Source: PostgreSQL, Ranking Search Results.
"""


def _either(walk: str, which: list[str], **more: str) -> str:
    """The union of one walk for each condition."""
    return " UNION ALL ".join(f"({walk.format(which=one, **more)})" for one in which)


def find_in_index(
    tables: Tables,
    sought: Sought,
    terms: Sequence[Term],
    condition: str,
    values: dict[str, Any],
) -> list[Indexed] | None:
    """See `Find`."""
    with closing(Tokenizer()) as tokenizer:
        wanted = query(tokenizer, terms, sought.part)
    if wanted is None:
        return None
    values |= {"query": wanted, "since": sought.since, "walked": bounds.WALKED_DOCUMENTS}
    which, documents = ["true"], "acphold.documents"
    if sought.tenant is not None:
        # What a tenant can see: the results of these do not overlap, and each has an index.
        which = [_THEIRS if sought.tenant else _NOBODYS]
        shared = tables.execute(_SHARED, values).fetchall()
        values["shared"] = [session_id for (session_id,) in shared]
        if shared:
            which.append("session_id = ANY(%(shared)s)")
        documents = f"({_either(_EVERY, which)}) AS documents"
    if sought.at_ends:
        condition += f" AND documents.seq > settled_through - {bounds.ENTRIES_AT_AN_END}"
    if sought.session_id is not None:
        which = [f"{one} AND session_id = %(session)s" for one in which]
        documents = f"({_either(_EVERY, which)}) AS documents"
    if sought.rank:
        ranked = _RANKED.format(asked=condition, documents=documents)
        rows = tables.execute(ranked, values).fetchall()
    else:
        rows = []
        if sought.session_id is None:
            walks = _either(_WALK, which)
            newest = _OF_THE_NEWEST.format(asked=condition, walks=walks)
            rows = tables.execute(newest, values).fetchall()
        if len(rows) < sought.limit:
            every = _OF_ALL.format(asked=condition, documents=documents)
            rows = tables.execute(every, values).fetchall()
    held = {row[0]: Held(*row[:5]) for row in rows}  # one for all of its hits, which may be many
    return [(held[row[0]].session_id, held[row[0]], row[5]) for row in rows]
