"""Limits on unread updates, and the agent that waits at the limit."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from acphold.client.bounds import INBOX_BYTES
from acphold.client.inbox import Backpressure, Inbox
from tests.client.far_agent import FarAgent, in_session, talking

PIECE = "x" * 1000
NUMBER = 8000
"""Pieces of a flood: eight times the limit of unread updates."""


def flooding(number: int = NUMBER) -> tuple[FarAgent, list[int]]:
    """An agent that floods as fast as it is read, and how far it has got."""
    far, sent = FarAgent(), [0]

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        for _ in range(number):
            agent.say(params["sessionId"], PIECE)
            sent[0] += 1
            await agent.drain()
        return {"stopReason": "end_turn"}

    return far, sent


async def standstill(sent: list[int]) -> int:
    """Return the number sent once the agent is stuck: nothing else is left to run."""
    before = -1
    while before != sent[0]:
        before = sent[0]
        for _ in range(100):
            await asyncio.sleep(0)
    return before


async def test_an_agent_waits_for_a_program_that_does_not_read_and_nothing_is_lost() -> None:
    far, sent = flooding()
    async with in_session(far) as session:
        turn = session.prompt("flood")
        await anext(turn)
        stopped_at = await standstill(sent)
        assert INBOX_BYTES // 1200 < stopped_at < 2 * INBOX_BYTES // 1000
        assert [update async for update in turn].__len__() == NUMBER - 1
        assert turn.stop_reason == "end_turn"


async def test_whoever_waits_for_an_answer_is_not_locked_out_by_what_is_unread() -> None:
    far, sent = flooding()
    async with talking(far) as agent:
        session = await agent.new_session("/tmp")
        turn = session.prompt("flood")
        await standstill(sent)
        other = await agent.new_session("/tmp")  # its answer lies behind the flood so far
        far.acts.clear()
        assert (await other.prompt("hello")).text == "heard hello"
        assert len([update async for update in turn]) == NUMBER


async def test_a_reader_that_is_gone_holds_nobody_up() -> None:
    far, sent = flooding()
    async with in_session(far) as session:
        watching = session.updates()
        turn = session.prompt("flood")
        reading = asyncio.create_task(turn._over())
        await standstill(sent)
        del watching
        gc.collect()
        await reading
        assert sent == [NUMBER]


async def test_awaiting_a_turn_takes_what_is_unread() -> None:
    far, sent = flooding()
    async with in_session(far) as session:
        turn = session.prompt("flood")
        await standstill(sent)
        assert len((await turn).text) == NUMBER * len(PIECE)


async def test_leaving_the_block_does_not_wait_for_what_is_unread() -> None:
    far, sent = flooding()
    async with in_session(far) as session:
        session.prompt("flood")
        await standstill(sent)


async def test_reading_goes_on_when_half_of_an_inbox_is_free() -> None:
    flow = Backpressure()
    inbox = Inbox(flow, limit=100)
    inbox.put([b"x" * 30] * 4)
    waiting = asyncio.create_task(flow.room())
    await asyncio.sleep(0)
    for expected in (False, False, True):
        await inbox.take()
        await asyncio.sleep(0)
        assert waiting.done() is expected
