"""Machines that fail at random: `python -m tests.web.nodes_soak ROUNDS [SEED]`.

Three of them share a database, which has a standby. In half of the rounds all are on loopback. Each
machine has a network of its own to the database, and one through which the others reach it: their
connections are cut, or the network goes down, or carries nothing, for a moment. In the other half
each machine is in a network namespace of its own. It is unplugged from the others, or from the
database, or its packets are dropped, and no end of a connection is told. Both may happen at once. A
machine is stopped for a moment, or killed and started again; the database is started again, or its
standby takes its place. The clock of one machine is wrong by an hour.

Each round is a prompt at one of them, during one of these faults. Then the turn must end there,
whole or with an error. The same session is open at all three. After each round, everything that a
client was shown must be in the journal; each prompt is in it at most once, and so is its answer.

Owners report more often than in real use, so that a round is short. The times after which an owner
counts as silent, and a machine stops trusting that it still owns its sessions, follow from that as
in real use.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Final, NamedTuple

import acphold
from acphold.errors import AcpError
from tests.cli.command_line import run_here
from tests.postgresql import Pair
from tests.web import namespaces
from tests.web.certificates import new_authority
from tests.web.conftest import Served, serving
from tests.web.machines import alone_with, beside, machines
from tests.web.network import Way, network

ROUND_SECONDS: Final = 150.0

MACHINES: Final = 3

OF_SESSION: Final = 15
"""Rounds of one session; then there is a new one."""

WEIGHTS: Final = {
    **{"none": 2, "kill": 3, "stop": 4, "stop for long": 2},
    **{"others: cut": 5, "others: down": 4, "others: stall": 4},
    **{"database: cut": 5, "database: down": 4, "database: stall": 3},
    **{"both: cut": 3, "both: down": 3, "both: stall": 2, "restart": 2, "promotion": 2},
}
"""Relative frequency of each fault."""

STOPPED: Final = 18.0
"""Longer than an owner has to be silent for another machine to take its session."""

AWAY: Final = 10.0
"""Longer than a machine that does not reach the database trusts that its sessions are its own."""

OFTEN: Final = """
import sys

if "serve" in sys.orig_argv:
    from acphold.journal import bounds

    bounds.RENEW_SECONDS, bounds.LATE_SECONDS, bounds.SILENT_SECONDS = 4.0, 5.0, 12.0
    bounds.TRUSTED_SECONDS = 8.0
"""
"""Run by each Python of a machine at its start: a third of the usual times, and a little more."""

WRONG_CLOCK: Final = """
import time

def ahead(clock, unit):
    return lambda: clock() + 3600 * unit

