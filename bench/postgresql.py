"""A journal in PostgreSQL beside one in a file, on the same work.

The server is one as people have it: what is committed is on the disk. A file is written without
that (`synchronous=NORMAL`), so the equal of it is a role or database with `synchronous_commit=off`:
both lose the last moments in a power cut. That is what is compared where nothing else is said.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from statistics import median
from time import perf_counter

from msgspec import Struct

from acphold.journal.journal import Append, Journal, Lease
from acphold.journal.rows import NewSession
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from bench import big_database
from bench.conversation import keep, turns
from bench.latency import one_way, round_trip
from bench.many_sessions import stream
from bench.programs import library, scripted_agent, wrap
from bench.replay import SESSION, load
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with
from tests.postgresql import Server
from tests.web.machines import machines

FILE, UNWAITED, WAITED = "SQLite", "PostgreSQL", "PostgreSQL, to the disk"
WAITED_FILE = "SQLite, to the disk"

GROUP = 50
"""Updates that one read of an agent's pipe brings."""

SESSIONS = 100
PIECE = (
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"some words of it "}}'
)
PACE_MS = 20
PIECES_A_SECOND = 1000 // PACE_MS
PIECES = 100
BEHIND = 0.1
"""Who is not further behind keeps pace."""

STREAMS = (1000, 500, 250, 125)
"""Sessions that stream at once, until there are few enough."""

PATIENCE = 2.0
"""How much longer than it should take a stream is waited for."""

HOUR_SECONDS = 3600


def figures(run: Run) -> Iterator[Figure]:
    """What is waited for, what many sessions make of it, what is found, what nodes cost."""
    with started() as server:
        locations = {
            FILE: str(run.fresh("journal.db")),
            UNWAITED: new_database(server, "unwaited", "synchronous_commit = off"),
            WAITED: new_database(server, "waited"),
        }
        yield from _appends(run, locations)
        yield from _prompts(run, locations)
        yield from _streams(run, locations)
        yield from _replays(run, locations)
        yield from _nodes(run, server)
        yield from big_database.figures(run, lambda name: new_database(server, name))


@contextmanager
def started() -> Iterator[Server]:
    """A server as it is in use, for the block."""
    folder = Path(tempfile.mkdtemp(prefix="acphold-pg-"))
    server = Server(
        folder, fsync="on", full_page_writes="on", autovacuum="on", shared_buffers="128MB"
    )
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        rmtree(folder)


def new_database(server: Server, name: str, *settings: str) -> str:
    """The URL of a new one."""
    server.execute(f"CREATE DATABASE {name}")
    for setting in settings:
        server.execute(f"ALTER DATABASE {name} SET {setting}")
    return server.url(name)


# -- what somebody waits for ------------------------------------------------------------------


