"""What a proxy adds to the time an editor waits for the answer to `initialize`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from compileall import compile_dir
from functools import partial

import acphold
from bench.programs import Command, python_sdk, sdk_proxy, typescript_sdk, wrap
from bench.run import Run, added, stop_all
from bench.table import Figure, Goal
from bench.wire import Wire


def figures(run: Run) -> Iterator[Figure]:
    """One for each official SDK."""
    agents = {"Python SDK": python_sdk("agent"), "TypeScript SDK": typescript_sdk(run, "agent")}
    # As an installed package is; an editable one in a place where Python may not write is not.
    compile_dir(os.path.dirname(acphold.__file__), quiet=1)
    for name, agent in agents.items():
        ways: dict[str, Callable[[], float]] = {
            "direct": partial(_milliseconds, agent),
            "wrap": partial(_without_daemon, wrap(agent, run.folder / "cold.db")),
            "proxy": partial(_milliseconds, sdk_proxy(agent)),
        }
        for measure in ways.values():
            measure()  # the caches of the file system, and the journal
        taken = run.in_turns(ways)
        yield Figure(
            f"cold start added before initialize, {name} agent",
            "ms",
            added(taken["wrap"], taken["direct"]),
            "SDK proxy",
            added(taken["proxy"], taken["direct"]),
            (Goal(0.28, ratio=True),),
        )


def _without_daemon(command: Command) -> float:
    """The daemon has to be started, too."""
    stop_all()
    return _milliseconds(command)


def _milliseconds(command: Command) -> float:
    with Wire(command) as wire:
        return wire.initialize() * 1e3
