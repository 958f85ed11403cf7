"""A page of `session/list`, at three sizes of the journal, near its beginning and deep in it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter, ListKey
from acphold.journal.stores import open_journal
from bench.programs import scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire

PAGE = 50
REPEATS = 200
AGENT = "scripted"
FOLDERS = 10
NEWEST = 1_700_000_000_000
FILE_BYTES = 16 * 1024
DEEP = 0.45
"""Where a deep page begins; even of 1 k sessions in ten folders a whole page is left there."""

FASTER_THAN_10K_FILES = 1000

SESSION_ROW = (
    "INSERT INTO sessions (session_id, agent, cwd, folder, additional_directories, title,"
    " created_at, updated_at, prompted, message_count, settled_through)"
    " VALUES (?1, ?2, ?3, ?3, '[]', ?4, ?5, ?6, 1, 4, 9)"
)
SEGMENT_ROW = "INSERT INTO segments VALUES (? << 32 | 9, 1, ?, 'update', x'7b7d')"


def figures(run: Run) -> Iterator[Figure]:
    """First and deep page, with and without a folder, beside 1 k sessions and beside files."""
    sizes = {"1 k": 1_000, "100 k": 100_000, "1 M": run.size(1_000_000, 200_000)}
    paths = {name: filled_new(run, size) for name, size in sizes.items()}
    files = run.size(10_000, 1_000)
    transcripts = _transcripts(run.fresh("files"), files)
    scans = [_scan(transcripts) for _ in range(run.rounds)]
    journals = {name: open_journal(path) for name, path in paths.items()}
    try:
        yield from _pages(run, journals, sizes, scans, files)
    finally:
        for journal in journals.values():
            asyncio.run(journal.aclose())
    yield _through_the_wire(run, paths["100 k"], scans, files)


def _pages(
    run: Run,
    journals: dict[str, Journal],
    sizes: dict[str, int],
    scans: list[float],
    files: int,
) -> Iterator[Figure]:
    for cwd in (None, f"{FOLDER}/3"):
        for depth in (0.0, DEEP):
            ways: dict[str, Callable[[], float]] = {
                name: page_time(journal, cwd, NEWEST - int(sizes[name] * depth) + 1)
                for name, journal in journals.items()
            }
            taken = run.in_turns(ways)
            what = f"{'deep' if depth else 'first'} page{', one folder' if cwd else ''}"
            for name in ("100 k", "1 M"):
                yield Figure(
                    f"list, {what}, {sizes[name]:,} sessions",
                    "us",
                    taken[name],
                    "with 1 k",
                    taken["1 k"],
                    (Goal(1.3, ratio=True),),
                )
            yield Figure(
                f"list, {what}, {sizes['1 M']:,} sessions",
                "us",
                taken["1 M"],
                f"ends of {files:,} files",
                scans,
                (Goal(10_000 / files / FASTER_THAN_10K_FILES, ratio=True),),
            )


def page_time(journal: Journal, cwd: str | None, below: int) -> Callable[[], float]:
    """A measurement of one page; microseconds."""
    filter = ListFilter(agents=(AGENT,), cwd=cwd)
    after = ListKey(below, "")

    async def pages() -> float:
        taken = []
        for _ in range(REPEATS):
            began = perf_counter()
            rows = await journal.page(filter, after, PAGE)
            taken.append(perf_counter() - began)
            assert len(rows) == PAGE
        return median(taken) * 1e6

    return lambda: asyncio.run(pages())


def filled_new(run: Run, sessions: int) -> str:
    """A new journal with so many sessions; where it is."""
    return os.fspath(_filled(run.fresh("journal.db"), sessions))


def _filled(path: Path, sessions: int) -> Path:
    """A journal with so many sessions, one entry each."""
    asyncio.run(open_journal(path).aclose())
    # Straight into the tables: a million sessions one by one would take minutes.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    connection.executemany(
        SESSION_ROW,
        (
            (
                f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}",
                AGENT,
                f"{FOLDER}/{number % FOLDERS}",
                f"Fix the flaky test number {number}",
                NEWEST - sessions,
                NEWEST - sessions + number,
            )
            for number in range(1, sessions + 1)
        ),
    )
    connection.executemany(SEGMENT_ROW, ((n, NEWEST) for n in range(1, sessions + 1)))
    connection.commit()
    connection.close()
    return path


def _transcripts(folder: Path, number: int) -> Path:
    """What agents keep instead: one file of lines for each session."""
    folder.mkdir()
    line = json.dumps({"type": "message", "text": "the quick brown fox " * 8}).encode() + b"\n"
    body = line * (FILE_BYTES // len(line))
    for n in range(number):
        head = json.dumps({"sessionId": f"{n:016x}", "cwd": f"{FOLDER}/{n % FOLDERS}", "at": n})
        (folder / f"{n:08x}.jsonl").write_bytes(head.encode() + b"\n" + body)
    return folder


def _scan(folder: Path) -> float:
    """The first page by reading the ends of every file; microseconds."""
    began = perf_counter()
    found = []
    for entry in os.scandir(folder):
        status = entry.stat()
        with open(entry.path, "rb") as file:
            head = json.loads(file.readline())
            file.seek(max(0, status.st_size - 4096))
            last = json.loads(file.read().rstrip().rsplit(b"\n", 1)[-1])
        found.append((status.st_mtime, head["cwd"], last["type"]))
    found.sort(reverse=True)
    assert len(found[:PAGE]) == PAGE
    return (perf_counter() - began) * 1e6


def _through_the_wire(run: Run, path: str, scans: list[float], files: int) -> Figure:
    """`session/list` as an editor asks it, first page."""
    with Wire(wrap(scripted_agent(), path)) as wire:
        wire.initialize()
        samples = []
        for _ in range(run.rounds):
            taken = []
            for _ in range(REPEATS):
                began = perf_counter()
                result = wire.call("session/list", {})
                taken.append(perf_counter() - began)
                sessions = result["sessions"]
                assert isinstance(sessions, list)
                assert len(sessions) == PAGE
            samples.append(median(taken) * 1e6)
    return Figure(
        "list, first page through the wire, 100,000 sessions",
        "us",
        samples,
        f"ends of {files:,} files",
        scans,
    )