def _appends(run: Run, locations: dict[str, str]) -> Iterator[Figure]:
    """What is appended by itself, and what many sessions append in one moment."""
    with asyncio.Runner() as runner:
        journals = {name: open_journal(location) for name, location in locations.items()}
        to_disk = SqliteJournal(run.fresh("journal.db"))
        to_disk.connect().connection.execute("PRAGMA synchronous = FULL")
        journals[WAITED_FILE] = to_disk
        number = run.size(400, 100)
        for what, measure, goals in (
            ("append of an update", partial(_alone, "one", 1, number), ()),
            (
                f"append of a group of {GROUP} updates",
                partial(_alone, "some", GROUP, number),
                (Goal(3, ratio=True),),
            ),
            (
                f"append of {SESSIONS} sessions in one moment",
                partial(_together, number // 20),
                (),
            ),
        ):
            taken = run.in_turns(
                {
                    name: partial(_done, runner, measure, journal)
                    for name, journal in journals.items()
                }
            )
            for ours, theirs in ((UNWAITED, FILE), (WAITED, WAITED_FILE)):
                yield Figure(f"{what}, {ours}", "us", taken[ours], theirs, taken[theirs], goals)
        for journal in journals.values():
            runner.run(journal.aclose())


def _done(
    runner: asyncio.Runner,
    measure: Callable[[Journal], Coroutine[None, None, float]],
    journal: Journal,
) -> float:
    return runner.run(measure(journal))


async def _alone(name: str, size: int, number: int, journal: Journal) -> float:
    """Microseconds of an append, the median."""
    [lease] = await _leases(journal, name, 1)
    taken = []
    for _ in range(number):
        began = perf_counter()
        await journal.append(lease, [("update", [PIECE] * size)])
        taken.append(perf_counter() - began)
    await journal.delete(lease)
    return median(taken) * 1e6


async def _together(number: int, journal: Journal) -> float:
    """Microseconds of an append to each of many sessions, the median."""
    leases = await _leases(journal, "many", SESSIONS)
    taken = []
    for _ in range(number):
        began = perf_counter()
        await journal.append_all([Append(lease, [("update", [PIECE])]) for lease in leases])
        taken.append(perf_counter() - began)
    await journal.delete(*leases)
    return median(taken) * 1e6


async def _leases(journal: Journal, name: str, number: int) -> list[Lease]:
    return [await journal.create(NewSession(f"{name}-{n}", "a", "/")) for n in range(number)]


def _prompts(run: Run, locations: dict[str, str]) -> Iterator[Figure]:
    """Through `wrap`, with an agent in a process of its own."""
    agent = scripted_agent()
    number = run.size(300, 100)
    with (
        session_with(wrap(agent, locations[FILE])) as file,
        session_with(wrap(agent, locations[UNWAITED])) as unwaited,
        session_with(wrap(agent, locations[WAITED])) as waited,
    ):
        wires = {FILE: file, UNWAITED: unwaited, WAITED: waited}
        for what, measure, goals in (
            ("a prompt and its answer", round_trip, (Goal(1.5, ratio=True),)),
            (
                "a prompt, an update and its answer",
                partial(round_trip, updates=1),
                (Goal(1.5, ratio=True),),
            ),
            ("the way of an update", one_way, ()),
        ):
            taken = run.in_turns(
                {name: partial(measure, wire, number) for name, wire in wires.items()}
            )
            for ours in (UNWAITED, WAITED):
                yield Figure(
                    f"{what}, {ours}",
                    "us",
                    taken[ours],
                    FILE,
                    taken[FILE],
                    goals if ours == UNWAITED else (),
                )


# -- many sessions ----------------------------------------------------------------------------


def _streams(run: Run, locations: dict[str, str]) -> Iterator[Figure]:
    """Sessions that stream at once, fifty updates a second each: into a journal alone, and through
    a library agent, which is one process. `behind` is how late they end, for a second of it."""
    seconds = run.size(4, 2)
    for name, location in locations.items():
        for sessions in STREAMS:
            paced = asyncio.run(_paced(location, sessions, seconds))
            name_ = f"{sessions:,} sessions stream into {name}"
            goal = (Goal(0.1),) if sessions == STREAMS[0] and name != FILE else ()
            yield Figure(f"{name_}: behind", "s", [paced.behind], goals=goal)
            yield Figure("  until an update is kept", "ms", [paced.lag])
            yield Figure("  updates in an append", "", [paced.together])
            if paced.behind <= BEHIND:
                break
    for name in (FILE, UNWAITED):
        for sessions in STREAMS[1:]:
            with Wire(library(), journal=locations[name]) as wire:
                behind = stream(wire, sessions, PIECES, PACE_MS) / (PIECES * PACE_MS / 1e3) - 1
            yield Figure(f"{sessions} sessions of an agent stream, {name}: behind", "s", [behind])
            if behind <= BEHIND:
                break


class Paced(Struct):
    """How a stream went: `behind` for a second of it in seconds, `lag` in ms, both as medians."""

    behind: float
    lag: float
    together: float


async def _paced(location: str, number: int, seconds: int) -> Paced:
    """What has come of each session since its last append is the next one."""
    journal = open_journal(location)
    leases = await _leases(journal, "paced", number)
    kept = [0] * number
    lags: list[float] = []
    appends = 0
    began = perf_counter()

    def said(n: int) -> int:  # as if one began behind the other
        since = perf_counter() - began - n / number * PACE_MS / 1e3
        return min(PIECES_A_SECOND * seconds, max(0, int(since * PIECES_A_SECOND)))

    while min(kept) < PIECES_A_SECOND * seconds and perf_counter() - began < PATIENCE * seconds:
        news = [(n, more) for n in range(number) if (more := said(n) - kept[n])]
        if not news:
            await asyncio.sleep(PACE_MS / 1e4)
            continue
        first = perf_counter()
        await journal.append_all(
            [Append(leases[n], [("update", [PIECE] * more)]) for n, more in news]
        )
        appends += len(news)
        lags.append(perf_counter() - first)
        for n, more in news:
            kept[n] += more
    taken, done = perf_counter() - began, sum(kept) / number / PIECES_A_SECOND
    await journal.delete(*leases)
    await journal.aclose()
    return Paced(taken / (done + PACE_MS / 1e3) - 1, median(lags) * 1e3, sum(kept) / appends)


# -- reading ----------------------------------------------------------------------------------


def _replays(run: Run, locations: dict[str, str]) -> Iterator[Figure]:
    conversation = list(turns(run.size(100_000, 10_000)))
    number = sum(map(len, conversation))
    for settle, state in ((True, "compacted"), (False, "not compacted")):
        taken: dict[str, list[tuple[float, float]]] = {FILE: [], UNWAITED: []}
        for name in taken:
            asyncio.run(_keep(locations[name], conversation, settle=settle))
        for _ in range(min(run.rounds, 3) if settle else 1):  # who has loaded it settles it
            for name, each in taken.items():
                each.append(load(wrap(scripted_agent(), locations[name])))
        firsts, rates = (
            {name: [choose(*one) for one in each] for name, each in taken.items()}
            for choose in (lambda first, _: first * 1e3, lambda _, whole: number / whole)
        )
        yield Figure(
            f"replay, {state}: load request to first line",
            "ms",
            firsts[UNWAITED],
            FILE,
            firsts[FILE],
        )
        yield Figure(
            f"replay, {state}: sending {number:,}",
            "updates/s",
            rates[UNWAITED],
            FILE,
            rates[FILE],
            higher_is_better=True,
        )


async def _keep(location: str, conversation: list[list[bytes]], *, settle: bool) -> None:
    journal = open_journal(location)
    await journal.delete(SESSION)
    await keep(journal, SESSION, conversation, at_once=GROUP, settle=settle)
    await journal.aclose()


# -- nodes ------------------------------------------------------------------------------------


def _nodes(run: Run, server: Server) -> Iterator[Figure]:
    """What two nodes cost that do nothing, and what the death of one costs."""
    taken = [
        asyncio.run(_taken_over(run, new_database(server, f"nodes{n}")))
        for n in range(run.size(3, 1))
    ]
    yield Figure(
        "a session is prompted again after kill -9 of its node", "s", taken, goals=(Goal(2),)
    )
    location = new_database(server, "idle", "log_statement = 'all'")
    seconds = run.size(30, 20)
    with_one, with_more = asyncio.run(_idle(run, location, server, seconds))
    hours = HOUR_SECONDS / seconds
    yield Figure("statements an hour of a node with an open session", "", [with_one * hours])
    yield Figure(
        "statements an hour of one more session that is idle",
        "",
        [max(0, with_more - with_one) / IDLE_SESSIONS * hours],
    )


async def _taken_over(run: Run, location: str) -> float:
    """Seconds from the death of a node to the answer to a prompt at the other one."""
    folder = run.fresh("nodes").parent
    async with (
        machines(location, folder) as (one, two),
        two.client() as there,
        one.client() as here,
    ):
        session = await here.new_session(cwd=folder)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=folder)
        await far.prompt("quick: two")
        one.served.kill()  # with its daemon, which has the session
        began = perf_counter()
        await far.prompt("quick: three")
        taken = perf_counter() - began
        one.served.start_again()
        return taken


IDLE_SESSIONS = 20
SETTLED_SECONDS = 15.0
"""Until what is done behind turns is done."""


async def _idle(run: Run, location: str, server: Server, seconds: float) -> tuple[int, int]:
    """Statements of one node in so many seconds, with one open session and with some more."""
    folder = run.fresh("nodes").parent

    async def statements() -> int:
        await asyncio.sleep(SETTLED_SECONDS)
        before = len(_STATEMENT.findall(server.log()))
        await asyncio.sleep(seconds)
        return len(_STATEMENT.findall(server.log())) - before

    async with machines(location, folder, 1) as (node,), node.client() as client:

        async def open_one() -> None:
            session = await client.new_session(cwd=folder)
            await session.prompt("quick: one")

        await open_one()
        with_one = await statements()
        for _ in range(IDLE_SESSIONS):
            await open_one()
        return with_one, await statements()


_STATEMENT = re.compile(r"LOG:  (?:statement|execute)")
