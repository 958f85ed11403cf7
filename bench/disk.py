"""How large the journal is, for each byte of the updates in it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from acphold.imports import Home, Intake, reader
from acphold.journal.compression import zstd
from acphold.journal.stored_history import LEVEL, pack, plain
from acphold.journal.stores import open_journal
from bench.conversation import keep, turns
from bench.homes import fill
from bench.run import Run
from bench.table import Figure, Goal

BURST = 50

DICTIONARY_BYTES = 112 << 10
"""What zstd's own program makes of samples."""


def figures(run: Run) -> Iterator[Figure]:
    """Updates that came one by one, before and after compaction, and in bursts."""
    conversation = list(turns(run.size(50_000, 5_000)))
    for at_once, how in ((1, "one by one"), (BURST, f"in bursts of {BURST}")):
        for settle, state in ((False, "not compacted"), (True, "compacted, searchable")):
            size = asyncio.run(_grown(run.fresh("journal.db"), conversation, at_once, settle))
            yield Figure(
                f"journal on disk, {how}, {state}",
                "bytes a byte",
                [size / sum(len(raw) for turn in conversation for raw in turn)],
                "a JSONL file",
                [1.0],
                (Goal(1.25),),
            )
    yield from _imported(run)


def _imported(run: Run) -> Iterator[Figure]:
    """Homes of other agents, imported and searchable; and what packing old rows is worth."""
    home = run.fresh("home")
    fill(home, run.size(64 << 20, 8 << 20))
    transcripts = sum(path.stat().st_size for path in home.rglob("*.jsonl"))
    journal = run.fresh("journal.db")
    asyncio.run(_import(home, journal))
    yield Figure(
        "journal of imported homes, searchable",
        "bytes a byte",
        [os.stat(journal).st_size / transcripts],
        "the transcripts",
        [1.0],
        (Goal(0.6),),
    )
    rows = list(_rows(journal))
    yield Figure(
        "its old rows, each packed by itself",
        "bytes a byte",
        [sum(map(len, map(pack, rows))) / sum(map(len, rows))],
        "with a dictionary made of them",
        [_with_dictionary(rows)],
    )


async def _import(home: Path, path: Path) -> None:
    journal = open_journal(path)
    intake = Intake(journal)
    for name in ("claude", "codex"):
        for source in reader(name).find(Home(home)):
            await intake.take(source, reader(name))
    while await journal.index.catch_up(60.0):
        pass
    await journal.aclose()


def _rows(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(path)) as file:
        for (raw,) in file.execute("SELECT raw FROM segments"):
            yield plain(raw)


def _with_dictionary(rows: Sequence[bytes]) -> float:
    """The share of their size that rows keep with a dictionary that was made of some of them."""
    some = [raw[:16_384] for raw in rows[:: max(1, len(rows) // 3000)]]
    dictionary = zstd.train_dict(some, DICTIONARY_BYTES)
    smaller = (len(zstd.compress(raw, LEVEL, zstd_dict=dictionary)) for raw in rows)
    return sum(map(min, smaller, map(len, rows))) / sum(map(len, rows))


async def _grown(path: Path, conversation: list[list[bytes]], at_once: int, settle: bool) -> int:
    """By how much a conversation makes the file grow, once all of the log is in it."""
    await open_journal(path).aclose()
    empty = os.stat(path).st_size
    journal = open_journal(path)
    await keep(journal, "a-session", conversation, at_once=at_once, settle=settle)
    await journal.aclose()
    return os.stat(path).st_size - empty
