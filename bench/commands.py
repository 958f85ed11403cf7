"""Each command that looks at a journal as a whole, with a thousand sessions and a hundred times as
many: how long it takes, how much memory, and what it writes.

The commands that go through all sessions may take as long as there are many; no other may, and none
may take memory by that.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.connection import connect
from acphold.journal.stores import open_journal
from bench.big_journal import name_of
from bench.conversation import keep
from bench.run import Run
from bench.table import Figure, Goal

FEW, MANY = 1_000, 100_000
QUICK_FEW, QUICK_MANY = 500, 5_000

MOST_MIB = 100.0
"""That any of them may take."""

WRITTEN_A_BYTE = 4.0
"""What making the whole index may write, for each byte of the journal."""

LONG_BYTES, QUICK_LONG_BYTES = 15 << 20, 4 << 20

OF_OUTPUT: dict[str, tuple[Goal, ...]] = {
    "show output": (Goal(1.3, ratio=True),),
    "diff change": (Goal(4, ratio=True),),
    "export output --format jsonl": (Goal(2, ratio=True),),
    "export output": (Goal(3, ratio=True),),
    "export output --format html": (Goal(4, ratio=True),),
}
"""What is called of a session with long output, and of one with a long change, and the goals for
its seconds of CPU. Only what prints a page of it need not grow at all."""

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
    """Time and memory of each, beside those of few sessions; the index anew; room given back; and
    of those that show a session with long output."""
    yield from of_output(run)
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
    seconds, mib, written, _ = _call(wait, many)
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


def of_output(run: Run) -> Iterator[Figure]:
    """CPU and memory of commands with long output beside short, settled."""
    sizes = 1024, run.size(LONG_BYTES, QUICK_LONG_BYTES)
    journals = [run.fresh("journal.db") for _ in sizes]
    for path, size in zip(journals, sizes, strict=True):
        subprocess.run([sys.executable, "-m", "bench.commands", path, str(size)], check=True)
    for command, goals in OF_OUTPUT.items():
        calls = [[_call(command, path) for path in journals] for _ in range(run.rounds)]
        (times, long_times), (memory, long_memory) = (
            [[pair[n][place] for pair in calls] for n in (0, 1)] for place in (3, 1)
        )
        name, beside = f"{command}, {sizes[1] >> 20} MiB", f"with {sizes[0]:,} bytes"
        yield Figure(name, "s", long_times, beside, times, goals)
        yield Figure("  memory", "MiB", long_memory, beside, memory)


async def _fill(path: Path, size: int) -> None:
    line = "a line of output, number {}\n"
    text = "".join(map(line.format, range(size // len(line) + 1)))
    output = {"type": "content", "content": {"type": "text", "text": text}}
    change = {"type": "diff", "path": "/tmp/none", "oldText": text, "newText": f"{text}more\n"}
    journal = open_journal(path)
    for name, content in (("output", output), ("change", change)):
        call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "make", "kind": "execute"}
        done = json.dumps({**call, "status": "completed", "content": [content]}).encode()
        await keep(journal, name, [[done]], at_once=1, settle=True)
    await journal.aclose()


def _compared(
    command: str, goals: tuple[Goal, ...], few: Path, many: Path, sizes: tuple[int, int]
) -> Iterator[Figure]:
    less, more = _call(command, few), _call(command, many)
    beside = f"with {sizes[0]:,}"
    name = command.format(id="ID", copy="FILE")
    yield Figure(f"{name}, {sizes[1]:,} sessions", "s", [more[0]], beside, [less[0]], goals)
    yield Figure("  memory", "MiB", [more[1]], beside, [less[1]], (Goal(MOST_MIB),))


def _call(command: str, journal: Path) -> tuple[float, float, float, float]:
    """Seconds, MiB, bytes written, and seconds of CPU by one call."""
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
    cpu = used.ru_utime + used.ru_stime
    return seconds, used.ru_maxrss / 1024, used.ru_oublock * 512, cpu


if __name__ == "__main__":  # in a process of its own, as above
    asyncio.run(_fill(Path(sys.argv[1]), int(sys.argv[2])))
