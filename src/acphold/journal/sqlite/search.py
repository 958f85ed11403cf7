"""Searching: turn a query into FTS5, and find the matching entries.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import log
from typing import Any, Final, NamedTuple

from msgspec import json

from acphold.journal import bounds
from acphold.journal.hits import Held, Term, query
from acphold.journal.seams import Sought
from acphold.journal.sql.search import Indexed
from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.journal.sqlite.search_index import TIME_BITS
from acphold.journal.sqlite.session_rows import SqliteTables

_WALK: Final = """
    FROM words_{0}
    CROSS JOIN documents ON documents.number = words_{0}.rowid AND volume = {0}
    CROSS JOIN sessions ON sessions.number = entry >> 32
    WHERE words_{0} MATCH %(query)s AND words_{0}.rowid >= %(since)s {1}
    ORDER BY words_{0}.rowid DESC LIMIT %(limit)s
"""
# CROSS keeps the planner from turning the walk around.

_NEWEST: Final = f"SELECT documents.number, entry {_WALK}"

_BEST: Final = f"""
    SELECT rank, number, entry, count(*) OVER () FROM (
        SELECT words_{{0}}.rank AS rank, documents.number AS number, entry {_WALK}
    ) ORDER BY rank, number DESC LIMIT %(best)s
"""

_BEST_OF_ALL: Final = """
    SELECT best.rank, documents.number, entry FROM (
        SELECT rank, rowid AS place FROM words_{0}
        WHERE words_{0} MATCH %(query)s AND rowid >= %(since)s
        ORDER BY rank, rowid DESC LIMIT %(best)s
    ) AS best
    CROSS JOIN documents ON documents.number = best.place AND volume = {0}
    CROSS JOIN sessions ON sessions.number = entry >> 32
