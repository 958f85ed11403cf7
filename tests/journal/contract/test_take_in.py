"""Entries of an import that are taken in twice, because the first answer was lost."""

from __future__ import annotations

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.journal.journal import Journal
from tests.conversations import chunk, encode
from tests.journal.conversations import begun


@pytest.mark.parametrize(
    "names", [["new"], ["new", "more"], ["new", "more", "last"]], ids=["one", "two", "three"]
)
@pytest.mark.parametrize("instead", [False, True])
async def test_what_is_taken_in_again_stands_there_once(
    journal: Journal, names: list[str], instead: bool
) -> None:
    lease = await begun(journal)
    texts = {
        name: encode(chunk("user_message", name, messageId=name))
        for name in ("first", "note", *names)
    }
    await journal.take_in(lease, [PastEntry("update", 1000, texts["first"])])
    await journal.take_in(lease, [PastEntry("update", 2000, texts["note"])])
    before = lease.next_seq
    past = [PastEntry("update", 3000, texts[name]) for name in names]  # in one row
    await journal.take_in(lease, past, instead=instead)
    after = lease.next_seq
    lease.next_seq = before
    await journal.take_in(lease, past, instead=instead)
    assert lease.next_seq == after
    read = await journal.read("s1", 0)
    assert [entry.raw for segment in read for entry in segment.entries()] == [
        texts[name] for name in (["first"] if instead else ["first", "note"]) + names
    ]
    row = await journal.session("s1", counted=True)
    assert row.message_count == len(names) + 2, "messages are counted once"
