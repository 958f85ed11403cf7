"""Effects of settling and of imports on a session, and tokens and cost added up."""

from __future__ import annotations

import asyncio
import time

import pytest

from acphold.conversation.history.entries import Entry, PastEntry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.timeline import Message
from acphold.errors import LeaseLostError
from acphold.journal.journal import Journal, Outcomes, state_of
from acphold.journal.rows import ListFilter, NewSession, RowChange
from tests.conversations import chunk, encode
from tests.journal.promises.promise import append, begun, cost, past, promised, turn, used


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
    for name in ("ended", "settled", "running", "empty", "not prompted here"):
        lease = await begun(journal, name)
        pieces = turn("One", chunk("agent_message", "a")) if name != "empty" else []
        if name == "running":
            pieces += turn("Two", chunk("agent_message", "b"))[:-1]
        last = await append(journal, lease, pieces)
        await journal.change(lease, RowChange(prompted=name not in ("empty", "not prompted here")))
        if name == "settled":
            await journal.settle(lease, last)
    names = ["ended", "settled", "running", "empty", "not prompted here", "nobody"]
    told = await journal.outcomes(names)
    ended = dict.fromkeys(["ended", "settled", "not prompted here"], "completed")
    assert told == {**ended, "running": None}
    with_page: Outcomes = {}
    everything = ListFilter(include_unprompted=True)
    assert len(await journal.page(everything, None, 9, with_page)) == 5
    assert with_page == told


@promised
async def how_a_settled_turn_ended_is_told_until_it_is_taken_out(journal: Journal) -> None:
    async def outcome() -> object:
        found: Outcomes = {}
        await journal.page(ListFilter(include_unprompted=True), None, 9, found)
        assert found == await journal.outcomes(["s1"])
        return found.get("s1", "nothing")

    lease = await begun(journal)
    await journal.change(lease, RowChange(prompted=True))
    await journal.settle(lease, await append(journal, lease, turn("One")))
    assert await outcome() == "completed"
    last = await append(journal, lease, [*turn("Two")[:-1], ("turn_end", [b'{"error":{}}'])])
    assert await outcome() == "failed"
    await journal.settle(lease, last)
    assert await outcome() == "failed"
    await journal.settle(
        lease, await append(journal, lease, turn("", chunk("agent_message", "late"))[1:-1])
    )
    assert await outcome() == "failed"
    await append(journal, lease, turn("Three")[:-1])
    assert await outcome() is None
    await journal.withdraw(lease, [(last - 1, lease.next_seq - 1)])
    assert await outcome() == "completed"


@promised
async def the_last_words_of_each_session_are_told(journal: Journal) -> None:
    said = {
        "whole": turn(
            "One", chunk("agent_message", "Done."), chunk("agent_message", " **43**\nnow")
        ),
        "asked": [*turn("One", chunk("agent_message", "a")), *turn("Two")[:-1]],
        "empty": [],
    }
    for name, pieces in said.items():
        lease = await begun(journal, name)
        last = await append(journal, lease, pieces)
        if name == "whole":
            await journal.settle(lease, last)
    told = await journal.endings([*said, "nobody"])
    assert told == {"whole": "Done. 43 now", "asked": "Two"}


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
async def who_lost_the_session_takes_nothing_in(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.take_in(lease, past(turn("Hi")), RowChange(title="T"), ("a", "d1"))
    assert await journal.read("s1", 0) == []
    assert await journal.links.sessions_of("a", ["d1"]) == {}
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


DAY = 24 * 3600 * 1000


async def used_in(journal: Journal, name: str, agent: str, cwd: str, *days: int) -> None:
    """Make a session in which an agent reports so many tokens, and the same cost, day by day."""
    lease = await journal.create(NewSession(name, agent, cwd))
    spent = 0
    for day, tokens in enumerate(days, 1):
        spent += tokens
        answer = encode({"stopReason": "end_turn", **used(tokens)})
        kind, total = cost(spent)
        past = [PastEntry(kind, day * DAY, total), PastEntry("turn_end", day * DAY, answer)]
        await journal.take_in(lease, past, RowChange(updated_at=day * DAY, prompted=True))
    await journal.index.catch_up(9)


@promised
async def what_was_reported_is_added_up_by_agent_folder_and_session(journal: Journal) -> None:
    await used_in(journal, "s1", "a", "/one", 100, 50)
    await used_in(journal, "s2", "a", "/two", 7)
    await used_in(journal, "s3", "b", "/two", 30)
    by_agent = await journal.index.usage("agent")
    assert {of.name: of.tokens.total for of in by_agent.groups} == {"a": 157, "b": 30}
    assert {of.name: of.sessions for of in by_agent.groups} == {"a": 2, "b": 1}
    assert (by_agent.total.tokens.total, by_agent.total.costs) == (187, {"USD": 187.0})
    by_folder = await journal.index.usage("folder")
    assert {of.name: of.tokens.total for of in by_folder.groups} == {"/one": 150, "/two": 37}
    by_session = await journal.index.usage("session", agents=("a",))
    assert {of.name: of.tokens.total for of in by_session.groups} == {"s1": 150, "s2": 7}


@promised
async def what_was_reported_is_added_up_by_the_model_that_answered(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/one"))
    told = (("small", 10, 0), ("large", 300, 50), ("small", 20, 0), (None, 7, 0))
    past: list[PastEntry] = []
    spent = 0
    for day, (model, tokens, paid) in enumerate(told, 1):
        if paid:
            spent += paid
            kind, total = cost(spent)
            past.append(PastEntry(kind, day * DAY, total))
        meta = {} if model is None else {"_meta": {"acphold/model": model}}
        answer = encode({"stopReason": "end_turn", **used(tokens), **meta})
        past.append(PastEntry("turn_end", day * DAY, answer))
    await journal.take_in(lease, past, RowChange(updated_at=5 * DAY, prompted=True))
    await used_in(journal, "s2", "b", "/two", 40)
    await journal.index.catch_up(9)
    found = await journal.index.usage("model")
    assert [(of.name, of.tokens.total, of.sessions) for of in found.groups] == [
        ("large", 300, 1),
        ("", 47, 2),
        ("small", 30, 1),
    ]
    assert [of.costs for of in found.groups] == [{"USD": 50.0}, {"USD": 40.0}, {}]
    assert (found.total.tokens.total, found.total.sessions) == (377, 2)
    of_a = await journal.index.usage("model", agents=("a",), since=3 * DAY)
    assert {of.name: of.tokens.total for of in of_a.groups} == {"small": 20, "": 7}


@promised
async def only_what_was_reported_since_then_in_the_folder_is_added_up(
    journal: Journal,
) -> None:
    await used_in(journal, "s1", "a", "/one", 100, 50)
    await used_in(journal, "s2", "a", "/two", 7)
    assert (await journal.index.usage("agent", since=2 * DAY)).total.tokens.total == 50
    assert (await journal.index.usage("agent", since=2 * DAY, cwd="/two")).groups == []
    assert (await journal.index.usage("agent", cwd="/two/.")).total.tokens.total == 7


@promised
async def who_told_no_tokens_is_counted_as_such(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    answer = b'{"stopReason":"end_turn"}'
    await journal.append(lease, [("turn_end", [answer])], RowChange(prompted=True))
    total = (await journal.index.usage("agent")).total
    assert (total.sessions, total.not_reported, total.tokens.total) == (1, 1, None)
