"""Forks: whole turns in a session of their own, and how the agent learns of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.timeline import Message
from acphold.errors import NothingSaidError, RemoteError
from acphold.journal.journal import session_of, state_of
from acphold.live.hub.forks import Forked, fork
from acphold.machine.addresses import NODE_TOKEN
from tests.editor import open_params
from tests.hub.shared import Shared, said


async def forked(house: Shared, session: str, at: int | None = None) -> Forked:
    row = await house.journal.session(session)
    return await fork(house.journal, row, at=at)


async def words(house: Shared, session: str) -> list[str]:
    state = await state_of(house.journal, session)
    return [item.text for item in state.timeline if isinstance(item, Message)]


def prompts(house: Shared) -> list[dict[str, Any]]:
    return [params for method, params in house.agent.asked if method == "session/prompt"]


async def test_a_fork_has_the_whole_conversation_and_both_go_on_by_themselves(
    house: Shared,
) -> None:
    client, session = await house.talked("one", "ONE")
    made = await forked(house, session)
    assert made == Forked(made.session_id, turns=1, left_out=0, runs=False)
    await house.turn(client, session, "two", "TWO")
    await client.load(made.session_id)
    await house.turn(client, made.session_id, "three", "THREE", own="s1")
    assert await words(house, session) == ["one", "ONE", "two", "TWO"]
    assert await words(house, made.session_id) == ["one", "ONE", "three", "THREE"]
    listed = {found["sessionId"]: found["title"] for found in await client.sessions()}
    assert listed == {session: "one", made.session_id: "one (fork)"}


@pytest.mark.parametrize("which", ["prompt", "answer", "end"])
async def test_a_place_in_a_turn_stands_for_the_whole_turn(which: str, house: Shared) -> None:
    client, session = await house.opened()
    ends = []
    for text in ("one", "two", "three"):
        await house.turn(client, session, text, text.upper())
        ends.append((await house.journal.session(session)).last_seq)
    at = {"prompt": ends[0] + 1, "answer": ends[0] + 2, "end": ends[1]}[which]
    made = await forked(house, session, at)
    assert (made.turns, made.left_out) == (2, 1)
    assert await words(house, made.session_id) == ["one", "ONE", "two", "TWO"]


async def test_a_turn_that_runs_is_not_taken(house: Shared) -> None:
    client, session = await house.opened()
    await house.begun(client, session, "zero")
    await house.agent.say(session, "half")
    with pytest.raises(NothingSaidError, match="no finished turn"):
        await forked(house, session)
    await house.agent.end(session)
    await client.until(lambda: client.messages[-1].get("result") == {"stopReason": "end_turn"})
    await house.begun(client, session, "one")
    await house.agent.say(session, "half of one")
    made = await forked(house, session)
    assert made.runs
    assert await words(house, made.session_id) == ["zero", "half"]
    last = (await house.journal.session(session)).last_seq
    assert (await forked(house, session, last)).turns == 1


async def test_a_turn_that_a_crash_cut_off_is_taken_as_interrupted(house: Shared) -> None:
    client, session = await house.opened()
    lease = await house.journal.acquire(session)
    await house.journal.append(lease, [("prompt", [b'[{"type":"text","text":"one"}]'])])
    await house.journal.append(lease, [("update", [said("half")])])
    await house.journal.release(lease)
    made = await forked(house, session)
    assert not made.runs
    await client.load(made.session_id)
    state = await state_of(house.journal, made.session_id)
    assert state.turn == "interrupted"


async def test_there_is_no_fork_of_nothing(house: Shared) -> None:
    client, session = await house.opened()
    with pytest.raises(NothingSaidError, match="nothing to copy"):
        await forked(house, session)
    await house.turn(client, session, "one", "ONE")
    with pytest.raises(NothingSaidError, match="is before its first prompt"):
        await forked(house, session, 1)


async def test_at_one_of_several_machines_a_fork_is_made_in_a_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    house.unstable = True
    client, session = await house.talked("one", "ONE")
    monkeypatch.setenv(NODE_TOKEN, "acphold_any")
    away = open_params(session, tmp_path / "away")
    refused = await client.refused("session/fork", away)
    assert "away' on this machine" in str(refused)
    assert len(await client.sessions()) == 1
    (tmp_path / "away").mkdir()
    assert (await client.call("session/fork", away))["sessionId"] != session


async def test_an_agent_without_forks_is_handed_the_conversation(house: Shared) -> None:
    house.agent.can("load", "resume")
    client, session = await house.talked("one", "ONE")
    made = await forked(house, session)
    await client.load(made.session_id)
    await house.turn(client, made.session_id, "two", "TWO", own="s1")
    [context, own] = prompts(house)[-1]["prompt"]
    assert own["text"] == "two"
    assert "User: one" in context["text"]
    assert "Assistant: ONE" in context["text"]
    assert "session/fork" not in [method for method, _ in house.agent.asked]


async def test_an_agent_that_forks_is_asked_for_it_and_handed_nothing(house: Shared) -> None:
    house.agent.can_fork = True
    house.agent.results["session/fork"] = b'{"sessionId":"f1","modes":null}'
    house.agent.replays["session/fork"] = [said("one, told again")]
    client, session = await house.talked("one", "ONE")
    made = await forked(house, session)
    await client.load(made.session_id)
    asked = [params for method, params in house.agent.asked if method == "session/fork"]
    assert asked == [{"sessionId": session, "cwd": "/", "mcpServers": []}]
    await house.turn(client, made.session_id, "two", "TWO", own="f1")
    assert prompts(house)[-1]["prompt"] == [{"type": "text", "text": "two"}]
    assert await words(house, made.session_id) == ["one", "ONE", "two", "TWO"]
    assert await session_of(house.journal, "puppet", "f1") == made.session_id


@pytest.mark.parametrize("why", ["the agent refuses", "the source is deleted"])
async def test_where_an_agent_cannot_fork_it_is_handed_the_conversation(
    why: str, house: Shared
) -> None:
    house.agent.can_fork = True
    house.agent.results["session/fork"] = RemoteError(-32603, "not now")
    client, session = await house.talked("one", "ONE")
    made = await forked(house, session)
    if why == "the source is deleted":
        await client.call("session/delete", {"sessionId": session})
    await client.load(made.session_id)
    await house.turn(client, made.session_id, "two", "TWO", own="s1")
    assert "User: one" in json.dumps(prompts(house)[-1])


@pytest.mark.parametrize("what", ["source goes on", "only a part", "fork goes on", "other agent"])
async def test_an_agent_is_not_asked_to_fork_what_is_another_conversation(
    what: str, house: Shared
) -> None:
    house.agent.can_fork = True
    house.agent.results["session/fork"] = b'{"sessionId":"f1"}'
    client, session = await house.talked("one", "ONE")
    at = None
    if what == "only a part":
        at = (await house.journal.session(session)).last_seq
        await house.turn(client, session, "two", "TWO")
    made = await forked(house, session, at)
    if what == "source goes on":
        await house.turn(client, session, "two", "TWO")
    if what == "fork goes on":
        lease = await house.journal.acquire(made.session_id)
        await house.journal.append(lease, [("prompt", [b'[{"type":"text","text":"alone"}]'])])
        await house.journal.append(lease, [("turn_end", [b'{"interrupted":true}'])])
    if what == "other agent":
        house.agent.key = "another"
    await client.load(made.session_id)
    assert "session/fork" not in [method for method, _ in house.agent.asked]
    await house.turn(client, made.session_id, "three", "THREE", own="s1")
    assert "User: one" in json.dumps(prompts(house)[-1])
