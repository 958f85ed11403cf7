"""What is read of a session: all of it, each entry once, whoever settles it meanwhile."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acphold.errors import RewrittenError
from acphold.history import Segment
from acphold.journal import Journal, Lease, history
from acphold.journal import journal as interface
from acphold.journal.stores import open_journal
from tests.journal.conversations import CONVERSATIONS, Pieces, append, begun, chunk, encode, turn

TEXT = "x" * 20_000


async def long_turn(journal: Journal, chunks: int = 80) -> Lease:
    """A session with a turn that is over, and is longer than one read brings."""
    lease = await begun(journal)
    pieces = [chunk("agent_message", f"<{number}>{TEXT}") for number in range(chunks)]
    await append(journal, lease, turn("Go", *pieces))
    return lease


def said(found: list[Segment]) -> list[int]:
    """The numbers of the chunks, in the order in which they are told."""
    text = b"".join(segment.raw for segment in found if segment.kind == "update").decode()
    return [int(number) for number in re.findall("<([0-9]+)>", text)]


async def test_a_turn_that_is_settled_between_two_pages_is_read_once(journal: Journal) -> None:
    lease = await long_turn(journal)
    found: list[Segment] = []
    async for segment in history(journal, "s1"):
        found.append(segment)
        if len(found) == 20:  # within the first megabyte
            await journal.settle(lease, lease.next_seq - 1)
    assert said(found) == [*range(80)]
    again = [segment async for segment in history(journal, "s1")]
    assert said(again) == [*range(80)]
    assert len(again) < len(found)


async def test_a_turn_that_begins_while_a_session_is_read_is_not_read_in_part(
    journal: Journal,
) -> None:
    lease = await long_turn(journal)
    await journal.settle(lease, lease.next_seq - 1)
    found: list[Segment] = []
    async for segment in history(journal, "s1"):
        if not found:
            end = lease.next_seq - 1
            await append(journal, lease, turn("More", chunk("agent_message", "<99>")))
        found.append(segment)
    assert found[-1].last_seq == end
    assert said(found) == [*range(80)]


@pytest.mark.parametrize("through", [1, 3, 5])
async def test_history_ends_where_it_is_to_end_also_inside_a_segment(
    journal: Journal, through: int
) -> None:
    lease = await begun(journal)
    await journal.append(
        lease, [("update", [encode(chunk("agent_message", f"<{n}>")) for n in range(5)])]
    )
    found = [segment async for segment in history(journal, "s1", through=through)]
    assert said(found) == [*range(through)]
    assert found[-1].last_seq == through


async def test_what_is_too_long_to_be_read_at_once_is_never_told_twice(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "TAIL_BYTES", len(TEXT))
    lease = await long_turn(journal)
    found: list[Segment] = []

    async def read() -> None:
        async for segment in history(journal, "s1"):
            found.append(segment)
            if len(found) == 2:
                await journal.settle(lease, lease.next_seq - 1)

    with pytest.raises(RewrittenError, match="try again"):
        await read()
    assert said(found) == [0]


@settings(max_examples=60)
@given(CONVERSATIONS, st.integers(1, 4), st.booleans())
def test_pages_from_the_end_have_each_entry_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: Pieces, limit: int, settled: bool
) -> None:
    async def check() -> None:
        journal = open_journal(tmp_path_factory.mktemp("back") / "journal.db")
        try:
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
        finally:
            await journal.aclose()

    asyncio.run(check())
