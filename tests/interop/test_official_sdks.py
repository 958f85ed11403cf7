"""Clients and agents on the two official SDKs, with `acphold wrap` between them.

The agents have no session support whatever; everything about sessions is acphold's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import pytest

from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import (
    assert_all_there,
    assert_same,
    text,
    timeline,
)
from tests.interop.official_schema import sdk_folder
from tests.interop.place import Place
from tests.interop.wire import PROGRAMS, Json
from tests.npm import NODE

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]  # the first run downloads the package

Command = list[str]


def python_agent() -> Command:
    return [sys.executable, str(PROGRAMS / "python_agent.py")]


def ts_agent() -> Command:
    return [NODE, str(PROGRAMS / "ts_agent.mjs"), sdk_folder()]


def python_client(command: Sequence[str]) -> Command:
    return [sys.executable, str(PROGRAMS / "python_client.py"), *command]


def ts_client(command: Sequence[str]) -> Command:
    return [NODE, str(PROGRAMS / "ts_client.mjs"), sdk_folder(), *command]


async def talk(client: Client, place: Place) -> str:
    """A new session with one whole turn."""
    hello = await client.call("initialize", introduction())
    assert hello["agentCapabilities"]["loadSession"] is True
    assert hello["agentCapabilities"]["sessionCapabilities"].keys() >= {"list", "resume", "close"}
    session_id: str = (await client.call("session/new", opening(place.work)))["sessionId"]
    ended = await client.call("session/prompt", prompt(session_id, "first words"))
    assert ended["stopReason"] == "end_turn"
    assert client.asked == ["session/request_permission"]
    return session_id


async def load(client: Client, place: Place, session_id: str) -> list[Json]:
    """Load the session and return its replay."""
    await client.call("initialize", introduction())
    listed = (await client.call("session/list", {"cwd": str(place.work)}))["sessions"]
    assert [found["sessionId"] for found in listed] == [session_id]
    assert listed[0]["title"] == "first words"
    await client.call("session/load", opening(place.work, session_id))
    return client.updates(session_id)


@pytest.mark.parametrize(
    ("agent", "client", "other_client"),
    [(python_agent, python_client, ts_client), (ts_agent, ts_client, python_client)],
    ids=["python", "typescript"],
)
async def test_a_conversation_outlives_the_death_of_everything_and_goes_on(
    place: Place,
    agent: Callable[[], Command],
    client: Callable[[Sequence[str]], Command],
    other_client: Callable[[Sequence[str]], Command],
) -> None:
    acphold = place.wrapped(agent())
    async with place.client(client(acphold)) as first:
        session_id = await talk(first, place)
        whole_turn = len(first.updates(session_id))
        first.begin("session/prompt", prompt(session_id, "slow words"))
        await first.until(lambda: "tick3 " in text(first.updates(session_id)))
        await place.family.kill()
    seen = first.updates(session_id)
    assert first.odd == []

    async with place.client(client(acphold)) as second:
        replay = list(await load(second, place, session_id))
        whole = timeline(seen[:whole_turn])
        assert timeline(replay)[: len(whole)] == whole
        assert_all_there(seen, replay)
        await second.call("session/prompt", prompt(session_id, "recall it"))
        answer = text(second.updates(session_id)[len(replay) :])
        assert "first words" in answer, "what the person said"
        assert "You said: first words" in answer, "what the agent said"
        assert "tick3 " in answer, "what had been said when all was killed"
        assert answer.endswith(" | recall it"), "their own words last"
        await second.leave()
    await place.family.gone()

    async with place.client(other_client(acphold)) as third:
        again = await load(third, place, session_id)
        assert_same(second.updates(session_id), again)
        await third.leave()
    assert first.odd == second.odd == third.odd == []
    assert place.wrong_lines() == []


async def test_what_a_terminal_showed_is_replayed_and_handed_over_as_text(place: Place) -> None:
    acphold = place.wrapped(python_agent())
    async with place.client(acphold) as first:
        await first.call("initialize", introduction(terminal=True))
        session_id = (await first.call("session/new", opening(place.work)))["sessionId"]
        await first.call("session/prompt", prompt(session_id, "run it"))
        assert text(first.updates(session_id)) == "It ended with 0."
        assert first.asked[-2:] == ["terminal/output", "terminal/release"]
        await first.leave()
    await place.family.gone()

    async with place.client(acphold) as second:
        await second.call("initialize", introduction())
        await second.call("session/load", opening(place.work, session_id))
        [call] = [item for item in timeline(second.updates(session_id)) if "toolCallId" in item]
        assert call["status"] == "completed"
        shown = {"type": "text", "text": "shown\nin a terminal\n"}
        assert call["content"] == [{"type": "content", "content": shown}]
        await second.call("session/prompt", prompt(session_id, "recall it"))
        assert "shown\nin a terminal" in text(second.updates(session_id))
        await second.leave()
    assert place.wrong_lines() == []


async def test_two_sessions_that_the_agent_gives_the_same_id_stay_apart(place: Place) -> None:
    acphold = place.wrapped(python_agent())
    ids = []
    for said in ("apples", "oranges"):
        async with place.client(python_client(acphold)) as client:
            await client.call("initialize", introduction())
            session_id = (await client.call("session/new", opening(place.work)))["sessionId"]
            await client.call("session/prompt", prompt(session_id, said))
            ids.append(session_id)
            await place.family.kill()
    assert len(set(ids)) == 2, "each process of this agent begins at 0"

    async with place.client(python_client(acphold)) as client:
        await client.call("initialize", introduction())
        listed = (await client.call("session/list", {}))["sessions"]
        assert [found["sessionId"] for found in listed] == ids[::-1]
        for session_id in ids:
            await client.call("session/load", opening(place.work, session_id))
        for session_id, said, other in zip(
            ids, ("apples", "oranges"), ("oranges", "apples"), strict=True
        ):
            before = len(client.updates(session_id))
            assert other not in text(client.updates(session_id))
            await client.call("session/prompt", prompt(session_id, "recall it"))
            answer = text(client.updates(session_id)[before:])
            assert f"You said: {said}" in answer
            assert other not in answer
        await client.leave()
    assert place.wrong_lines() == []
