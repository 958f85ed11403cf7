"""Assigning entries to turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

import pytest

from acphold.conversation.history.entries import Segment, TurnSpan, span_at, turn_spans

PROMPT = ("prompt", b'[{"type":"text","text":"Hi"}]')
END = ("turn_end", b'{"stopReason":"end_turn"}')
SETTINGS = ("settings", b"{}")


def chunk(role: str, text: str, message_id: str | None = None) -> tuple[str, bytes]:
    update = {
        "sessionUpdate": f"{role}_chunk",
        "content": {"type": "text", "text": text},
        **({} if message_id is None else {"messageId": message_id}),
    }
    return "update", json.dumps(update).encode()


SAID = chunk("agent_message", "Hello")


async def each(segments: Iterable[Segment]) -> AsyncIterator[Segment]:
    for segment in segments:
        yield segment


async def spans(*entries: tuple[str, bytes]) -> list[TurnSpan]:
    """The turns of these entries, each a segment of its own."""
    return await turn_spans(
        each(Segment(seq, seq, kind, 0, raw) for seq, (kind, raw) in enumerate(entries, 1))
    )


async def test_a_turn_goes_from_its_prompt_to_the_next() -> None:
    found = await spans(SETTINGS, PROMPT, SAID, END, SAID, PROMPT, SAID, END)
    assert found == [TurnSpan(1, 2, 5), TurnSpan(2, 6, 8)]


async def test_a_turn_without_an_end_is_open_if_it_is_the_last() -> None:
    found = await spans(PROMPT, SAID, PROMPT, SAID)
    assert [span.is_open for span in found] == [False, True]


async def test_the_users_words_begin_a_turn_in_what_an_agent_replayed_of_itself() -> None:
    user = chunk("user_message", "Do ")
    found = await spans(user, chunk("user_message", "it"), SAID, user, SAID, SETTINGS)
    assert found == [TurnSpan(1, 1, 3), TurnSpan(2, 4, 6)]


async def test_two_messages_of_the_user_in_a_row_are_two_turns_by_their_ids() -> None:
    one, two = (chunk("user_message", "Do it", message_id) for message_id in "ab")
    assert [span.first for span in await spans(one, one, two, SAID)] == [1, 3]


async def test_words_into_a_running_turn_begin_none() -> None:
    found = await spans(PROMPT, chunk("user_message", "faster"), SAID, END)
    assert found == [TurnSpan(1, 1, 4)]


async def test_entries_are_counted_in_segments_that_hold_many_and_those_that_were_joined() -> None:
    replayed = b"\n".join((SAID[1], chunk("user_message", "Go")[1], SAID[1]))
    found = await turn_spans(
        each([Segment(1, 3, "update", 0, replayed), Segment(4, 9, "update", 0, SAID[1])])
    )
    assert found == [TurnSpan(1, 2, 9)]
    joined = Segment(3, 7, "update", 0, chunk("user_message", "Go")[1])
    assert (await turn_spans(each([joined])))[0].first == 3


async def test_a_turn_begins_with_who_wrote_its_prompt() -> None:
    author = ("author", b'{"name":"Zed"}')
    found = await spans(SETTINGS, author, PROMPT, SAID, END, author, PROMPT, END)
    assert [(span.first, span.last) for span in found] == [(2, 5), (6, 8)]


async def test_a_session_in_which_nothing_was_said_has_no_turn() -> None:
    assert await spans() == []
    assert await spans(SETTINGS, SAID) == []


@pytest.mark.parametrize(("seq", "number"), [(1, None), (2, 1), (4, 1), (5, 2), (99, 2)])
async def test_an_entry_belongs_to_the_turn_that_began_last(seq: int, number: int | None) -> None:
    found = await spans(SETTINGS, PROMPT, SAID, END, PROMPT)
    span = span_at(found, seq)
    assert (None if span is None else span.number) == number