time.time = ahead(time.time, 1)
time.time_ns = ahead(time.time_ns, 10**9)
"""
"""Run also by each Python of the last machine."""

NETWORKS: Final = {"clients": "10.77.0.{}", "others": "10.78.0.{}", "database": "10.79.0.{}"}
"""Networks of machines in namespaces; the last part is the number of the machine."""

OURS: Final = 100
"""The number of processes outside of the namespaces: the clients and the database."""

PORT: Final = 8260


class Machine(NamedTuple):
    """A machine, the network through which others reach it, and its network to the database."""

    served: Served
    others: Way
    database: Way


class Database(NamedTuple):
    """The database, and the servers to tell when a standby takes its place."""

    pair: Pair
    ports: tuple[str, str]
    on_moved: list[Callable[[], None]]

    def url(self, host: str, *ports: object) -> str:
        hosts = ",".join(f"{host}:{port}" for port in ports)
        return f"postgresql://owner@{hosts}/postgres?target_session_attrs=read-write"


Surroundings = Callable[[Database, Path], AbstractAsyncContextManager[list[Machine]]]


@asynccontextmanager
async def on_loopback(database: Database, folder: Path) -> AsyncIterator[list[Machine]]:
    """Three machines whose connections go through us."""
    async with AsyncExitStack() as stack:
        ways = [await stack.enter_async_context(network()) for _ in range(MACHINES)]

        def moved() -> None:
            for way in ways:
                way.to = database.pair.port

        moved()
        database.on_moved.append(moved)
        each = [
            {"ACPHOLD_JOURNAL": database.url("127.0.0.1", way.port), **begins(folder, number)}
            for number, way in enumerate(ways)
        ]
        here = database.url("127.0.0.1", *database.ports)
        nodes = await stack.enter_async_context(machines(here, folder, MACHINES, of_each=each))
        yield [Machine(node.served, node.net, way) for node, way in zip(nodes, ways, strict=True)]


@asynccontextmanager
async def apart(database: Database, folder: Path) -> AsyncIterator[list[Machine]]:
    """Three machines in namespaces, which speak TLS, as it has to be between machines."""
    namespaces.switches({name: at.format(OURS) for name, at in NETWORKS.items()})
    journal = database.url(NETWORKS["database"].format(OURS), *database.ports)
    env = {**os.environ, "ACPHOLD_JOURNAL": journal}
    token = run_here(("access", "token", "--node"), env).out.strip()
    addresses = [
        {name: at.format(number) for name, at in NETWORKS.items()}
        for number in range(1, MACHINES + 1)
    ]
    authority = new_authority(folder, "localhost", *(it for at in addresses for it in at.values()))
    async with AsyncExitStack() as stack:
        made: list[Machine] = []
        for number, at in enumerate(addresses):
            inside, plugs = stack.enter_context(namespaces.namespace(number, at))
            runtime = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
            served = serving(
                folder / f"node{number}",
                *("--listen", f"0.0.0.0:{PORT}", "--url", f"https://{at['clients']}:{PORT}"),
                *("--node", f"https://{at['others']}:{PORT}", *authority.options),
                variables={
                    "ACPHOLD_JOURNAL": journal,
                    "ACPHOLD_NODE_TOKEN": token,
                    "SSL_CERT_FILE": str(authority.ca),
                    **begins(folder, number),
                    "XDG_RUNTIME_DIR": runtime,
                },
                inside=(*inside, *alone_with(runtime)),
            )
            runs = await stack.enter_async_context(beside(served))
            made.append(Machine(runs, plugs["others"], plugs["database"]))
        yield made


def begins(folder: Path, number: int) -> dict[str, str]:
    """The variable by which the Pythons of a machine begin as they are to."""
    (with_path := folder / f"begins{number}").mkdir()
    is_last = number == MACHINES - 1
    (with_path / "sitecustomize.py").write_text(OFTEN + (WRONG_CLOCK if is_last else ""))
    return {"PYTHONPATH": str(with_path)}


class Cluster:
    """The machines and the database, and their faults."""

    def __init__(self, nodes: list[Machine], database: Database, ca: Path, seed: int) -> None:
        self.nodes = nodes
        self.ca = ca
        self.told: dict[str, int] = {}
        self._database = database
        self._choose = random.Random(seed)

    def one(self) -> int:
        """Any machine."""
        return self._choose.randrange(len(self.nodes))

    async def fail(self) -> str:
        """Something fails somewhere in a turn, and recovers; returns the fault."""
        (kind,) = self._choose.choices([*WEIGHTS], [*WEIGHTS.values()])
        at = self.one()
        node = self.nodes[at]
        self.told[kind] = self.told.get(kind, 0) + 1
        await asyncio.sleep(self._choose.random() ** 2 / 3)
        where, _, how = kind.partition(": ")
        both = {"others": [node.others], "database": [node.database]}
        ways = both.get(where, [node.others, node.database] if where == "both" else [])
        match kind:
            case "kill":
                await asyncio.to_thread(node.served.start_again)
            case "stop" | "stop for long":
                node.served.signal(signal.SIGSTOP)
                await self._a_moment(2.0 if kind == "stop" else STOPPED)
                node.served.signal(signal.SIGCONT)
            case "restart":
                await asyncio.to_thread(self._database.pair.restart)
            case "promotion":
                await asyncio.to_thread(self._database.pair.fail_over, self._moved)
        for way in ways:
            match how:
                case "cut":
                    way.cut()
                case "down":
                    way.go_down()
                case "stall":
                    way.stall()
        if how in ("down", "stall"):
            await self._a_moment(AWAY)
        for way in ways:
            if how == "stall" and self._choose.random() < 0.5:
                way.cut()
            way.come_up()
        return f"{kind} at {at}"

    def _moved(self) -> None:
        for moved in self._database.on_moved:
            moved()

    async def _a_moment(self, seconds: float) -> None:
        await asyncio.sleep(self._choose.random() * seconds)


@asynccontextmanager
async def cluster(surroundings: Surroundings, seed: int) -> AsyncIterator[Cluster]:
    """All of it, in folders of its own."""
    async with AsyncExitStack() as stack:
        folders = [Path(tempfile.mkdtemp(prefix="acphold-")) for _ in range(3)]
        for folder in folders:
            stack.callback(rmtree, folder, ignore_errors=True)
        with (
            socket.create_server(("127.0.0.1", 0)) as one,
            socket.create_server(("127.0.0.1", 0)) as other,
        ):
            ports = (str(one.getsockname()[1]), str(other.getsockname()[1]))
        database = Database(Pair(folders[:2], "*", ports), ports, [])
        stack.callback(database.pair.stop)
        database.pair.start(NETWORKS["database"].format("0/24"))
        nodes = await stack.enter_async_context(surroundings(database, folders[2]))
        yield Cluster(nodes, database, folders[2] / "ca.pem", seed)


class Session:
    """One session, with a client at each of the machines, and the outcomes of its rounds."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._id = ""
        self._token = ""
        self.last = ""
        self._rounds: dict[int, str] = {}
        self._agents: list[acphold.RemoteAgent] = []
        self._open: list[acphold.RemoteSession] = []

    def _client(self, node: Machine) -> AbstractAsyncContextManager[acphold.RemoteAgent]:
        url = node.served.url
        ca = self._cluster.ca if url.startswith("https") else None
        return acphold.connect(url, token=self._token, ca=ca)

    async def begin(self, stack: AsyncExitStack) -> None:
        """Make it at one machine, and open it at each."""
        self._token = await asyncio.to_thread(self._cluster.nodes[0].served.token)
        for node in self._cluster.nodes:
            self._agents.append(await stack.enter_async_context(self._client(node)))
        async with asyncio.timeout(ROUND_SECONDS):
            made = await self._agents[self._cluster.one()].new_session(cwd=self._folder)
            self._id = made.id
            await made.prompt("quick: begin")
            self._open = [await self._loaded(agent) for agent in self._agents]

    async def round(self, number: int) -> None:
        """A prompt while something fails; everything shown of it and before it must be kept."""
        at = self._cluster.one()
        failing = asyncio.create_task(self._cluster.fail())
        said = f"quick: round {number}."
        became = ""
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                turn = await self._open[at].prompt(said)
        except TimeoutError:
            raise AssertionError(f"round {number} is silent: {await failing}") from None
        except AcpError as error:
            became = str(error)
        else:
            is_whole = turn.text.endswith(f"You said: {said}")
            assert is_whole, f"round {number}: {turn}, {await failing} and prompted at {at}"
        self.last = f"{await failing}, prompted at {at}: {became or 'answered'}"
        self._rounds[number] = self.last
        async with (
            asyncio.timeout(ROUND_SECONDS),
            self._client(self._cluster.nodes[self._cluster.one()]) as reader,
        ):
            kept = await self._loaded(reader)
        for place, session in enumerate(self._open):
            lost = self._more_than(session, kept)
            assert not lost, f"shown at {place} and not kept: {lost}; {self._rounds[number]}"
        for known, how in self._rounds.items():
            prompts, answers = _count(kept, known)
            whole = (1, 1) if how.endswith("answered") else (prompts, answers)
            assert (prompts, answers) == whole, f"round {known} is lost: {how}"
            assert prompts <= 1 and answers <= 1, f"round {known} is doubled: {how}"  # noqa: PT018
        if became:  # its client may have it open no more
            async with asyncio.timeout(ROUND_SECONDS):
                self._open[at] = await self._loaded(self._agents[at])

    def _more_than(self, session: acphold.RemoteSession, kept: acphold.RemoteSession) -> str:
        """A round of which a client was shown more than the journal has, or ""."""
        for number in self._rounds:
            shown, there = _count(session, number), _count(kept, number)
            if shown[0] > there[0] or shown[1] > there[1]:
                return f"round {number}: {shown}, kept {there}"
        return ""

    async def _loaded(self, agent: acphold.RemoteAgent) -> acphold.RemoteSession:
        """All of it, as soon as it can be had."""
        while True:
            try:
                return await agent.load_session(self._id, cwd=self._folder)
            except AcpError:
                await asyncio.sleep(0.5)


