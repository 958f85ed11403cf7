"""Many editors at once: a daemon with an agent for each, beside a hub for each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from threading import Thread
from time import clock_gettime, perf_counter, sleep

from bench.memory import resident, wait_until_settled
from bench.programs import Command, lone_hub, scripted_agent, wrap
from bench.run import Run, added, own_sockets, stop_all
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

EDITORS, AT_ONCE = 8, 12
PROMPTS = 200

FLOOD = 100_000
"""Updates of another session's turn."""

LONG = 15_000_000
"""Letters of another session's prompt."""

IDLE_SECONDS = 30.0


def figures(run: Run) -> Iterator[Figure]:
    """Their starts, their memory, their prompts, and a daemon at rest."""
    with own_sockets():
        journal = run.fresh("journal.db")
        front = wrap(scripted_agent(), journal)
        yield _starts_at_once(run, front)
        with session_with(front) as first:
            yield _start(run, front)
            yield from _at_rest(run, journal, first)
            yield from _beside(run, front, first)
        yield from _eight(run, front, lone_hub(scripted_agent(), journal))


def _starts_at_once(run: Run, front: Command) -> Figure:
    taken = []
    for _ in range(run.rounds):
        stop_all()
        with ExitStack() as stack:
            began = perf_counter()
            wires = [stack.enter_context(Wire(front)) for _ in range(AT_ONCE)]
            for wire in wires:
                wire.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            for wire in wires:
                for _ in wire.until_answer():
                    pass
            taken.append(perf_counter() - began)
            assert len({it["pid"] for it in _processes()}) == 1, "there is one daemon"
    return Figure(f"{AT_ONCE} fronts at once, no daemon yet", "s", taken, goals=(Goal(2.0),))


def _start(run: Run, front: Command) -> Figure:
    taken = run.in_turns(
        {"front": lambda: _first_answer(front), "agent": lambda: _first_answer(scripted_agent())}
    )
    name = "first answer of a front, daemon there, above that of its agent"
    return Figure(name, "ms", added(taken["front"], taken["agent"]), goals=(Goal(25.0),))


def _first_answer(command: Command) -> float:
    with Wire(command) as wire:
        return wire.initialize() * 1e3


def _at_rest(run: Run, journal: Path, wire: Wire) -> Iterator[Figure]:
    wait_until_settled(journal, wire)
    daemon = daemon_pid()
    yield Figure("daemon with one session: memory", "MiB", [resident(daemon)], goals=(Goal(34.0),))
    sleep(run.size(45, 2))  # the agents of the fronts above end half a minute after these
    before = _processor_seconds(daemon)
    seconds = run.size(int(IDLE_SECONDS), 5)
    sleep(seconds)
    share = (_processor_seconds(daemon) - before) / seconds * 100
    yield Figure("daemon with one session: share of a core", "%", [share], goals=(Goal(0.05),))


def _beside(run: Run, front: Command, wire: Wire) -> Iterator[Figure]:
    """Prompts of one editor while another one's session is busy."""
    with session_with(front) as other:
        for name, words, goal in (
            ("a flood of 100,000 updates", f"flood {run.size(FLOOD, 10_000)}", 20.0),
            ("a prompt of 15 MB", f"flood 0 {'x' * LONG}", 60.0),
        ):
            waits: list[float] = []
            for _ in range(run.rounds):
                busy = Thread(target=other.prompt, args=(words,))
                busy.start()
                while busy.is_alive():
                    began = perf_counter()
                    wire.prompt("flood 0")
                    waits.append((perf_counter() - began) * 1e3)
                busy.join()
            worst = [quantiles(waits, n=20)[-1]]
            yield Figure(f"prompt beside {name}, 95th percentile", "ms", worst, goals=(Goal(goal),))


def _eight(run: Run, front: Command, alone: Command) -> Iterator[Figure]:
    memory: dict[str, list[float]] = {"daemon": [], "alone": []}
    prompt: dict[str, list[float]] = {"daemon": [], "alone": []}
    for _ in range(run.rounds):
        for name, command in (("daemon", front), ("alone", alone)):
            stop_all()
            with ExitStack() as stack:
                wires = [stack.enter_context(session_with(command)) for _ in range(EDITORS)]
                sleep(2.0)  # their turns have come to rest
                pids = [wire.process.pid for wire in wires]
                pids += [daemon_pid()] if name == "daemon" else []
                memory[name].append(sum(map(_share_of_memory, pids)))
                before = sum(map(_processor_seconds, pids))
                for wire in wires * PROMPTS:
                    wire.prompt("flood 5")
                used = sum(map(_processor_seconds, pids)) - before
                prompt[name].append(used * 1e3 / (PROMPTS * EDITORS))
    what, goal = f"{EDITORS} editors, an agent each", (Goal(60.0),)
    beside = "a hub each"
    yield Figure(
        f"{what}: memory (Pss)", "MiB", memory["daemon"], beside, memory["alone"], (Goal(60.0),)
    )
    goal = (Goal(0.7, ratio=True),)
    yield Figure(f"{what}: CPU a prompt", "ms", prompt["daemon"], beside, prompt["alone"], goal)


def _share_of_memory(pid: int) -> float:
    """MiB of a process; pages that several have count by their share. Source: proc(5), Pss."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(kib) / 1024


def _processor_seconds(pid: int) -> float:
    """The processor time of a process, by its clock; source: clock_getcpuclockid(3), in Linux."""
    return clock_gettime((~pid << 3) | 2)


def _processes() -> list[dict[str, int]]:
    told = subprocess.run(
        [wrap([], "")[0], "agent", "status", "--json"], capture_output=True, check=True, text=True
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


def daemon_pid() -> int:
    """Return the process of the daemon that has a front."""
    [process] = [it for it in _processes() if it["fronts"]]
    return process["pid"]
