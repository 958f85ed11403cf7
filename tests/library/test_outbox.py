from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from acphold.errors import JournalUnavailableError
from acphold.library import bounds
from acphold.library.outbox import MESSAGE, Outbox, Post, Utterance
from acphold.live.agents.interface import AgentRequest, Event, Updates

Mark = Callable[[], None]


class Journal:
    """A listener that takes a step of the event loop for each commit, and may fail."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, list[bytes]]] = []
        self.together: list[list[str]] = []
        self.hears_together = True
        self.failure: Exception | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def hear(self, event: Event) -> None:
        assert isinstance(event, Updates)
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.commits.append((event.kind, list(event.raws)))

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        self.together.append([updates.session_id for updates in said])
        for updates in said if self.hears_together else ():
            await self.hear(updates)
        return [self.hears_together] * len(said)

    async def answer(self, asked: AgentRequest) -> bytes:
        raise AssertionError

    @property
    def updates(self) -> list[bytes]:
        return [raw for _, raws in self.commits for raw in raws]


def opened() -> tuple[Journal, Outbox]:
    journal = Journal()
    outbox = Outbox("s", Post(journal))
    outbox.open()
    return journal, outbox


async def soon() -> None:
    """Two steps of the event loop: the first ends, and the next commits its updates."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_what_is_said_in_one_step_is_committed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 60.0)
    journal, outbox = opened()
    await outbox.put(b"1")
    await outbox.put(b"2")
    assert journal.commits == []
    await outbox.flush()
    assert journal.commits == [("update", [b"1", b"2"])]


async def test_what_is_said_in_a_block_leaves_at_its_end() -> None:
    journal, outbox = opened()
    with outbox.one_step():
        await outbox.put(b"1")
        await soon()
        assert journal.updates == []
    await soon()
    assert journal.updates == [b"1"]


async def test_what_is_said_in_a_block_after_a_commit_leaves_too() -> None:
    journal, outbox = opened()
    await outbox.put(b"1")
    with outbox.one_step():
        await outbox.flush()
        assert journal.updates == [b"1"]
        await outbox.put(b"2")
    await soon()
    assert journal.updates == [b"1", b"2"]


async def test_an_author_who_never_waits_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 60.0)
    journal, outbox = opened()
    for number in range(bounds.BATCH_UPDATES + 1):
        await outbox.put(b"%d" % number)
    assert journal.updates == [b"%d" % number for number in range(bounds.BATCH_UPDATES)]


async def test_what_only_the_journal_keeps_stands_where_it_was_said() -> None:
    journal, outbox = opened()
    outbox.keep("store", b"a")
    await outbox.put(b"1")
    outbox.keep("store", b"b")
    await outbox.put(b"2")
    await outbox.flush()
    assert journal.commits == [
        ("store", [b"a"]),
        ("update", [b"1"]),
        ("store", [b"b"]),
        ("update", [b"2"]),
    ]


async def test_nothing_leaves_before_it_is_open() -> None:
    journal = Journal()
    outbox = Outbox("s", Post(journal))
    await outbox.put(b"1")
    outbox.keep("store", b"a")
    await outbox.flush()
    await outbox.finish()
    assert journal.commits == []
    outbox.open()
    await outbox.flush()
    assert journal.updates == [b"1", b"a"]


async def test_cancelling_an_author_cancels_no_commit() -> None:
    journal, outbox = opened()
    journal.may_go_on.clear()
    await outbox.put(b"1")
    flushing = asyncio.create_task(outbox.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    journal.may_go_on.set()
    await asyncio.wait([flushing])
    assert flushing.cancelled()
    await outbox.flush()
    assert journal.updates == [b"1"]


async def test_flush_waits_for_a_commit_that_has_begun() -> None:
    journal, outbox = opened()
    journal.may_go_on.clear()
    await outbox.put(b"1")
    await soon()
    await outbox.put(b"2")
    asyncio.get_running_loop().call_soon(journal.may_go_on.set)
    await outbox.finish()
    assert journal.updates == [b"1", b"2"]


async def test_a_failed_commit_is_reported_to_whoever_says_something_next() -> None:
    journal, outbox = opened()
    journal.failure = JournalUnavailableError("full")
    await outbox.put(b"1")
    await soon()
    with pytest.raises(JournalUnavailableError, match="full"):
        await outbox.put(b"2")
    journal.failure = None
    await outbox.put(b"3")
    await outbox.finish()
    assert journal.updates[-1] == b"3"


def several(journal: Journal, number: int) -> list[Outbox]:
    """The open outboxes of so many sessions of one agent."""
    post = Post(journal)
    made = [Outbox(f"s{place}", post) for place in range(number)]
    for outbox in made:
        outbox.open()
    return made


async def test_what_several_sessions_say_in_one_step_is_heard_together() -> None:
    journal = Journal()
    one, two, three = several(journal, 3)
    await one.put(b"1")
    await two.put(b"2")
    three.keep("store", b"a")
    await two.put(b"3")
    await soon()
    assert journal.together == [["s0", "s1"]]
    assert sorted(journal.updates) == [b"1", b"2", b"3", b"a"]


async def test_what_has_to_be_heard_alone_comes_behind_what_was_said_before() -> None:
    journal = Journal()
    one, two = several(journal, 2)
    journal.hears_together = False
    await one.put(b"1")
    await two.put(b"2")
    await soon()
    await one.put(b"3")
    await one.flush()
    assert journal.updates == [b"1", b"2", b"3"]


async def test_who_says_more_while_a_common_commit_waits_is_committed_behind_it() -> None:
    journal = Journal()
    one, two = several(journal, 2)
    journal.may_go_on.clear()
    await one.put(b"1")
    await two.put(b"2")
    await soon()
    await one.put(b"3")
    asyncio.get_running_loop().call_soon(journal.may_go_on.set)
    await one.finish()
    assert [raw for raw in journal.updates if raw != b"2"] == [b"1", b"3"]
    await two.flush()


async def test_each_session_is_told_that_a_common_commit_failed() -> None:
    journal = Journal()
    one, two = several(journal, 2)
    journal.failure = JournalUnavailableError("full")
    await one.put(b"1")
    await two.put(b"2")
    await soon()
    for outbox in (one, two):
        with pytest.raises(JournalUnavailableError, match="full"):
            await outbox.put(b"3")


async def test_who_goes_on_in_a_step_that_has_taken_long_lets_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)
    journal = Journal()
    said: list[str] = []

    async def flood(outbox: Outbox) -> None:
        for _ in range(3):
            said.append(outbox.session_id)
            await outbox.put(Utterance(MESSAGE).text("x"))

    await asyncio.gather(*map(flood, several(journal, 2)))
    assert said[:4] == ["s0", "s0", "s1", "s1"]
    assert len(said) == 6


