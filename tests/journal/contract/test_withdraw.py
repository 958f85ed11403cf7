"""Entries that are made void for good: their numbers stay, and nothing else of them."""

from __future__ import annotations

from acphold.conversation.history.entries import PastEntry
from acphold.journal.journal import Journal
from tests.conversations import chunk, encode
from tests.journal.conversations import begun


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
