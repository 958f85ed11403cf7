"""Entries of an import that are taken in twice, because the first answer was lost."""

from __future__ import annotations

import json

import pytest

from acphold.conversation.history.entries import REPLY, PastEntry
from acphold.journal.journal import Journal
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import Tokens
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


async def test_copies_of_a_reply_that_others_have_change_none_of_these(journal: Journal) -> None:
    """However many sessions have it, a session more costs what the second did."""
    end = {"stopReason": "end_turn", "usage": {"totalTokens": 7}, "_meta": {REPLY: "a1" * 7}}
    past = [PastEntry("prompt", 1, b"[]"), PastEntry("turn_end", 1, json.dumps(end).encode())]
    changed = []
    for name in ("s1", "s2", "s3", "s4"):
        before = (await journal.changes(None)).last
        lease = await journal.create(NewSession(name, "a", "/w"))
        await journal.take_in(lease, past, RowChange(prompted=True), release=True)
        changed.append({*(await journal.changes(before)).session_ids})
    assert changed == [{"s1"}, {"s1", "s2"}, {"s3"}, {"s4"}]
    assert (await journal.index.usage("agent")).total.tokens == Tokens(total=7)
