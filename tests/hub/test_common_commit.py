"""Many sessions publish at once: one transaction, and each client gets only its own updates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from acphold.conversation.history.entries import QUEUE
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.journal.journal import Journal
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.agents.interface import Updates
from tests.editor import DEADLINE, Refused
from tests.hub.shared import Onlooker, Shared, full, methods, said as chunk, shared

PLAN = b'{"sessionUpdate":"plan","entries":[]}'


async def say(house: Shared, **words: bytes) -> list[bool]:
    """The agent says something in each of these sessions at once; whether it was heard so."""
    return await house.desk.router.hear_together(
        [Updates(session, "update", [raw]) for session, raw in words.items()]
    )


def said(text: str) -> bytes:
    """A chunk, as our own library writes it."""
    return chunk(text).replace(b'": ', b'":').replace(b', "', b',"')


@contextmanager
def commits(journal: Journal) -> Iterator[list[str]]:
    """The transactions that this journal makes in the block."""
    assert isinstance(journal, SqliteJournal)
    found: list[str] = []
    connection = journal.connect().connection
    connection.set_trace_callback(lambda sql: found.append(sql) if sql == "COMMIT" else None)
    try:
        yield found
    finally:
        connection.set_trace_callback(None)


async def until_kept(house: Shared, sessions: list[str]) -> None:
    """Wait until the journal has a prompt of each of these."""
    async with asyncio.timeout(DEADLINE):
        for session in sessions:
            while not await house.entries(session, "prompt"):  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)


async def two_at_work(house: Shared) -> Onlooker:
    """A client with a turn in each of two sessions, s0 and s1."""
    client = await house.client()
    for _ in range(2):
        await house.at_work(client)
    return client


@pytest.mark.of_a_file
async def test_it_is_one_transaction_and_told_to_who_has_each_session(house: Shared) -> None:
    one = await two_at_work(house)
    two = await house.loaded("s1")
    with commits(house.journal) as made:
        assert await say(house, s0=said("left"), s1=said("right")) == [True, True]
    assert len(made) == 1
    await one.until_text("left")
    await one.until_text("right")
    await two.until_text("right")
    assert "left" not in two.text()
    late = await house.loaded("s0")
    assert late.text() == "left"
    assert [said("left")] == [
        entry.raw
        for segment in await house.journal.read("s0", 0)
        for entry in segment.entries()
        if entry.kind == "update"
    ]


@pytest.mark.of_a_file
async def test_a_session_tells_its_pieces_in_order_and_no_write_has_two_of_it(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client = await two_at_work(house)
    writes: list[bytes] = []
    send = client.connection.send

    def noted(lines: bytes) -> None:
        writes.append(lines)
        send(lines)

    monkeypatch.setattr(client.connection, "send", noted)
    words = [Updates(session, "update", [*map(said, "abc")]) for session in ("s0", "s1")]
    assert await house.desk.router.hear_together(words) == [True, True]
    await client.until(lambda: [client.text(session_id=it) for it in ("s0", "s1")] == 2 * ["abc"])
    assert [write.count(b"agent_message_chunk") for write in writes] == [2, 2, 2]
    assert [write.count(b'"s0"') for write in writes] == [1, 1, 1]


async def test_a_queue_that_changes_with_words_of_several_sessions_is_told(house: Shared) -> None:
    client = await house.client(_meta={"acphold/queue": True})
    for _ in range(2):
        await house.at_work(client)
    add = QueueChange("add", "p1", msgspec.Raw(b'[{"type":"text","text":"later"}]'))
    house.desk.hub.conversation("s0").session.hold(QUEUE, [msgspec.json.encode(add)])
    assert await say(house, s0=said("left"), s1=said("right")) == [True, True]
    await client.until(lambda: QUEUE_METHOD in methods(client))


@pytest.mark.of_a_file
async def test_prompts_that_come_at_once_are_one_transaction_where_the_agent_is_here(
    journal: Path,
) -> None:
    # With snapshots, the disk is read first, for each session apart.
    async with shared(journal, snapshots=False) as house:
        client = await house.client()
        house.agent.reads_journal = True
        sessions = [await client.new() for _ in range(3)]
        with commits(house.journal) as made:
            turns = [client.begin_prompt(session, "go") for session in sessions]
            for session in sessions:
                await house.agent.prompted(session)
            await until_kept(house, sessions)
        assert len(made) == 1
        for session, turn in zip(sessions, turns, strict=True):
            await house.ended(session, turn)


@pytest.mark.of_a_file
async def test_a_prompt_that_is_not_taken_with_the_others_is_committed_alone(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(SqliteJournal, "append_all", full)
    client = await house.client()
    house.agent.reads_journal = True
    sessions = [await client.new() for _ in range(2)]
    turns = [client.begin_prompt(session, "go") for session in sessions]
    for session in sessions:
        await house.agent.prompted(session)
    await until_kept(house, sessions)
    for session, turn in zip(sessions, turns, strict=True):
        await house.ended(session, turn)


async def test_what_is_more_than_speech_is_to_be_heard_alone(house: Shared) -> None:
    client = await two_at_work(house)
    assert await say(house, s0=said("words"), s1=PLAN, s9=said("early")) == [
        True,
        False,
        False,
    ]
    await client.until_text("words")


@pytest.mark.of_a_file
async def test_nobody_is_shown_what_the_journal_could_not_take(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client = await house.client()
    sessions = [await client.new() for _ in range(2)]
    turns = [await house.begun(client, session, "go") for session in sessions]
    with monkeypatch.context() as patch:
        patch.setattr(SqliteJournal, "append_all", full)
        await say(house, s0=said("left"), s1=said("right"))
    for turn in turns:
        with pytest.raises(Refused, match="the disk is full"):
            await turn
    assert client.text() == ""


async def test_the_others_go_on_when_one_session_was_taken_elsewhere(
    journal: Path, house: Shared
) -> None:
    client = await two_at_work(house)
    other = open_journal(journal)
    await other.acquire("s1")
    await say(house, s0=said("left"), s1=said("right"))
    await client.until_text("left")
    assert "right" not in client.text()
    await other.aclose()
