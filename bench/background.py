"""What a daemon costs: the front before it, and a client that attaches over its socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from time import perf_counter

from bench.memory import resident
from bench.programs import Command, scripted_agent, wrap
from bench.run import Run, added
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire, session_with

UPDATES = 10_000


def figures(run: Run) -> Iterator[Figure]:
    """The start and the memory of a front; a client that attaches."""
    front = wrap(scripted_agent(), run.fresh("journal.db"))
    with session_with(front) as keeper:  # from here on the daemon runs
        yield _cold_start(run, front)
        yield _memory(run, front)
        yield from _attached(run, keeper, front)


def _cold_start(run: Run, front: Command) -> Figure:
    taken = run.in_turns(
        {"front": partial(_milliseconds, front), "python": partial(_milliseconds, _BARE)}
    )
    return Figure(
        "cold start added by wrap before a daemon",
        "ms",
        added(taken["front"], taken["python"]),
        "bare Python, to its first line",
        taken["python"],
        (Goal(20.0),),
    )


_BARE = [
    sys.executable,
    "-c",
    "import os\nos.read(0, 65536)\n"
    'os.write(1, b\'{"jsonrpc":"2.0","id":1,"result":{}}\\n\')\nos.read(0, 1)',
]
"""What any Python program costs that answers one line."""


def _milliseconds(command: Command) -> float:
    with Wire(command) as wire:
        return wire.initialize() * 1e3


def _memory(run: Run, front: Command) -> Figure:
    taken = []
    for _ in range(run.rounds):
        with Wire(front) as wire:
            wire.initialize()
            taken.append(resident(wire.process.pid))
    return Figure("resident memory of such a wrap", "MiB", taken, goals=(Goal(10.0),))


def _attached(run: Run, keeper: Wire, front: Command) -> Iterator[Figure]:
    """Loading a session that another editor has open, with a long history."""
    keeper.new_session()
    keeper.prompt(f"flood {UPDATES}")
    first: list[float] = []
    whole: list[float] = []
    for _ in range(run.rounds):
        with Wire(front) as wire:
            wire.initialize()
            began = perf_counter()
            wire.ask("session/load", _opened(keeper.session_id))
            lines = wire.until_answer()
            next(lines)
            first.append((perf_counter() - began) * 1e3)
            for _ in lines:
                pass
            whole.append((perf_counter() - began) * 1e3)
    yield Figure(f"attaching to {UPDATES:,} updates: to the first line", "ms", first)
    yield Figure(f"attaching to {UPDATES:,} updates: to live", "ms", whole)


def _opened(session_id: str) -> dict[str, object]:
    return {"sessionId": session_id, "cwd": FOLDER, "mcpServers": []}
