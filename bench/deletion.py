"""What deletions cost until nothing is left on the disk, in the journal of `bench.big_journal`: the
bytes that they write, and how long a live turn waits beside one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal
from bench.big_journal import fill, name_of
from bench.run import Run
from bench.table import Figure, Goal


def figures(run: Run) -> Iterator[Figure]:
    """Bytes for one session, the oldest tenth, and a tenth at random; and for half beside a turn,
    the longest wait of its appends, bytes, and time. All are swept at once."""
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
        mib = asyncio.run(deleted(copy, [name_of(number) for number in numbers])) / 2**20
        yield Figure(f"to delete {name} of {size:,}, written", "MiB", [mib], goals=goals)
    waits, seconds, written = [], [], []
    for _ in range(run.rounds):
        shutil.copyfile(whole, copy := run.fresh("journal.db"))
        os.sync()  # or the first flush of the journal takes as long as that of the copy
        words = [sys.executable, "-c", DELETES, os.fspath(copy), str(size)]
        began = perf_counter()
        with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
            waits.append(asyncio.run(_longest_wait(copy, other)) * 1e3)
            seconds.append(perf_counter() - began)
            written.append(int(other.communicate()[0]) / 2**20)
    name = f"half of {size:,} deleted beside a turn"
    yield Figure(f"{name}, longest wait", "ms", waits, goals=(Goal(50.0),))
    yield Figure(f"{name}, written", "MiB", written)
    yield Figure(name, "s", seconds)


async def deleted(path: Path, session_ids: Sequence[str]) -> int:
    """The bytes that are written until nothing is left of these sessions."""
    journal = open_journal(path)
    await journal.session(session_ids[0])
    before = _written()
    await journal.delete(*session_ids)
    assert journal.file is not None
    while await journal.file.unswept():  # the turn's process may sweep at the same time
        await journal.file.sweep()
    written = _written() - before
    await journal.aclose()
    return written


DELETES: Final = """
import asyncio, sys
from pathlib import Path
from bench.big_journal import name_of
from bench.deletion import deleted
size = int(sys.argv[2])
names = [name_of(number) for number in range(size // 2 + 1, size + 1)]
print(asyncio.run(deleted(Path(sys.argv[1]), names)))
"""
"""Deletes the older half of a journal, and prints the bytes that it has written."""


async def _longest_wait(path: Path, other: subprocess.Popen[bytes]) -> float:
    """The longest time that an append of a turn takes while another process runs."""
    journal = open_journal(path)
    lease = await journal.create(NewSession("live", "a", "/w"))
    longest = 0.0
    while other.poll() is None:
        began = perf_counter()
        await journal.append(lease, [("update", [b"{}"])])
        longest = max(longest, perf_counter() - began)
        await asyncio.sleep(0.004)
    await journal.aclose()
    return longest


def _written() -> int:
    counts = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(counts[counts.index("wchar:") + 1])
