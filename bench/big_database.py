"""A list of a million sessions and a search in a million messages, in a database and in a file.

Rows are made by the server from numbers, and from what a few hundred conversations came to that
were taken in and indexed as any import does it (see `big_journal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from statistics import median
from time import perf_counter
from typing import Final

import psycopg

from acphold.journal.journal import Journal
from acphold.journal.seams import Sought
from acphold.journal.stores import open_journal
from acphold.journal.token_reports import SLOT_MS
from bench import big_journal, listing
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import FOLDER

FILE, DATABASE = "SQLite", "PostgreSQL"

FEW = 1_000

_SESSIONS = """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        title, created_at, updated_at, prompted, message_count, settled_through, indexed_through,
        packed_through)
    SELECT left(md5(n::text), 16), n, %(agent)s, %(folder)s || '/' || n %% %(folders)s,
        %(folder)s || '/' || n %% %(folders)s, '[]', 'Fix the flaky test number ' || n,
        %(newest)s - %(count)s, %(newest)s - %(count)s + n, true, 4, 9, 9, 9
    FROM generate_series(1, %(count)s) AS n
"""
_SEGMENTS = """
    INSERT INTO acphold.segments
    SELECT session_id, 9, 1, updated_at, 'update', '{}'::bytea FROM acphold.sessions
