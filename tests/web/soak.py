"""Loss and return at random: `python -m tests.web.soak ROUNDS [SEED]`.

Each round is a prompt from far away, during which the network is cut, goes down for a moment, or
carries nothing for a moment. Then the turn has to end at the client with just what was said to it,
and behind the last round the client has to have shown what the journal has, each prompt once.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import acphold
from acphold.errors import AcpholdError
from tests.web.conftest import Served, serving
from tests.web.network import Network, network

ROUND_SECONDS: Final = 60.0


class Faults:
    """What happens to the connection, and to the server."""

    def __init__(self, choose: random.Random, failing: Network) -> None:
        self._choose = choose
        self._failing = failing
        self.told: dict[str, int] = {}

    async def one(self) -> None:
        """One of them, somewhere in a turn."""
        await asyncio.sleep(self._choose.random() ** 2 / 5)
        kind = self._choose.choice(("cut", "cut twice", "down", "stall"))
        self.told[kind] = self.told.get(kind, 0) + 1
        match kind:
            case "cut":
                self._failing.cut()
            case "cut twice":
                self._failing.cut()
                await asyncio.sleep(self._choose.random() / 5)
                self._failing.cut()
            case "down":
                self._failing.go_down()
                await asyncio.sleep(self._choose.random() / 2)
                self._failing.come_up()
            case "stall":
                self._failing.stall()
                await asyncio.sleep(self._choose.random() / 5)
                self._failing.cut()
                self._failing.passes.set()


async def soak(rounds: int, seed: int, folder: Path) -> Faults:
    """So many rounds; raises AssertionError for the first thing that is lost or doubled."""
    choose = random.Random(seed)
    async with network() as failing:
        with socket.create_server(("127.0.0.1", 0)) as free:
            failing.to = free.getsockname()[1]
        url = f"http://localhost:{failing.port}"
        faults = Faults(choose, failing)
        with serving(folder, "--url", url, "--listen", f"127.0.0.1:{failing.to}") as served:
            await _rounds(rounds, served, faults)
        return faults


async def _rounds(rounds: int, served: Served, faults: Faults) -> None:
    token = served.token()
    async with acphold.connect(served.url, token=token) as agent:
        session = await agent.new_session(cwd=served.folder)
        for number in range(rounds):
            words = f"quick: round {number}."
            fault = asyncio.create_task(faults.one())
            try:
                async with asyncio.timeout(ROUND_SECONDS):
                    turn = await session.prompt(words)
            except (TimeoutError, AcpholdError) as exc:
                raise AssertionError(f"round {number}: {exc!r}") from exc
            assert turn.text == f"You said: {words}", f"round {number}: {turn.text!r}"
            await fault
        shown = _words(session)
    async with acphold.connect(served.url, token=token) as agent:
        kept = _words(await agent.load_session(session.id, cwd=served.folder))
    expected = [f"quick: round {number}." for number in range(rounds) for _ in range(2)]
    assert kept == expected, "the journal has another conversation"
    assert shown == expected, "the client was shown another conversation"


def _words(session: acphold.RemoteSession) -> list[str]:
    return re.findall(r"quick: round \d+\.", str(session.state.timeline))


def main() -> int:
    """Run it, and say what happened."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"{rounds} rounds of loss and return, seed {seed}", flush=True)  # noqa: T201
    with TemporaryDirectory() as folder:
        faults = asyncio.run(soak(rounds, seed, Path(folder)))
    print(f"0 lost, 0 doubled, 0 silent; {faults.told}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
