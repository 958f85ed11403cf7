"""Clients of others that come to `acphold serve` over a WebSocket and over Streamable HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from subprocess import PIPE, Popen, check_output

import pytest

from tests.interop.client import prompt
from tests.interop.conversation import text, timeline
from tests.interop.official_schema import sdk_folder
from tests.interop.place import Place
from tests.interop.test_official_sdks import load, python_agent, talk
from tests.interop.wire import PROGRAMS
from tests.npm import installed, node

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]  # the first run downloads packages

ACPHOLD = (sys.executable, "-m", "acphold")
WS = "ws@8.18.3"


def python_client(url: str, token: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "python_client.py"), url, token]


def ts_client(url: str, token: str) -> list[str]:
    ws = str(installed(WS) / "node_modules" / "ws")
    return [*node(), str(PROGRAMS / "ts_client.mjs"), sdk_folder(), url, token, ws]


@pytest.fixture
def served(place: Place) -> Iterator[tuple[str, str]]:
    """The address of a server in front of the agent on the Python SDK, and a token."""
    env = place.environment(XDG_STATE_HOME=str(place.home))
    words = [*ACPHOLD, "serve", "--json", "--listen", "127.0.0.1:0", "--", *python_agent()]
    with Popen(words, env=env, stdout=PIPE, text=True, cwd=place.work) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        token = check_output([*ACPHOLD, "token", "create"], env=env, text=True).strip()
        try:
            yield url, token
        finally:
            process.terminate()


@pytest.mark.parametrize("transport", ["ws", "http"])
@pytest.mark.parametrize("client", [python_client, ts_client], ids=["python", "typescript"])
async def test_it_talks_is_asked_cancels_lists_and_loads(
    place: Place,
    served: tuple[str, str],
    client: Callable[[str, str], list[str]],
    transport: str,
) -> None:
    url, token = served
    command = client(f"{url.replace('http', transport, 1)}/acp", token)
    async with place.client(command) as first:
        session_id = await talk(first, place)
        whole = timeline(first.updates(session_id))
        slow = first.begin("session/prompt", prompt(session_id, "slow words"))
        await first.until(lambda: "tick3 " in text(first.updates(session_id)))
        first.tell("session/cancel", {"sessionId": session_id})
        assert (await first.answer(slow))["stopReason"] == "cancelled"
        await first.leave()
    async with place.client(command) as second:
        await load(second, place, session_id)
        # The replay and the answer behind it come on two streams, of which a client may read the
        # second one first.
        await second.until(lambda: "tick3 " in text(second.updates(session_id)))
        replay = second.updates(session_id)
        assert timeline(replay)[: len(whole)] == whole
        ended = await second.call("session/prompt", prompt(session_id, "again"))
        assert ended["stopReason"] == "end_turn"
        await second.leave()
