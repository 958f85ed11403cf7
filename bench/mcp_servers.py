"""Eight MCP servers in one session, four of them broken: what waits for them, and how long.

Every sample is of a fresh agent; its first session has the MCP SDK to import as well. What eight
programs need to start on the cores there are is part of what is measured.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
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
    for how, sessions in (("first", 1), ("second", 2)):
        name = f"tools of the four, {how} session: behind the slowest alone by"
        yield Figure(name, "ms", _behind(run, DELAYS, sessions), goals=(Goal(50.0),))
    name = "the same, first session, none of them slow (imports the MCP SDK)"
    yield Figure(name, "ms", _behind(run, QUICK, 1))


def _behind(run: Run, delays: Sequence[str], sessions: int) -> list[float]:
    ready = run.in_turns(
        {
            "ours": partial(_tools_ready, _eight(delays), sessions),
            "alone": partial(_tools_alone, mcp_server("good", max(delays))),
        }
    )
    return added(ready["ours"], ready["alone"])


def _eight(delays: Sequence[str]) -> Servers:
    """Good and broken ones by turns: the slowest is the seventh to be started."""
    broken = {"absent": ["/nowhere/mcp-server"]}
    broken |= {how: mcp_server(how) for how in ("silent", "noise", "leaves")}
    servers: Servers = {}
    for place, (delay, (how, command)) in enumerate(zip(delays, broken.items(), strict=True)):
        servers |= {f"good{place}": mcp_server("good", delay), how: command}
    return servers


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
