"""Searching: turn a query into FTS5, and find the matching entries.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from acphold.history.entries import Entry
from acphold.journal import bounds
from acphold.journal.hits import Held, Term, hit, patterns_of, terms
from acphold.journal.location import resolved_folder
from acphold.journal.seams import SearchHit, Sought
from acphold.journal.sql.tables import segment_of_row
from acphold.journal.sql.unsettled import with_unsettled
from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.migrations import SEQ_MASK
from acphold.journal.sqlite.search_index import TIME_BITS
from acphold.journal.sqlite.session_rows import (
    OF_AGENTS,
    SHARED_WITH,
    THERE_FOR,
    SqliteTables,
    as_json,
)
from acphold.journal.words_in_memory import query

_WALK: Final = """
    FROM words_{0}
    CROSS JOIN documents ON documents.number = words_{0}.rowid AND volume = {0}
    CROSS JOIN sessions ON sessions.number = entry >> 32
    WHERE words_{0} MATCH :query AND words_{0}.rowid >= :since {1}
    ORDER BY words_{0}.rowid DESC LIMIT :limit
"""
# CROSS keeps the planner from turning the walk around.

_NEWEST: Final = f"SELECT documents.number, entry {_WALK}"

_BEST: Final = f"""
    SELECT rank, number, entry, count(*) OVER () FROM (
        SELECT words_{{0}}.rank AS rank, documents.number AS number, entry {_WALK}
    ) ORDER BY rank, number DESC LIMIT :best
"""

_HIT: Final = """
    SELECT session_id, agent, cwd, title, archived, key & 4294967295, first_seq, at, kind, raw
    FROM sessions CROSS JOIN segments ON key = (
        SELECT key FROM segments WHERE key >= ?1 ORDER BY key LIMIT 1
    )
    WHERE number = ?1 >> 32
