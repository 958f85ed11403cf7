"""Entries that are made void for good: their numbers stay, and nothing else of them."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.errors import ForgottenTextError
from acphold.journal.journal import Journal
from acphold.journal.sql import session_tables
from tests.conversations import chunk, encode
from tests.journal.conversations import begun
from tests.raw_entries import ended, prompt, update


async def texts(journal: Journal) -> dict[int, bytes]:
    read = await journal.read("s1", 0)
    return {it.seq: it.raw for segment in read for it in segment.entries() if it.raw}


async def test_nothing_stays_of_what_was_withdrawn_but_its_numbers(journal: Journal) -> None:
    lease = await begun(journal)
    first = lease.next_seq
    past = [
        PastEntry("update", 1000, encode(chunk("user_message", word, messageId=word)))
        for word in ("apple", "pear", "plum", "fig")  # in one row
    ]
    await journal.take_in(lease, past)
    await journal.index.catch_up(10)
    before = await texts(journal)
    await journal.withdraw(lease, [(first + 1, first + 1), (first + 3, first + 3)])
    assert await texts(journal) == {
        seq: raw for seq, raw in before.items() if seq not in (first + 1, first + 3)
    }
    row = await journal.session("s1", counted=True)
    assert (row.last_seq, row.message_count) == (first + 3, 2)
    await journal.index.catch_up(10)
    hits = {
        word: len(await journal.index.search(word)) for word in ("apple", "pear", "plum", "fig")
    }
    assert hits == {"apple": 1, "pear": 0, "plum": 1, "fig": 0}
    page = await journal.read_back("s1", None, 10)
    assert [it.seq for it in page.entries][:2] == [first + 2, first]
    await journal.take_in(lease, [PastEntry("update", 2000, encode(chunk("user_message", "more")))])
    assert (await journal.session("s1")).last_seq == first + 4


async def test_no_plan_and_title_of_what_was_withdrawn_stays_in_the_state(journal: Journal) -> None:
    lease = await begun(journal)
    first = lease.next_seq
    turns = [
        [
            prompt(word),
            update("plan", entries=[{"content": word, "priority": "low", "status": "pending"}]),
            update("session_info_update", title=word, _meta={"about": word}),
            update("usage_update", used=number, size=9),
            ended(),
        ]
        for number, word in enumerate(("apple", "pear"))
    ]
    past = [PastEntry(kind, 1000, raw) for turn in turns for kind, raw in turn]
    await journal.take_in(lease, past)
    await journal.withdraw(lease, [(first + len(turns[0]), first + len(past) - 1)])
    state = (await journal.summary("s1")).attributes
    assert b"apple" in (state.plan or b"")
    assert (state.title, state.meta) == ("apple", b'{"about":"apple"}')
    # What says the use goes on: an update of it comes in the place of one that is not there.
    last = update("usage_update", used=5, size=9)[1]
    await journal.take_in(lease, [PastEntry("update", 2000, last)])
    assert (await texts(journal))[lease.next_seq - 1] == last
    assert (await journal.summary("s1")).attributes.usage == last
    await journal.withdraw(lease, [(first, lease.next_seq - 1)])
    state = (await journal.summary("s1")).attributes
    assert (state.plan, state.title, state.meta) == (None, None, None)


async def test_what_comes_in_the_place_of_entries_is_written_with_their_withdrawal_or_neither_is(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await begun(journal)
    first = lease.next_seq
    turns = [
        [prompt(word), update("session_info_update", title=word), told(word), ended()]
        for word in ("apple", "pear")
    ]
    past = [PastEntry(kind, 1000, raw) for turn in turns for kind, raw in turn]
    await journal.take_in(lease, past)
    await journal.index.catch_up(10)
    before = await texts(journal)
    anew = [PastEntry(kind, 2000, raw) for kind, raw in (prompt("plum"), told("plum"), ended())]
    pear = [(first + 4, first + 7)]
    with monkeypatch.context() as patch:
        marks = iter((frozenset(), frozenset({"one that came meanwhile"})))
        patch.setattr(session_tables, "forgotten_texts", lambda _: next(marks))
        with pytest.raises(ForgottenTextError):
            await journal.take_in(lease, anew, withdrawn=pear)
    assert await texts(journal) == before
    await journal.take_in(lease, anew, withdrawn=pear)
    left = await texts(journal)
    assert {seq: raw for seq, raw in left.items() if seq <= first + 7} == {
        seq: raw for seq, raw in before.items() if seq < first + 4
    }
    assert [raw for seq, raw in left.items() if seq > first + 7] == [it.raw for it in anew]
    assert (await journal.summary("s1")).attributes.title == "apple"
    assert (await journal.session("s1", counted=True)).message_count == 4
    await journal.index.catch_up(10)
    hits = {word: len(await journal.index.search(word)) for word in ("apple", "pear", "plum")}
    assert (hits["pear"], hits["plum"] > 0, hits["apple"] > 0) == (0, True, True)


def told(word: str) -> tuple[str, bytes]:
    return "update", encode(chunk("agent_message", word, messageId=word))


class Counted(int):
    """A number that counts how often it is compared."""

    compared: ClassVar = Counter[str]()

    def __le__(self, other: int) -> bool:
        self.compared["all"] += 1
        return int(self) <= other

    def __lt__(self, other: int) -> bool:
        self.compared["all"] += 1
        return int(self) < other


async def test_many_spans_are_compared_with_the_entries_near_them_only(journal: Journal) -> None:
    lease = await begun(journal)
    first = lease.next_seq
    told = [prompt(f"word {n}") for n in range(400)]
    await journal.take_in(lease, [PastEntry(kind, 1000, raw) for kind, raw in told])
    gone = range(first, first + 400, 2)
    Counted.compared.clear()
    await journal.withdraw(lease, [(Counted(seq), Counted(seq)) for seq in gone])
    assert len(await texts(journal)) >= 200
    assert not {*gone} & (await texts(journal)).keys()
    assert Counted.compared["all"] < 400 * 50
