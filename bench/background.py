"""What a process in the background costs: the pipe in front of it, and the way over its socket."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

from bench.latency import round_trip
from bench.memory import idle_memory
from bench.programs import Command, scripted_agent, wrap
from bench.run import Run, added
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire, session_with

UPDATES = 10_000


def figures(run: Run) -> Iterator[Figure]:
    """The start and the memory of the pipe, the way of a prompt, a client that attaches."""
    with own_sockets():
        journal = run.fresh("journal.db")
        direct = wrap(scripted_agent(), journal)
        piped = [*direct[:2], "--background", *direct[2:]]
        try:
            with session_with(piped) as keeper:  # from here on its process runs
                yield _cold_start(run, piped)
                yield _memory(run, piped)
                yield from _round_trips(run, keeper, direct)
                yield from _attached(run, keeper, direct)
        finally:
            stop_all()


def stop_all() -> None:
    """End what runs in the background."""
    command = [wrap([], "")[0], "agent", "stop", "--all"]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def own_sockets() -> Iterator[None]:
    """Sockets and logs of their own, with names that are short enough."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="acphold-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_STATE_HOME"], os.environ["XDG_RUNTIME_DIR"]
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before


def _cold_start(run: Run, piped: Command) -> Figure:
    taken = run.in_turns(
        {"pipe": partial(_milliseconds, piped), "python": partial(_milliseconds, _BARE)}
    )
    return Figure(
        "cold start added by wrap before a process in the background",
        "ms",
        added(taken["pipe"], taken["python"]),
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


def _memory(run: Run, piped: Command) -> Figure:
    taken = []
    for _ in range(run.rounds):
        with Wire(piped) as wire:
            wire.initialize()
            taken.append(idle_memory(wire))
    return Figure("resident memory of such a wrap", "MiB", taken, goals=(Goal(10.0),))


def _round_trips(run: Run, keeper: Wire, direct: Command) -> Iterator[Figure]:
    """A prompt to the same agent: directly, through the pipe, and by another wrap's line."""
    prompts = run.size(400, 100)
    with session_with(direct) as wrapped, Wire(direct) as other:
        other.initialize()
        other.call("session/load", _opened(keeper.session_id))
        other.session_id = keeper.session_id
        wires = {"direct": wrapped, "pipe": keeper, "line": other}
        taken = run.in_turns(
            {name: partial(round_trip, wire, prompts) for name, wire in wires.items()}
        )
    for name, what in (("pipe", "in the background"), ("line", "from another process")):
        yield Figure(
            f"prompt round trip {what}",
            "us",
            taken[name],
            "wrap directly",
            taken["direct"],
            (Goal(1.5, ratio=True),),
        )


def _attached(run: Run, keeper: Wire, direct: Command) -> Iterator[Figure]:
    """Loading a session that is live elsewhere, with a long history."""
    keeper.new_session()
    keeper.prompt(f"flood {UPDATES}")
    first: list[float] = []
    whole: list[float] = []
    for _ in range(run.rounds):
        with Wire(direct) as wire:
            wire.initialize()
            began = perf_counter()
            wire.ask("session/load", _opened(keeper.session_id))
            lines = wire.until_answer()
            next(lines)
            first.append((perf_counter() - began) * 1e3)
            for _ in lines:
                pass
            whole.append((perf_counter() - began) * 1e3)
    yield Figure(f"attaching to {UPDATES:,} updates elsewhere: to the first line", "ms", first)
    yield Figure(f"attaching to {UPDATES:,} updates elsewhere: to live", "ms", whole)


def _opened(session_id: str) -> dict[str, object]:
    return {"sessionId": session_id, "cwd": FOLDER, "mcpServers": []}
