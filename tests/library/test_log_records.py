"""Log records name their session and turn, and tell the story of a turn."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import acphold
from acphold.testing import connect
from tests.library.test_turn import agent_that, opened

theirs = logging.getLogger("an.author")


class Records(logging.Handler):
    """Keeps all records, like an author's handler with our filter."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(acphold.LogContext())
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)

    def told(self, words: str) -> dict[str, object]:
        """The session, turn and incident of the only record with these words."""
        [found] = [vars(record) for record in self.kept if words in record.getMessage()]
        return {name: found[name] for name in ("session", "turn", "incident")}


@pytest.fixture
def records() -> Iterator[Records]:
    """All records of the test, debugging ones too."""
    handler, root = Records(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


async def test_what_an_author_logs_carries_the_session_and_the_turn(records: Records) -> None:
    async def work(turn: acphold.Turn) -> None:
        theirs.info("thinking of %s", turn.text)

    agent = agent_that(work)

    @agent.on_new
    async def begin(session: acphold.Session) -> None:
        theirs.info("begun")

    async with connect(agent) as client:
        one, two = [await client.new_session() for _ in range(2)]
        await one.prompt("a")
        await two.prompt("b")
        await one.prompt("c")
    theirs.info("afterwards")
    a, b, c = [records.told(f"thinking of {name}") for name in "abc"]
    assert [a["session"], b["session"], c["session"]] == [one.id, two.id, one.id]
    assert len({a["turn"], b["turn"], c["turn"]}) == 3
    assert records.told("afterwards") == {"session": "-", "turn": "-", "incident": "-"}
    begun = [vars(record) for record in records.kept if record.getMessage() == "begun"]
    assert [(each["session"], each["turn"]) for each in begun] == [(one.id, "-"), (two.id, "-")]


async def test_an_incident_is_found_by_its_id_with_its_session_and_turn(records: Records) -> None:
    async def work(turn: acphold.Turn) -> None:
        raise ValueError(turn.text)

    async with opened(agent_that(work), raise_agent_exceptions=False) as (_, session):
        with pytest.raises(acphold.RemoteError) as caught:
            await session.prompt("a")
    told = records.told("this should not have failed")
    assert told["session"] == session.id
    assert told["turn"] != "-"
    assert str(told["incident"]) in f"{caught.value} {caught.value.data}"


async def test_the_story_of_a_turn_is_told_to_who_reads_closely(records: Records) -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look at secret.txt", kind="read", input={"key": "a secret"}):
            await turn.ask_permission("May I?")

    async with opened(agent_that(work), permission="allow") as (_, session):
        await session.prompt("a secret")
    story = [
        record
        for record in records.kept
        if record.levelno == logging.DEBUG and vars(record)["session"] == session.id
    ]
    assert len({vars(record)["turn"] for record in story}) == 1
    words = "\n".join(record.getMessage() for record in story)
    parts = ["has arrived", "is asked", ": in_progress", "a person is asked", "answered"]
    for part in (*parts, ": completed", "completed after"):
        assert part in words, words
        words = words.partition(part)[2]
    assert not any("secret" in record.getMessage() for record in story)


def test_what_is_logged_of_another_session_meanwhile_is_of_no_turn() -> None:
    from acphold.logs import about

    handler, log = Records(), logging.getLogger("of.a.hub")
    log.addHandler(handler)
    with about("s1", "7"):
        log.warning("session %s: lost", "s2")
        log.warning("session %s: found", "s1")
        log.warning("session %s, turn %s: begun", "s3", 9)
    told = [(vars(record)["session"], vars(record)["turn"]) for record in handler.kept]
    assert told == [("s2", "-"), ("s1", "7"), ("s3", "9")]
    log.removeHandler(handler)
