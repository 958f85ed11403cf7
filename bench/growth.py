"""What grows with everybody's data: each command, and a server at rest, with ten times as many
sessions, tokens and shares, in a file and in a database.

Counted is what the processor of the client was busy: other programs of the machine do not change
that. Of what prints a line for each session, it is that for each line.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from random import Random
from time import sleep
from typing import Final

from acphold.journal.access import Share, new_token
from acphold.journal.stores import open_journal
from bench import big_journal
from bench.big_database import multiply
from bench.big_journal import name_of
from bench.far_wire import FarSocket
from bench.postgresql import new_database, started
from bench.run import Run
from bench.serve import Server, serving
from bench.table import Figure, Goal

FLAT: Final = (Goal(1.3, ratio=True),)

COMMANDS: Final = (
    *("list --limit 30", "list --json --limit 30", "list --limit 30 {word}"),
    *("list --limit 30 nosuchword", "list --limit 30 #nosuchtag", "usage --agent Codex --since 2w"),
    *("show {id}", "export {id}", "diff {id}", "inbox", "rules"),
    *("usage", "usage --by day", "usage --by model", "usage --by folder", "usage --agent Codex"),
    *("search --limit 20 {word}", "search --limit 20 {rare}"),
    *("session rename {id} Other", "session tag {id} seen", "session archive {id}"),
    "session delete --yes {other}",
)

A_LINE: Final = ("list --all", "list --json --all", "usage --by session")
"""They print a line for each session."""

TOKENS, SHARES, QUICK_TENTH = 20_000, 50_000, 10
IDLE_SECONDS: Final = 5.0


def figures(run: Run) -> Iterator[Figure]:
    """Each command with few and with many sessions; a server with few and with many tokens."""
    sizes = run.size(2_000, 500), run.size(20_000, 5_000)
    with started() as server:
        for store in ("file", "database"):
            places: list[str] = []
            for size in sizes:
                if store == "file":
                    places.append(os.fspath(path := run.fresh("journal.db")))
                    big_journal.fill(path, size)
                else:
                    places.append(new_database(server, f"of_{size}"))
                    _fill_database(places[-1], size)
            yield from _commands(run, store, (places[0], places[1]), sizes)
            yield from _idle(run, store, (places[0], places[1]))


def _commands(
    run: Run, store: str, places: tuple[str, str], sizes: tuple[int, int]
) -> Iterator[Figure]:
    words = big_journal.words(Random(5))
    for command in (*COMMANDS, *A_LINE):
        # In turns: what else the machine does makes both dearer.
        ways = {place: partial(_call, command, place, words, count()) for place in places}
        taken = run.in_turns(ways)
        few, many = ([min(taken[place])] for place in places)
        name = f"{command}, {store}, {sizes[1]:,} sessions"
        goals = () if command in A_LINE else FLAT
        yield Figure(name, "s", many, f"{sizes[0]:,}", few, goals)
        if command in A_LINE:
            start = min(few) - (min(many) - min(few)) * sizes[0] / (sizes[1] - sizes[0])
            each = [(one - start) / sizes[1] * 1e6 for one in many]
            yield Figure("  for each line", "us", each, goals=(Goal(25),))


def _call(command: str, place: str, words: list[str], numbers: count[int]) -> float:
    """The seconds that the processor was busy with a command."""
    said = command.format(
        id=name_of(7), other=name_of(400 - next(numbers)), word=words[400], rare=words[15_000]
    )
    with subprocess.Popen(
        [sys.executable, "-m", "acphold", *said.split(), "--journal", place],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{said} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


# -- a server at rest -------------------------------------------------------------------------


def _idle(run: Run, store: str, places: tuple[str, str]) -> Iterator[Figure]:
    tenth = run.size(1, QUICK_TENTH)
    taken: dict[int, list[float]] = {}
    for place, share in zip(places, (10, 1), strict=True):
        asyncio.run(_grant(place, TOKENS // share // tenth, SHARES // share // tenth))
        with serving(place) as server:
            taken[share] = [_busy(server), _busy_with_client(server)]
    tokens, shares = TOKENS // tenth, SHARES // tenth
    for at, what in enumerate(("no client", "a client")):
        name = f"serve at rest, {what}, {store}, {tokens:,} tokens, {shares:,} shares"
        yield Figure(name, "ms/s", [taken[1][at]], "a tenth", [taken[10][at]], FLAT)


async def _grant(place: str, tokens: int, shares: int) -> None:
    journal = open_journal(place)
    access = journal.access
    for number in range(tokens):
        await access.keep_token(new_token(f"t{number}", ("watch",), 1 + number)[1])
    for number in range(shares):
        session_id = name_of(11 + number % 300)
        await access.keep_share(Share(session_id, f"guest{number // 300}", prompts=False))
    await journal.aclose()


def _busy(server: Server) -> float:
    """The ms in a second that a server's processor is busy, at rest."""
    sleep(2.0)
    before = server.busy
    sleep(IDLE_SECONDS)
    return (server.busy - before) / 1e3 / IDLE_SECONDS


def _busy_with_client(server: Server) -> float:
    client = FarSocket(server.url, server.token)
    client.initialize()
    busy = _busy(server)
    client.close()
    return busy


# -- a database -------------------------------------------------------------------------------


def _fill_database(place: str, sessions: int) -> None:
    """A journal with the sessions of `big_journal`, but for their ids."""
    templates = big_journal.TEMPLATES

    async def begin() -> None:
        await big_journal.take_in(place, templates)
        journal = open_journal(place)
        assert await journal.index.catch_up(3600.0) == 0
        await journal.aclose()

    async def tidy() -> None:
        journal = open_journal(place)
        while await journal.index.tidy(60.0):
            pass
        await journal.aclose()

    asyncio.run(begin())
    multiply(place, sessions // templates)
    asyncio.run(tidy())
