"""An agent on acphold beside agents on the official SDKs, as a client meets them.

Ours journals every prompt and every update before it sends anything; theirs keep nothing. There is
no way to run ours without a journal, so there is no figure for that.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from compileall import compile_dir
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import acp_wire
import acphold
from bench.latency import round_trip
from bench.memory import idle_memory, wait_until_settled
from bench.programs import (
    Command,
    bare_agent,
    library,
    python_sdk,
    smallest_library,
    typescript_sdk,
)
from bench.run import Run
from bench.table import Figure, Goal
from bench.throughput import rate
from bench.wire import Wire, session_with

OURS, PYTHON, TYPESCRIPT = "acphold", "Python SDK", "TypeScript SDK"
BARE = "bare agent, two commits"
PAIR_TURNS = 3
LINES = (300, 1200, 4800)


def figures(run: Run) -> Iterator[Figure]:
    """Start, throughput, round trip, memory."""
    agents = {
        OURS: library(),
        PYTHON: python_sdk("agent"),
        TYPESCRIPT: typescript_sdk(run, "agent"),
    }
    # As an installed package is; an editable one in a place where Python may not write is not.
    for package in (acphold, acp_wire):
        compile_dir(package.__path__[0], quiet=1)
    smallest = agents | {OURS: smallest_library(run)}
    yield from _starts(run, smallest)
    yield from _rates(run, agents)
    yield from _round_trips(run, agents)
    yield from _processor(run, agents)
    yield from _memory(run, smallest)
    yield from _content(run)


def _starts(run: Run, agents: dict[str, Command]) -> Iterator[Figure]:
    ways: dict[str, Callable[[], float]] = {
        name: partial(_start, agent) for name, agent in agents.items()
    }
    for measure in ways.values():
        measure()  # the caches of the file system, and the journal
    taken = run.in_turns(ways)
    for peer, bound in ((PYTHON, 0.2), (TYPESCRIPT, 0.6)):
        name = "smallest library agent: cold start to the answer to initialize, CPU"
        yield Figure(name, "ms", taken[OURS], peer, taken[peer], (Goal(bound, ratio=True),))


def _start(agent: Command) -> float:
    with Wire(agent) as wire:
        wire.initialize()
        return _cpu(wire)


def _rates(run: Run, agents: dict[str, Command]) -> Iterator[Figure]:
    """Ours as fast as a reader of bytes takes it; so theirs, and theirs with their own client."""
    many, few = run.size(100_000, 30_000), run.size(10_000, 4_000)
    with ExitStack() as stack:
        wires = {name: stack.enter_context(session_with(agent)) for name, agent in agents.items()}
        ways: dict[str, Callable[[], float]] = {
            name: partial(rate, wire, "flood", many if name == OURS else few)
            for name, wire in wires.items()
        }
        pair = f"{PYTHON} pair"
        ways[pair] = partial(_pair_rate, agents[PYTHON], few)
        taken = run.in_turns(ways)
    for peer, goals in (
        (pair, (Goal(4, ratio=True, at_least=True),)),
        (f"{PYTHON}", ()),
        (f"{TYPESCRIPT}", ()),
    ):
        yield Figure(
            "library agent: throughput to a byte reader, journalled",
            "updates/s",
            taken[OURS],
            peer,
            taken[peer],
            goals,
            higher_is_better=True,
        )


def _pair_rate(agent: Command, number: int) -> float:
    command = [*python_sdk("client"), "rate", str(number), str(PAIR_TURNS), *agent]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rates: list[float] = json.loads(done.stdout)
    return max(rates)


def _round_trips(run: Run, agents: dict[str, Command]) -> Iterator[Figure]:
    prompts = run.size(800, 200)
    with ExitStack() as stack:
        wires = {name: stack.enter_context(session_with(agent)) for name, agent in agents.items()}
        for updates, what in ((0, "no updates"), (1, "one update")):
            taken = run.in_turns(
                {
                    name: partial(round_trip, wire, prompts, updates=updates)
                    for name, wire in wires.items()
                }
            )
            for peer, goals in ((PYTHON, (Goal(0.6, ratio=True),)), (TYPESCRIPT, ())):
                name = f"library agent: prompt round trip, {what}"
                yield Figure(name, "us", taken[OURS], peer, taken[peer], goals)


def _processor(run: Run, agents: dict[str, Command]) -> Iterator[Figure]:
    """How long a prompt keeps the processor busy, which other programs change less than its time.

    The SDKs keep nothing. What does, and is written in Python, is not quicker than the bare agent.
    """
    prompts = run.size(400, 100)
    agents = agents | {BARE: bare_agent(run.fresh("bare.db"))}
    with ExitStack() as stack:
        wires = {name: stack.enter_context(session_with(agent)) for name, agent in agents.items()}
        for updates, bounds in ((0, (None, None)), (10, (0.6, 0.8))):
            ways: dict[str, Callable[[], float]] = {
                name: partial(_busy, wire, prompts, updates) for name, wire in wires.items()
            }
            taken = run.in_turns(ways)
            name = f"library agent: a prompt with {updates} updates, CPU"
            for peer, bound in zip((PYTHON, TYPESCRIPT), bounds, strict=True):
                goals = () if bound is None else (Goal(bound, ratio=True),)
                yield Figure(name, "us", taken[OURS], peer, taken[peer], goals)
            yield Figure(name, "us", taken[OURS], BARE, taken[BARE], ())
            yield Figure(
                f"the same of the {BARE}", "us", taken[BARE], TYPESCRIPT, taken[TYPESCRIPT], ()
            )


def _busy(wire: Wire, prompts: int, updates: int) -> float:
    before = _cpu(wire)
    for _ in range(prompts):
        wire.prompt(f"flood {updates}")
    return (_cpu(wire) - before) * 1e3 / prompts


def _content(run: Run) -> Iterator[Figure]:
    """A tool call whose content grows in a loop; each update of the protocol has all of it."""
    cpu: dict[int, list[float]] = {lines: [] for lines in LINES}
    size: dict[int, list[float]] = {lines: [] for lines in LINES}
    for _ in range(run.rounds):
        for lines in LINES:
            with session_with(library(), journal=run.fresh("journal.db")) as wire:
                before = _cpu(wire)
                wire.write(wire.prompt_line(f"show {lines}"))
                size[lines].append(sum(map(len, wire.until_answer())) / 1e3)
                cpu[lines].append(_cpu(wire) - before)
    for few, many in pairwise(LINES):
        goal, peer = (Goal(1.25 * many / few, ratio=True),), f"{few:,} lines"
        name = f"library agent: {many:,} lines of a tool's content in a loop"
        yield Figure(f"{name}, CPU", "ms", cpu[many], peer, cpu[few], goal)
        yield Figure(f"{name}, sent", "kB", size[many], peer, size[few], goal)


def _cpu(wire: Wire) -> float:
    """Milliseconds that the threads of the program have run; the system's ticks are too coarse."""
    tasks = Path(f"/proc/{wire.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def _memory(run: Run, agents: dict[str, Command]) -> Iterator[Figure]:
    taken: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(run.rounds):
        journal = run.fresh("journal.db")
        with ExitStack() as stack:
            wires = {
                name: stack.enter_context(session_with(agent, journal=journal))
                for name, agent in agents.items()
            }
            wait_until_settled(journal, wires[OURS])
            for name, wire in wires.items():
                taken[name].append(idle_memory(wire))
    for peer, goals in ((PYTHON, (Goal(0.7, ratio=True), Goal(26.0))), (TYPESCRIPT, ())):
        name = "smallest library agent: resident memory when idle"
        yield Figure(name, "MiB", taken[OURS], peer, taken[peer], goals)
