"""Each command that looks at a journal as a whole, with a thousand sessions and a hundred times as
many: how long it takes, how much memory, and what it writes.

The commands that go through all sessions may take as long as there are many; no other may, and none
may take memory by that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.connection import connect
from bench.big_journal import name_of
from bench.run import Run
from bench.table import Figure, Goal

FEW, MANY = 1_000, 100_000
QUICK_FEW, QUICK_MANY = 500, 5_000

MOST_MIB = 100.0
"""That any of them may take."""

WRITTEN_A_BYTE = 4.0
"""What making the whole index may write, for each byte of the journal."""

COMMANDS: dict[str, tuple[Goal, ...]] = {
    "list": (Goal(3),),
    "list --json": (Goal(3),),
    "list --limit 30": (Goal(2, ratio=True),),
    "show {id}": (Goal(2, ratio=True),),
    "export {id}": (Goal(2, ratio=True),),
    "usage": (Goal(2),),
    "usage --by day": (Goal(3),),
    "usage --by session": (),
    "search zzz": (Goal(2, ratio=True),),
    "session prune --keep 10 --dry-run": (),
    "doctor": (),
    "journal backup {copy}": (),
}
"""What is called, and the goals for its seconds."""


def figures(run: Run) -> Iterator[Figure]:
    """Time and memory of each, beside those of few sessions; the index anew; room given back."""
    sizes = run.size(FEW, QUICK_FEW), run.size(MANY, QUICK_MANY)
    few, many = (run.fresh("journal.db") for _ in sizes)
    for path, size in zip((few, many), sizes, strict=True):
        # In a process of its own: what is started here counts the memory that we had at a time.
        subprocess.run([sys.executable, "-m", "bench.big_journal", path, str(size)], check=True)
    for command, goals in COMMANDS.items():
        yield from _compared(command, goals, few, many, sizes)
    for path in (few, many):
        with_index = connect(str(path), 5.0)
        search_index.forget(with_index, search_index.volumes(with_index))
        with_index.close()
    nothing = many.with_name("empty")
    nothing.mkdir(exist_ok=True)
    wait = f"import --wait --from {nothing}"
    seconds, mib, written = _call(wait, many)
    _call(wait, few)
    what = f"import --wait, the index of {sizes[1]:,} sessions"
    yield Figure(what, "s", [seconds])
    yield Figure("  memory", "MiB", [mib], goals=(Goal(MOST_MIB),))
    share = written / many.stat().st_size
    yield Figure("  written, for a byte", "bytes", [share], goals=(Goal(WRITTEN_A_BYTE),))
    half = f"session prune --keep {sizes[1] // 2} --yes"
    yield from _compared(half, (), few, many, sizes)
    before = many.stat().st_size
    yield from _compared("journal compact", (), few, many, sizes)
    left = many.stat().st_size / before
    yield Figure("  what is left of the file, of half", "of it", [left], goals=(Goal(0.6),))


def _compared(
    command: str, goals: tuple[Goal, ...], few: Path, many: Path, sizes: tuple[int, int]
) -> Iterator[Figure]:
    less, more = _call(command, few), _call(command, many)
    beside = f"with {sizes[0]:,}"
    name = command.format(id="ID", copy="FILE")
    yield Figure(f"{name}, {sizes[1]:,} sessions", "s", [more[0]], beside, [less[0]], goals)
    yield Figure("  memory", "MiB", [more[1]], beside, [less[1]], (Goal(MOST_MIB),))


def _call(command: str, journal: Path) -> tuple[float, float, float]:
    """Seconds, MiB, and bytes written by one call."""
    copy = journal.with_name("copy.db")
    words = command.format(id=name_of(7), copy=copy).split()
    began = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "acphold", *words, "--journal", str(journal)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = perf_counter() - began
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command} ended with {process.returncode}")
    copy.unlink(missing_ok=True)
    return seconds, used.ru_maxrss / 1024, used.ru_oublock * 512
