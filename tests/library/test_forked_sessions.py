"""Copies, and sessions of other agents, in front of an agent whose memory is the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import acphold
from acp_wire.transports.streams import memory_pair
from acphold.conversation.history.timeline import Message
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.hub.forks import fork
from acphold.testing import connect
from tests.library.test_turn import agent_that
from tests.served import Guest


def remembering() -> acphold.Agent:
    """An agent that repeats all earlier prompts, and their number."""

    async def work(turn: acphold.Turn) -> None:
        store = turn.session.store
        store["prompts"] = store.get("prompts", 0) + 1
        said = [item.text for item in (await turn.history()).timeline if isinstance(item, Message)]
        await turn.say(f"{store['prompts']}: {said}")

    return agent_that(work)


async def test_a_fork_has_the_history_and_the_store_of_the_session_it_was_made_of(
    journal: Path,
) -> None:
    async with connect(remembering(), journal=journal) as client:
        session = await client.new_session()
        await session.prompt("one")
        first = session.id
    opened = open_journal(journal)
    made = await fork(opened, await opened.session(first))
    await opened.aclose()
    async with connect(remembering(), journal=journal) as client:
        forked = await client.load_session(made.session_id)
        said = (await forked.prompt("two")).text
        assert said == "2: ['one', '1: []']"
        again = await client.load_session(first)
        assert (await again.prompt("three")).text == said  # the two know nothing of each other


async def test_a_session_of_another_agent_is_a_history_like_its_own(journal: Path) -> None:
    opened = open_journal(journal)
    lease = await opened.create(NewSession("theirs", "codex", str(journal.parent)))
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"one"}]'])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.change(lease, RowChange(prompted=True))
    await opened.release(lease)
    here, there = memory_pair()
    serving = asyncio.create_task(remembering().serve(there, journal=journal, all_agents=True))
    client = Guest(here, serving)
    reading = asyncio.create_task(client.read())
    await client.initialize()
    assert [found["sessionId"] for found in await client.sessions()] == ["theirs"]
    await client.load("theirs", cwd=journal.parent)
    await client.prompt("theirs", "two")
    assert client.text() == "1: ['one']"
    await client.leave()
    await reading
    row = await opened.session("theirs")
    assert (row.agent, [origin.agent for origin in row.origins]) == ("test (library)", ["codex"])
    await opened.aclose()
