"""What many sessions publish in one moment: one transaction, and each client is told its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acphold.agents import Updates
from acphold.errors import JournalUnavailableError
from acphold.journal.sqlite.store import SqliteJournal
from tests.editor import Refused
from tests.hub.shared import Onlooker, Shared, shared
from tests.hub.shared import said as chunk

PLAN = b'{"sessionUpdate":"plan","entries":[]}'


async def say(house: Shared, **words: bytes) -> list[bool]:
    """The agent says something in each of these sessions at once; whether it was heard so."""
    return await house.hub.router.hear_together(
        [Updates(session, "update", [raw]) for session, raw in words.items()]
    )


def said(text: str) -> bytes:
    """A chunk, as our own library writes it."""
    return chunk(text).replace(b'": ', b'":').replace(b', "', b',"')


@contextmanager
def commits(journal: SqliteJournal) -> Iterator[list[str]]:
    """The transactions that this journal makes in the block."""
    found: list[str] = []
    connection = journal.connect().connection
    connection.set_trace_callback(lambda sql: found.append(sql) if sql == "COMMIT" else None)
    try:
        yield found
    finally:
        connection.set_trace_callback(None)


async def two_at_work(house: Shared) -> Onlooker:
    """A client with a turn in each of two sessions, s0 and s1."""
    client = await house.client()
    for _ in range(2):
        await house.at_work(client)
    return client


async def test_it_is_one_transaction_and_told_to_who_has_each_session(journal: Path) -> None:
    async with shared(journal) as house:
        one = await two_at_work(house)
        two = await house.loaded("s1")
        with commits(house.journal) as made:
            assert await say(house, s0=said("left"), s1=said("right")) == [True, True]
        assert len(made) == 1
        await one.until_text("left")
        await one.until_text("right")
        await two.until_text("right")
        assert "left" not in two.text()
        assert [said("left")] == [
            entry.raw
            for segment in await house.journal.read("s0", 0)
            for entry in segment.entries()
            if entry.kind == "update"
        ]


async def test_what_is_more_than_speech_is_to_be_heard_alone(journal: Path) -> None:
    async with shared(journal) as house:
        client = await two_at_work(house)
        assert await say(house, s0=said("words"), s1=PLAN, s9=said("early")) == [
            True,
            False,
            False,
        ]
        await client.until_text("words")


async def test_nobody_is_shown_what_the_journal_could_not_take(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(journal) as house:
        client = await house.client()
        sessions = [await client.new() for _ in range(2)]
        turns = [await house.begun(client, session, "go") for session in sessions]

        async def full(*_: object) -> None:
            raise JournalUnavailableError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteJournal, "append_all", full)
            await say(house, s0=said("left"), s1=said("right"))
        for turn in turns:
            with pytest.raises(Refused, match="the disk is full"):
                await turn
        assert client.text() == ""


async def test_the_others_go_on_when_one_session_was_taken_elsewhere(journal: Path) -> None:
    async with shared(journal) as house:
        client = await two_at_work(house)
        other = SqliteJournal.open(journal)
        await other.acquire("s1")
        await say(house, s0=said("left"), s1=said("right"))
        await client.until_text("left")
        assert "right" not in client.text()
        await other.aclose()
