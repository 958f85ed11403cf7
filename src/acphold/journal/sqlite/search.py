"""A search: a person's words as a query of the index, and the entries that have them.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from acphold.history.entries import Entry, Segment
from acphold.journal.hits import Held, Term, hit, patterns_of, terms
from acphold.journal.journal import SearchHit, Sought
from acphold.journal.location import resolved_folder
from acphold.journal.packing import plain
from acphold.journal.sqlite import unsettled
from acphold.journal.sqlite.migrations import SEQ_MASK
from acphold.journal.sqlite.search_index import TIME_BITS
from acphold.journal.sqlite.segments import NAMES
from acphold.journal.sqlite.session_rows import OF_AGENTS, THERE_FOR, as_json
from acphold.journal.words_in_memory import query

RANKED_AT_MOST: Final = 50_000
"""Of how many hits, the newest, `rank` takes the best: ranking one costs a microsecond."""


_ASKED: Final = (
    f"{OF_AGENTS} AND (:folder IS NULL OR folder = :folder)"
    " AND (:session IS NULL OR session_id = :session)"
    f" AND (:tenant IS NULL OR {THERE_FOR})"
)

_WALK: Final = f"""
    FROM words_{{0}}
    CROSS JOIN documents ON documents.number = words_{{0}}.rowid AND volume = {{0}}
    CROSS JOIN sessions ON sessions.number = entry >> 32
    WHERE words_{{0}} MATCH :query AND words_{{0}}.rowid >= :since
        AND {_ASKED}
        ORDER BY words_{{0}}.rowid DESC LIMIT :limit
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


def search(connection: sqlite3.Connection, sought: Sought) -> list[SearchHit]:
    """The entries that have all that is sought, the newest or the best first."""
    found = terms(sought.words)
    if not found:
        return []
    values: dict[str, str | None] = {
        "query": query(found, sought.part),
        "agents": as_json(sought.agents),
        "folder": None if sought.cwd is None else resolved_folder(sought.cwd),
        "session": sought.session_id,
        "tenant": sought.tenant,
    }
    if not connection.execute(_OF_THESE, values).fetchone():
        return []  # without walking through all that has the words
    patterns = patterns_of(found)
    entries = (
        _best(connection, found, sought, values)
        if sought.rank
        else newest(connection, values, sought.since >> TIME_BITS, sought.limit)
    )
    indexed = [
        hit(*known, patterns, sought.part)
        for entry in entries
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


def newest(
    connection: sqlite3.Connection, values: Mapping[str, str | None], least: int, limit: int
) -> list[int]:
    """The newest entries that fit, as `documents` names them, from the number `least` on.

    Volumes hold what came in at about one time, be it old or new; of one of which no document is as
    new as the last of those found, none is looked for.
    """
    found: list[tuple[int, int]] = []
    for volume, latest in _volumes(connection):
        if latest < least:
            break
        row = {**values, "since": least, "limit": limit}
        found += connection.execute(_NEWEST.format(volume), row).fetchall()
        found = sorted(found, reverse=True)[:limit]
        if len(found) == limit:
            least = found[-1][0] + 1
    return [entry for _, entry in found]


def _best(
    connection: sqlite3.Connection,
    terms: Sequence[Term],
    sought: Sought,
    values: Mapping[str, str | None],
) -> list[int]:
    """The best of the newest entries that fit, as `documents` names them."""
    found: list[tuple[float, int, int]] = []
    left, since = RANKED_AT_MOST, sought.since >> TIME_BITS
    for volume, latest in _volumes(connection):
        if left <= 0 or latest < since:
            break
        row = {**values, "since": since, "limit": left, "best": sought.limit}
        ranked = connection.execute(_BEST.format(volume), row).fetchall()
        if ranked:
            left -= ranked[0][3]
            weight = _weight(connection, volume, [query([term], sought.part) for term in terms])
            found += [(rank / weight, -number, entry) for rank, number, entry, _ in ranked]
    return [entry for _, _, entry in sorted(found)[: sought.limit]]


def _volumes(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """The volumes of the index, and how new the newest document of each is; that one first."""
    return connection.execute("SELECT number, newest FROM volumes ORDER BY newest DESC").fetchall()


def _weight(connection: sqlite3.Connection, volume: int, queries: Sequence[str]) -> float:
    """How much a volume makes of these terms, each as rare as it is there: a rank divided by it can
    be compared with that of a document in another volume.

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
    """The entry behind a document, and its session; None when it was deleted, and not swept yet."""
    row = connection.execute(_HIT, (number,)).fetchone()
    if row is None:
        return None
    session_id, agent, cwd, title, archived, last, first, at, kind, raw = row
    segment = Segment(first, last, NAMES.get(kind, kind), at, plain(raw))
    seq = number & SEQ_MASK
    for entry in segment.entries():
        if entry.seq == seq:
            return Held(session_id, agent, cwd, title, bool(archived)), entry
    return None


_OF_THESE: Final = f"SELECT 1 FROM sessions WHERE {_ASKED} LIMIT 1"
"""Whether there is any session of the agents and the folder."""
