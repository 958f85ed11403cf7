"""Reading a session: all of it, each entry once, even if it is settled meanwhile."""

from __future__ import annotations

import re

from acphold.history import Segment
from acphold.journal import Journal, Lease, history
from acphold.testing.journal_promises.promise import each, promised
from acphold.testing.journal_promises.scenes import append, begun, chunk, encode, turn

TEXT = "x" * 20_000


async def long_turn(journal: Journal, chunks: int = 80) -> Lease:
    """Make a session with a finished turn that is longer than one read returns."""
    lease = await begun(journal)
    pieces = [chunk("agent_message", f"<{number}>{TEXT}") for number in range(chunks)]
    await append(journal, lease, turn("Go", *pieces))
    return lease


def numbers(found: list[Segment]) -> list[int]:
    """Return the numbers of the chunks, in order."""
    text = b"".join(segment.raw for segment in found if segment.kind == "update").decode()
    return [int(number) for number in re.findall("<([0-9]+)>", text)]


@promised
async def a_turn_that_is_settled_between_two_pages_is_read_once(journal: Journal) -> None:
    lease = await long_turn(journal)
    found: list[Segment] = []
    async for segment in history(journal, "s1"):
        found.append(segment)
        if len(found) == 20:  # within the first megabyte
            await journal.settle(lease, lease.next_seq - 1)
    assert numbers(found) == [*range(80)]
    again = [segment async for segment in history(journal, "s1")]
    assert numbers(again) == [*range(80)]
    assert len(again) < len(found)


@promised
async def a_turn_that_begins_while_a_session_is_read_is_not_read_in_part(
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
    assert numbers(found) == [*range(80)]


@each("through", [1, 3, 5])
@promised
async def history_ends_where_it_is_to_end_also_inside_a_segment(
    journal: Journal, through: int
) -> None:
    lease = await begun(journal)
    await journal.append(
        lease, [("update", [encode(chunk("agent_message", f"<{n}>")) for n in range(5)])]
    )
    found = [segment async for segment in history(journal, "s1", through=through)]
    assert numbers(found) == [*range(through)]
    assert found[-1].last_seq == through


@promised
async def entries_of_some_kinds_are_read_back_without_the_others(journal: Journal) -> None:
    lease = await begun(journal)
    for number in range(5):
        await append(journal, lease, turn(f"ask {number}", chunk("agent_message", "…")))
    all_ = (await journal.read_back("s1", None, 100)).entries
    wanted = [entry for entry in all_ if entry.kind in ("prompt", "turn_end")]
    found, before = list[object](), None
    while True:
        page = await journal.read_back("s1", before, 3, kinds=("prompt", "turn_end"))
        assert len(page.entries) <= 3
        found += page.entries
        if (before := page.before) is None:
            break
    assert found == wanted
    # A page that begins inside a segment of another kind contains none of it.
    middle = next(entry.seq for entry in all_ if entry.kind == "update")
    back = await journal.read_back("s1", middle + 1, 100, kinds=("prompt",))
    assert {entry.kind for entry in back.entries} == {"prompt"}
