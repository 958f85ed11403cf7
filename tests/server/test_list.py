"""`session/list`: the journal's sessions and those of the agent, in one list."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from tests.editor import received
from tests.served import Guest, wrapped

INVALID_PARAMS = -32602


async def filled(journal: Path, count: int, cwd: str = "/", agent: str = "scripted") -> list[str]:
    """So many prompted sessions, a second apart, the newest last."""
    opened = open_journal(journal)
    ids = []
    for number in range(count):
        session_id = f"{cwd.strip('/')}-{number:03}"
        lease = await opened.create(NewSession(session_id, agent, cwd))
        await opened.change(
            lease, RowChange(updated_at=1_700_000_000_000 + number * 1000, prompted=True)
        )
        ids.append(session_id)
    await opened.aclose()
    return ids


async def next_millisecond() -> None:
    """Times in the list are in milliseconds, and a turn may take less."""
    await asyncio.sleep(0.002)  # for the clock, nothing else


def ids(sessions: list[dict[str, Any]]) -> list[str]:
    return [info["sessionId"] for info in sessions]


async def test_no_sessions_is_an_empty_list(client: Guest) -> None:
    assert await client.call("session/list", {}) == {"sessions": []}
    await client.prompt(await client.new(), {"say": "a"})
    assert await client.call("session/list", {"cwd": "/nowhere"}) == {"sessions": []}


async def test_list_needs_no_params(client: Guest) -> None:
    client.send({"id": 50, "method": "session/list"})
    await client.until(lambda: client.messages[-1].get("id") == 50)
    assert client.messages[-1]["result"] == {"sessions": []}
    result = await client.call("session/list", {"cwd": None, "cursor": None})
    assert result == {"sessions": []}


async def test_the_newest_comes_first(journal: Path) -> None:
    async with wrapped(journal) as client:
        first, second, third = [await client.new() for _ in range(3)]
        for session in (second, third, first):
            await client.prompt(session, {"say": "a"})
            await next_millisecond()
        assert ids(await client.sessions()) == [first, third, second]
        await client.leave()
    async with wrapped(journal) as client:
        # Leaving is no activity: neither the order nor the times change.
        assert ids(await client.sessions()) == [first, third, second]


async def test_loading_a_session_does_not_move_it(journal: Path) -> None:
    made = await filled(journal, 3)
    async with wrapped(journal) as client:
        before = await client.sessions()
        await client.load(made[0])
        assert await client.sessions() == before
        await client.leave()
    async with wrapped(journal) as client:
        assert await client.sessions() == before


async def test_a_cwd_that_is_no_absolute_path_is_refused(client: Guest) -> None:
    for cwd in ("work", "/wo\0rk"):
        error = await client.refused("session/list", {"cwd": cwd})
        assert error.code == INVALID_PARAMS
        assert "cwd" in error.message


async def test_pages_hold_50_and_the_cursor_leads_through_all_of_them(journal: Path) -> None:
    made = await filled(journal, 120)
    async with wrapped(journal) as client:
        sizes, cursor, seen = [], None, []
        while True:
            page = await client.call("session/list", {"cursor": cursor} if cursor else {})
            sizes.append(len(page["sessions"]))
            seen += ids(page["sessions"])
            cursor = page.get("nextCursor")
            if cursor is None:
                assert "nextCursor" not in page
                break
        assert sizes == [50, 50, 20]
        assert seen == made[::-1]


async def test_an_exact_page_has_no_cursor(journal: Path) -> None:
    await filled(journal, 50)
    async with wrapped(journal) as client:
        page = await client.call("session/list", {})
        assert len(page["sessions"]) == 50
        assert "nextCursor" not in page


async def test_a_cursor_that_is_none_or_of_another_filter_is_refused(journal: Path) -> None:
    await filled(journal, 51, "/one")
    async with wrapped(journal) as client:
        cursor = (await client.call("session/list", {"cwd": "/one"}))["nextCursor"]
        assert len(await client.call("session/list", {"cwd": "/one", "cursor": cursor})) == 1
        for wrong in (
            {"cwd": "/one", "cursor": cursor + "A"},
            {"cwd": "/one", "cursor": ""},
            {"cwd": "/two", "cursor": cursor},
            {"cursor": cursor},
        ):
            error = await client.refused("session/list", wrong)
            assert error.code == INVALID_PARAMS, wrong
            assert "cursor" in error.message


async def test_only_this_agents_sessions_are_listed(journal: Path) -> None:
    theirs = await filled(journal, 1, "/theirs", agent="another")
    ours = await filled(journal, 1, "/ours")
    async with wrapped(journal) as client:
        assert ids(await client.sessions()) == ours
    async with wrapped(journal, info={"name": "another", "version": "1"}) as client:
        assert ids(await client.sessions()) == theirs


async def test_a_session_without_a_prompt_is_listed_while_held_and_then_only_loadable(
    journal: Path,
) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
        assert ids(await client.sessions()) == [session]
        await client.call("session/close", {"sessionId": session})
        assert await client.sessions() == []
        await client.load(session)
        assert ids(await client.sessions()) == [session]
    async with wrapped(journal) as client:
        assert await client.sessions() == []
        await client.load(session)
        assert ids(await client.sessions()) == [session]
        await client.prompt(session, {"say": "a"})
    async with wrapped(journal) as client:
        assert ids(await client.sessions()) == [session]


LISTS = {"loadSession": True, "sessionCapabilities": {"list": {}}}


def stored(store: Path, **sessions: Any) -> dict[str, Any]:
    """The options of an agent that has these sessions of its own."""
    store.write_text(
        json.dumps({key: {"cwd": "/", "updates": [], **value} for key, value in sessions.items()})
    )
    return {"store": str(store), "capabilities": LISTS}


async def test_the_agents_own_sessions_stand_in_the_same_list_each_once(
    journal: Path, tmp_path: Path
) -> None:
    made = await filled(journal, 2)
    agent = stored(
        tmp_path / "store",
        older={"info": {"title": "Old", "updatedAt": "2001-01-01T00:00:00Z"}},
        newer={"info": {"updatedAt": "2999-01-01T00:00:00+02:00", "_meta": {"x": 1}, "new": 2}},
        undated={},
    )
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "known to both"})
        listed = await client.sessions()
        assert ids(listed) == ["newer", session, *made[::-1], "older", "undated"]
        newer = listed[0]
        assert newer["_meta"] == {"x": 1}
        assert newer["new"] == 2
        assert listed[-2]["title"] == "Old"


@pytest.mark.parametrize("cwd", ["", ".", "work", "~/work"])
async def test_a_session_of_the_agents_own_without_an_absolute_folder_is_not_handed_on(
    journal: Path, tmp_path: Path, cwd: str
) -> None:
    agent = stored(tmp_path / "store", here={"cwd": "/here"}, there={"cwd": cwd})
    async with wrapped(journal, **agent) as client:
        assert ids(await client.sessions()) == ["here"]
        assert ids(await client.sessions(cwd="/here")) == ["here"]


async def test_the_agents_own_sessions_are_filtered_by_cwd_even_if_it_does_not(
    journal: Path, tmp_path: Path
) -> None:
    agent = stored(tmp_path / "store", here={"cwd": "/here"}, there={"cwd": "/there"})
    async with wrapped(journal, **agent) as client:
        assert ids(await client.sessions(cwd="/here")) == ["here"]


async def test_the_agents_own_list_is_asked_for_page_by_page(journal: Path, log: Path) -> None:
    pages = [
        {"sessions": [{"sessionId": f"s{n}", "cwd": "/"}], "nextCursor": f"c{n}"} for n in range(3)
    ]
    pages += [{"sessions": [{"sessionId": "s3", "cwd": "/"}, {"sessionId": "s0", "cwd": "/"}]}]
    agent: dict[str, Any] = {"capabilities": LISTS, "replies": {"session/list": pages}}
    async with wrapped(journal, log=str(log), **agent) as client:
        assert sorted(ids(await client.sessions())) == ["s0", "s1", "s2", "s3"]
        asked = [message["params"].get("cursor") for message in received(log, "session/list")]
        assert asked == [None, "c0", "c1", "c2"]


async def test_many_sessions_of_the_agents_own_are_paged_among_ours(
    journal: Path, tmp_path: Path
) -> None:
    made = await filled(journal, 60)
    theirs = {
        f"t{n:03}": {"info": {"updatedAt": f"2023-11-14T22:{13 + n // 60:02}:{n % 60:02}.500Z"}}
        for n in range(60)
    }
    agent = stored(tmp_path / "store", **theirs)
    async with wrapped(journal, **agent) as client:
        listed = await client.sessions()
        assert sorted(ids(listed)) == sorted([*made, *theirs])
        times = [info["updatedAt"] for info in listed]
        assert times == sorted(times, reverse=True)


async def test_a_failing_list_of_the_agent_never_fails_ours(journal: Path) -> None:
    made = await filled(journal, 2)
    replies: list[Any] = [
        {"error": {"code": -32603, "message": "no"}},
        None,
        {},
        {"sessions": None},
        {"sessions": [{"sessionId": 7}, {"cwd": "/"}, "x"]},
        [],
    ]
    asked = {"session/list": replies}
    async with wrapped(journal, capabilities=LISTS, replies=asked) as client:
        for reply in replies:
            assert ids(await client.sessions()) == made[::-1], reply


async def test_one_line_of_the_agents_list_that_cannot_be_read_is_left_out(journal: Path) -> None:
    sessions = [{"sessionId": 7, "cwd": "/"}, {"sessionId": "good", "cwd": "/", "title": 5}]
    replies = {"session/list": [{"sessions": sessions}]}
    async with wrapped(journal, capabilities=LISTS, replies=replies) as client:
        assert await client.sessions() == [{"sessionId": "good", "cwd": "/"}]


async def test_an_agent_whose_cursor_goes_in_circles_is_left(journal: Path) -> None:
    page = {"sessions": [{"sessionId": "s", "cwd": "/"}], "nextCursor": "same"}
    async with wrapped(journal, capabilities=LISTS, replies={"session/list": [page]}) as client:
        assert ids(await client.sessions()) == ["s"]


async def test_an_agent_that_does_not_list_is_not_asked(log: Path, client: Guest) -> None:
    await client.sessions()
    assert received(log, "session/list") == []
