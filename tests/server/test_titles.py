"""Titles: the agent's own, or else the first line of the user's first prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.editor import Talker, update_line
from tests.served import Guest, wrapped


def info(**fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "session_info_update", **fields}}


def told(client: Talker) -> list[dict[str, Any]]:
    return [u for u in client.updates() if u["sessionUpdate"] == "session_info_update"]


async def title(client: Talker) -> Any:
    [listed] = await client.sessions()
    return listed.get("title")


async def test_the_title_is_the_first_line_of_the_first_message_after_the_first_turn(
    journal: Path,
) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
        assert await title(client) is None
        await client.prompt(session, "\n\n  Mend   the\tgate \nand the fence")
        [update] = told(client)
        assert update["title"] == "Mend the gate"
        assert "updatedAt" not in update  # the time of an activity is the list's
        assert all(key.startswith("acphold/") for key in update["_meta"])
        assert client.messages.index(client.messages[-1]) > 0
        assert client.messages[-1]["result"] == {"stopReason": "end_turn"}
        assert await title(client) == "Mend the gate"
        await client.prompt(session, "Something else")
        assert len(told(client)) == 1
    async with wrapped(journal) as client:
        assert await title(client) == "Mend the gate"
        await client.load(session)
        assert told(client)[0]["title"] == "Mend the gate"


async def test_a_title_of_the_agent_is_kept(journal: Path) -> None:
    async with wrapped(journal) as client:
        session = await client.talk(info(title="Its own", _meta={"tags": ["a"]}))
        assert [update["title"] for update in told(client)] == ["Its own"]
        assert await title(client) == "Its own"
        await client.prompt(session, "second")
        assert await title(client) == "Its own"
    async with wrapped(journal) as client:
        assert await title(client) == "Its own"


async def test_a_title_that_the_agent_sends_later_replaces_ours(client: Guest) -> None:
    session = await client.talk("first")
    assert await title(client) == "first"
    await client.prompt(session, {"say": "a"}, info(title="Better"))
    assert await title(client) == "Better"


async def test_a_partial_update_leaves_the_title_and_null_clears_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.live.hub.bounds.TOUCH_MS", 0)  # else the list has it in a second
    async with wrapped(journal) as client:
        session = await client.talk(info(title="One"))
        await client.prompt(session, info(updatedAt="2020-01-01T00:00:00Z"), info(_meta={"x": 1}))
        assert await title(client) == "One"
        await client.prompt(session, info(title=None))
        assert await title(client) is None
        await client.prompt(session, "another turn does not make one up again")
        assert await title(client) is None
    async with wrapped(journal) as client:
        assert await title(client) is None


async def test_a_title_beside_other_params_counts_too(journal: Path) -> None:
    named = {"sessionUpdate": "session_info_update", "title": "Beside"}
    async with wrapped(journal) as client:
        await client.talk({"line": update_line(named, _meta={"x": 1})})
        assert await title(client) == "Beside"


async def test_a_first_message_without_text_leaves_the_title_to_the_next(journal: Path) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    async with wrapped(journal) as client:
        session = await client.new()
        await client.call("session/prompt", {"sessionId": session, "prompt": [image]})
        assert await title(client) is None
        await client.prompt(session, "what is this?")
        assert await title(client) == "what is this?"


async def test_half_a_surrogate_pair_in_the_first_line_does_not_cost_the_title(
    client: Guest,
) -> None:
    session = await client.new()
    params = f'{{"sessionId":"{session}","prompt":[{{"type":"text","text":"cut \\ud83d"}}]}}'
    client.send_line(
        f'{{"jsonrpc":"2.0","id":80,"method":"session/prompt","params":{params}}}'.encode()
    )
    await client.until(lambda: client.messages[-1].get("id") == 80)
    assert await title(client) == "cut \ufffd"


async def meta(client: Talker) -> dict[str, Any]:
    """The `_meta` of the session that is listed, without our keys."""
    [listed] = await client.sessions()
    return {key: value for key, value in listed["_meta"].items() if not key.startswith("acphold/")}


async def test_what_the_agent_says_of_a_session_is_listed_with_it(journal: Path) -> None:
    async with wrapped(journal) as client:
        session = await client.talk(info(_meta={"tags": ["feature", "auth"], "priority": "low"}))
        await client.prompt(session, info(title="Later", _meta={"priority": "high"}))
    async with wrapped(journal) as client:
        assert await meta(client) == {"tags": ["feature", "auth"], "priority": "high"}
        await client.load(session)
        await client.prompt(session, info(title="Without"))
        assert await meta(client) == {"tags": ["feature", "auth"], "priority": "high"}
        await client.prompt(session, info(_meta=None))
        assert await meta(client) == {}


async def test_what_is_ours_or_of_the_moment_or_too_large_is_not(client: Guest) -> None:
    session = await client.talk(info(_meta={"tags": ["a"]}))
    lies: tuple[Any, ...] = (
        {"acphold/title": "person", "acphold/messageCount": 99},
        {"codex": {"threadStatus": {"type": "active"}}},
        {"goose": {"activeRunId": "run"}},
        {"jetbrains": {"air": {"version": 1, "goal": "g"}}},
        {"large": "x" * 5000},
        [],
    )
    for said in lies:
        await client.prompt(session, info(_meta=said))
        assert await meta(client) == {"tags": ["a"]}
    [listed] = await client.sessions()
    assert listed["_meta"]["acphold/messageCount"] == 7


async def test_a_number_that_nobody_can_read_spoils_no_list(journal: Path) -> None:
    raw = '{"sessionUpdate":"session_info_update","_meta":{"tags":["b"],"x":1e999}}'
    line = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$ID","update":%s}}'
    async with wrapped(journal) as client:
        await client.talk(info(_meta={"tags": ["a"]}), {"line": line % raw})
        assert await meta(client) == {"tags": ["a"]}
