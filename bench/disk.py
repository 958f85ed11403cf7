"""How large the journal is, for each byte of the updates in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from acphold.journal import SqliteJournal
from bench.conversation import keep, turns
from bench.run import Run
from bench.table import Figure, Goal

BURST = 50


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


async def _grown(path: Path, conversation: list[list[bytes]], at_once: int, settle: bool) -> int:
    """By how much a conversation makes the file grow, once all of the log is in it."""
    await SqliteJournal.open(path).aclose()
    empty = os.stat(path).st_size
    journal = SqliteJournal.open(path)
    await keep(journal, "a-session", conversation, at_once=at_once, settle=settle)
    await journal.aclose()
    return os.stat(path).st_size - empty
