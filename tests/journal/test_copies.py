"""Copies of conversations: their content, and no copy is ever half done."""

from __future__ import annotations

import json

import pytest

from acphold.conversation.history.entries import Origin, Segment, turn_spans
from acphold.conversation.history.timeline import Message
from acphold.errors import AcpError, JournalUnavailableError
from acphold.journal import bounds
from acphold.journal.copies import copy
from acphold.journal.journal import Journal, history, state_of
from acphold.journal.owners import Free
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.sqlite.store import SqliteJournal

EVERYTHING = ListFilter(include_unprompted=True, archived="include")


def update(kind: str, **fields: object) -> tuple[str, bytes]:
    return "update", json.dumps({"sessionUpdate": kind, **fields}).encode()


def said(text: str) -> tuple[str, bytes]:
    return update("agent_message_chunk", content={"type": "text", "text": text})


SETTINGS = ("settings", b'{"modes":{"currentModeId":"m","availableModes":[]}}')
COMMANDS = update("available_commands_update", availableCommands=[{"name": "c"}])
MODE = update("current_mode_update", currentModeId="n")
USAGE = update("usage_update", used=5, size=9)
TITLE = update("session_info_update", title="Greeting")
PROMPT = ("prompt", b'[{"type":"text","text":"Hello"}]')
END = ("turn_end", b'{"stopReason":"end_turn","usage":{"totalTokens":7},"_meta":{"x":1}}')
STORE = ("store", b'{"key":"k","value":1}')

CONVERSATION = (SETTINGS, COMMANDS, PROMPT, MODE, said("A"), said("B"), USAGE, TITLE, STORE, END)


async def session(journal: Journal, *entries: tuple[str, bytes], agent: str = "a") -> None:
    """A session of the agent `a` with these entries, called `s1`."""
    lease = await journal.create(NewSession("s1", agent, "/w", title="Greeting"))
    for kind, raw in entries:
        await journal.append(lease, [(kind, [raw])])
    await journal.change(lease, RowChange(prompted=True))
    await journal.release(lease)


async def copied(journal: Journal, *, agent: str = "a", through: int = 99) -> list[tuple[str, str]]:
    """The kinds and bytes of a copy of `s1`."""
    row = await journal.session("s1")
    await copy(journal, row, NewSession("s2", agent, "/v", title="Copy"), through)
    return [
        (entry.kind, entry.raw.decode())
        async for segment in history(journal, "s2")
        for entry in segment.entries()
    ]


async def test_a_copy_for_the_same_agent_has_everything_but_the_costs(
    journal: SqliteJournal,
) -> None:
    await session(journal, *CONVERSATION)
    found = await copied(journal)
    kinds = [kind for kind, _ in found]
    assert kinds == ["settings", "update", "prompt", *["update"] * 3, "store", "turn_end", "update"]
    text = "".join(raw for _, raw in found)
    assert '"AB"' in text
    assert "usage" not in text
    assert json.loads(found[-2][1]) == {"stopReason": "end_turn"}
    state, before = await state_of(journal, "s2"), await state_of(journal, "s1")
    assert [str(item) for item in state.timeline[:2]] == [str(item) for item in before.timeline[:2]]
    assert state.attributes.current_mode_id == "n"
    assert state.attributes.title == "Copy"


async def test_a_copy_for_another_agent_has_none_of_the_settings_of_the_first(
    journal: SqliteJournal,
) -> None:
    await session(journal, *CONVERSATION)
    found = await copied(journal, agent="b")
    assert {kind for kind, _ in found} == {"prompt", "update", "turn_end"}
    attributes = (await state_of(journal, "s2")).attributes
    assert (attributes.current_mode_id, attributes.commands, attributes.usage) == (None, None, None)


async def test_a_copy_ends_where_it_is_to_end(journal: SqliteJournal) -> None:
    await session(journal, *CONVERSATION, PROMPT, said("C"), END)
    assert len(await copied(journal, through=10)) == 9  # A and B are one


