"""Programs of others over a network, a WebSocket and Streamable HTTP: all that there is to do."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator

import pytest

import acphold
from tests.interop.client import introduction, opening, prompt
from tests.interop.conversation import text, timeline
from tests.interop.far_away import (
    BREAKS,
    CLIENTS,
    LACKS,
    OURS,
    SCHEMES,
    SERVERS,
    TheirClient,
    TheirServer,
    Transport,
    our_way,
)
from tests.interop.place import Place
from tests.interop.test_official_sdks import load, python_agent, talk

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]  # the first run downloads packages

ACPHOLD = (sys.executable, "-m", "acphold")


@pytest.fixture
def served(place: Place) -> Iterator[tuple[str, str]]:
    """The address of a server in front of the agent on the Python SDK, and a token."""
    with place.serving(python_agent()) as found:
        yield found


@pytest.mark.parametrize("transport", SCHEMES)
@pytest.mark.parametrize("theirs", CLIENTS, ids=[it.name for it in CLIENTS])
async def test_a_client_of_others_talks_is_asked_cancels_lists_and_loads(
    place: Place, served: tuple[str, str], theirs: TheirClient, transport: Transport
) -> None:
    url, token = served
    command = theirs.command(f"{url.replace('http', SCHEMES[transport], 1)}/acp", token)
    async with place.client(command) as first:
        session_id = await talk(first, place)
        whole = timeline(first.updates(session_id))
        slow = first.begin("session/prompt", prompt(session_id, "slow words"))
        await first.until(lambda: "tick3 " in text(first.updates(session_id)))
        first.tell("session/cancel", {"sessionId": session_id})
        assert (await first.answer(slow))["stopReason"] == "cancelled"
        await first.leave()
    async with place.client(command) as second:
        replay = await load(second, place, session_id)
        assert timeline(replay)[: len(whole)] == whole
        ended = await second.call("session/prompt", prompt(session_id, "again"))
        assert ended["stopReason"] == "end_turn"
        await second.leave()


@pytest.mark.parametrize("transport", OURS)
@pytest.mark.parametrize("theirs", SERVERS, ids=[it.name for it in SERVERS])
async def test_at_a_server_of_others_our_client_talks_is_asked_cancels_lists_and_loads(
    place: Place, theirs: TheirServer, transport: Transport
) -> None:
    with theirs.serving(place) as address:
        command = [*ACPHOLD, "connect", our_way(address, transport)]
        async with place.client(command) as first:
            await first.call("initialize", introduction())
            session_id = (await first.call("session/new", opening(place.work)))["sessionId"]
            ended = await first.call("session/prompt", prompt(session_id, theirs.asks))
            assert ended["stopReason"] == "end_turn"
            assert first.asked == ["session/request_permission"]
            said = text(first.updates(session_id))
            assert said
            slow = first.begin("session/prompt", prompt(session_id, theirs.slow))
            await first.until(lambda: "tick3 " in text(first.updates(session_id)))
            first.tell("session/cancel", {"sessionId": session_id})
            assert (await first.answer(slow))["stopReason"] == "cancelled"
            await first.leave()
        async with place.client(command) as second:
            await second.call("initialize", introduction())
            listed = (await second.call("session/list", {}))["sessions"]
            assert [found["sessionId"] for found in listed] == [session_id]
            await second.call("session/load", opening(place.work, session_id))
            replay = text(second.updates(session_id))
            assert said in replay
            assert "tick3 " in replay
            again = second.begin("session/prompt", prompt(session_id, theirs.asks))
            if (theirs.name, transport, "load") in LACKS:
                with pytest.raises(Exception, match="404"):
                    await second.answer(again)
            else:
                assert (await second.answer(again))["stopReason"] == "end_turn"
            await second.leave()
        assert first.odd == second.odd == []


@pytest.mark.parametrize("transport", OURS)
@pytest.mark.parametrize("theirs", SERVERS, ids=[it.name for it in SERVERS])
async def test_at_a_server_of_others_our_library_does_the_same(
    place: Place, theirs: TheirServer, transport: Transport
) -> None:
    with theirs.serving(place) as address:
        url = our_way(address, transport)
        async with acphold.connect(url, permission="allow") as first:
            session = await first.new_session(cwd=place.work)
            turn = await session.prompt(theirs.asks)
            assert turn.stop_reason == "end_turn"
            said = turn.text
            slow = session.prompt(theirs.slow)
            async for _ in slow:
                if "tick3 " in slow.text:
                    session.cancel()
            assert slow.stop_reason == "cancelled"
        async with acphold.connect(url, permission="allow") as second:
            assert [info.session_id async for info in second.sessions()] == [session.id]
            again = await second.load_session(session.id, cwd=place.work)
            assert said in str(again.state.timeline)
            if (theirs.name, transport, "load") in LACKS:
                with pytest.raises(acphold.RemoteError, match="404"):
                    await again.prompt(theirs.asks)
            else:
                assert (await again.prompt(theirs.asks)).stop_reason == "end_turn"


@pytest.mark.parametrize("theirs", SERVERS, ids=[it.name for it in SERVERS])
async def test_what_check_says_of_a_server_of_others_is_so(
    place: Place, theirs: TheirServer
) -> None:
    only = [word for group in CHECKED for word in ("--only", group)]
    with theirs.serving(place) as address:
        process = await asyncio.create_subprocess_exec(
            *(*ACPHOLD, "check", "--json", "--timeout", "20", *only, "--server", f"ws://{address}"),
            stdout=asyncio.subprocess.PIPE,
            env=place.environment(XDG_STATE_HOME=str(place.home)),
        )
        out, _ = await process.communicate()
    report = json.loads(out)
    assert report["counts"]["pass"] > 20
    failed = {check["id"] for check in report["checks"] if check["verdict"] == "fail"}
    assert failed == BREAKS[theirs.name]


CHECKED = ("http", "websocket", "initialize", "new", "prompt")
