"""The list: ours and the agent's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from acphold.live.hub import bounds
from tests.hub.shared import Shared, shared


async def test_an_agent_that_does_not_list_within_its_deadline_does_not_hold_up_ours(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "AGENT_LIST_SECONDS", 0.5)
    house.agent.can("list")
    client, session = await house.opened()
    house.agent.results["session/list"] = (
        b'{"sessions":[{"sessionId":"theirs","cwd":"/"}],"nextCursor":"more"}'
    )
    house.agent.hangs_after["session/list"] = 1
    found = [info["sessionId"] for info in await client.sessions()]
    assert found == [session, "theirs"]  # the sessions listed before it hung


async def test_a_session_of_the_agent_whose_id_has_a_nul_or_is_none_is_not_taken_for_another(
    house: Shared,
) -> None:
    """A store looks up text before the NUL; an empty id is that of what is about no session."""
    house.agent.can("list")
    client, session = await house.opened()
    [(_, its)] = await house.journal.links.of(session)
    listed = [
        {"sessionId": it, "cwd": "/", "updatedAt": "2031-01-01T00:00:00Z"}
        for it in (f"{its}\0more", "", "x" * 1001, "theirs")
    ]
    house.agent.results["session/list"] = json.dumps({"sessions": listed}).encode()
    found = [info["sessionId"] for info in await client.sessions()]
    assert sorted(found) == sorted([session, "theirs"])


@pytest.mark.parametrize("is_over", [False, True])
async def test_who_follows_the_list_is_told_of_a_prompt_right_behind_another(
    monkeypatch: pytest.MonkeyPatch, is_over: bool, house: Shared
) -> None:
    monkeypatch.setattr(
        "acphold.live.hub.bounds.REST_SECONDS", 600.0
    )  # as for a client that may come back
    client, session = await house.talked("one")
    before = (await house.journal.changes(None)).last
    began = house.journal.now_ms()
    while house.journal.now_ms() == began:  # noqa: ASYNC110 - within it the list stays as it is
        await asyncio.sleep(0.001)
    await house.begun(client, session, "two")
    if is_over:
        await house.agent.end(session)
    while session not in (await house.journal.changes(before)).session_ids:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_turns_and_updates_within_a_moment_leave_the_row_of_the_list_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "TOUCH_MS", 600_000)
    monkeypatch.setattr(bounds, "REST_SECONDS", 600.0)
    async with shared(tmp_path / "journal.db") as house:
        client, session = await house.talked("one", "two")
        before = int((await house.journal.changes(None)).last)
        for _ in range(10):
            turn = await house.begun(client, session, "go")
            await house.agent.say(session, *["x "] * 10)
            await house.ended(session, turn)
        changes = int((await house.journal.changes(None)).last) - before
        assert changes == 0


async def test_the_agent_is_asked_again_only_for_a_first_page(house: Shared) -> None:
    house.agent.can("list")
    house.agent.lists = [{"sessionId": f"s{n:02}", "cwd": "/"} for n in range(60)]
    client = await house.client()
    assert len(await client.sessions()) == 60
    assert [method for method, _ in house.agent.asked] == ["session/list"]
    page = await client.call("session/list", {})
    await client.call("session/list", {"cwd": "/other"})
    rest = await client.call("session/list", {"cursor": page["nextCursor"]})
    assert len(page["sessions"] + rest["sessions"]) == 60


async def test_one_folder_has_one_list_however_it_is_spelled(tmp_path: Path, house: Shared) -> None:
    (project := tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to(project)
    house.agent.can("list")
    client = await house.client()
    sessions = [await client.new(project), await client.new(f"{project}/")]
    await client.new(tmp_path)
    house.agent.lists = [
        {"sessionId": "theirs", "cwd": str(project)},
        {"sessionId": "elsewhere", "cwd": str(tmp_path)},
    ]
    for spelling in ("", "/", "/.", "/../project", "/../link", "/../link/"):
        found = {info["sessionId"] for info in await client.sessions(cwd=f"{project}{spelling}")}
        assert found == {*sessions, "theirs"}, spelling
