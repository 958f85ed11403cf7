"""Calls end, whatever the server does: each has a deadline, and a cancel reaches it at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from acp_wire.schema import McpServerHttp
from acphold.mcp_servers.connections import Ready
from acphold.mcp_servers.errors import McpAnswerError, McpConnectError, McpLostError
from acphold.mcp_servers.offers import Progress
from tests.mcp_servers.conftest import Connect, Faulty
from tests.mcp_servers.http_faults import FaultyHttp

LONG = {"text": "x" * 1_000_000}
"""Arguments that no pipe holds."""


async def test_a_call_without_an_answer_ends_by_itself(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.CALL_SECONDS", 0.2)
    connection = connect(faulty("ok"))
    with pytest.raises(McpAnswerError, match="did not answer `tools/call` for a long time"):
        await connection.call("hang")
    with pytest.raises(McpAnswerError, match="did not answer `resources/read` for a long time"):
        await connection.read_resource("mute:x")
    assert (await connection.call("ok")).text == "ok {}"


async def test_a_call_that_reports_progress_goes_on(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Progress] = []

    async def report(progress: Progress) -> None:
        reports.append(progress)

    connection = connect(faulty("ok"))
    await connection.ready()
    monkeypatch.setattr("acphold.mcp_servers.bounds.CALL_SECONDS", 0.4)
    assert (await connection.call("work", on_progress=report)).text == "ok {}"  # half a second
    assert len(reports) == 5


async def test_a_call_waits_while_the_server_waits_for_a_person(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elicit(server: str, params: dict[str, object]) -> dict[str, object]:
        await asyncio.sleep(0.5)
        return {"action": "decline"}

    monkeypatch.setattr("acphold.mcp_servers.bounds.CALL_SECONDS", 0.2)
    connection = connect(faulty("ok"), elicitation=elicit)
    assert "decline" in (await connection.call("ask")).text
    with pytest.raises(McpAnswerError, match="did not answer"):
        await connection.call("hang")


async def test_a_server_that_never_reads_does_not_hold_up_a_call_nor_its_cancel(
    faulty: Faulty, connect: Connect
) -> None:
    connection = connect(faulty("deaf"))
    await connection.ready()
    with pytest.raises(McpAnswerError, match=r"did not answer `tools/call` for 0\.1 s"):
        await connection.call("ok", LONG, seconds=0.1)
    call = asyncio.create_task(connection.call("ok", LONG))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_server_that_never_reads_is_given_up(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.TAKE_SECONDS", 0.2)
    connection = connect(faulty("deaf"))
    with pytest.raises(McpLostError, match=r"it accepted no message for 0\.2 s"):
        await connection.call("ok", LONG)


async def test_a_server_that_leaves_notices_unanswered_holds_up_no_call(
    faulty_url: FaultyHttp, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.NOTICE_SECONDS", 0.2)
    connection = connect(McpServerHttp(name="far", url=faulty_url.url("deaf"), headers=()))
    async with asyncio.timeout(5):
        assert (await connection.call("t")).text == "called"


async def test_a_server_that_can_neither_be_used_nor_left_is_reported_with_the_reason(
    faulty_url: FaultyHttp, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.SESSION_CLOSE_SECONDS", 0.2)
    connection = connect(McpServerHttp(name="far", url=faulty_url.url("clings"), headers=()))
    with pytest.raises(McpConnectError, match="its answer to `initialize` cannot be used"):
        await connection.ready()
    assert faulty_url.seen[-1][0] == "DELETE"


async def test_a_flood_of_notifications_stops_nobody(faulty: Faulty, connect: Connect) -> None:
    connection = connect(faulty("flood"), deadline=30.0)
    longest = 0.0
    async with asyncio.timeout(30):
        calling = asyncio.create_task(connection.call("ok"))
        while not calling.done():
            began = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - began)
    assert (await calling).text == "ok {}"
    assert longest < 1.0


async def test_the_newest_of_a_flood_of_progress_is_reported(
    faulty: Faulty, connect: Connect
) -> None:
    heard: list[float] = []

    async def report(progress: Progress) -> None:
        heard.append(progress.done)
        await asyncio.sleep(0.05 if len(heard) == 1 else 0)

    await connect(faulty("ok")).call("hasten", on_progress=report)
    assert heard == sorted(heard)
    assert heard[-1] == 999


async def test_a_server_that_asks_without_reading_is_given_up(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.UNSENT_MESSAGES", 100)
    connection = connect(faulty("ok"))
    with pytest.raises(McpLostError, match="it asks without reading: 100 answers"):
        await connection.call("ping")


async def test_a_flood_of_questions_does_not_reach_the_person(
    faulty: Faulty, connect: Connect
) -> None:
    asked: list[object] = []
    begun = asyncio.Event()

    async def elicit(server: str, params: dict[str, object]) -> dict[str, object]:
        asked.append(params)
        begun.set()
        await asyncio.Event().wait()
        return {}

    connection = connect(faulty("ok"), elicitation=elicit)
    call = asyncio.create_task(connection.call("pester"))
    await begun.wait()
    assert (await connection.call("ok")).text == "ok {}"
    call.cancel()
    assert len(asked) <= 20


@pytest.mark.parametrize("tool", ["twice", "surprise"])
async def test_answers_that_nobody_waits_for_are_ignored(
    faulty: Faulty, connect: Connect, tool: str
) -> None:
    connection = connect(faulty("ok"))
    assert (await connection.call(tool)).text == "ok {}"
    assert (await connection.call("ok")).text == "ok {}"
    assert isinstance(connection.state, Ready)


async def test_closing_ends_every_call(faulty: Faulty, connect: Connect) -> None:
    connection = connect(faulty("ok"))
    await connection.ready()
    calls = [asyncio.create_task(connection.call("hang")) for _ in range(3)]
    await asyncio.sleep(0)
    await connection.aclose()
    for call in calls:
        with pytest.raises((McpLostError, McpConnectError)):
            await call
