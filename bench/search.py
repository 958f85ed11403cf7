"""Full-text search, at two sizes of the journal, beside scanning all messages with LIKE."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from acphold.journal import Sought, SqliteJournal
from bench.run import Run
from bench.table import Figure, Goal

SESSION_MESSAGES = 400
NEWEST = 1_700_000_000_000
REPEATS = 5
FOLDERS = 40

WORDS = 40_000
"""In the vocabulary; the n-th is as frequent as 1/n, as in any language (Zipf's law)."""

SESSION_ROW = (
    "INSERT INTO sessions (number, session_id, agent, cwd, folder, additional_directories, title,"
    " created_at, updated_at, prompted, message_count, settled_through)"
    " VALUES (?1, ?2, 'bench', ?3, ?3, '[]', 'A title', ?4, ?4, 1, ?5, ?5)"
)
SEGMENT_ROW = "INSERT INTO segments VALUES (? << 32 | ?, ?, ?, 0, ?)"


def figures(run: Run) -> Iterator[Figure]:
    """A query in the middle of a mix of them, at both sizes; the slowest kind; indexing; the file."""
    few, many = run.size(100_000, 20_000), run.size(1_000_000, 100_000)
    texts = _Texts()
    small = _Filled(run.fresh("journal.db"), texts, few)
    plain = _plain(run.fresh("plain.db"), small.path)
    yield from _beside_scan(run, small, plain, texts, few)
    large = _Filled(run.fresh("journal.db"), texts, many)
    yield from _kinds(run, large, texts, many)
    yield Figure(f"index {many:,} messages", "us each", [large.seconds / many * 1e6])
    yield Figure("index, for each byte of text", "bytes", [large.index_bytes / large.text_bytes])


def _beside_scan(
    run: Run, filled: _Filled, plain: sqlite3.Connection, texts: _Texts, size: int
) -> Iterator[Figure]:
    queries = [query for some in texts.queries().values() for query in some]
    with filled as journal:
        ways: dict[str, Callable[[], float]] = {
            "index": lambda: median(_searched(journal, Sought(query)) for query in queries),
            "scan": lambda: median(_scanned(plain, query.split()[0]) for query in queries[:8]),
        }
        taken = run.in_turns(ways)
    yield Figure(
        f"search {size:,} messages, 20 hits shown",
        "us",
        taken["index"],
        "LIKE",
        taken["scan"],
    )
    with filled as journal:
        found = run.in_turns(
            {
                "index": lambda: median(_matched(filled.path, texts.queries())),
                "scan": lambda: median(_scanned(plain, query.split()[0]) for query in queries[:8]),
            }
        )
    yield Figure(
        f"find in {size:,} messages, newest first",
        "us",
        found["index"],
        "LIKE",
        found["scan"],
        (Goal(1 / 50, ratio=True),),
    )


def _kinds(run: Run, filled: _Filled, texts: _Texts, size: int) -> Iterator[Figure]:
    kinds = texts.queries()
    with filled as journal:
        everything = [Sought(query) for some in kinds.values() for query in some]
        yield Figure(
            f"search {size:,} messages, all kinds of queries",
            "ms",
            [median(_searched(journal, s) for s in everything) / 1e3 for _ in range(run.rounds)],
            goals=(Goal(5),),
        )
        for kind, queries in kinds.items():
            yield _kind(run, journal, f"  {kind}", [Sought(query) for query in queries])
        common = kinds["a common word"]
        for kind, more in {
            "by rank": {"rank": True},
            "in diffs": {"part": "diffs"},
            "in one folder": {"cwd": "/bench/7"},
            "in a folder without it": {"cwd": "/bench/none"},
            "of the last tenth": {"since": NEWEST - size * 100},
        }.items():
            sought = [Sought(query, **more) for query in common]  # type: ignore[arg-type]
            yield _kind(run, journal, f"  a common word, {kind}", sought)


def _kind(run: Run, journal: SqliteJournal, name: str, sought: Sequence[Sought]) -> Figure:
    rounds = range(run.rounds)
    return Figure(
        name, "ms", [median(_searched(journal, one) for one in sought) / 1e3 for _ in rounds]
    )


_loop = asyncio.new_event_loop()


def _searched(journal: SqliteJournal, sought: Sought) -> float:
    """Microseconds for a search with its twenty hits, as the command asks for them."""

    async def searches() -> float:
        taken = []
        for _ in range(REPEATS):
            began = perf_counter()
            await journal.search(sought)
            taken.append(perf_counter() - began)
        return median(taken) * 1e6

    return _loop.run_until_complete(searches())
