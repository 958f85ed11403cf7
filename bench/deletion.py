"""Bytes that deletions write, in the journal of `bench.big_journal`."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from acphold.journal.stores import open_journal
from bench.big_journal import fill, name_of
from bench.run import Run
from bench.table import Figure, Goal


def figures(run: Run) -> Iterator[Figure]:
    """One session, the oldest tenth, and a tenth at random; swept at once."""
    size = run.size(20_000, 2_000)
    whole = run.fresh("journal.db")
    fill(whole, size)
    ways: dict[str, tuple[Sequence[int], tuple[Goal, ...]]] = {
        "one session": ([size // 2], (Goal(8.0),)),
        "the oldest tenth": (range(size - size // 10 + 1, size + 1), (Goal(60.0),)),
        "a tenth at random": (Random(1).sample(range(1, size + 1), size // 10), ()),
    }
    for name, (numbers, goals) in ways.items():
        copy = run.fresh("journal.db")
        shutil.copyfile(whole, copy)
        mib = asyncio.run(_deleted(copy, [name_of(number) for number in numbers])) / 2**20
        yield Figure(f"to delete {name} of {size:,}, written", "MiB", [mib], goals=goals)


async def _deleted(path: Path, session_ids: Sequence[str]) -> int:
    """The bytes that are written until nothing is left of these sessions."""
    journal = open_journal(path)
    await journal.session(session_ids[0])
    before = _written()
    await journal.delete(*session_ids)
    await journal.aclose()
    return _written() - before


def _written() -> int:
    counts = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(counts[counts.index("wchar:") + 1])
