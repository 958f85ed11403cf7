"""Ranking of matching documents, by the formula of FTS5's `bm25()`.

PostgreSQL's `ts_rank` ignores how rare a word is and how long other documents are. It would order
the same hits differently from a journal in a file.

Source: sqlite.org, FTS5, "The bm25() function"; `fts5_aux.c` has its constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import accumulate
from math import log, pi
from typing import Any, Final

from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.words import MOST_PLACES, WEIGHTS, Phrase

RANKED_AT_MOST: Final = 10_000
"""The best are chosen from this many matching documents, the newest: all words of each are read."""

SAMPLE: Final = 20_000
"""Documents sampled for the average length and for how rare a phrase is; in a smaller journal,
all."""

_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_LEAST: Final = 1e-6

_OWNERS: Final = 1
"""The word for a document's session, which FTS5 counts as part of the length. The word for a
tenant, which some documents have, is not counted here."""

Row = tuple[Any, ...]


def best(
    line: Line,
    phrases: Sequence[Phrase],
    part: str | None,
    fitting: str,
    columns: str,
    documents: str,
    values: dict[str, Any],
) -> list[Row]:
    """Return `columns` of the best documents found by the statement `fitting`, `limit` of `values`
    at most.

    `fitting` selects them after `at`, `number`, `size` and `words`. `documents` is what is
    searched: a table, or a subquery in its place.
    """
    words = f"ts_filter(words, '{{{WEIGHTS[part].lower()}}}')" if part is not None else "words"
    counts = ", ".join(_counted(place, phrase, words) for place, phrase in enumerate(phrases))
    found = line.execute(
        f"WITH next_ones AS ({fitting} LIMIT %(ranked)s)"
        f" SELECT ARRAY[{counts}]::float8[], at, number, size, {columns} FROM next_ones",
        {**values, **dict(_named(phrases)), "ranked": RANKED_AT_MOST, "ranks": _RANKS},
    ).fetchall()
    if not found:
        return []
    average, rarities = _measured(line, phrases, part, [row[0] for row in found], documents, values)

    def order(row: Row) -> tuple[float, int, int]:
        counted, at, number, size = row[:4]
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * (size + _OWNERS) / (average + _OWNERS))
        score = 0.0
        for count, rarity in zip(counted, rarities, strict=True):
            score += rarity * (count * (_SATURATION + 1) / (count + norm))
        return (-score, -at, -number)

    return [row[4:] for row in nsmallest(values["limit"], found, key=order)]


def _counted(place: int, phrase: Phrase, words: str) -> str:
    """SQL for the number of times a phrase occurs in a document."""
    last = len(phrase.words) - 1
    if not last and not phrase.is_prefix:
        rank = f"ts_rank('{{1, 1, 1, 1}}', {words}, %(phrase_{place})s::tsquery)"
        return f"width_bucket({rank}::float8, %(ranks)s::float8[])"
    names = [f"%(word_{place}_{number})s" for number in range(last + 1)]
    fits = [f"lexeme = {name}" for name in names]
    if phrase.is_prefix:
        fits[last] = f"starts_with(lexeme, {names[last]})"
    if not last:
        counted = f"SELECT sum(cardinality(positions)) FROM unnest({words}) WHERE {fits[0]}"
        return f"coalesce(({counted}), 0)"
    starts = " UNION ALL ".join(
        f"SELECT unnest(positions) - {number} FROM unnest({words}) WHERE {fit}"
        for number, fit in enumerate(fits)
    )
    return (
        f"(SELECT count(*) FROM (SELECT FROM ({starts}) AS found (start)"
        f" GROUP BY start HAVING count(*) = {last + 1}) AS counted)"
    )


_RANKS: Final = [
    rank - 1 / (2 * count**2) / (pi**2 / 6)
    for count, rank in enumerate(
        accumulate(1 / count**2 / (pi**2 / 6) for count in range(1, MOST_PLACES + 1)), 1
    )
]
"""Lower bounds of `ts_rank` for one word that occurs once, twice and so on, if all places weigh the
same: it adds up 1, 1/4, 1/9 … of a constant. Counting the places themselves takes ten times as
long.

Source: PostgreSQL, tsrank.c, calc_rank_or.
"""


def _named(phrases: Sequence[Phrase]) -> Iterator[tuple[str, str]]:
    for place, phrase in enumerate(phrases):
        yield f"phrase_{place}", phrase.query(None)
        for number, word in enumerate(phrase.words):
            yield f"word_{place}_{number}", word


def _measured(
    line: Line,
    phrases: Sequence[Phrase],
    part: str | None,
    found: Sequence[Sequence[float]],
    documents: str,
    values: dict[str, Any],
) -> tuple[float, list[float]]:
    """The average number of words in a document, and the rarity of each phrase.

    If there are more than SAMPLE documents, their number is the database's estimate.
    """
    fits = "".join(
        f", count(*) FILTER (WHERE words @@ %(phrase_{place})s::tsquery)"
        for place in range(len(phrases) if len(phrases) > 1 else 0)  # one alone changes no order
    )
    row = line.execute(
        "SELECT count(*), avg(size)::float8, (SELECT reltuples FROM pg_class"
        f" WHERE oid = 'acphold.documents'::regclass){fits}"
        f" FROM (SELECT size, words FROM {documents} LIMIT {SAMPLE}) AS page",
        values | {f"phrase_{place}": phrase.query(part) for place, phrase in enumerate(phrases)},
    ).fetchone()
    assert row is not None
    looked_at, average, guessed, *having = row
    number = looked_at if looked_at < SAMPLE else max(guessed, looked_at)
    rarities = [1.0] * len(phrases)
    for place, some in enumerate(having):
        least = sum(bool(counts[place]) for counts in found)
        among = max(some * number / looked_at, least)
        rarity = log((number - among + 0.5) / (among + 0.5)) if among < number else 0.0
        rarities[place] = rarity if rarity > 0 else _LEAST
    return average or 1.0, rarities
