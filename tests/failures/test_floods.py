"""Floods and unread output cost bounded memory; nothing is lost or sent twice."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import psutil
import pytest

from acphold.journal.seams import Sought
from acphold.journal.stores import open_journal
from tests.conftest import Defaults
from tests.editor import DEADLINE, prompt_params, scripted_agent, wrap_command
from tests.failures.slow_client import MEBIBYTE, SlowClient, slow_client
from tests.watched_processes import below, gone, methods, until

BOUND = 150 * MEBIBYTE
"""Memory limit of a flooded acphold; it starts with about 30 MiB."""


async def test_a_client_that_stops_reading_costs_bounded_memory_and_then_gets_all_exactly_once(
    journal: Path, tmp_path: Path
) -> None:
    count, size, flag = 20_000, 10_000, tmp_path / "flag"
    async with slow_client(wrap_command(scripted_agent()), journal) as client:
        session = await client.open()
        steps = [{"flood": [count, size]}, {"touch": str(flag)}]
        params = prompt_params(session, *steps)
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        await until(flag.exists, 40)  # the agent is not slowed: the journal has it all
        assert client.peak < BOUND
        numbers: list[int] = []
        while b'"id":1,' not in (line := await client.line()):
            text = json.loads(line)["params"]["update"].get("content", {}).get("text", "")
            while text:
                numbers.append(int(text[:8]))
                text = text[8 + size :]
        assert numbers == list(range(count))
        assert json.loads(line)["result"] == {"stopReason": "end_turn"}
        assert client.peak < BOUND


async def test_what_was_said_to_a_client_that_reads_nothing_is_listed_and_found_all_the_same(
    journal: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    async with slow_client(wrap_command(scripted_agent()), journal) as client:
        session = await client.open()
        steps = [{"say": "a needle "}, {"flood": [500, 10_000]}, {"touch": str(flag)}]
        params = prompt_params(session, *steps)
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        await until(flag.exists)
        other = open_journal(journal)
        try:
            async with asyncio.timeout(DEADLINE):
                while not await other.index.search(  # noqa: ASYNC110
                    Sought("needle", unsettled=False)
                ):
                    await asyncio.sleep(0.05)
            assert (await other.session(session)).message_count == 2
        finally:
            await other.aclose()
        assert (await client.answer(1))["result"] == {"stopReason": "end_turn"}


async def test_a_client_that_asks_and_does_not_read_is_not_read_either(journal: Path) -> None:
    count = 5000
    async with slow_client(wrap_command(scripted_agent()), journal) as client:
        await client.open()
        for number in range(49):
            params = {"cwd": "/", "mcpServers": []}
            await client.send({"id": number, "method": "session/new", "params": params})
        await client.answer(48)
        pad = {"_meta": {"pad": "x" * 10_000}}
        ask = {"method": "session/list", "params": pad}
        asking = asyncio.create_task(client.send(*[{"id": n, **ask} for n in range(count)]))
        await rests(client)
        assert not asking.done()
        assert client.peak < BOUND
        for number in range(count):
            assert len((await client.answer(number))["result"]["sessions"]) == 50
        await asking
        assert client.peak < BOUND


async def rests(client: SlowClient) -> None:
    """Wait until the program has not worked for a while."""
    process, spent, since = psutil.Process(client.process.pid), -1.0, 0.0

    def still() -> bool:
        nonlocal spent, since
        times = process.cpu_times()
        if times.user + times.system != spent:
            spent, since = times.user + times.system, time.monotonic()
        return time.monotonic() - since > 0.3

    await until(still)


async def still_serves(client: SlowClient, session: str) -> None:
    params = prompt_params(session, {"say": "hi"})
    await client.send({"id": "after", "method": "session/prompt", "params": params})
    assert (await client.answer("after"))["result"] == {"stopReason": "end_turn"}


async def test_garbage_from_the_client_costs_bounded_memory_and_the_connection_lives_on(
    journal: Path, defaults: Defaults
) -> None:
    defaults(max_message="1M")
    command = wrap_command(scripted_agent())
    async with slow_client(command, journal) as client:
        session = await client.open()
        reading = asyncio.create_task(still_serves(client, session))
        for piece in (
            b"garbage\n" * 50_000,
            b"\x00\xff" * 500_000,
            b"{" * MEBIBYTE,
            b"[]\n" * 9999,
        ):
            await client.send(piece)
        for _ in range(100):
            await client.send(b"y" * MEBIBYTE)
        await client.send(b"\n")
        await reading
        await still_serves(client, session)
        assert client.peak < BOUND


async def test_a_message_over_the_limit_is_refused_with_its_id_and_costs_bounded_memory(
    journal: Path, defaults: Defaults
) -> None:
    defaults(max_message="4M")
    command = wrap_command(scripted_agent())
    async with slow_client(command, journal) as client:
        session = await client.open()
        for number in range(3):
            params = prompt_params(session, "x" * 30 * MEBIBYTE)
            await client.send({"id": number, "method": "session/prompt", "params": params})
            error = (await client.answer(number))["error"]
            assert error["code"] == -32600
            assert f"limit of {4 * MEBIBYTE}" in error["message"]
        await still_serves(client, session)
        assert client.peak < BOUND


async def test_a_message_within_the_limit_goes_through_whole(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with slow_client(wrap_command(scripted_agent(log=str(log))), journal) as client:
        session = await client.open()
        text = "é" * 2 * MEBIBYTE
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        while "heard" not in str(message := await client.message())[:500]:
            pass
        assert text in message["params"]["update"]["content"]["text"].encode().decode(
            "unicode_escape"
        )


async def test_very_many_notifications_pass_in_order_and_cost_bounded_memory(
    journal: Path, tmp_path: Path
) -> None:
    count, log = 100_000, tmp_path / "log"
    async with slow_client(wrap_command(scripted_agent(log=str(log))), journal) as client:
        session = await client.open()
        told = b'{"jsonrpc":"2.0","method":"_test/told","params":{"number":%d}}\n'
        for start in range(0, count, 1000):
            await client.send(b"".join(told % number for number in range(start, start + 1000)))
        await still_serves(client, session)
        lines = [line for line in log.read_text().splitlines() if "_test/told" in line]
        assert [json.loads(line)["params"]["number"] for line in lines] == list(range(count))
        assert client.peak < BOUND


async def test_an_agent_that_never_reads_costs_bounded_memory_and_holds_nobody(
    journal: Path, defaults: Defaults
) -> None:
    defaults(max_message="8M", cancel_grace=0.2)
    command = wrap_command(scripted_agent(reads=2))
    async with slow_client(command, journal) as client:
        session = await client.open()
        params = prompt_params(session, "x" * 4 * MEBIBYTE)
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        told = {"method": "_test/told", "params": {"pad": "y" * MEBIBYTE}}
        sending = asyncio.create_task(client.send(*[told] * 60))
        await asyncio.wait_for(sending, 20)
        for number in range(2, 20):
            ask = {"id": number, "method": "_test/asked", "params": {"pad": "z" * MEBIBYTE}}
            await client.send(ask)
        await client.send({"method": "session/cancel", "params": {"sessionId": session}})
        refused = await client.answer(19)
        assert "does not read" in refused["error"]["message"]
        await client.send({"id": "list", "method": "session/list", "params": {}})
        listed = (await client.answer("list"))["result"]["sessions"]
        assert [info["sessionId"] for info in listed] == [session]
        assert client.peak < BOUND
        everybody = below(client.process.pid)
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await asyncio.wait_for(client.process.wait(), 15) == 0
        await gone(everybody, 5)


async def test_an_agent_that_writes_while_much_is_on_its_way_to_it_does_not_stand_still(
    journal: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    command = wrap_command(scripted_agent(**{"one thread": True}))
    async with slow_client(command, journal) as client:
        busy = await client.open()
        await client.send(
            {"id": "m", "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
        )
        other = (await client.answer("m"))["result"]["sessionId"]
        steps = [{"until": str(flag)}, {"flood": [2000, 10_000]}]
        params = prompt_params(busy, *steps)
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        params = prompt_params(other, {"say": "read"})
        params["prompt"].append({"type": "text", "text": "x" * 12 * MEBIBYTE})
        sending = asyncio.create_task(
            client.send({"id": 2, "method": "session/prompt", "params": params})
        )
        await rests(client)  # the agent reads nothing: its messages wait in acphold
        flag.touch()
        ended: dict[int, object] = {}
        while len(ended) < 2:  # in any order: flooded updates are read from the journal
            if (message := await client.message()).get("id") in (1, 2):
                ended[message["id"]] = message["result"]
        assert ended == {number: {"stopReason": "end_turn"} for number in (1, 2)}
        await sending


async def test_requests_of_the_agent_to_a_slow_client_are_all_answered_and_cost_bounded_memory(
    journal: Path,
) -> None:
    async with slow_client(wrap_command(scripted_agent()), journal) as client:
        session = await client.open()
        params = prompt_params(
            session, {"ask many": [300, "_test/asked", {"pad": "x" * 1_000_000}]}
        )
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        await rests(client)
        assert client.peak < BOUND
        answered = 0
        while "id" not in (message := await client.message()) or "method" in message:
            if "id" in message:
                await client.send({"id": message["id"], "result": {}})
                answered += 1
        assert message == {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}
        assert answered == 300
        assert client.peak < BOUND


async def test_the_editor_can_leave_in_the_middle_of_a_flood_at_an_agent_that_never_reads(
    journal: Path,
) -> None:
    async with slow_client(wrap_command(scripted_agent(reads=2)), journal) as client:
        await client.open()
        told = {"method": "_test/told", "params": {"pad": "y" * MEBIBYTE}}
        await client.send(*[told] * 10)
        everybody = below(client.process.pid)
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await asyncio.wait_for(client.process.wait(), 15) == 0
        await gone(everybody, 5)


@pytest.mark.parametrize("reads", [True, False])
async def test_updates_of_an_agent_that_floods_do_not_keep_a_cancellation_from_it(
    journal: Path, tmp_path: Path, reads: bool, defaults: Defaults
) -> None:
    defaults(cancel_grace=0.5)
    log = tmp_path / "log"
    command = wrap_command(scripted_agent(log=str(log)))
    async with slow_client(command, journal) as client:
        session = await client.open()
        params = prompt_params(session, {"flood": [10**9, 1000]})
        await client.send({"id": 1, "method": "session/prompt", "params": params})
        await until(lambda: methods(log)[-1] == "session/prompt")
        if reads:
            while b"00000100x" not in await client.line():
                pass
        await until(lambda: methods(log)[-1] == "session/prompt")
        await client.send({"method": "session/cancel", "params": {"sessionId": session}})
        await until(lambda: methods(log)[-1] == "session/cancel")
        assert (await client.answer(1))["result"] == {"stopReason": "cancelled"}
