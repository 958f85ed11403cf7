"""A journal in PostgreSQL beside one in a file: the same work, in turns, in one process.

    python -m bench.postgresql [URL]

Without a URL a server is started whose commits reach the disk, as those of one in use do. What one
read of an agent's pipe brings is one append; a prompt is answered by an agent in this process.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from statistics import median
from time import perf_counter

import acphold
from acphold.journal import Append, Journal, NewSession
from acphold.journal.stores import open_journal
from acphold.transports.memory import memory_pair
from tests.postgresql import Server

GROUP = 50
ROUNDS = 200
SESSIONS = 100
PIECE = (
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"some words of it "}}'
)


@contextmanager
def started() -> Iterator[str]:
    """A server as it is in use, for the block: its URL."""
    folder = Path(tempfile.mkdtemp(prefix="acphold-pg-"))
    server = Server(folder, fsync="on", full_page_writes="on", autovacuum="on")
    server.make()
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()
        rmtree(folder)


async def _one(journal: Journal, size: int) -> float:
    """Seconds of an append of so many updates, the median."""
    lease = await journal.create(NewSession(f"one-{size}", "a", "/"))
    times = []
    for _ in range(ROUNDS):
        began = perf_counter()
        await journal.append(lease, [("update", [PIECE] * size)])
        times.append(perf_counter() - began)
    return median(times)


async def _many(journal: Journal) -> float:
    """Seconds of an append of many sessions in one moment, the median."""
    leases = [await journal.create(NewSession(f"many-{n}", "a", "/")) for n in range(SESSIONS)]
    times = []
    for _ in range(20):
        began = perf_counter()
        await journal.append_all([Append(lease, [("update", [PIECE])]) for lease in leases])
        times.append(perf_counter() - began)
    return median(times)


async def _read(journal: Journal) -> float:
    """Seconds of reading a session of ROUNDS * GROUP updates."""
    began = perf_counter()
    after = 0
    while found := await journal.read(f"one-{GROUP}", after):
        after = found[-1].last_seq
    return perf_counter() - began


async def _prompts(location: str) -> float:
    """Seconds from a prompt to its answer, the median."""
    agent = acphold.Agent("bench", version="1")

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None:
        await turn.say("yes")

    times = []
    near, far = memory_pair()
    async with agent.server(journal=location) as server:
        attending = asyncio.create_task(server.attend(far))
        async with acphold.connect_over(near, permission="allow") as client:
            session = await client.new_session("/")
            for _ in range(ROUNDS):
                began = perf_counter()
                await session.prompt("Is it?")
                times.append(perf_counter() - began)
        await attending
    return median(times)


async def measure(locations: Sequence[str]) -> list[list[float]]:
    """The figures of each journal, each measured in turns with the others."""
    journals = [open_journal(location) for location in locations]
    found = [
        [await _one(it, 1) for it in journals],
        [await _one(it, GROUP) for it in journals],
        [await _many(it) for it in journals],
        [await _read(it) for it in journals],
    ]
    for journal in journals:
        await journal.aclose()
    found.append([await _prompts(location) for location in locations])
    return found


WHAT = (
    "append of 1 update",
    f"append of {GROUP} updates",
    f"append of {SESSIONS} sessions in one moment",
    f"read {ROUNDS * GROUP} updates",
    "prompt, round trip",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, started() as url:
        locations = [f"{folder}/journal.db", sys.argv[1] if len(sys.argv) > 1 else url]
        figures = asyncio.run(measure(locations))
    rows = [
        (what, f"{file * 1e6:,.0f} µs", f"{there * 1e6:,.0f} µs", f"{there / file:.1f}x")
        for what, (file, there) in zip(WHAT, figures, strict=True)
    ]
    for row in (("", "SQLite", "PostgreSQL", ""), *rows):
        print("{:40}{:>14}{:>14}{:>8}".format(*row))


if __name__ == "__main__":
    main()
