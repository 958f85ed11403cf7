"""`session/delete`: gone from journal, search and list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.journal.stores import open_journal
from tests.editor import open_params, prompt_params, received
from tests.served import Guest, wrapped

OWN = {"loadSession": True, "sessionCapabilities": {"list": {}, "delete": {}, "resume": {}}}


async def gone(journal: Path, *words: str) -> bool:
    """True if a search of the journal finds none of these words any more."""
    opened = open_journal(journal)
    hits = [hit for word in words for hit in await opened.index.search(word)]
    await opened.aclose()
    return not hits


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_deleted_session_is_gone_from_journal_search_and_list(
    journal: Path, is_open: bool
) -> None:
    async with wrapped(journal) as client:
        session, other = await client.new(), await client.new()
        await client.prompt(session, {"say": "xylophone"})
        await client.prompt(other, {"say": "marimba"})
        if not is_open:
            await client.call("session/close", {"sessionId": session})
        assert await client.call("session/delete", {"sessionId": session}) == {}
        assert [info["sessionId"] for info in await client.sessions()] == [other]
        for method, params in (
            ("session/load", open_params(session, "/")),
            ("session/resume", open_params(session, "/")),
            ("session/prompt", prompt_params(session, "x")),
        ):
            error = await client.refused(method, params)
            assert error.code == -32002
            assert error.data["sessionId"] == session
        await client.leave()
    assert await gone(journal, "xylophone")
    assert not await gone(journal, "marimba")


async def test_deleting_an_unknown_id_succeeds_but_not_deleting_none(client: Guest) -> None:
    assert (await client.refused("session/delete", {})).code == -32602
    for _ in range(2):
        assert await client.call("session/delete", {"sessionId": "no-such"}) == {}


async def test_delete_is_relayed_under_the_agents_id_where_it_has_it(
    journal: Path, log: Path
) -> None:
    agent: dict[str, Any] = {"capabilities": OWN, "ids": "counter"}
    async with wrapped(journal, ids="counter") as client:
        await client.prompt(await client.new(), {"say": "a"})
    async with wrapped(journal, log=str(log), **agent) as client:
        session = await client.new()
        assert session != "0"
        await client.prompt(session, {"say": "b"})
        await client.call("session/delete", {"sessionId": session})
        assert [m["params"] for m in received(log, "session/delete")] == [{"sessionId": "0"}]


async def test_deleting_a_session_whose_id_the_agent_gave_to_another_leaves_that_one_alone(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent: dict[str, Any] = {"capabilities": OWN, "ids": "counter", "store": str(tmp_path / "s")}
    async with wrapped(journal, **agent) as client:
        old = await client.talk({"say": "a"})
    async with wrapped(journal, log=str(log), **agent) as client:
        new = await client.talk({"say": "b"})
        await client.call("session/delete", {"sessionId": old})
        assert received(log, "session/delete") == []
        assert [info["sessionId"] for info in await client.sessions()] == [new]
    async with wrapped(journal, **agent) as client:
        await client.load(new)
        await client.prompt(new, {"say": "c"})
        assert client.text() == "bc"


@pytest.mark.parametrize("obeys", [True, False])
async def test_a_deleted_session_does_not_come_back_through_the_agents_own_list(
    journal: Path, tmp_path: Path, obeys: bool
) -> None:
    (store := tmp_path / "store").write_text(json.dumps({"theirs": {"cwd": "/", "updates": []}}))
    agent: dict[str, Any] = {"capabilities": OWN, "store": str(store)}
    if not obeys:
        agent["replies"] = {"session/delete": [{"error": {"code": -32603, "message": "no"}}]}
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
        assert len(await client.sessions()) == 2
        await client.call("session/delete", {"sessionId": session})
        await client.call("session/delete", {"sessionId": "theirs"})
        assert await client.sessions() == []
    async with wrapped(journal, **agent) as client:
        assert await client.sessions() == []
        for session_id in (session, "theirs"):
            error = await client.refused("session/load", open_params(session_id, "/"))
            assert error.code == -32002
