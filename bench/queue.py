"""What the queue of prompts costs: nothing to a prompt without it, and how long one is put in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.programs import scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

PROMPTS = 40
"""Few enough that SQLite does not begin its log anew meanwhile."""

HEAD, FRAME_HEAD = 32, 24
"""Bytes of SQLite's log before its frames, and of a frame before its page (sqlite.org/fileformat2,
"The Write-Ahead Log")."""


def figures(run: Run) -> Iterator[Figure]:
    """Commits of a prompt, with and without the queue; how long a prompt is put into it."""
    journal = run.fresh("journal.db")
    with session_with(wrap(scripted_agent(), journal)) as wire:
        samples = [_commits(journal, partial(_prompts, wire)) for _ in range(run.rounds)]
        goal = Goal(2)
        yield Figure("commits of a prompt without a queue", "each", samples, goals=(goal,))
        _hold_in_new_session(wire)
        samples = [_commits(journal, partial(_puts, wire)) for _ in range(run.rounds)]
        yield Figure(
            "commits of putting a prompt into the queue", "each", samples, goals=(Goal(1),)
        )
        number = run.size(200, 50)
        taken = []
        for _ in range(run.rounds):
            _hold_in_new_session(wire)
            taken.append(_puts(wire, number) / number * 1e3)
        yield Figure("a prompt put into the queue over ACP", "ms", taken)
        words = ["queue", wire.session_id, "add", "And the tests."]
        ways = {
            "ours": partial(_command, journal, *words),
            "list": partial(_command, journal, "list"),
        }
        both = run.in_turns(ways)
        yield Figure("`acphold queue ID add`", "s", both["ours"], "`acphold list`", both["list"])


def _commits(journal: Path, work: Callable[[int], object]) -> float:
    before = _log(journal)
    work(PROMPTS)
    salt, commits = _log(journal)
    if salt != before[0]:
        raise RuntimeError("the log of the journal was begun anew meanwhile")
    return (commits - before[1]) / PROMPTS


def _log(journal: Path) -> tuple[bytes, int]:
    """The salt of SQLite's log, and how many commits are in it."""
    log = journal.with_name(f"{journal.name}-wal").read_bytes()
    size, salt = int.from_bytes(log[8:12]), log[16:24]
    frames = range(HEAD, len(log) - FRAME_HEAD + 1, FRAME_HEAD + size)
    heads = (log[place : place + FRAME_HEAD] for place in frames)
    return salt, sum(head[8:16] == salt and head[4:8] != bytes(4) for head in heads)


def _prompts(wire: Wire, number: int) -> None:
    for _ in range(number):
        wire.prompt("flood 0")


def _change(wire: Wire, **change: object) -> dict[str, object]:
    return {"sessionId": wire.session_id, "change": change}


def _hold_in_new_session(wire: Wire) -> None:
    wire.new_session()
    wire.call("_acphold/queue", _change(wire, do="hold"))


def _puts(wire: Wire, number: int) -> float:
    """Put so many prompts into the queue; the seconds that takes."""
    prompt = [{"type": "text", "text": "And the tests."}]
    began = perf_counter()
    for _ in range(number):
        wire.call("_acphold/queue", _change(wire, do="add", prompt=prompt))
    return perf_counter() - began


def _command(journal: Path, *words: str) -> float:
    began = perf_counter()
    command = [sys.executable, "-m", "acphold", *words, "--journal", os.fspath(journal)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began
