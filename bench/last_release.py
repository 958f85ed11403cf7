"""A `wrap` beside that of an earlier commit, which is taken from the history of this clone.

COMMIT names it: the last release, or the last state whose figures were good. Change it with a
release. Both run on the packages that are installed here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from compileall import compile_dir
from functools import partial
from pathlib import Path
from typing import Final

from bench.latency import one_way, round_trip
from bench.memory import idle_memory, wait_until_settled
from bench.programs import Command, scripted_agent
from bench.run import Run
from bench.table import Figure, Goal
from bench.throughput import rate
from bench.wire import Wire, session_with

COMMIT: Final = "2bc93418dc20cd4077f30902fb65a13dc52ab38f"
HERE: Final = Path(__file__).resolve().parent.parent

START: Final = "import sys; sys.path.insert(0, {!r}); from acphold.__main__ import main; main()"

SLOWER: Final = 1.05
"""Ours may be so much slower, or larger: a quiet machine gives figures that differ by that."""


def lacks() -> str | None:
    """Why this cannot be measured here, and what to do; None if it can."""
    if _git("cat-file", "-e", f"{COMMIT}^{{commit}}").returncode:
        return f"commit {COMMIT[:8]} is not in this clone; `git fetch --unshallow` brings it"
    return None


def figures(run: Run) -> Iterator[Figure]:
    """Its start, its memory, and what it takes for an update, a prompt and many updates."""
    then = run.folder / "last-release"
    then.mkdir()
    packed = _git("archive", COMMIT, "src", check=True).stdout
    subprocess.run(["tar", "-x", "-C", then], input=packed, check=True)
    sources = {"now": HERE / "src", "then": then / "src"}
    for source in sources.values():
        compile_dir(source / "acphold", quiet=1)

    def figure(
        name: str, unit: str, measure: Callable[[Path], float], *, more: bool = False
    ) -> Figure:
        ways = {name: partial(measure, source) for name, source in sources.items()}
        for way in ways.values():
            way()  # the caches of the file system, and what is remembered of a start
        taken = run.in_turns(ways)
        bound = Goal(1 / SLOWER if more else SLOWER, ratio=True, at_least=more)
        beside = f"at {COMMIT[:8]}"
        return Figure(
            name, unit, taken["now"], beside, taken["then"], (bound,), higher_is_better=more
        )

    def cold(source: Path) -> float:
        with Wire(_wrap(source, run.fresh("journal.db"))) as wire:
            return wire.initialize() * 1e3

    def memory(updates: int, source: Path) -> float:
        journal = run.fresh("journal.db")
        with session_with(_wrap(source, journal)) as wire:
            wait_until_settled(journal, wire)
            if updates:
                wire.prompt(f"flood {updates}")
            return idle_memory(wire)

    many, few = run.size(100_000, 20_000), run.size(400, 100)
    yield figure("wrap: from its start to the answer of initialize", "ms", cold)
    yield figure("wrap: resident memory when idle", "MiB", partial(memory, 0))
    yield figure(f"wrap: the same behind {many:,} updates", "MiB", partial(memory, many))
    for name, unit, measure, more in (
        ("an update, one way", "us", lambda wire: one_way(wire, few), False),
        ("a prompt and its answer", "us", lambda wire: round_trip(wire, few), False),
        ("updates in large writes", "updates/s", lambda wire: rate(wire, "flood", many), True),
    ):

        def in_session(measure: Callable[[Wire], float], source: Path) -> float:
            with session_with(_wrap(source, run.fresh("journal.db"))) as wire:
                return measure(wire)

        yield figure(f"wrap: {name}", unit, partial(in_session, measure), more=more)


def _wrap(source: Path, journal: Path) -> Command:
    start = [sys.executable, "-c", START.format(str(source))]
    return [*start, "wrap", "--journal", str(journal), "--", *scripted_agent()]


def _git(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, check=check)
