"""What is left of a real client's own top rate when acphold stands in between."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.programs import Command, python_sdk, scripted_agent, sdk_proxy, typescript_sdk, wrap
from bench.run import Run
from bench.table import Figure, Goal

TURNS = 3


def figures(run: Run) -> Iterator[Figure]:
    """One for each official SDK; beside it what the proxy on the SDK leaves."""
    agent = scripted_agent()
    clients = {
        "Python SDK": (python_sdk("client"), run.size(20_000, 5_000)),
        "TypeScript SDK": (typescript_sdk(run, "client"), run.size(40_000, 10_000)),
    }
    for name, (client, number) in clients.items():
        behind = {
            "direct": agent,
            "wrap": wrap(agent, run.fresh("journal.db")),
            "proxy": sdk_proxy(agent),
        }
        taken = run.in_turns(
            {way: partial(_rate, client, number, command) for way, command in behind.items()}
        )
        shares = {
            way: [rate / own for rate, own in zip(taken[way], taken["direct"], strict=True)]
            for way in ("wrap", "proxy")
        }
        yield Figure(
            f"rate kept by a client on the {name} ({median(taken['direct']):,.0f}/s)",
            "share",
            shares["wrap"],
            "SDK proxy",
            shares["proxy"],
            (Goal(0.9, at_least=True),),
            higher_is_better=True,
        )


def _rate(client: Command, number: int, agent: Command) -> float:
    command = [*client, "rate", str(number), str(TURNS), *agent]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rates: list[float] = json.loads(done.stdout)
    return max(rates)
