"""Scenes of a transcript, made of journal entries."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator

from hypothesis import given, strategies as st

from acphold.conversation.history.decisions import AskedQuestion, Came, answer_entry, question_entry
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
)
from acphold.conversation.reports.transcript import (
    DecidedQuestion,
    ModeChanged,
    Noticed,
    Planned,
    PlanStep,
    TurnOpen,
    entries_by_turn,
    scene_at,
    scenes,
    turn_scenes,
    turns,
)
from tests.raw_entries import CONVERSATION, Raw, ended, plan, prompt, said, update


def entries(*raws: Raw) -> list[Entry]:
    return [Entry(seq, kind, 1000 * seq, raw) for seq, (kind, raw) in enumerate(raws, 1)]


def test_a_turn_is_told_in_the_order_it_happened() -> None:
    kinds = [type(scene) for scene in turn_scenes(entries(*CONVERSATION))]
    assert kinds == [Message, Message, Message, ToolCall, Planned, Message, TurnEnd]


def test_prompts_and_what_is_said_in_a_turn_have_their_named_users() -> None:
    author = "author", b'{"name":"zed","version":"1","user":"ada"}'
    meta = {"acphold/client": {"name": "zed", "version": "1", "user": "bert"}}
    text = {"type": "text", "text": "stop that"}
    steered = update("user_message_chunk", messageId="acphold-x", content=text, _meta=meta)
    told = turn_scenes(entries(author, prompt("x"), said("y"), steered, ended(), prompt("z")))
    users = [it.user for it in told if isinstance(it, Message)]
    assert users == ["ada", "", "bert", ""]


def test_a_plan_stands_once_where_it_was_left() -> None:
    scenes = turn_scenes(entries(prompt("x"), plan("pending"), said("y"), plan("completed")))
    assert scenes[2:] == [Planned((PlanStep("completed", "Change the greeting"),)), TurnOpen()]


def test_a_turn_that_has_ended_is_not_open_whatever_is_noted_after_it() -> None:
    title = update("session_info_update", title="A greeting")
    told = turn_scenes(entries(prompt("x"), said("y"), ended(), title))
    assert [type(scene) for scene in told] == [Message, Message, TurnEnd]


def test_a_compaction_stands_where_it_began_as_it_ended() -> None:
    scenes = turn_scenes(
        entries(
            prompt("x"),
            update("compaction_update", compactionId="c", status="in_progress"),
            said("y"),
            update(
                "compaction_summary_chunk",
                compactionId="c",
                content={"type": "text", "text": "All of it"},
            ),
            update("compaction_update", compactionId="c", status="completed"),
        )
    )
    kept = (b'{"type":"text","text":"All of it"}',)
    assert scenes[1] == ContextCompaction("c", "completed", kept)


def test_notices_and_modes_stand_where_they_came() -> None:
    scenes = turn_scenes(
        entries(
            update("notice", severity="info", title="Given", description="all of it"),
            prompt("x"),
            update("current_mode_update", currentModeId="ask"),
            said("y"),
        )
    )
    assert scenes[0] == Noticed("info", "Given", "all of it")
    assert scenes[2] == ModeChanged("ask")


PERMISSION = {
    "toolCall": {"toolCallId": "t", "title": "Run make"},
    "options": [{"optionId": "1", "name": "Allow once", "kind": "allow_once"}],
}


def question(id_: str, method: str = "session/request_permission", **params: object) -> Raw:
    asked = AskedQuestion(id_, method, json.dumps(params or PERMISSION).encode())
    return "question", question_entry(asked)


def test_a_question_stands_where_it_was_asked_with_what_came_of_it() -> None:
    chosen = b'{"outcome":{"outcome":"selected","optionId":"1"}}'
    accepted = b'{"action":"accept","content":{"branch":"main"}}'
    answered = answer_entry("a", "answered", result=chosen, client=b'{"name":"zed"}')
    scenes = turn_scenes(
        entries(
            prompt("x"),
            question("a"),
            question("b", "elicitation/create", message="Which branch?"),
            question("c"),
            question("d"),
            said("y"),
            ("answer", answered),
            ("answer", answer_entry("b", "answered", result=accepted)),
            ("answer", answer_entry("c", "interrupted", message="it crashed")),
            ("answer", answer_entry("e", "expired")),  # of an earlier turn
        )
    )
    assert scenes[1:5] == [
        DecidedQuestion("Run make", Came("allow_once", "Allow once"), "zed"),
        DecidedQuestion("Which branch?", Came("accept", "branch: main")),
        DecidedQuestion("Run make", Came("interrupted", "it crashed")),
        DecidedQuestion("Run make"),
    ]


def test_a_question_has_the_title_that_its_tool_call_got_before() -> None:
    scenes = turn_scenes(
        entries(
            prompt("x"),
            update("tool_call", toolCallId="t", title="Edit hello.py"),
            question("a", toolCall={"toolCallId": "t"}),
            ("answer", answer_entry("a", "rejected")),
            question("b", toolCall={"toolCallId": "unknown"}),
        )
    )
    assert [scene for scene in scenes if isinstance(scene, DecidedQuestion)] == [
        DecidedQuestion("Edit hello.py", Came("rejected")),
        DecidedQuestion("a tool call"),
    ]


def test_a_turn_without_an_end_is_open() -> None:
    assert turn_scenes(entries(prompt("x")))[-1] == TurnOpen()


def test_what_no_prompt_began_has_no_end_either() -> None:
    scenes = turn_scenes(entries(said("adopted"), ("settings", b"{}")))
    assert [type(scene) for scene in scenes] == [Message]


def test_the_whole_params_of_an_update_are_read_too() -> None:
    params = b'{"sessionId":"s","_meta":{},"update":%b}' % plan("pending")[1]
    assert turn_scenes(entries(("params", params))) == [
        Planned((PlanStep("pending", "Change the greeting"),))
    ]


def test_what_the_agent_only_repeats_is_left_out() -> None:
    echo = said("x", "user_message_chunk")[1]
    assert len(turn_scenes(entries(prompt("x"), ("echo", echo), ended()))) == 2


@given(
    st.lists(
        st.sampled_from(
            [said("a"), said("b", "agent_thought_chunk"), plan("pending"), *CONVERSATION]
        )
    ),
    st.binary(max_size=20),
)
def test_every_message_is_told_once_whatever_else_happens(raws: list[Raw], junk: bytes) -> None:
    turn = entries(prompt("x"), *raws, ("update", junk), ("turn_end", junk))
    told = "".join(scene.text for scene in turn_scenes(turn) if isinstance(scene, Message))
    texts = {CONVERSATION[0]: "Make it friendlier", said("b", "agent_thought_chunk"): "b"}
    texts |= {said(text): text for text in ("a", "I will ", "change **it**.", "Done.")}
    texts |= {CONVERSATION[1]: "A thought."}
    assert sorted(told) == sorted(itertools.chain("x", *(texts.get(raw, "") for raw in raws)))


def test_each_entry_has_its_scene() -> None:
    turn = entries(*CONVERSATION)
    scenes = turn_scenes(turn)
    places = [scene_at(turn, entry.seq) for entry in turn]
    assert places == [0, 1, 2, 3, 3, 4, 4, 2, 5, 6]
    assert len(scenes) == 7


def test_an_entry_that_shows_nothing_stands_by_the_scene_before_it() -> None:
    turn = entries(prompt("x"), said("y"), update("available_commands_update"), said("z"))
    assert scene_at(turn, 3) == 1
    assert scene_at(entries(update("available_commands_update")), 1) == 0


async def test_a_sub_agent_whose_end_is_told_in_a_later_turn_is_shown_once() -> None:
    async def told() -> AsyncIterator[Entry]:
        spawned = b'{"sessionUpdate":"subagent_spawned","subagentSessionId":"c","name":"Scout"}'
        over = b'{"sessionUpdate":"subagent_state_update","subagentSessionId":"c","state":"idle"}'
        chunk = b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%b"}}'
        said = b'{"sessionId":"c","update":%b}'
        for entry in entries(
            ("prompt", b"[]"),
            ("update", spawned),
            ("child", said % (chunk % b"found")),
            ("turn_end", b"{}"),
            ("prompt", b"[]"),
            ("update", over),
            ("turn_end", b"{}"),
            ("prompt", b"[]"),
            ("child", said % (chunk % b"found more")),
            ("turn_end", b"{}"),
        ):
            yield entry

    shown = [scene async for scene in scenes(told()) if isinstance(scene, SubAgent)]
    assert [(scene.title, len(scene.timeline)) for scene in shown] == [("Scout", 1), ("Scout", 1)]


async def read(*raws: Raw) -> AsyncIterator[Entry]:
    for entry in entries(*raws):
        yield entry


RENAMED = update("session_info_update", title="Another")
SAID_ONCE = (prompt("x"), said("y"), ended())


async def test_entries_that_show_nothing_are_no_turn_and_do_not_date_the_next_one() -> None:
    async def told(*raws: Raw) -> list[tuple[int, int]]:
        return [(it.seq, it.at) async for it in turns(read(*raws))]

    assert await told(RENAMED, *SAID_ONCE, RENAMED) == [(2, 2000)]
    assert await told(RENAMED) == []


async def test_entries_that_show_nothing_are_of_the_turn_behind_them_or_else_of_the_last_one() -> (
    None
):
    async def seqs(*raws: Raw) -> list[list[int]]:
        return [[entry.seq for entry in turn] async for turn in entries_by_turn(read(*raws))]

    whole = [RENAMED, *SAID_ONCE, RENAMED, *SAID_ONCE, RENAMED]
    assert await seqs(*whole) == [[1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert await seqs(*SAID_ONCE, prompt("z")) == [[1, 2, 3], [4]]
    assert await seqs(RENAMED) == [[1]]


async def test_output_that_is_repeated_with_each_update_is_in_memory_about_once() -> None:
    async def told() -> AsyncIterator[Entry]:
        yield entries(prompt("x"))[0]
        for count in range(1, 21):
            output = {"type": "text", "text": "y" * 100_000 * count}
            content = [{"type": "content", "content": output}]
            kind, raw = update("tool_call_update", toolCallId="t", content=content)
            yield Entry(1 + count, kind, 1, raw)

    tracemalloc.start()
    try:
        [turn] = [it async for it in turns(told())]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [_, call, _] = turn.scenes
    assert isinstance(call, ToolCall)
    assert most < 5 * len(call.fields["content"]), "and all of them are ten times as much"
