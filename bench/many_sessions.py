"""Hundreds of sessions in one library agent, all of which stream at once, beside the Python SDK.

One client over two pipes has all of them open and prompts all of them in one write. Ours journals
every piece before it is sent; the SDK keeps nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median
from time import perf_counter, sleep

from msgspec import Struct

from bench.programs import library, newer_python_sdk, python_sdk
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire

SESSIONS = 500
PIECE = b"quick brown fox"
"""What every piece says once."""

PACE_MS = 20
"""Between two pieces of a session: what a quick model takes for one."""

REST_SECONDS, IDLE_CPU = 1.5, 0.1
"""An agent is at rest that has spent no more than so much in so long; a session rests a second
before it is settled."""

OURS, SDK, NEWER = "acphold", "Python SDK", "Python SDK 1.0.0rc3"

FIRST_PIECE, STALL, CPU_RATIO = Goal(150), Goal(50), Goal(1.2, ratio=True)


class Streamed(Struct):
    """What one burst of turns came to; times in milliseconds, `cpu` in seconds.

    `own_stall` is a stall without what was waited for a core, see `pulse`: on a machine that does
    other things, too, this is what is the agent's own.
    `settling` is what is spent behind it: a session that rests is compacted and indexed.
    """

    first_piece: float
    cpu: float
    stall: float
    own_stall: float
    settling: float
    grown: float
    """KiB of memory for each session that are there still once all turns are over."""


def figures(run: Run) -> Iterator[Figure]:
    """Paced as models are; then as fast as it goes."""
    agents = {OURS: library(), SDK: python_sdk("agent"), NEWER: newer_python_sdk(run, "agent")}
    pieces = run.size(100, 30)
    for words, what in (
        (f"stream {pieces} {PACE_MS}", f"{pieces} pieces each, one every {PACE_MS} ms"),
        (f"flood {pieces}", f"{pieces} pieces each at once"),
    ):
        taken: dict[str, list[Streamed]] = {name: [] for name in agents}
        with ExitStack() as stack:
            wires = {name: _with_sessions(stack, agent) for name, agent in agents.items()}
            for _ in range(run.rounds):
                for name, (wire, ids) in wires.items():
                    taken[name].append(_streamed(wire, ids, words, pieces))
        yield from _figures(what, taken)


def _with_sessions(stack: ExitStack, agent: list[str]) -> tuple[Wire, list[str]]:
    wire = stack.enter_context(Wire(agent))
    wire.initialize()
    ids = _new_sessions(wire, SESSIONS)
    wire.session_id = ids[0]
    _report(wire)
    return wire, ids


def _streamed(wire: Wire, ids: list[str], words: str, pieces: int) -> Streamed:
    before = _at_rest(wire)
    firsts = _prompted(wire, ids, words, pieces)
    wire.session_id = ids[0]
    after = _report(wire)
    rested = _at_rest(wire)
    return Streamed(
        first_piece=median(firsts) * 1e3,
        cpu=after["cpu"],
        stall=after["stall"] * 1e3,
        own_stall=after["own_stall"] * 1e3,
        settling=rested["cpu"],
        grown=(rested["rss"] - before["rss"]) / 1024 / SESSIONS,
    )


def stream(wire: Wire, sessions: int, pieces: int, pace_ms: int) -> float:
    """Seconds until so many new sessions have streamed so many pieces each, at this pace."""
    wire.initialize()
    ids = _new_sessions(wire, sessions)
    began = perf_counter()
    _prompted(wire, ids, f"paced {pieces} {pace_ms}", pieces)
    return perf_counter() - began


def _new_sessions(wire: Wire, number: int) -> list[str]:
    params: dict[str, object] = {"cwd": FOLDER, "mcpServers": []}
    return [str(wire.call("session/new", params)["sessionId"]) for _ in range(number)]


def _prompted(wire: Wire, ids: list[str], words: str, pieces: int) -> list[float]:
    """Prompt all of these in one write, and wait for the answers; when the first piece of each was
    there, in seconds."""
    lines, waited = [], set()
    for wire.session_id in ids:
        lines.append(wire.prompt_line(words))
        waited.add(wire.last_id)
    firsts: dict[bytes, float] = {}
    seen = 0
    began = perf_counter()
    wire.write(b"".join(lines))
    while waited:
        line = wire.line()
        if b'"agent_message_chunk"' in line:
            seen += line.count(PIECE)  # who lags a megabyte behind gets some joined
            id_ = line.partition(b'"sessionId":"')[2].partition(b'"')[0]
            if id_ not in firsts:
                firsts[id_] = perf_counter() - began
        elif b'"stopReason"' in line:
            waited.discard(json.loads(line)["id"])
    assert len(firsts) == len(ids)
    assert seen == len(ids) * pieces, seen
    return [*firsts.values()]


def _at_rest(wire: Wire) -> dict[str, float]:
    """A report of the time until the agent had nothing to do any more."""
    cpu, report = 0.0, {"cpu": 1.0}
    while report["cpu"] > IDLE_CPU:
        sleep(REST_SECONDS)
        report = _report(wire)
        cpu += report["cpu"]
    return {**report, "cpu": cpu}


def _report(wire: Wire) -> dict[str, float]:
    """How the agent has fared since the last report."""
    wire.write(wire.prompt_line("report"))
    for line in wire.until_answer():
        if b'"agent_message_chunk"' in line:
            told = json.loads(line)["params"]["update"]["content"]["text"]
    report: dict[str, float] = json.loads(told)
    return report


def _figures(what: str, taken: Mapping[str, list[Streamed]]) -> Iterator[Figure]:
    ours = taken[OURS]
    for peer in (SDK, NEWER):
        theirs = taken[peer]
        name = f"{SESSIONS} sessions, {what}"
        for field, called, unit, goal in (
            ("first_piece", "first piece", "ms", FIRST_PIECE),
            ("cpu", "CPU of the agent", "s", CPU_RATIO),
            ("stall", "longest stall by the clock", "ms", None),
            ("own_stall", "longest stall with a core", "ms", STALL),
            ("settling", "CPU behind it", "s", None),
            ("grown", "kept of each turn", "KiB", None),
        ):
            yield Figure(
                f"{name}: {called}",
                unit,
                [getattr(each, field) for each in ours],
                peer,
                [getattr(each, field) for each in theirs],
                () if goal is None else (goal,),
                paired=field not in ("grown", "settling"),  # which may be nothing
            )
