"""Eight MCP servers in one session, four of them broken: what waits for them, and how long.

Every sample is of the first session of a fresh agent, which has the MCP SDK to import as well.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from time import perf_counter

from bench.programs import Command, library, mcp_server
from bench.run import Run, added
from bench.table import Figure, Goal
from bench.wire import Wire

DELAYS = ("0", "0.2", "0.5", "1")
"""Seconds before the good ones begin to answer: one at once, one as slow as `npx` is."""

QUICK = ("0", "0", "0", "0")

Servers = dict[str, Command]


def figures(run: Run) -> Iterator[Figure]:
    """The answer to session/new, and the tools of the servers that work."""
    wait = run.in_turns(
        {"none": partial(_answered, {}), "eight": partial(_answered, _eight(DELAYS))}
    )
    name = "eight MCP servers, four broken: session/new later by"
    yield Figure(name, "ms", added(wait["eight"], wait["none"]), goals=(Goal(20.0),))
    for how, sessions in (("first session", 1), ("second session", 2)):
        ready = run.in_turns(
            {
                "ours": partial(_tools_ready, _eight(DELAYS), sessions),
                "alone": partial(_tools_alone, mcp_server("good", DELAYS[-1])),
            }
        )
        yield Figure(
            f"tools of the four, {how}, behind the slowest by",
            "ms",
            added(ready["ours"], ready["alone"]),
            goals=(Goal(50.0),),
        )
    for how, sessions in (("first session", 1), ("second session", 2)):
        ready = run.in_turns(
            {
                "ours": partial(_tools_ready, _eight(QUICK), sessions),
                "alone": partial(_tools_alone, mcp_server("good", QUICK[-1])),
            }
        )
        yield Figure(
            f"the same, all at once ready, {how}",
            "ms",
            added(ready["ours"], ready["alone"]),
        )


def _eight(delays: tuple[str, ...]) -> Servers:
    good = {f"good{place}": mcp_server("good", delay) for place, delay in enumerate(delays)}
    broken = {how: mcp_server(how) for how in ("silent", "noise", "leaves")}
    return {"absent": ["/nowhere/mcp-server"], **broken, **good}


def _answered(servers: Servers) -> float:
    """Milliseconds from session/new to its answer."""
    with Wire(library()) as wire:
        wire.initialize()
        began = perf_counter()
        wire.new_session(_named(servers))
        return (perf_counter() - began) * 1e3


def _tools_ready(servers: Servers, sessions: int) -> float:
    """Milliseconds from the last session/new until a turn has the tools of all good servers."""
    good = [name for name in servers if name.startswith("good")]
    with Wire(library()) as wire:
        wire.initialize()
        for _ in range(sessions):
            began = perf_counter()
            wire.new_session(_named(servers))
            wire.prompt(" ".join(["ready", *good]))
            taken = (perf_counter() - began) * 1e3
        return taken


def _tools_alone(command: Command) -> float:
    """The same for one server and a client of a few lines."""
    began = perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        for method in ("initialize", "tools/list"):
            params = {"protocolVersion": "2025-06-18"}
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            server.stdout.readline()
        taken = (perf_counter() - began) * 1e3
        server.stdin.close()
    return taken


def _named(servers: Servers) -> list[dict[str, object]]:
    return [
        {"name": name, "command": command[0], "args": command[1:], "env": []}
        for name, command in servers.items()
    ]