"""


def search(tables: SqliteTables, sought: Sought) -> list[SearchHit]:
    """Return the entries that match, the newest or the best first.

    Run it on one moment: otherwise another process may drop a volume meanwhile.
    """
    connection = tables.connection
    found = terms(sought.words)
    if not found:
        return []
    values: dict[str, str | None] = {
        "query": (asked := query(found, sought.part)),
        "agents": as_json(sought.agents),
        "folder": None if sought.cwd is None else resolved_folder(sought.cwd),
        "session": sought.session_id,
        "tenant": sought.tenant,
    }
    conditions = f" AND {OF_AGENTS}" if sought.agents else ""  # on the session of a hit
    if sought.cwd is not None:
        conditions += " AND folder = :folder"
    if sought.session_id is not None:
        conditions += " AND session_id = :session"
    if sought.tenant is not None:
        conditions += f" AND {THERE_FOR}"
    if (words := _of_whom(connection, sought, values, conditions)) is None:
        return []  # without walking through all documents that have the words
    if words:
        either = " OR ".join(f'"{word}"' for word in words)
        values["query"] = f"({asked}) AND whose : ({either})"
    patterns = patterns_of(found)
    entries = (
        _best(connection, found, sought, values, conditions)
        if sought.rank
        else newest(connection, values, sought.since >> TIME_BITS, sought.limit, conditions)
    )
    indexed = [
        hit(*known, patterns, sought.part)
        for entry in entries
        if (known := _known(connection, entry)) is not None
    ]
    if not sought.unsettled:
        return indexed
    return with_unsettled(tables, sought, found, indexed)


def _of_whom(
    connection: sqlite3.Connection,
    sought: Sought,
    values: Mapping[str, str | None],
    conditions: str,
) -> list[str] | None:
    """Words such that each document of a searched session has one of them. Empty if they would be
    too many; None if there is no such session."""
    if sought.tenant and sought.session_id is None:
        shared = connection.execute(_SHARED.format(conditions), values).fetchall()
        if len(shared) > bounds.SHARED_NAMED:
            return []
        words = [search_index.of_session(number) for (number,) in shared]
        if connection.execute(_OWN.format(conditions), values).fetchone():
            words.append(search_index.of_tenant(sought.tenant))
        return words or None
    row = connection.execute(_OF_THESE.format(conditions), values).fetchone()
    if row is None:
        return None
    return [] if sought.session_id is None else [search_index.of_session(row[0])]


def newest(
    connection: sqlite3.Connection,
    values: Mapping[str, str | None],
    least: int,
    limit: int,
    conditions: str = "",
) -> list[int]:
    """The newest matching entries, as `documents` names them, from the number `least` on.

    A volume holds documents indexed at about the same time, whether old or new. A volume is skipped
    if all its documents are older than the entries found so far.
    """
    found: list[tuple[int, int]] = []
    for volume, latest in _volumes(connection):
        if latest < least:
            break
        row = {**values, "since": least, "limit": limit}
        found += connection.execute(_NEWEST.format(volume, conditions), row).fetchall()
        found = sorted(found, reverse=True)[:limit]
        if len(found) == limit:
            least = found[-1][0] + 1
    return [entry for _, entry in found]


def _best(
    connection: sqlite3.Connection,
    terms: Sequence[Term],
    sought: Sought,
    values: Mapping[str, str | None],
    conditions: str,
) -> list[int]:
    """The best of the newest matching entries, as `documents` names them."""
    found: dict[int, list[tuple[float, int, int]]] = {}
    left, since = bounds.RANKED_HITS, sought.since >> TIME_BITS
    for volume, latest in _volumes(connection):
        if left <= 0 or latest < since:
            break
        row = {**values, "since": since, "limit": left, "best": sought.limit}
        ranked = connection.execute(_BEST.format(volume, conditions), row).fetchall()
        if ranked:
            left -= ranked[0][3]
            found[volume] = [(rank, -number, entry) for rank, number, entry, _ in ranked]
    if len(found) > 1:  # ranks of one volume compare as they are
        asked = [query([term], sought.part) for term in terms]
        for volume, hits in found.items():
            weight = _weight(connection, volume, asked)
            found[volume] = [(rank / weight, place, entry) for rank, place, entry in hits]
    of_all = sorted(one for hits in found.values() for one in hits)
    return [entry for _, _, entry in of_all[: sought.limit]]


def _volumes(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """The volumes of the index with the number of their newest document; the newest volume
    first."""
    return connection.execute("SELECT number, newest FROM volumes ORDER BY newest DESC").fetchall()


def _weight(connection: sqlite3.Connection, volume: int, queries: Sequence[str]) -> float:
    """The weight of these terms in a volume, from how rare they are there. Dividing a rank by it
    makes ranks of different volumes comparable.

    Source: sqlite.org, FTS5, "The bm25() function".
    """
    (size,) = connection.execute(
        "SELECT documents FROM volumes WHERE number = ?", (volume,)
    ).fetchone()
    weight = 0.0
    for asked in queries:
        (having,) = connection.execute(
            f"SELECT count(*) FROM words_{volume} WHERE words_{volume} MATCH ?", (asked,)
        ).fetchone()
        rare = (size - having + 0.5) / (having + 0.5)
        weight += max(log(rare), 1e-6) if rare > 0 else 1e-6
    return weight


def _known(connection: sqlite3.Connection, number: int) -> tuple[Held, Entry] | None:
    """The entry behind a document, and its session; None if it was deleted but not swept yet."""
    row = connection.execute(_HIT, (number,)).fetchone()
    if row is None:
        return None
    session_id, agent, cwd, title, archived, last, first, at, kind, raw = row
    segment = segment_of_row(last, first, at, kind, raw)
    seq = number & SEQ_MASK
    for entry in segment.entries():
        if entry.seq == seq:
            return Held(session_id, agent, cwd, title, bool(archived)), entry
    return None


_OF_THESE: Final = "SELECT number FROM sessions WHERE true {} LIMIT 1"
"""Finds one session of the agents and the folder."""

_OWN: Final = "SELECT 1 FROM sessions WHERE tenant = :tenant AND tenant <> '' {} LIMIT 1"

_SHARED: Final = (
    f"SELECT number FROM sessions WHERE tenant <> :tenant AND {SHARED_WITH} {{}}"
    f" LIMIT {bounds.SHARED_NAMED + 1}"
)
