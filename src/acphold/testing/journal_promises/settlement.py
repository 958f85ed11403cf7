"""Effects of settling and of imports on a session, and what they never do."""

from __future__ import annotations

import asyncio
import time

from acphold.errors import LeaseLostError
from acphold.history import Entry, PastEntry
from acphold.history.fold import fold
from acphold.history.timeline import Message
from acphold.journal import Journal, RowChange, state_of
from acphold.testing.journal_promises.promise import promised, raises
from acphold.testing.journal_promises.scenes import (
    append,
    begun,
    chunk,
    encode,
    entries_of,
    past,
    turn,
)


@promised
async def messages_are_prompts_and_what_the_agent_said(journal: Journal) -> None:
    lease = await begun(journal)
    first = turn(
        "One",
        chunk("agent_thought", "hm"),
        chunk("agent_message", "a"),
        {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"},
        chunk("agent_message", "b"),
        chunk("agent_message", "c"),
    )
    await journal.settle(lease, await append(journal, lease, first))
    assert (await journal.session("s1", counted=True)).message_count == 3
    await journal.settle(lease, await append(journal, lease, turn("Two")))
    assert (await journal.session("s1", counted=True)).message_count == 4


@promised
async def the_end_of_the_last_turn_of_each_session_is_told(journal: Journal) -> None:
    for name in ("ended", "settled", "running", "empty"):
        lease = await begun(journal, name)
        pieces = turn("One", chunk("agent_message", "a")) if name != "empty" else []
        if name == "running":
            pieces += turn("Two", chunk("agent_message", "b"))[:-1]
        last = await append(journal, lease, pieces)
        await journal.change(lease, RowChange(prompted=name != "empty"))
        if name == "settled":
            await journal.settle(lease, last)
    end = b'{"stopReason":"end_turn"}'
    told = await journal.outcomes(["ended", "settled", "running", "empty", "nobody"])
    assert told == {"ended": end, "settled": end, "running": None}


@promised
async def a_chunk_that_comes_late_is_not_counted_as_another_message(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    last = await append(journal, lease, turn("Hi", chunk("agent_message", "a")))
    await journal.settle(lease, last)
    late = [("update", [encode(chunk("agent_message", "b"))])]
    await journal.settle(lease, await append(journal, lease, late))
    state = await state_of(journal, "s1")
    assert [item.text for item in state.timeline if isinstance(item, Message)] == ["Hi", "ab"]
    assert (await journal.session("s1", counted=True)).message_count == 2


@promised
async def what_comes_after_the_settled_turn_is_left_alone(journal: Journal) -> None:
    lease = await begun(journal)
    last = await append(journal, lease, turn("One", chunk("agent_message", "a")))
    await append(journal, lease, turn("Two", chunk("agent_message", "b")))
    before = await journal.read("s1", last)
    await journal.settle(lease, last)
    assert await journal.read("s1", last) == before
    assert (await journal.session("s1", counted=True)).message_count == 2


@promised
async def appends_go_on_while_a_turn_settles(journal: Journal) -> None:
    settled, live = await begun(journal, "s1"), await begun(journal, "s2")
    said = [encode(chunk("agent_message", f"word {n} " * 20)) for n in range(2000)]
    [prompt, end] = turn("Hi")
    last = await append(journal, settled, [prompt, ("update", said), end])
    settling_now = asyncio.create_task(journal.settle(settled, last))
    appended = 0
    while not settling_now.done():
        await journal.append(live, [("update", [encode(chunk("agent_message", "x"))])])
        appended += 1
        await asyncio.sleep(0)
    await settling_now
    assert appended > 0
    assert (await journal.session("s2")).last_seq == appended


@promised
async def messages_of_a_turn_that_is_not_settled_count_too(journal: Journal) -> None:
    lease = await begun(journal)
    last = await append(journal, lease, turn("One", chunk("agent_message", "first")))
    await journal.settle(lease, last)
    await append(journal, lease, turn("Two", chunk("agent_message", "second"))[:-1])
    await journal.change(lease, RowChange(prompted=True))
    assert (await journal.session("s1")).message_count == 2  # fast: does not count a running turn
    assert (await journal.session("s1", counted=True)).message_count == 4
    await journal.settle(lease, lease.next_seq - 1)
    assert (await journal.session("s1", counted=True)).message_count == 4


@promised
async def half_a_surrogate_pair_of_an_earlier_release_does_not_keep_a_turn_from_settling(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    halved = b'{"sessionUpdate":"session_info_update","title":"half a smile \\ud83d"}'
    call = b'{"sessionUpdate":"tool_call","toolCallId":"t\\ud83d","title":"\\ud83d"}'
    pieces = [*turn("Hi", chunk("agent_message", "found")), ("update", [halved, call])]
    await journal.settle(lease, await append(journal, lease, pieces))
    assert (await journal.session("s1", counted=True)).message_count == 2
    assert [hit.seq for hit in await journal.index.search("found")] == [2]


@promised
async def twenty_thousand_open_tool_calls_take_seconds_at_most(
    journal: Journal,
) -> None:
    calls = [
        b'{"sessionUpdate":"tool_call","toolCallId":"call %d","title":"T"}' % n
        for n in range(20_000)
    ]
    lease = await begun(journal)
    began = time.process_time()
    for start in range(0, len(calls), 100):
        await journal.append(lease, [("update", calls[start : start + 100])])
    assert len((await journal.summary("s1")).open_tools) == 20_000
    await journal.settle(lease, lease.next_seq - 1)
    state = await state_of(journal, "s1")
    assert time.process_time() - began < 10
    assert len(state.open_tools) == len(state.timeline) == 20_000


@promised
async def what_happened_earlier_folds_as_if_it_had_been_journalled_then(
    journal: Journal,
) -> None:
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}
    pieces = turn("Hi", chunk("agent_message", "a"), call, usage, chunk("agent_message", "b"))
    lease = await begun(journal)
    await append(journal, lease, pieces)
    await journal.take_in(lease, past(pieces))
    await journal.take_in(lease, [])
    entries = [entry for piece in (pieces, pieces) for entry in past(piece)]
    expected = fold(
        Entry(seq, entry.kind, entry.at, entry.raw) for seq, entry in enumerate(entries, 1)
    )
    state = await state_of(journal, "s1")
    assert await journal.summary("s1") == expected.summary() == state.summary()
    assert [type(item) for item in state.timeline] == [type(item) for item in expected.timeline]
    assert (await journal.session("s1")).last_seq == 2 * len(past(pieces))


@promised
async def what_is_taken_in_instead_replaces_the_last_entry(journal: Journal) -> None:
    lease = await begun(journal)
    names = ("first", "note", "new", "more")
    texts = {name: encode(chunk("user_message", name, messageId=name)) for name in names}
    await journal.take_in(lease, [PastEntry("update", 1000, texts["first"])])
    await journal.take_in(lease, [PastEntry("update", 2000, texts["note"])])
    for new in (["new"], ["new", "more"]):
        it = [PastEntry("update", 3000, texts[name]) for name in new]
        await journal.take_in(lease, it, instead=True)
        read = entries_of(await journal.read("s1", 0))
        assert [entry.raw for entry in read] == [texts[name] for name in ("first", *new)], (
            f"instead of the note there should be {new}"
        )


@promised
async def who_lost_the_session_takes_nothing_in(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with raises(LeaseLostError):
        await journal.take_in(lease, past(turn("Hi")), RowChange(title="T"), ("a", "d1"))
    assert await journal.read("s1", 0) == []
    assert await journal.links.linked("a", ["d1"]) == {}
    assert lease.next_seq == 1


@promised
async def what_was_left_unsettled_by_much_is_summed_up_beside_the_loop(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    for _ in range(4):
        await journal.append(lease, [("update", [encode(chunk("agent_message", "x" * 500_000))])])
    await journal.append(lease, [("prompt", [b"[]"])])
    assert (await journal.summary("s1")).turn == "running"
