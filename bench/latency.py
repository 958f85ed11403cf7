"""What a proxy adds to the way of one update, and to the way of a prompt and its answer.

The last line of each says how far we are from the floor: a relay that reads nothing of what it
hands on, and commits it with nothing around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from time import clock_gettime_ns, monotonic_ns, perf_counter

from bench.memory import server_of
from bench.programs import bare_relay, scripted_agent, sdk_proxy, wrap
from bench.run import Run, added
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

TEXT = b'"text":"'

DIRECT, WRAP, PROXY, FLOOR = "direct", "wrap", "SDK proxy", "bare relay and commits"


def figures(run: Run) -> Iterator[Figure]:
    """One way and both ways, and the processor; four connections stay open and take turns."""
    agent = scripted_agent()
    with (
        session_with(agent) as direct,
        session_with(wrap(agent, run.fresh("journal.db"))) as wrapped,
        session_with(sdk_proxy(agent)) as proxied,
        session_with(bare_relay(agent, run.fresh("bare.db"))) as bare,
    ):
        wires = {DIRECT: direct, WRAP: wrapped, PROXY: proxied, FLOOR: bare}
        for what, measure, goals in (
            ("an update, journal included", one_way, (Goal(60.0), Goal(0.8, ratio=True))),
            ("a prompt and its answer", round_trip, (Goal(0.5, ratio=True),)),
        ):
            number = run.size(800, 200)
            taken = run.in_turns(
                {name: partial(measure, wire, number) for name, wire in wires.items()}
            )
            ours = added(taken[WRAP], taken[DIRECT])
            for peer, bounds in ((PROXY, goals), (FLOOR, ())):
                theirs = added(taken[peer], taken[DIRECT])
                yield Figure(f"latency added to {what}", "us", ours, peer, theirs, bounds)
        number = run.size(200, 50)
        ways = {name: partial(_busy, wires[name], number) for name in (WRAP, PROXY)}
        taken = run.in_turns(ways)
        name = "a prompt with ten updates, CPU of front and daemon"
        yield Figure(name, "us", taken[WRAP], PROXY, taken[PROXY], (Goal(0.6, ratio=True),))


def _busy(wire: Wire, number: int) -> float:
    """How long a proxy keeps the processor busy with a prompt, without its agent; microseconds."""
    pids = {wire.process.pid, server_of(wire)}
    clocks = [~pid << 3 | 2 for pid in pids]  # clock_getcpuclockid(3) of Linux
    before = sum(map(clock_gettime_ns, clocks))
    for _ in range(number):
        wire.prompt("flood 10")
    return (sum(map(clock_gettime_ns, clocks)) - before) / number / 1e3


def one_way(wire: Wire, number: int) -> float:
    """The median of `number` updates, from the agent's write to our read; microseconds."""
    wire.write(wire.prompt_line(f"paced {number}"))
    taken = []
    for line in wire.until_answer():
        now = monotonic_ns()
        if (place := line.find(TEXT)) >= 0:
            taken.append((now - int(line[place + len(TEXT) :].split(b" ", 1)[0])) / 1e3)
    return median(taken)


def round_trip(wire: Wire, number: int, *, updates: int = 0) -> float:
    """The median of `number` prompts, answered at once or behind `updates`; microseconds."""
    taken = []
    for _ in range(number):
        line = wire.prompt_line(f"flood {updates}")
        began = perf_counter()
        wire.write(line)
        for _ in wire.until_answer():
            pass
        taken.append((perf_counter() - began) * 1e6)
    return median(taken)