async def steps_of(
    crowd: Sequence[Outbox], say: Callable[[Outbox, Mark], Awaitable[None]]
) -> list[int]:
    """The step of the event loop in which each mark was made, while others never wait."""
    made_in: list[int] = []
    step = 0
    said = asyncio.gather(*(say(outbox, lambda: made_in.append(step)) for outbox in crowd))
    async with asyncio.timeout(10):
        while not said.done():
            step += 1
            await asyncio.sleep(0)
    return made_in


async def test_many_turns_that_end_in_one_step_end_by_and_by_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)  # each step has taken long
    journal = Journal()
    crowd = several(journal, 3 * bounds.ENDS_AT_ONCE)

    async def end(outbox: Outbox, mark: Mark) -> None:
        await outbox.put(outbox.session_id.encode())
        await outbox.finish()
        mark()

    ended_in = await steps_of(crowd, end)
    assert max(map(ended_in.count, ended_in)) <= bounds.ENDS_AT_ONCE
    assert journal.updates == [outbox.session_id.encode() for outbox in crowd]


async def test_turns_that_end_behind_one_commit_end_by_and_by_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)
    journal = Journal()
    crowd = several(journal, 2 * bounds.ENDS_AT_ONCE)
    journal.may_go_on.clear()
    for outbox in crowd:
        await outbox.put(b"x")
    await soon()

    async def end(outbox: Outbox, mark: Mark) -> None:
        await outbox.finish()
        mark()

    ends = asyncio.create_task(steps_of(crowd, end))
    await soon()
    journal.may_go_on.set()
    ended_in = await ends
    assert len(ended_in) == len(crowd)
    assert max(map(ended_in.count, ended_in)) <= bounds.ENDS_AT_ONCE


def paused(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """From now on each common commit is one that took long, and a pause lasts so long."""
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "ROUND_PAUSES", 1e9)
    monkeypatch.setattr(bounds, "ROUND_PAUSE_SECONDS", seconds)


async def test_what_many_say_soon_after_a_long_commit_is_committed_together_behind_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused(monkeypatch, 1.0)
    journal = Journal()
    crowd = several(journal, 3)
    for piece in (b"1", b"2", b"3"):
        for outbox in crowd:
            await outbox.put(piece)
        await soon()
    async with asyncio.timeout(10):
        while len(journal.updates) < 9:
            await soon()
    assert journal.together == [["s0", "s1", "s2"]] * 2
    assert journal.commits[3:] == [("update", [b"2", b"3"])] * 3


async def test_who_has_not_been_heard_in_its_turn_waits_for_no_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused(monkeypatch, 60.0)
    journal = Journal()
    *others, late = several(journal, 3)
    for outbox in others:
        await outbox.put(b"1")
    await soon()
    for outbox in others:
        await outbox.put(b"2")
    with late.one_step():
        await late.put(b"first")
    await soon()
    await late.put(b"second")
    await soon()
    assert journal.updates == [b"1", b"1", b"first"]
    await late.finish()  # nor does the end of a turn
    assert journal.updates == [b"1", b"1", b"first", b"second"]


async def test_of_many_who_never_wait_a_few_go_on_in_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)  # each step has taken long
    crowd = several(Journal(), 4 * bounds.GO_ON_AT_ONCE)

    async def flood(outbox: Outbox, mark: Mark) -> None:
        for number in range(6):
            await outbox.put(b"x")
            if number > 1:  # the first two are said before anybody is to wait
                mark()

    said_in = await steps_of(crowd, flood)
    assert len(said_in) == 4 * len(crowd)
    assert max(map(said_in.count, said_in)) <= 3 * bounds.GO_ON_AT_ONCE


async def test_of_hundreds_some_leave_in_each_step_and_what_is_said_meanwhile_is_behind_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "LEAVE_AT_ONCE", 2)
    monkeypatch.setattr(bounds, "STEP_SECONDS", 60.0)  # no pause
    journal = Journal()
    crowd = several(journal, 5)
    for outbox in crowd:
        await outbox.put(b"1")
    await soon()
    await crowd[0].put(b"2")
    await crowd[1].put(b"2")
    async with asyncio.timeout(10):
        while len(journal.updates) < 7:
            await soon()
    assert journal.together == [["s0", "s1"], ["s2", "s3"], ["s0", "s1"]]
    assert journal.updates == [b"1"] * 5 + [b"2"] * 2