"""
"""The same without a condition for the sessions, which are looked up for the best alone: fewer if
some of these were deleted."""

_HITS: Final = (
    "SELECT count(*) FROM words_{0} WHERE words_{0} MATCH %(query)s AND rowid >= %(since)s"
)

_SHARED_WITH: Final = "session_id IN (SELECT session_id FROM shares WHERE tenant = %(tenant)s)"
"""Sessions that others share with a tenant."""

_AT_AN_END: Final = f"(entry & {SEQ_MASK}) > settled_through - {bounds.ENTRIES_AT_AN_END}"

_HELD: Final = "SELECT session_id, agent, cwd, title, archived FROM sessions WHERE number = %s"


def find_in_index(
    tables: SqliteTables,
    sought: Sought,
    terms: Sequence[Term],
    condition: str,
    values: dict[str, Any],
    known: dict[str, _Few] | None = None,
) -> list[Indexed] | None:
    """See `Find`. Run it on one moment: otherwise another process may drop a volume meanwhile. What
    it looks up in that moment, to do so once, is in `known`."""
    asked = query(terms, sought.part)
    at_ends = f" AND {_AT_AN_END}" if sought.at_ends else ""
    if sought.tenant is not None:
        condition += f" AND (tenant = %(tenant)s OR {_SHARED_WITH})"
    if (whose := _of_whom(tables, sought, values, condition)) is None:
        return None  # without walking through all documents that have the words
    words, shared = whose
    volumes: Iterable[_Volume] = [
        _Volume(*its, _of_these(asked, words)) for its in _volumes(tables, sought, shared)
    ]
    if sought.session_id is None and (sought.agents or sought.cwd is not None):
        known = {} if known is None else known
        few = known.setdefault(condition, _Few(tables, condition, values))
        volumes = few.among(asked, [*volumes], 0 if sought.rank else 1)
    if sought.rank:
        found = _best(tables, terms, sought, values, condition + at_ends, volumes)
    else:
        # The newest. A volume holds documents indexed at about the same time, whether old or new.
        # It is skipped if all of them are older than the entries found so far.
        newest: list[tuple[int, int]] = []
        least = sought.since >> TIME_BITS
        for volume, latest, asked in volumes:
            if latest < least:
                break
            row = {**values, "query": asked, "since": least}
            newest += tables.execute(_NEWEST.format(volume, condition + at_ends), row).fetchall()
            newest = sorted(newest, reverse=True)[: sought.limit]
            if len(newest) == sought.limit:
                least = newest[-1][0] + 1
        found = [entry for _, entry in newest]
    held = {
        number: Held(id_, agent, cwd, title, bool(archived))
        for number in {entry >> SEQ_BITS for entry in found}
        # Nothing, if it was deleted but not swept yet.
        for id_, agent, cwd, title, archived in tables.execute(_HELD, (number,))
    }
    return [
        (number, held[number], entry & SEQ_MASK)
        for entry in found
        if (number := entry >> SEQ_BITS) in held
    ]


def _of_whom(
    tables: SqliteTables,
    sought: Sought,
    values: Mapping[str, Any],
    condition: str,
) -> tuple[list[str], Sequence[int] | None] | None:
    """Words such that each document of a searched session has one of them, and the sessions among
    these that are shared with the tenant. Empty and None if they would be too many; None if there
    is no such session."""
    if sought.tenant and sought.session_id is None:
        shared = tables.execute(_SHARED.format(condition), values).fetchall()
        if len(shared) > bounds.SHARED_NAMED:
            return [], None
        words = [search_index.of_session(number) for (number,) in shared]
        if tables.execute(_OWN.format(condition), values).fetchone():
            words.append(search_index.of_tenant(sought.tenant))
        return (words, [number for (number,) in shared]) if words else None
    row = tables.execute(_OF_THESE.format(condition), values).fetchone()
    if row is None:
        return None
    return [] if sought.session_id is None else [search_index.of_session(row[0])], None


def _best(
    tables: SqliteTables,
    terms: Sequence[Term],
    sought: Sought,
    values: Mapping[str, Any],
    condition: str,
    volumes: Iterable[_Volume],
) -> list[int]:
    """The best of the newest matching entries, as `documents` names them."""
    found: dict[int, list[tuple[float, int, int]]] = {}
    counts: dict[tuple[int, str], int] = {}
    left, since = bounds.RANKED_HITS, sought.since >> TIME_BITS
    for volume, latest, its in volumes:
        if left <= 0 or latest < since:
            break
        row = {**values, "query": its, "since": since, "limit": left, "best": sought.limit}
        ranked: Sequence[tuple[Any, ...]] = ()
        count = wanted = 0
        if not condition:
            (count,) = tables.execute(_HITS.format(volume), row).fetchone()
            counts[volume, its] = count
            wanted = min(count, sought.limit)
            if wanted and count <= left:
                ranked = tables.execute(_BEST_OF_ALL.format(volume), row).fetchall()
        if condition or len(ranked) < wanted:
            ranked = tables.execute(_BEST.format(volume, condition), row).fetchall()
            count = ranked[0][3] if ranked else 0
        if ranked:
            left -= count
            found[volume] = [(rank, -number, entry) for rank, number, entry, *_ in ranked]
    # Ranks of one volume compare as they are; those of different ones when divided by the weight of
    # the terms, from how rare they are in the volume (sqlite.org, FTS5, "The bm25() function").
    asked = [query([term], sought.part) for term in terms]
    for volume, hits in found.items() if len(found) > 1 else ():
        (size,) = tables.execute(
            "SELECT documents FROM volumes WHERE number = %s", (volume,)
        ).fetchone()
        weight = 0.0
        for one in asked:
            if since or (having := counts.get((volume, one))) is None:
                of_all_times = {"query": one, "since": 0}
                (having,) = tables.execute(_HITS.format(volume), of_all_times).fetchone()
            rare = (size - having + 0.5) / (having + 0.5)
            weight += max(log(rare), 1e-6) if rare > 0 else 1e-6
        found[volume] = [(rank / weight, place, entry) for rank, place, entry in hits]
    of_all = sorted(one for hits in found.values() for one in hits)
    return [entry for _, _, entry in of_all[: sought.limit]]


class _Volume(NamedTuple):
    """A volume of the index, with the number of its newest document, and what it is asked."""

    number: int
    newest: int
    query: str


def _of_these(asked: str, words: Sequence[str]) -> str:
    """A query for documents that have one of these words for sessions and tenants, if there are
    any."""
    either = " OR ".join(f'"{word}"' for word in words)
    return f"({asked}) AND whose : ({either})" if words else asked


class _Few:
    """The sessions that meet a condition, if they are few in relation to the volumes: further back
    than a common word, all volumes without any of them are left out, and the documents of others.
    """

    def __init__(self, tables: SqliteTables, condition: str, values: Mapping[str, Any]) -> None:
        self._tables = tables
        self._numbers = f"SELECT number FROM sessions WHERE true {condition}"
        self._values = values

    def among(self, asked: str, volumes: Sequence[_Volume], first: int) -> Iterator[_Volume]:
        """Yield the volumes in which to look, the `first` of them as they are."""
        yield from volumes[:first]
        most = min(bounds.SESSIONS_A_VOLUME * (len(volumes) - first), bounds.SHARED_NAMED)
        if self._count > most:
            yield from volumes[first:]
            return
        more = first and first + self._count // bounds.SESSIONS_A_VOLUME
        yield from volumes[first:more]
        for it in volumes[more:]:
            if words := self._words.get(it.number):
                yield it._replace(query=_of_these(asked, words))

    @cached_property
    def _count(self) -> int:
        """Their number, up to one more than are named."""
        counted = f"SELECT count(*) FROM ({self._numbers} LIMIT {bounds.SHARED_NAMED + 1})"
        return int(self._tables.execute(counted, self._values).fetchone()[0])

    @cached_property
    def _words(self) -> Mapping[int, Sequence[str]]:
        """Their words, by the volumes that have documents of them."""
        found = defaultdict[int, list[str]](list)
        for volume, session in self._tables.execute(_PLACES.format(self._numbers), self._values):
            found[volume].append(search_index.of_session(session))
        return found


def _volumes(
    tables: SqliteTables, sought: Sought, shared: Sequence[int] | None
) -> list[tuple[int, int]]:
    """The volumes of the index in which to look, with the number of their newest document; the
    newest volume first. Those without documents of the tenant, or in a `shared` session, are left
    out."""
    which = "" if sought.session_id is None else _WITH_SESSION
    wanted: dict[str, Any] = {"session": sought.session_id}
    if shared is not None and len(shared) <= bounds.SHARED_LOOKED_UP:
        its = set[int]().union(*(search_index.volumes_of(tables.connection, it) for it in shared))
        which = "WHERE tenants = '' OR instr(tenants, %(tenant)s)"
        which += f" OR number IN ({', '.join(map(str, its))})"
        wanted = {"tenant": json.encode(sought.tenant).decode()}
    found = f"SELECT number, newest FROM volumes {which} ORDER BY newest DESC"
    return tables.execute(found, wanted).fetchall()


_WITH_SESSION: Final = f"""
    WHERE number IN (
        SELECT volume FROM sessions CROSS JOIN documents
        ON entry >= sessions.number << {SEQ_BITS} AND entry < (sessions.number + 1) << {SEQ_BITS}
        WHERE session_id = %(session)s
    )
"""

_OF_THESE: Final = "SELECT number FROM sessions WHERE true {} LIMIT 1"
"""Finds one session of the agents and the folder."""

_PLACES: Final = f"""
    SELECT DISTINCT volume, these.number FROM ({{}}) AS these CROSS JOIN documents
    ON entry >= these.number << {SEQ_BITS} AND entry < (these.number + 1) << {SEQ_BITS}
"""
"""Finds the volumes that have documents of them."""

_OWN: Final = "SELECT 1 FROM sessions WHERE tenant = %(tenant)s AND tenant <> '' {} LIMIT 1"

_SHARED: Final = (
    "SELECT number FROM (SELECT session_id FROM shares WHERE tenant = %(tenant)s) AS shared"
    " CROSS JOIN sessions USING (session_id) WHERE tenant <> %(tenant)s {}"
    f" LIMIT {bounds.SHARED_NAMED + 1}"
)
