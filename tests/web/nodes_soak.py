"""Machines that fail at random: `python -m tests.web.nodes_soak ROUNDS [SEED]`.

Three of them share a database. Each reaches it, and the others reach it, through a network of its
own, which is cut, goes down for a moment, or carries nothing for a moment: to the database, to the
others, or both. A machine is stopped for a moment, or killed and started again; the database is
started again. The clock of one of them is wrong by an hour.

Each round is a prompt at one of them, during which that happens. Then the turn has to end there,
whole or with an error. The same session is open at all three. Behind each round, what any client
was shown has to be in the journal; a prompt is in it once at most, and so is its answer.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Final

import acphold
from acphold.errors import AcpholdError
from tests.postgresql import Server
from tests.web.machines import Node, machines
from tests.web.network import Network, network

ROUND_SECONDS: Final = 150.0
"""An owner has to be silent for half a minute before another machine takes its session."""

MACHINES: Final = 3

OF_SESSION: Final = 15
"""Rounds of one session; then there is a new one."""

WEIGHTS: Final = {
    **{"none": 2, "kill": 2, "stop": 4, "stop for long": 1},
    **{"others: cut": 5, "others: down": 3, "others: stall": 3},
    **{"database: cut": 5, "database: down": 3, "database: stall": 2},
    **{"both: cut": 3, "both: down": 2, "restart": 1},
}
"""How often each of them happens."""

WRONG_CLOCK: Final = """
import time

def ahead(clock, unit):
    return lambda: clock() + 3600 * unit

time.time = ahead(time.time, 1)
time.time_ns = ahead(time.time_ns, 10**9)
"""
"""What each Python of one machine runs at its start."""

DATABASE: Final = "postgresql://owner@127.0.0.1:{}/postgres"


class Cluster:
    """The machines, the networks by which each reaches the database, and the database."""

    def __init__(self, nodes: list[Node], ways: list[Network], server: Server, seed: int) -> None:
        self.nodes = nodes
        self.told: dict[str, int] = {}
        self._ways = ways
        self._server = server
        self._choose = random.Random(seed)

    def one(self) -> int:
        """Any machine."""
        return self._choose.randrange(len(self.nodes))

    async def fail(self) -> str:
        """Something fails somewhere in a turn, and is whole again; what it was."""
        (kind,) = self._choose.choices([*WEIGHTS], [*WEIGHTS.values()])
        at = self.one()
        node, way = self.nodes[at], self._ways[at]
        self.told[kind] = self.told.get(kind, 0) + 1
        await asyncio.sleep(self._choose.random() ** 2 / 3)
        where, _, how = kind.partition(": ")
        nets = {"others": [node.net], "database": [way], "both": [node.net, way]}.get(where, [])
        match kind:
            case "kill":
                await asyncio.to_thread(node.served.start_again)
            case "stop" | "stop for long":
                node.served.process.send_signal(signal.SIGSTOP)
                await self._a_moment(2.0 if kind == "stop" else 45.0)
                node.served.process.send_signal(signal.SIGCONT)
            case "restart":
                await asyncio.to_thread(self._server.stop, "immediate")
                await asyncio.to_thread(self._server.start)
        for net in nets:
            match how:
                case "cut":
                    net.cut()
                case "down":
                    net.go_down()
                case "stall":
                    net.stall()
        if how in ("down", "stall"):
            await self._a_moment(8.0)
        for net in nets:
            if how == "stall":
                net.cut()
                net.passes.set()
            net.come_up()
        return f"{kind} at {at}"

    async def _a_moment(self, seconds: float) -> None:
        await asyncio.sleep(self._choose.random() * seconds)


@asynccontextmanager
async def cluster(seed: int) -> AsyncIterator[Cluster]:
    """All of it, in folders of its own."""
    async with AsyncExitStack() as stack:
        folders = [Path(tempfile.mkdtemp(prefix="acphold-")) for _ in range(2)]
        for folder in folders:
            stack.callback(rmtree, folder, ignore_errors=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = Server(folders[0], listen_addresses="127.0.0.1", port=str(port))
        server.make()
        server.start()
        stack.callback(server.stop)
        ways = [await stack.enter_async_context(network()) for _ in range(MACHINES)]
        for way in ways:
            way.to = port
        each = [{"ACPHOLD_JOURNAL": DATABASE.format(way.port)} for way in ways]
        (folders[1] / "sitecustomize.py").write_text(WRONG_CLOCK)
        each[-1]["PYTHONPATH"] = str(folders[1])
        nodes = await stack.enter_async_context(
            machines(DATABASE.format(port), folders[1], MACHINES, of_each=each)
        )
        yield Cluster(nodes, ways, server, seed)


class Session:
    """One session, with a client at each of the machines, and what has become of its rounds."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._id = ""
        self._token = ""
        self.last = ""
        self._rounds: dict[int, str] = {}
        self._agents: list[acphold.RemoteAgent] = []
        self._open: list[acphold.RemoteSession] = []

    def _client(self, node: Node) -> AbstractAsyncContextManager[acphold.RemoteAgent]:
        return acphold.connect(node.served.url, token=self._token)

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
        """A prompt while something fails; what was shown of it and all before has to be kept."""
        at = self._cluster.one()
        failing = asyncio.create_task(self._cluster.fail())
        said = f"quick: round {number}."
        became = ""
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                turn = await self._open[at].prompt(said)
        except TimeoutError:
            raise AssertionError(f"round {number} is silent: {await failing}") from None
        except AcpholdError as error:
            became = str(error)
        else:
            assert turn.text.endswith(f"You said: {said}"), f"round {number}: {turn.text!r}"
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
        """What a client was shown that is not in the journal."""
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
            except AcpholdError:
                await asyncio.sleep(0.5)


def _count(session: acphold.RemoteSession, number: int) -> tuple[int, int]:
    """How often a prompt is in a conversation, and its answer."""
    shown = str(session.state.timeline)
    answers = shown.count(f"You said: quick: round {number}.")
    return shown.count(f"quick: round {number}.") - answers, answers


async def soak(rounds: int, seed: int) -> dict[str, int]:
    """So many rounds; raises AssertionError for the first thing that is lost or doubled."""
    async with cluster(seed) as made:
        for first in range(0, rounds, OF_SESSION):
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                session = Session(made, folder)
                await session.begin(stack)
                for number in range(first, min(first + OF_SESSION, rounds)):
                    await session.round(number)
                    print(number + 1, session.last, flush=True)  # noqa: T201
        return made.told


def main() -> int:
    """Run it, and say what happened."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"{rounds} rounds of machines that fail, seed {seed}", flush=True)  # noqa: T201
    told = asyncio.run(soak(rounds, seed))
    print(f"0 lost, 0 answered twice; {told}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
