"""Clients of others hear all of a session in its order, over a WebSocket and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.editor import scripted_agent
from tests.interop.client import introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.far_away import CLIENTS, SCHEMES, TheirClient, Transport
from tests.interop.place import Place

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]  # the first run downloads packages

CALLS = 80
CLIENTS_AFTER = 2
LOADS = 3
"""In each of these clients: the first opens a stream, the others use it."""


@pytest.fixture
def served(place: Place) -> Iterator[tuple[str, str]]:
    """The address of a server in front of a scripted agent, and a token."""
    with place.serving(scripted_agent()) as found:
        yield found


def command(served: tuple[str, str], theirs: TheirClient, transport: Transport) -> list[str]:
    url, token = served
    return theirs.command(f"{url.replace('http', SCHEMES[transport], 1)}/acp", token)


def steps(*given: dict[str, Any]) -> str:
    return json.dumps(given)


@pytest.mark.parametrize("transport", SCHEMES)
@pytest.mark.parametrize("theirs", CLIENTS, ids=[it.name for it in CLIENTS])
async def test_the_answer_to_a_load_comes_behind_all_of_its_replay(
    place: Place, served: tuple[str, str], theirs: TheirClient, transport: Transport
) -> None:
    called = [
        {"update": {"sessionUpdate": "tool_call", "toolCallId": f"c{it}", "title": f"Call {it}"}}
        for it in range(CALLS)
    ]
    wanted = [f"c{it}" for it in range(CALLS)]
    words = command(served, theirs, transport)
    async with place.client(words) as first:
        await first.call("initialize", introduction())
        session_id = (await first.call("session/new", opening(place.work)))["sessionId"]
        await first.call("session/prompt", prompt(session_id, steps(*called)))
        await first.leave()
    for _ in range(CLIENTS_AFTER):
        async with place.client(words) as again:
            await again.call("initialize", introduction())
            for _ in range(LOADS):
                before = len(again.messages)
                await again.call("session/load", opening(place.work, session_id))
                answer = again.place_of_answer(again.last_id)
                replayed = [
                    message["params"]["update"].get("toolCallId")
                    for message in again.messages[before:answer]
                    if message.get("method") == "session/update"
                ]
                assert [it for it in replayed if it] == wanted
            await again.leave()


@pytest.mark.parametrize("transport", SCHEMES)
@pytest.mark.parametrize("theirs", CLIENTS, ids=[it.name for it in CLIENTS])
async def test_a_long_text_that_is_not_ascii_arrives_live_and_in_a_replay(
    place: Place, served: tuple[str, str], theirs: TheirClient, transport: Transport
) -> None:
    said = "".join(f"{number} äöü 中文 😀 " for number in range(60_000))
    assert len(said.encode()) > 1 << 20
    words = command(served, theirs, transport)
    async with place.client(words) as first:
        await first.call("initialize", introduction())
        session_id = (await first.call("session/new", opening(place.work)))["sessionId"]
        await first.call("session/prompt", prompt(session_id, steps({"say": said})))
        assert text(first.updates(session_id)) == said
        await first.leave()
    async with place.client(words) as second:
        await second.call("initialize", introduction())
        await second.call("session/load", opening(place.work, session_id))
        assert text(second.updates(session_id)) == said
        await second.leave()
