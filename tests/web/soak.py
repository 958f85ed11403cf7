"""Loss and return at random: `python -m tests.web.soak ROUNDS [SEED]`.

Each round is a prompt from far away. Meanwhile the network is cut, goes down for a moment, or
carries nothing for a moment; or the server is stopped for a moment, or killed and started again; or
the token is revoked. Then the turn must end at the client with exactly its own text, or with an
error that gives the reason. After the last round the client must have shown the conversation of the
journal, each prompt once.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import acphold
from acphold.errors import AcpError
from tests.web.conftest import Served
from tests.web.network import Network, network, served_through

ROUND_SECONDS: Final = 60.0

WEIGHTS: Final = {"cut": 6, "cut twice": 6, "down": 6, "stall": 6, "stop": 3, "kill": 1}
"""Relative frequency of each fault; `kill` is rare because a server starts slowly."""

OF_TOKEN: Final = 10
"""Rounds after which the token is revoked, in the middle of one."""


class Faults:
    """Faults of the connection and of the server."""

    def __init__(self, choose: random.Random, failing: Network, served: Served) -> None:
        self._choose = choose
        self._failing = failing
        self._served = served
        self.told: dict[str, int] = {}

    async def one(self) -> str:
        """One of them, somewhere in a turn; which it was."""
        (kind,) = self._choose.choices([*WEIGHTS], [*WEIGHTS.values()])
        await self._somewhere(kind)
        match kind:
            case "cut":
                self._failing.cut()
            case "cut twice":
                self._failing.cut()
                await self._a_moment(0.2)
                self._failing.cut()
            case "down":
                self._failing.go_down()
                await self._a_moment(0.5)
                self._failing.come_up()
            case "stall":
                self._failing.stall()
                await self._a_moment(0.2)
                self._failing.cut()
                self._failing.passes.set()
            case "stop":
                self._served.signal(signal.SIGSTOP)
                await self._a_moment(0.5)
                self._served.signal(signal.SIGCONT)
            case "kill":
                await asyncio.to_thread(self._served.start_again)
        return kind

    async def revoke(self, token: str) -> str:
        """The token is worth nothing from now on, somewhere in a turn."""
        await self._somewhere("revoke")
        await asyncio.to_thread(self._served.run, "access", "revoke", token.split("_")[1])
        return "revoke"

    async def _somewhere(self, kind: str) -> None:
        self.told[kind] = self.told.get(kind, 0) + 1
        await asyncio.sleep(self._choose.random() ** 2 / 5)

    async def _a_moment(self, seconds: float) -> None:
        await asyncio.sleep(self._choose.random() * seconds)


async def soak(rounds: int, seed: int, folder: Path) -> dict[str, int]:
    """So many rounds; returns how often each fault was among them.

    Raises AssertionError for the first thing that is lost or doubled.
    """
    choose = random.Random(seed)
    async with network() as failing:
        with served_through(failing, folder) as served:
            faults = Faults(choose, failing, served)
            await _rounds(rounds, served, faults)
        return faults.told


async def _rounds(rounds: int, served: Served, faults: Faults) -> None:
    failed: dict[int, str] = {}
    session_id: str | None = None
    for first in range(0, rounds, OF_TOKEN):
        token = await asyncio.to_thread(served.token)
        # By turns over both transports.
        way = "http" if first // OF_TOKEN % 2 else "websocket"
        async with acphold.connect(f"{served.url}?transport={way}", token=token) as agent:
            if session_id is None:
                session = await agent.new_session(cwd=served.folder)
                session_id = session.id
            else:
                session = await agent.load_session(session_id, cwd=served.folder)
            behind = min(first + OF_TOKEN, rounds)
            for number in range(first, behind):
                is_last = number == behind - 1 and behind < rounds
                fault = asyncio.create_task(faults.revoke(token) if is_last else faults.one())
                try:
                    await _round(session, number)
                except AcpError as exc:
                    failed[number] = f"{await fault}: {exc}"
                    assert await fault in ("kill", "revoke"), f"round {number}: {failed[number]}"
                await fault
        shown = _words(session)
        print(f"{behind} rounds, the last {behind - first} over {way}", flush=True)  # noqa: T201
    async with acphold.connect(served.url, token=await asyncio.to_thread(served.token)) as agent:
        kept = _words(await agent.load_session(session.id, cwd=served.folder))
    assert kept == sorted(kept), "the journal has another order"
    for number in range(rounds):
        # The prompt, and its echo; a turn that failed, and was reported, may lack some.
        assert kept.count(number) in ((0, 1, 2) if number in failed else (2,)), f"round {number}"
    assert shown == kept, "the client was shown another conversation"


async def _round(session: acphold.RemoteSession, number: int) -> None:
    words = f"quick: round {number}."
    try:
        async with asyncio.timeout(ROUND_SECONDS):
            turn = await session.prompt(words)
    except TimeoutError:
        raise AssertionError(f"round {number} is silent") from None
    assert turn.text == f"You said: {words}", f"round {number}: {turn.text!r}"


def _words(session: acphold.RemoteSession) -> list[int]:
    """The rounds that are in it, once for each time that they were said."""
    return [
        int(number) for number in re.findall(r"quick: round (\d+)\.", str(session.state.timeline))
    ]


def main(
    what: str, soak: Callable[[int, int, Path], Coroutine[Any, Any, Mapping[str, int]]]
) -> None:
    """Run as many rounds as the command line says, and report."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"{rounds} rounds of {what}, seed {seed}", flush=True)  # noqa: T201
    with TemporaryDirectory() as folder:
        told = asyncio.run(soak(rounds, seed, Path(folder)))
    print(f"0 lost, 0 doubled, 0 silent; {told}")  # noqa: T201


if __name__ == "__main__":
    main("loss and return", soak)
