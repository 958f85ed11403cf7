"""Tool calls, as a client sees them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import acphold
from acphold.live.hub import bounds
from acphold.testing import WatchedTurn
from tests.library.test_turn import agent_that, one_turn, opened


def statuses(result: WatchedTurn) -> list[str]:
    """The statuses of the one call there is, in order."""
    first = [update.get("status", "pending") for update in result.received.of("tool_call")]
    return first + [
        update["status"] for update in result.received.of("tool_call_update") if "status" in update
    ]


async def test_a_call_is_pending_then_in_progress_then_completed() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look", kind="search", name="grep", input={"for": "x"}) as call:
            await call.content("found", acphold.ResourceLink(name="a", uri="file:///a"))
            await call.output(["a"])

    result = await one_turn(work)
    assert statuses(result) == ["pending", "in_progress", "completed"]
    [call] = result.tool_calls
    assert (call.title, call.kind, call.raw_input) == ("Look", "search", b'{"for":"x"}')
    assert call.raw_output == b'["a"]'
    assert len(call.content) == 2
    assert result.received.of("tool_call")[0]["name"] == "grep"


async def test_an_exception_marks_it_failed_with_its_words() -> None:
    async def work(turn: acphold.Turn) -> None:
        with pytest.raises(ZeroDivisionError):
            async with turn.tool("Divide"):
                _ = 1 / 0

    result = await one_turn(work)
    assert statuses(result) == ["pending", "in_progress", "failed"]
    assert b"ZeroDivisionError: division by zero" in result.tool_calls[0].content[0]


async def test_what_a_call_shows_grows_and_is_not_sent_again_at_its_end() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look") as call:
            await call.content("one")
            await call.content("two")

    result = await one_turn(work)
    shown = [
        len(update["content"])
        for update in result.received.of("tool_call_update")
        if "content" in update
    ]
    assert shown == [1, 2]


async def test_progress_is_shown_until_something_else_is() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look") as call:
            await call.progress("1 of 2")
            await call.progress("2 of 2")
        async with turn.tool("Look again") as call:
            await call.progress("1 of 1")
            await call.content("found")

    first, second = (await one_turn(work)).tool_calls
    assert first.content == []
    assert [b"found" in item for item in second.content] == [True]


async def test_one_location_is_no_list_of_letters() -> None:
    async def work(turn: acphold.Turn) -> None:
        turn.tool("Change", locations="a.py")

    with pytest.raises(acphold.RemoteError, match="the locations of a tool are a list"):
        await one_turn(work)


async def test_diffs_and_locations_start_at_the_cwd(work: Path) -> None:
    async def change(turn: acphold.Turn) -> None:
        async with turn.tool("Change", kind="edit", locations=["a.py", ("b.py", 7)]) as call:
            await call.diff("./sub/../a.py", "new", "old")
            await call.location("/etc/hosts")

    result = await one_turn(change, cwd=work)
    [call] = result.tool_calls
    assert f'"path":"{work}/a.py","newText":"new","oldText":"old"'.encode() in call.content[0]
    places = result.received.of("tool_call_update")[-2]["locations"]
    assert places == [
        {"path": f"{work}/a.py"},
        {"path": f"{work}/b.py", "line": 7},
        {"path": "/etc/hosts"},
    ]


async def test_what_is_set_before_the_announcement_is_announced() -> None:
    async def work(turn: acphold.Turn) -> None:
        call = turn.tool("Change")
        await call.diff("/a", "new")
        await call.announce()

    result = await one_turn(work)
    assert result.received.of("tool_call")[0]["content"][0]["type"] == "diff"


async def test_a_call_that_is_over_stays_as_it_ended() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look") as call:
            await call.fail("nothing there")

    result = await one_turn(work)
    assert statuses(result) == ["pending", "in_progress", "failed"]


async def test_a_call_keeps_the_output_of_a_command_that_runs_here() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with (
            turn.tool("Run", kind="execute") as call,
            turn.terminal("/bin/sh", "-c", "echo '```'; exit 3") as running,
        ):
            await call.terminal(running)
            await running.wait()

    [call] = (await one_turn(work)).tool_calls
    assert call.raw_output == b'{"truncated":false,"exitCode":3,"signal":null}'
    assert b'"````\\n```\\n````"' in call.content[0]


LINE = "x" * 69 + "\n"


async def _shown_in_a_loop(lines: int, path: Path) -> tuple[int, int, int]:
    """Return the bytes of the updates of so many lines, those of the replay, and the text's."""

    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Count") as call:
            for number in range(lines):
                await call.content(LINE)
                await call.location("/a", number)

    async with opened(agent_that(work), journal=path) as (client, session):
        live = (await session.prompt("go")).received
        await client.restart()
        replayed = (await client.load_session(session.id)).received
        [call] = replayed.tool_calls
        assert len(call.content) == lines
        assert call.fields["locations"].count(b'"line"') == lines
        assert call.status == "completed"
        return sum(map(len, live.raws)), sum(map(len, replayed.raws)), lines * len(LINE)


async def test_what_is_shown_in_a_loop_costs_in_proportion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SETTLE_CLOSE_SECONDS", 60.0)  # a busy machine needs more than 1
    few_live, few_replayed, few = await _shown_in_a_loop(300, tmp_path / "few.db")
    many_live, many_replayed, many = await _shown_in_a_loop(4800, tmp_path / "many.db")
    assert many_live < 10 * many
    assert many_live / many < 2 * few_live / few
    assert many_replayed <= 3 * many
    assert few_replayed <= 3 * few


async def test_the_last_of_much_that_is_shown_comes_without_the_end_of_the_call() -> None:
    shown = asyncio.Event()

    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Count") as call:
            for number in range(200):
                await call.content(f"{number} {LINE}")
            await shown.wait()

    async with opened(agent_that(work)) as (_, session):
        turn = session.prompt("go")
        await session.until(lambda received: b'"199 ' in b"".join(received.raws))
        shown.set()
        await turn


async def test_what_a_call_shows_is_replaced() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look") as call:
            await call.content("one", "two")
            await call.replace("three")

    [call] = (await one_turn(work)).tool_calls
    assert [b"three" in item for item in call.content] == [True]