"""

_SHIFTED: Final = {
    "session_id": "session_id || '-' || n",
    "downstream_id": "downstream_id || '-' || n",
    "number": "nextval('acphold.epochs')",
    **{name: f"{name} - n * %(gap)s::bigint" for name in ("created_at", "updated_at", "at")},
    "summed_at": "CASE WHEN summed_at < 0 THEN summed_at ELSE summed_at - n * %(gap)s::bigint END",
    "slot": f"slot - n * %(gap)s::bigint / {SLOT_MS}",
}
"""The columns that differ in the copy of a row."""

_OWN: Final = {"changed", "number"}
"""Those that each row gets by itself."""

_COPIED: Final = (
    *("sessions", "segments", "leases", "summaries", "links", "usage", "usage_sums"),
    *("usage_folds", "documents"),
)


def figures(run: Run, database: Callable[[str], str]) -> Iterator[Figure]:
    """`database` makes one of this name."""
    yield from _lists(run, database)
    yield from _searches(run, database)


# -- lists ------------------------------------------------------------------------------------


def _lists(run: Run, database: Callable[[str], str]) -> Iterator[Figure]:
    many = run.size(1_000_000, 100_000)
    few_of = {DATABASE: _filled(database("few"), FEW), FILE: listing.filled_new(run, FEW)}
    many_of = {DATABASE: _filled(database("many"), many), FILE: listing.filled_new(run, many)}
    journals = {
        (name, size): open_journal(location)
        for size, found in ((FEW, few_of), (many, many_of))
        for name, location in found.items()
    }
    for cwd in (None, f"{FOLDER}/3"):
        for depth in (0.0, listing.DEEP):
            taken = run.in_turns(
                {
                    f"{name} {size}": listing.page_time(
                        journal, cwd, listing.NEWEST - int(size * depth) + 1
                    )
                    for (name, size), journal in journals.items()
                }
            )
            what = f"{'deep' if depth else 'first'} page{', one folder' if cwd else ''}"
            ours = taken[f"{DATABASE} {many}"]
            goal = Goal(1.3, ratio=True)
            few = taken[f"{DATABASE} {FEW}"]
            yield Figure(f"list, {what}, {many:,} sessions", "us", ours, "of 1 k", few, (goal,))
            beside = taken[f"{FILE} {many}"]
            yield Figure(f"list, {what}, {many:,} sessions", "us", ours, FILE, beside)
    for journal in journals.values():
        asyncio.run(journal.aclose())


def _filled(location: str, sessions: int) -> str:
    """A journal with so many sessions, one entry each."""
    _make(location)
    with psycopg.connect(location, autocommit=True) as line:
        values = {
            "agent": listing.AGENT,
            "folder": FOLDER,
            "folders": listing.FOLDERS,
            "newest": listing.NEWEST,
            "count": sessions,
        }
        line.execute(_SESSIONS, values)
        line.execute(_SEGMENTS)
        line.execute("VACUUM ANALYZE")
    return location


def _make(location: str) -> None:
    """Make an empty journal."""

    async def make() -> None:
        journal = open_journal(location)
        await journal.count()
        await journal.aclose()

    asyncio.run(make())


# -- searches ---------------------------------------------------------------------------------


def _searches(run: Run, database: Callable[[str], str]) -> Iterator[Figure]:
    """What is common, what is there now and then, what is rare, by date and by rank."""
    templates = big_journal.TEMPLATES
    messages = run.size(1_000_000, 100_000)
    sessions = -(-messages // (big_journal.MESSAGES * templates)) * templates
    file = run.fresh("journal.db")
    big_journal.fill(file, sessions)
    location = database("searched")
    seconds = _indexed(location, templates)
    yield Figure("to index a message", "us", [seconds / (templates * big_journal.MESSAGES) * 1e6])
    multiply(location, sessions // templates)
    with asyncio.Runner() as runner:
        journals = {DATABASE: open_journal(location), FILE: open_journal(file)}
        for what, sought in _sought().items():
            taken = run.in_turns(
                {
                    name: partial(_searched, runner, journal, sought)
                    for name, journal in journals.items()
                }
            )
            name = f"search, {sessions * big_journal.MESSAGES:,} messages, {what}"
            yield Figure(name, "us", taken[DATABASE], FILE, taken[FILE])
        for journal in journals.values():
            runner.run(journal.aclose())


def _indexed(location: str, templates: int) -> float:
    """Take conversations in; seconds to put their words into the index."""

    async def index() -> float:
        await big_journal.take_in(location, templates)
        journal = open_journal(location)
        began = perf_counter()
        assert await journal.index.catch_up(HOUR) == 0
        taken = perf_counter() - began
        await journal.aclose()
        return taken

    return asyncio.run(index())


HOUR = 3600.0


def multiply(location: str, times: int) -> None:
    """Copy all sessions until there are so many times as many, at other times."""
    gap = big_journal.DAYS * big_journal.DAY_MS // times // SLOT_MS * SLOT_MS
    values = {"gap": gap, "copies": times - 1}
    with psycopg.connect(location, autocommit=True) as line:
        line.execute("DROP INDEX acphold.documents_words")  # one by one it takes ten times as long
        for table in _COPIED if times > 1 else ():
            found = line.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
                " AND table_schema = 'acphold' ORDER BY ordinal_position",
                (table,),
            ).fetchall()
            own = _OWN - ({"number"} if table == "sessions" else set())
            names = [name for (name,) in found if name not in own]
            # In the order in which they would have come in.
            order = f" ORDER BY {_SHIFTED['at']}" if table == "documents" else ""
            line.execute(
                f"INSERT INTO acphold.{table} ({', '.join(names)})"
                f" SELECT {', '.join(_SHIFTED.get(name, name) for name in names)}"
                f" FROM acphold.{table}, generate_series(1, %(copies)s) AS n{order}",
                values,
            )
        line.execute("SET maintenance_work_mem = '256MB'")
        line.execute("CREATE INDEX documents_words ON acphold.documents USING gin (words)")
        line.execute("VACUUM ANALYZE")


def _sought() -> dict[str, list[Sought]]:
    words = big_journal.words(Random(5))
    common, seldom, rare = words[1], words[400], words[15_000]
    return {
        "a common word": [Sought(common), Sought(words[7])],
        "a word now and then": [Sought(seldom), Sought(words[900])],
        "a rare word": [Sought(rare), Sought(words[19_000])],
        "two words": [Sought(f"{words[10]} {words[300]}")],
        "a phrase": [Sought(f'"{words[0]} {words[9]}"')],
        "a beginning": [Sought(f"{words[600][:4]}*")],
        "a word that is not there": [Sought("zzqqzz")],
        "a common word by rank": [Sought(common, rank=True)],
        "a common word in one folder of 40": [Sought(common, cwd="/home/ada/project7")],
        "a rare word in one folder of 40": [Sought(rare, cwd="/home/ada/project7")],
        "a common word, small tenant": [Sought(common, tenant="small")],
        "a common word by rank, small tenant": [Sought(common, rank=True, tenant="small")],
        "a rare word, small tenant": [Sought(rare, tenant="small")],
        "a phrase, small tenant": [Sought(f'"{words[0]} {words[9]}"', tenant="small")],
        "a beginning, small tenant": [Sought(f"{words[600][:4]}*", tenant="small")],
        "a common word, big tenant": [Sought(common, tenant="big")],
        "a rare word, big tenant": [Sought(rare, tenant="big")],
    }


def _searched(runner: asyncio.Runner, journal: Journal, sought: list[Sought]) -> float:
    return runner.run(_time(journal, sought))


async def _time(journal: Journal, sought: list[Sought]) -> float:
    """Microseconds of a search, the median."""
    taken = []
    for one in sought:
        await journal.index.search(one)  # what is asked twice is in memory
        began = perf_counter()
        await journal.index.search(one)
        taken.append(perf_counter() - began)
    return median(taken) * 1e6
