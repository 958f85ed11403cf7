"""What an idle `wrap` keeps in memory, after a session and a turn that has come to rest."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil

from bench.programs import python_sdk, scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

MIB = 1 << 20
SETTLE_SECONDS = 15.0


def figures(run: Run) -> Iterator[Figure]:
    """The process alone, and with the guardian that watches over its agent."""
    alone, guarded, agents = [], [], []
    for _ in range(run.rounds):
        journal = run.fresh("journal.db")
        with (
            session_with(wrap(scripted_agent(), journal)) as wrapped,
            session_with(python_sdk("agent")) as agent,
        ):
            wait_until_settled(journal, wrapped)
            ours = psutil.Process(wrapped.process.pid)
            guardian = [child for child in ours.children() if "sh" in child.name()]
            alone.append(resident(ours.pid))
            guarded.append(resident(ours.pid) + sum(resident(it.pid) for it in guardian))
            agents.append(resident(agent.process.pid))
    peer, goal = "agent on the Python SDK", (Goal(0.7, ratio=True),)
    yield Figure("resident memory of an idle wrap", "MiB", alone, peer, agents, goal)
    yield Figure("the same with its guardian", "MiB", guarded, peer, agents, goal)


def idle_memory(wire: Wire) -> float:
    """MiB that the program at the other end keeps."""
    return resident(wire.process.pid)


def resident(pid: int) -> float:
    """MiB that a process keeps."""
    return float(psutil.Process(pid).memory_info().rss / MIB)


def wait_until_settled(path: Path, wire: Wire) -> None:
    """Until the turn is compacted, a second after its end: that needs memory too."""
    deadline = time.monotonic() + SETTLE_SECONDS
    # Read as it is: to open the journal would bring that of an earlier release up to date.
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
        query = "SELECT message_count FROM sessions WHERE session_id = ?"
        while not journal.execute(query, [wire.session_id]).fetchone()[0]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the turn was not settled within {SETTLE_SECONDS:g} s")
            time.sleep(0.05)
