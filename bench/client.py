"""A client on acphold beside clients on the official SDKs, each with the same agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.programs import Command, acphold_client, python_sdk, scripted_agent, typescript_sdk
from bench.run import Run
from bench.table import Figure, Goal

TURNS = 3
"""Turns of a program; the best one counts, for the others warm it up."""


def figures(run: Run) -> Iterator[Figure]:
    """How many updates a second, how long a prompt takes, how soon `ask` has an answer."""
    clients = {
        "ours": acphold_client(),
        "Python SDK": python_sdk("client"),
        "TypeScript SDK": typescript_sdk(run, "client"),
    }
    rates = run.in_turns(
        {name: partial(_best, client, "rate", run.size(20_000, 5_000), max)
         for name, client in clients.items()}
    )  # fmt: skip
    trips = run.in_turns(
        {name: partial(_best, client, "trip", run.size(500, 100), min)
         for name, client in clients.items()}
    )  # fmt: skip
    for peer in ("Python SDK", "TypeScript SDK"):
        is_python = peer == "Python SDK"
        yield Figure(
            "a client takes in",
            "updates/s",
            rates["ours"],
            peer,
            rates[peer],
            (Goal(4, ratio=True, at_least=True),) if is_python else (),
            higher_is_better=True,
        )
        yield Figure(
            "a prompt and its answer, as a client waits for it",
            "us",
            trips["ours"],
            peer,
            trips[peer],
            (Goal(0.7, ratio=True),) if is_python else (),
        )
    yield _first_answer(run)


def _first_answer(run: Run) -> Figure:
    """From the start of the command to the first word on its stdout."""
    agent = scripted_agent()
    ask = [os.fspath(Path(sys.executable).parent / "acphold"), "ask", "single 1"]
    journal = ["--journal", os.fspath(run.fresh("journal.db"))]
    taken = run.in_turns(
        {
            "ask": partial(_first_word, [*ask, *journal, "--", *agent]),
            "sdk": partial(_first_word, [*python_sdk("client"), "say", "single 1", *agent]),
        }
    )
    return Figure(
        "`acphold ask`: from its start to the first word",
        "ms",
        taken["ask"],
        "Python SDK, without a journal",
        taken["sdk"],
        (Goal(1.0, ratio=True),),
    )


def _best(client: Command, way: str, number: int, best: Callable[[list[float]], float]) -> float:
    command = [*client, way, str(number), str(TURNS), *scripted_agent()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: list[float] = json.loads(done.stdout)
    return best(found)


def _first_word(command: Command) -> float:
    """Milliseconds."""
    began = perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        word = process.stdout.read(1)
        taken = (perf_counter() - began) * 1e3
        process.stdout.read()
    if not word or process.returncode:
        raise RuntimeError(f"{command!r} has said nothing, or failed")
    return taken
