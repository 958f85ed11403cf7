"""How fast a long conversation comes back: `session/load` of 100,000 updates, a fresh process."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from acphold.journal.stores import open_journal
from bench.conversation import keep, turns
from bench.programs import PEERS, Command, python_sdk, scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire

SESSION = "a-long-conversation"


def figures(run: Run) -> Iterator[Figure]:
    """Compacted, as a session is a second after its last turn; and as a crash left it."""
    conversation = list(turns(run.size(100_000, 10_000)))
    number = sum(map(len, conversation))
    transcript = run.fresh("transcript.jsonl")
    transcript.write_bytes(b"".join(raw + b"\n" for turn in conversation for raw in turn))
    sdk = [*python_sdk("loading_agent"), str(transcript)]
    for settle, state in ((True, "compacted"), (False, "not compacted")):
        journal = run.fresh("journal.db")
        asyncio.run(_fill(journal, conversation, settle=settle))
        yield from _over_the_wire(run, journal, sdk, number, state)
        yield _in_a_client(run, journal, transcript, state)


async def _fill(path: Path, conversation: list[list[bytes]], *, settle: bool) -> None:
    journal = open_journal(path)
    await keep(journal, SESSION, conversation, at_once=1, settle=settle)
    await journal.aclose()


def _ours(run: Run, journal: Path) -> Command:
    """A wrap with a copy of this journal: whoever loads a session and ends may settle it."""
    own = run.fresh(journal.name)
    shutil.copy(journal, own)
    return wrap(scripted_agent(), own)


def _over_the_wire(
    run: Run, journal: Path, sdk: Command, number: int, state: str
) -> Iterator[Figure]:
    first: dict[str, list[float]] = {"wrap": [], "sdk": []}

    def rate(way: str, command: Command) -> float:
        until_first, seconds = load(command)
        first[way].append(until_first * 1e3)
        return number / seconds

    rates = run.in_turns(
        {"wrap": lambda: rate("wrap", _ours(run, journal)), "sdk": lambda: rate("sdk", sdk)}
    )
    yield Figure(
        f"replay, {state}: load request to first line",
        "ms",
        first["wrap"],
        "JSONL through the SDK",
        first["sdk"],
        (Goal(5.0),),
    )
    yield Figure(
        f"replay, {state}: sending {number:,}",
        "updates/s",
        rates["wrap"],
        "JSONL through the SDK",
        rates["sdk"],
        (Goal(20, ratio=True, at_least=True),),
        higher_is_better=True,
    )


def load(command: Command) -> tuple[float, float]:
    """Seconds from the load request to the first line, and to the answer."""
    with Wire(command) as wire:
        wire.initialize()
        began = perf_counter()
        params: dict[str, object] = {"sessionId": SESSION, "cwd": FOLDER, "mcpServers": []}
        wire.ask("session/load", params)
        lines = wire.until_answer()
        line = next(lines)
        until_first = perf_counter() - began
        for line in lines:  # noqa: B007
            pass
        seconds = perf_counter() - began
        if "error" in json.loads(line):
            raise RuntimeError(line.decode())
        return until_first, seconds


def _in_a_client(run: Run, journal: Path, transcript: Path, state: str) -> Figure:
    unjoined = [sys.executable, str(PEERS / "raw_loading_agent.py"), str(transcript)]
    taken = run.in_turns(
        {
            "wrap": lambda: _client_time(_ours(run, journal)),
            "unjoined": lambda: _client_time(unjoined),
        }
    )
    return Figure(
        f"replay, {state}: last update in a Python SDK client",
        "s",
        taken["wrap"],
        "one line each",
        taken["unjoined"],
        (Goal(0.1, ratio=True),),
    )


def _client_time(agent: Command) -> float:
    command = [*python_sdk("client"), "load", SESSION, *agent]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds: float = json.loads(done.stdout)
    return seconds
