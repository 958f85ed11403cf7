"""The service of examples/, as its users meet it: over a network, many at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

import acphold
from tests.editor import DEADLINE
from tests.watched_processes import until
from tests.web.network import own_port

pytestmark = pytest.mark.slow

SERVICE = Path(__file__).parents[2] / "examples" / "service.py"
KEYS = {"SERVICE_KEYS": "secret-of-ann:ann secret-of-bob:bob"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """Run the service; yields its address."""
    port = own_port()
    words = [sys.executable, str(SERVICE), f"--port={port}", f"--journal={tmp_path / 'j.db'}"]
    with subprocess.Popen(words, env=KEYS) as process:
        yield f"http://127.0.0.1:{port}/agents/acp"
        process.terminate()


def is_served(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(url.replace("agents/acp", "health")).status_code == 200
    return False


async def test_two_hundred_conversations_at_once_are_each_seen_by_whose_they_are(
    service: str,
) -> None:
    await until(lambda: is_served(service))
    async with (
        acphold.connect(service, token="secret-of-ann") as ann,
        acphold.connect(service, token="secret-of-bob") as bob,
    ):

        async def talk(agent: acphold.RemoteAgent, number: int) -> str:
            session = await agent.new_session("/tmp")
            assert (await session.prompt(f"word {number}")).text == f"word {number}"
            assert (await session.prompt("/letters")).text == str(len(f"word {number}"))
            return session.id

        anns = await asyncio.gather(*(talk(ann, number) for number in range(100)))
        bobs = await asyncio.gather(*(talk(bob, number) for number in range(100)))
        for agent, own in ((ann, anns), (bob, bobs)):
            async with asyncio.timeout(DEADLINE):
                # One that moves up between two pages, as its time is written late, is on neither.
                while (found := {it.session_id async for it in agent.sessions()}) != {*own}:
                    assert found < {*own}
                    await asyncio.sleep(0.1)
        with pytest.raises(acphold.RemoteError, match="no session"):
            await bob.load_session(anns[0])


async def test_without_a_key_nobody_is_let_in(service: str) -> None:
    await until(lambda: is_served(service))
    with pytest.raises(acphold.AcpError, match="token"):
        async with acphold.connect(service, token="guessed"):
            pass
