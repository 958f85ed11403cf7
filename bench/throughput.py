"""How many updates a second get through, when the agent sends as fast as it can."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter

from bench.programs import scripted_agent, sdk_proxy, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with


def figures(run: Run) -> Iterator[Figure]:
    """Many updates in one write of the agent's, and each in its own."""
    agent = scripted_agent()
    with (
        session_with(wrap(agent, run.fresh("journal.db"))) as wrapped,
        session_with(sdk_proxy(agent)) as proxied,
    ):
        many, few = run.size(200_000, 50_000), run.size(10_000, 4_000)
        for how, what in (("flood", "in large writes"), ("single", "a write each")):
            taken = run.in_turns(
                {
                    "wrap": partial(rate, wrapped, how, many),
                    "proxy": partial(rate, proxied, how, few),
                }
            )
            yield Figure(
                f"throughput, journalled before delivery, {what}",
                "updates/s",
                taken["wrap"],
                "SDK proxy",
                taken["proxy"],
                (Goal(10, ratio=True, at_least=True),),
                higher_is_better=True,
            )


def rate(wire: Wire, how: str, number: int) -> float:
    """Updates a second in a turn of `number` updates."""
    began = perf_counter()
    # How many the agent sent: who lags a megabyte behind gets chunks of one message joined.
    wire.prompt(f"{how} {number}")
    return number / (perf_counter() - began)
