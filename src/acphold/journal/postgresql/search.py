"""The full-text index and the search: settled entries are indexed, a piece at a time.

Each session has a number up to which it is indexed, `indexed_through`. It lags behind the settled
entries: for moments after a turn, for longer after a large import.

The functions may raise psycopg errors. The iterators make transactions of their own, and do one
piece of their work for each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from acphold.history.entries import Entry
from acphold.history.words import document
from acphold.journal import token_reports
from acphold.journal.hits import Held, hit, patterns_of, terms
from acphold.journal.index import SearchHit, Sought
from acphold.journal.location import resolved_folder
from acphold.journal.postgresql import ranks, segments
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.tables import PostgresqlTables
from acphold.journal.postgresql.words import phrases, query, vectors
from acphold.journal.sql import usage_rows
from acphold.journal.sql.unsettled import with_unsettled
from acphold.journal.words_in_memory import Tokenizer

PIECE_BYTES: Final = 256 << 10
"""Bytes of history indexed at once (beyond one segment)."""

# -- putting in -------------------------------------------------------------------------------


def index(line: Line, session_id: str | None = None, since: int = 0) -> Iterator[None]:
    """Index the missing entries of a session, or of all sessions, the newest first.

    Skips sessions last active before `since` (ms since the epoch).
    """
    with closing(Tokenizer()) as tokenizer:
        while row := line.execute(
            "SELECT session_id, indexed_through, settled_through FROM acphold.sessions"
            " WHERE indexed_through < settled_through AND updated_at >= %s"
            " AND (%s::text IS NULL OR session_id = %s) ORDER BY updated_at DESC LIMIT 1",
            (since, session_id, session_id),
        ).fetchone():
            _put(line, tokenizer, *row)
            yield


def _put(line: Line, tokenizer: Tokenizer, session_id: str, after: int, settled: int) -> None:
    """Index the next piece of a session."""
    found = segments.PostgresqlSegments(line, session_id).read(after, PIECE_BYTES, settled)
    through = found[-1].last_seq if found else settled
    said = [
        (entry, words)
        for segment in found
        for entry in segment.entries()
        if (words := document(entry))
    ]
    rows: list[tuple[Any, ...]] = []
    latest = 0
    found_words = vectors(tokenizer, [words for _, words in said])
    for (entry, _), (vector, size) in zip(said, found_words, strict=True):
        latest = max(latest, entry.at)  # keeps the order of the session if the clock was set back
        if vector:
            rows.append((entry.seq, latest, vector, size))
    usage = token_reports.reports(found)
    with line.transaction(), line.cursor() as cursor:
        cursor.execute(
            "UPDATE acphold.sessions SET indexed_through = %s"
            " WHERE session_id = %s AND indexed_through = %s RETURNING tenant",
            (through, session_id, after),
        )
        if row := cursor.fetchone():  # otherwise another process was quicker, or it was deleted
            cursor.executemany(
                "INSERT INTO acphold.documents (session_id, tenant, seq, at, words, size)"
                " VALUES (%s, %s, %s, %s, %s::tsvector, %s) ON CONFLICT DO NOTHING",
                [(session_id, row[0], *its) for its in rows],
            )
            usage_rows.keep(PostgresqlTables(line), session_id, usage)


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

WALKED: Final = 20_000
"""The newest documents, which are checked one by one: common words are found there at once. For
rarer words, an index is fast."""

_WALK: Final = f"""
    SELECT session_id, seq, at, number, size, words FROM acphold.documents
    WHERE {{which}} AND at >= %(since)s {_NEWEST_FIRST} LIMIT %(walked)s
"""

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

_RANKED: Final = (
    f"SELECT documents.at, documents.number, size, words, {_FOUND_IN} {_FOUND} {_NEWEST_FIRST}"
)


def _which(values: dict[str, Any]) -> list[str]:
    """Conditions for the rows that a tenant can see. Their results do not overlap, and each has an
    index."""
    if values["tenant"] is None:
        return ["true"]
    own = _THEIRS if values["tenant"] else _NOBODYS
    return [own, "session_id = ANY(%(shared)s)"] if values["shared"] else [own]


def _either(walk: str, which: list[str], **more: str) -> str:
    """The union of one walk for each condition."""
    return " UNION ALL ".join(f"({walk.format(which=one, **more)})" for one in which)


def _documents(which: list[str]) -> str:
    """The table of documents, or a subquery in its place, for a search by words."""
    if which == ["true"]:
        return "acphold.documents"
    every = "SELECT session_id, seq, at, number, size, words FROM acphold.documents WHERE {which}"
    return f"({_either(every, which)}) AS documents"


def search(line: Line, sought: Sought) -> list[SearchHit]:
    """Return the entries that match, the newest or the best first."""
    found = terms(sought.words)
    if not found:
        return []
    with closing(Tokenizer()) as tokenizer:
        wanted = phrases(tokenizer, found)
    if not all(wanted):
        return []
    values: dict[str, Any] = {
        "query": query(wanted, sought.part),
        "since": sought.since,
        "limit": sought.limit,
        "walked": WALKED,
        "agents": [*sought.agents],
        "folder": None if sought.cwd is None else resolved_folder(sought.cwd),
        "session": sought.session_id,
        "tenant": sought.tenant,
    }
    asked = ""
    if sought.agents:
        asked += " AND agent = ANY(%(agents)s)"
    if sought.cwd is not None:
        asked += " AND folder = %(folder)s"
    if sought.session_id is not None:
        asked += " AND sessions.session_id = %(session)s"
    if sought.tenant is not None:
        shared = line.execute(_SHARED, values).fetchall()
        values["shared"] = [session_id for (session_id,) in shared]
    which = _which(values)
    documents = _documents(which)
    patterns = patterns_of(found)
    if sought.rank:
        ways = [way for term in wanted for way in term]
        ranked = _RANKED.format(asked=asked, documents=documents)
        rows = ranks.best(line, ways, sought.part, ranked, _FOUND_IN, documents, values)
    else:
        walks = _either(_WALK, which)
        rows = line.execute(_OF_THE_NEWEST.format(asked=asked, walks=walks), values).fetchall()
        if len(rows) < sought.limit:
            every = _OF_ALL.format(asked=asked, documents=documents)
            rows = line.execute(every, values).fetchall()
    indexed = [
        hit(Held(*row[:5]), entry, patterns, sought.part)
        for row in rows
        if (entry := _entry(line, row[0], row[5])) is not None
    ]
    if not sought.unsettled:
        return indexed
    return with_unsettled(PostgresqlTables(line), sought, found, indexed)


def _entry(line: Line, session_id: str, seq: int) -> Entry | None:
    """An entry; None if it is gone."""
    for segment in segments.PostgresqlSegments(line, session_id).read(seq - 1, 1):
        for entry in segment.entries():
            if entry.seq == seq:
                return entry
    return None