def _count(session: acphold.RemoteSession, number: int) -> tuple[int, int]:
    """The number of times that a round's prompt is in a conversation, and its answer."""
    shown = str(session.state.timeline)
    answers = shown.count(f"You said: quick: round {number}.")
    return shown.count(f"quick: round {number}.") - answers, answers


async def soak(rounds: int, seed: int, everywhere: Sequence[Surroundings]) -> dict[str, int]:
    """So many rounds; raises AssertionError for the first thing that is lost or doubled."""
    told: dict[str, int] = {}
    for place, surroundings in enumerate(everywhere):
        begin, end = (rounds * it // len(everywhere) for it in (place, place + 1))
        async with cluster(surroundings, seed + place) as made:
            for first in range(begin, end, OF_SESSION):
                async with AsyncExitStack() as stack:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    session = Session(made, folder)
                    await session.begin(stack)
                    for number in range(first, min(first + OF_SESSION, end)):
                        since = time.monotonic()
                        await session.round(number)
                        took = time.monotonic() - since
                        print(f"{number + 1} {session.last} ({took:.0f} s)", flush=True)  # noqa: T201
            for kind, often in made.told.items():
                told[kind] = told.get(kind, 0) + often
    return told


def main() -> int:
    """Run it, and report."""
    why_not = namespaces.go_inside()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    where = "half of them in network namespaces"
    if why_not:
        where = f"all of them on loopback, for network namespaces cannot be made here: {why_not}"
    print(f"{rounds} rounds of machines that fail, {where}; seed {seed}", flush=True)  # noqa: T201
    everywhere = [on_loopback] if why_not else [on_loopback, apart]
    told = asyncio.run(soak(rounds, seed, everywhere))
    print(f"{where}: 0 lost, 0 answered twice; {told}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
