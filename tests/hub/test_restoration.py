"""Having the agent open a session again: bounded, and with the client's new params."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import AUTH_REQUIRED, JournalError, RemoteError
from acphold.live.hub import bounds
from tests.editor import Refused, open_params
from tests.hub.shared import Shared, shared


@pytest.fixture
async def session(journal: Path) -> str:
    """A session with a turn in it, of an agent that has ended since."""
    async with shared(journal) as house:
        _client, session = await house.talked("hi", "hello")
        return session


def asked_of(house: Shared, method: str) -> list[dict[str, Any]]:
    return [params for name, params in house.agent.asked if name == method]


async def test_a_load_and_a_resume_are_answered_soon_also_when_the_agent_hangs(
    journal: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOAD_SECONDS", 0.05)
    for resumes in (False, True):
        async with shared(journal) as house:
            house.agent.hangs_after["session/new"] = 0
            client = await house.client()
            await (client.resume(session) if resumes else client.load(session))
            assert client.text() == ("" if resumes else "hello")


@pytest.mark.parametrize("by", ["session/cancel", "session/close"])
async def test_a_cancel_and_a_close_reach_a_prompt_that_waits_for_an_agent_that_hangs(
    monkeypatch: pytest.MonkeyPatch, by: str, session: str, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "LOAD_SECONDS", 0.05)
    house.agent.hangs_after["session/new"] = 0
    client = await house.loaded(session)
    turn = client.begin_prompt(session, "and now?")
    await client.call("session/list", {})
    if by == "session/cancel":
        client.tell("session/cancel", {"sessionId": session})
    else:
        await client.call("session/close", {"sessionId": session})
    assert await asyncio.wait_for(turn, 5) == {"stopReason": "cancelled"}
    assert asked_of(house, "session/prompt") == []


async def test_an_agent_that_never_makes_a_session_is_given_up_after_its_time(
    monkeypatch: pytest.MonkeyPatch, session: str, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "LOAD_SECONDS", 0.05)
    monkeypatch.setattr(bounds, "REOPEN_SECONDS", 0.05)
    house.agent.hangs_after["session/new"] = 0
    client = await house.loaded(session)
    error = await client.refused("session/prompt", {"sessionId": session, "prompt": []})
    assert "did not answer session/new" in error.message
    assert "session/new" in house.agent.withdrawn
    house.agent.hangs_after.clear()
    ended = await house.turn(client, session, "once more", own="s0")
    assert ended == {"stopReason": "end_turn"}


async def test_a_mode_that_an_agent_never_sets_again_does_not_hold_up_the_load(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(journal) as house:
        house.agent.results["session/set_mode"] = b"{}"
        client, session = await house.opened()
        await client.call("session/set_mode", {"sessionId": session, "modeId": "code"})
    monkeypatch.setattr(bounds, "SETTING_SECONDS", 0.05)
    async with shared(journal) as house:
        house.agent.can("resume")
        house.agent.hangs_after["session/set_mode"] = 0
        client = await house.loaded(session)
        assert "session/set_mode" in house.agent.withdrawn


async def test_a_session_that_is_open_is_opened_again_with_the_servers_and_roots_of_a_new_load(
    tmp_path: Path, house: Shared
) -> None:
    roots = [str(tmp_path / name) for name in ("a", "b")]
    server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
    house.agent.can("resume", "additionalDirectories")
    client = await house.client()
    session = await client.new(additionalDirectories=roots)
    await house.turn(client, session, "hi")
    await client.load(session, additionalDirectories=roots)
    assert asked_of(house, "session/resume") == []  # nothing has changed
    await client.load(session, additionalDirectories=roots[:1], mcpServers=[server])
    [asked] = asked_of(house, "session/resume")
    assert asked["additionalDirectories"] == roots[:1]
    assert [entry["name"] for entry in asked["mcpServers"]] == ["s"]
    [info] = await client.sessions()
    assert info["additionalDirectories"] == roots[:1]
    await client.load(session)
    assert "additionalDirectories" not in asked_of(house, "session/resume")[1]
    [info] = await client.sessions()
    assert not info.get("additionalDirectories")


async def test_nothing_of_a_conversation_is_shown_before_the_sign_in_that_the_agent_demands(
    session: str, house: Shared
) -> None:
    house.agent.has_sign_in = True
    house.agent.can("resume")
    house.agent.results["session/resume"] = RemoteError(AUTH_REQUIRED, "sign in first")
    client = await house.client()
    error = await client.refused("session/load", open_params(session, "/"))
    assert error.code == AUTH_REQUIRED
    assert client.updates() == []
    house.agent.results["session/resume"] = b"{}"
    await client.load(session)
    assert client.text() == "hello"


async def test_an_open_session_answers_after_a_logout_only_once_somebody_signs_in_again(
    session: str, house: Shared
) -> None:
    house.agent.has_sign_in = True
    house.agent.can("resume")
    house.agent.results["logout"] = b"{}"
    client = await house.loaded(session)
    await client.call("logout", {})
    house.agent.results["session/resume"] = RemoteError(AUTH_REQUIRED, "sign in first")
    with pytest.raises(Refused) as refused:
        await client.begin_prompt(session, "hi")
    assert refused.value.code == AUTH_REQUIRED


@pytest.mark.of_a_file  # a database may answer after the agent was asked
async def test_a_resume_that_is_refused_has_the_agent_open_nothing(
    session: str, house: Shared
) -> None:
    house.agent.can("resume", "list")
    house.agent.lists = [{"sessionId": session, "cwd": "/"}]
    client = await house.client(_meta={"acphold/positions": True})
    house.agent.may_answer.clear()
    resuming = client.begin(
        "session/resume", open_params(session, "/", _meta={"acphold/after": 1000})
    )
    with pytest.raises(Refused, match="cannot resume after 1000"):
        await resuming
    house.agent.may_answer.set()
    for _ in range(2):
        await client.call("session/list", {})
    assert asked_of(house, "session/resume") == []


async def test_one_restoring_serves_all_who_wait_for_it(session: str, house: Shared) -> None:
    house.agent.can("resume")
    client = await house.client()
    house.agent.may_answer.clear()
    loading = client.begin("session/load", open_params(session, "/"))
    turn = client.begin_prompt(session, "hi")
    await client.until_text("hello")
    house.agent.may_answer.set()
    await loading
    await house.agent.prompted(session)
    await house.ended(session, turn)
    assert len(asked_of(house, "session/resume")) == 1


async def test_what_a_second_load_changes_while_the_first_is_restored_reaches_the_agent(
    session: str, house: Shared
) -> None:
    server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
    house.agent.can("resume")
    one, two = await house.client(), await house.client()
    house.agent.may_answer.clear()
    first = one.begin("session/load", open_params(session, "/"))
    await one.until_text("hello")
    await house.agent.was_asked("session/resume")
    second = two.begin("session/load", open_params(session, "/", mcpServers=[server]))
    await two.until_text("hello")
    house.agent.may_answer.set()
    await asyncio.gather(first, second)
    servers = [asked["mcpServers"] for asked in asked_of(house, "session/resume")]
    assert [len(given) for given in servers] == [0, 1]


async def test_a_load_that_does_not_ask_the_agent_proves_no_sign_in(house: Shared) -> None:
    house.agent.has_sign_in = True
    client = await house.client()
    working, secret = await client.new(), await client.new()
    await house.agent.say(secret, "for who is signed in")
    await client.call("session/close", {"sessionId": secret})
    turn = await house.begun(client, working, "go")
    house.agent.can("resume")
    house.agent.results["session/resume"] = RemoteError(AUTH_REQUIRED, "sign in first")
    house.agent.results["logout"] = b"{}"
    await client.call("logout", {})
    await client.load(working)  # the agent is at work in it, and is not asked
    other = await house.client()
    error = await other.refused("session/load", open_params(secret, "/"))
    assert error.code == AUTH_REQUIRED
    assert other.updates() == []
    await house.ended(working, turn)


async def test_a_turn_that_fails_while_it_waits_for_the_agent_does_not_hold_up_the_next(
    monkeypatch: pytest.MonkeyPatch, session: str, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "LOAD_SECONDS", 0.05)
    house.agent.hangs_after["session/new"] = 0
    client = await house.loaded(session)
    first = client.begin_prompt(session, "first")
    await client.call("session/list", {})
    second = client.begin_prompt(session, "second")
    await client.call("session/list", {})
    conversation = house.hub.conversation(session)
    await conversation.turns.fail(JournalError("the disk is full"))
    await asyncio.wait([first], timeout=5)
    assert "the disk is full" in str(first.exception())
    assert conversation.turns.running is not None
    client.tell("session/cancel", {"sessionId": session})
    assert await asyncio.wait_for(second, 5) == {"stopReason": "cancelled"}


async def test_a_session_that_the_agent_has_open_elsewhere_is_read_here_and_not_parted_from(
    session: str, house: Shared
) -> None:
    house.agent.can("resume")
    house.agent.results["session/resume"] = RemoteError(-32603, "session is already in use")
    client = await house.loaded(session, session={"notices": {}})
    assert client.text() == "hello"
    await client.until(lambda: [it for it in client.updates() if it.get("title")])
    way_out = f"acphold continue {session} --from last"
    assert any(way_out in str(update) for update in client.updates())
    with pytest.raises(Refused, match="close it there"):
        await client.prompt(session, "go on")
    assert not asked_of(house, "session/new")
    house.agent.results["session/resume"] = b"{}"
    assert await house.turn(client, session, "and now") == {"stopReason": "end_turn"}
