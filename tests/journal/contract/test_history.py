"""Reading sessions of any kind, also while they are compacted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings, strategies as st

from acphold.conversation.history.entries import Segment
from acphold.errors import RewrittenError
from acphold.journal import bounds
from acphold.journal.journal import Journal, history
from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal
from tests.conversations import CONVERSATIONS
from tests.journal.conversations import Pieces, append, begun
from tests.journal.promises.sessions import TEXT, long_turn, numbers


async def test_what_is_too_long_to_be_read_at_once_is_never_told_twice(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "TAIL_BYTES", len(TEXT))
    lease = await long_turn(journal)
    found: list[Segment] = []

    async def read() -> None:
        async for segment in history(journal, "s1"):
            found.append(segment)
            if len(found) == 2:
                await journal.settle(lease, lease.next_seq - 1)

    with pytest.raises(RewrittenError, match="try again"):
        await read()
    assert numbers(found) == [0]


@pytest.mark.parametrize("number", [-(1 << 40), -5, -1, 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 40])
async def test_no_number_of_an_entry_leads_into_another_session(
    journal: Journal, number: int
) -> None:
    for session_id in ("a", "b", "c"):
        lease = await journal.create(NewSession(session_id, "agent", "/"))
        await append(journal, lease, [("prompt", [b'["%b"]' % session_id.encode()])])
    found = [
        *await journal.read("b", number, 1 << 20),
        *[it async for it in history(journal, "b", 0, number)],
        *[it async for it in history(journal, "b", number, number + 9)],
    ]
    if number > 0:
        page = await journal.read_back("b", number, 9)
        assert [entry.raw for entry in page.entries] == [b'["b"]']
    assert {segment.raw for segment in found} == {b'["b"]'}


@settings(max_examples=30)
@given(CONVERSATIONS, st.integers(1, 4), st.booleans())
def test_pages_from_the_end_have_each_entry_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: Pieces, limit: int, settled: bool
) -> None:
    async def check() -> None:
        async with aclosing(
            open_journal(tmp_path_factory.mktemp("back") / "journal.db")
        ) as journal:
            lease = await begun(journal)
            await append(journal, lease, pieces)
            if settled:
                await journal.settle(lease, lease.next_seq - 1)
            read = [
                entry.seq
                for segment in await journal.read("s1", 0, 1 << 30)
                for entry in segment.entries()
                if entry.raw
            ]
            back = list[int]()
            before: int | None = None
            while (page := await journal.read_back("s1", before, limit)).before is not None:
                assert len(page.entries) <= limit
                back += [entry.seq for entry in page.entries]
                before = page.before
            back += [entry.seq for entry in page.entries]
            assert back == read[::-1]

    asyncio.run(check())
