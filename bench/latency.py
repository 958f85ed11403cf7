"""What a proxy adds to the way of one update, and to the way of a prompt and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from time import monotonic_ns, perf_counter

from bench.programs import scripted_agent, sdk_proxy, wrap
from bench.run import Run, added
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

TEXT = b'"text":"'


def figures(run: Run) -> Iterator[Figure]:
    """One way and both ways; three connections stay open and take turns."""
    agent = scripted_agent()
    with (
        session_with(agent) as direct,
        session_with(wrap(agent, run.fresh("journal.db"))) as wrapped,
        session_with(sdk_proxy(agent)) as proxied,
    ):
        wires = {"direct": direct, "wrap": wrapped, "proxy": proxied}
        paced = run.size(800, 200)
        taken = run.in_turns({name: partial(_one_way, wire, paced) for name, wire in wires.items()})
        yield Figure(
            "latency added to an update, journal included",
            "us",
            added(taken["wrap"], taken["direct"]),
            "SDK proxy",
            added(taken["proxy"], taken["direct"]),
            (Goal(60.0), Goal(0.8, ratio=True)),
        )
        prompts = run.size(800, 200)
        taken = run.in_turns(
            {name: partial(round_trip, wire, prompts) for name, wire in wires.items()}
        )
        yield Figure(
            "latency added to a prompt and its answer",
            "us",
            added(taken["wrap"], taken["direct"]),
            "SDK proxy",
            added(taken["proxy"], taken["direct"]),
            (Goal(0.5, ratio=True),),
        )


def _one_way(wire: Wire, number: int) -> float:
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