async def test_a_copy_has_the_snapshots_of_its_turns_and_whose_they_were(
    journal: SqliteJournal,
) -> None:
    await session(journal, *CONVERSATION, PROMPT, said("C"), END)
    spans = await turn_spans(history(journal, "s1"))
    kept = [
        TurnSnapshot(turn=span.first - 1, edge="end", root="/w", at=1, state="whole", tree=tree)
        for span, tree in zip(spans, ("t1", "t2"), strict=True)
    ]
    await journal.snapshots.keep("s1", kept)
    await copied(journal, through=10)
    [first] = await journal.snapshots.of("s2")
    [turn] = await turn_spans(history(journal, "s2"))
    assert (first.turn, first.tree) == (turn.first - 1, "t1")
    assert (first.taken_for, first.cwd) == ("s1", "/w")
    await copy(journal, await journal.session("s2"), NewSession("s3", "a", "/u"), 99)
    [again] = await journal.snapshots.of("s3")
    assert (again.taken_for, again.cwd) == ("s1", "/w")


async def test_a_segment_is_cut_where_the_copy_ends(journal: SqliteJournal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await journal.append(lease, [("update", [raw for _, raw in (said("A"), said("B"), said("C"))])])
    found = await copied(journal, through=2)
    assert "AB" in found[0][1]


async def test_the_row_of_a_copy_says_where_it_came_from_and_the_copy_is_listed_and_found(
    journal: SqliteJournal,
) -> None:
    await session(journal, *CONVERSATION)
    await journal.change("s1", RowChange(given="Greeting"))
    await copied(journal)
    row = await journal.session("s2", counted=True)
    assert row.origins == (Origin("s1", "a", 99),)
    assert (row.title, row.cwd, row.renamed, row.archived) == ("Copy", "/v", True, False)
    assert row.message_count == (await journal.session("s1", counted=True)).message_count
    assert [row.session_id for row in await journal.page(ListFilter())] == ["s2", "s1"]
    await journal.index.catch_up(9)  # a copy is indexed bit by bit
    assert {hit.session_id for hit in await journal.index.search("Hello")} >= {"s2"}
    assert isinstance(await journal.owner("s2"), Free)
    await copy(journal, row, NewSession("s3", "b", "/v"), 5)
    assert (await journal.session("s3")).origins == (Origin("s1", "a", 99), Origin("s2", "a", 5))


async def test_nothing_is_left_of_a_copy_that_fails(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session(journal, *CONVERSATION)
    monkeypatch.setattr(bounds, "PIECE_BYTES", 50)
    take_in, times = journal.take_in, 0

    async def full(*args: object, **more: object) -> None:
        nonlocal times
        times += 1
        if times == 3:
            raise JournalUnavailableError("the disk is full")
        await take_in(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "take_in", full)
    with pytest.raises(JournalUnavailableError):
        await copied(journal)
    assert [row.session_id for row in await journal.page(EVERYTHING)] == ["s1"]


async def test_a_long_conversation_is_taken_in_piece_by_piece(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{number} " for number in range(50)]
    await session(journal, PROMPT, *map(said, texts), END)
    monkeypatch.setattr(bounds, "PIECE_BYTES", 200)
    await copied(journal)
    said_there = [it for it in (await state_of(journal, "s2")).timeline if isinstance(it, Message)]
    assert [it.text for it in said_there] == ["Hello", "".join(texts)]


async def test_a_session_that_is_put_in_order_meanwhile_is_copied_once(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session(journal, PROMPT, *map(said, "ABCDEF"), END)
    monkeypatch.setattr(bounds, "PIECE_BYTES", 50)
    take_in, times = journal.take_in, 0

    async def settled_meanwhile(*args: object, **more: object) -> None:
        nonlocal times
        times += 1
        if times == 2:
            with monkeypatch.context() as at_once:
                at_once.setattr(bounds, "PIECE_BYTES", 1 << 20)
                await journal.settle(await journal.acquire("s1"), 8)
        await take_in(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "take_in", settled_meanwhile)
    await copied(journal, through=8)
    assert any([segment.is_merged async for segment in history(journal, "s1")])
    assert "'ABCDEF'" in str((await state_of(journal, "s2")).timeline).replace('"', "'")
    assert times > 6


async def test_a_session_that_is_never_still_is_not_copied(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session(journal, PROMPT, END)

    async def overlapping(session_id: str, after: int, **_: int) -> list[Segment]:
        return [Segment(1, after + 1, "update", 0, said("A")[1])]

    monkeypatch.setattr(journal, "read", overlapping)
    with pytest.raises(AcpError, match="try again"):
        await copied(journal)
    monkeypatch.undo()
    assert [row.session_id for row in await journal.page(EVERYTHING)] == ["s1"]
