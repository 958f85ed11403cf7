"""Messages that every model service takes, whatever happened when they came to be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from holdfast.agents.model.memory import CANCELLED, mended

IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
ARGUMENTS = st.sampled_from(['{"a": 1}', "{}", '{"a', ""])
CALLS = st.builds(lambda id, args: ToolCallPart("tool", args, id), IDS, ARGUMENTS)
RESULTS = st.builds(lambda id: ToolReturnPart("tool", "result", tool_call_id=id), IDS)
PROMPTS = st.just(UserPromptPart("do it"))
TEXTS = st.builds(TextPart, st.sampled_from(["", "said"]))
THOUGHTS = st.builds(ThinkingPart, st.just("hm"))
REQUESTS = st.builds(
    lambda parts, state: ModelRequest(parts=parts, state=state),
    st.lists(RESULTS | PROMPTS, max_size=4),
    st.sampled_from(["complete", "interrupted"]),
)
RESPONSES = st.builds(
    lambda parts, state: ModelResponse(parts=parts, state=state),
    st.lists(CALLS | TEXTS | THOUGHTS, max_size=4, unique_by=str),
    st.sampled_from(["complete", "interrupted"]),
)
MESSAGES = st.lists(REQUESTS | RESPONSES, max_size=8)


def calls(message: ModelMessage) -> list[str]:
    return [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]


def results(message: ModelMessage) -> list[str]:
    return [part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)]


@given(MESSAGES)
def test_each_call_has_one_result_right_behind_it(messages: list[ModelMessage]) -> None:
    whole = [*mended(messages), ModelRequest(parts=[])]
    for message, following in pairwise(whole):
        if isinstance(message, ModelResponse):
            assert sorted(results(following)) == sorted(set(calls(message)))
        elif isinstance(following, ModelRequest):
            assert not results(following)
    assert not results(whole[0])


@given(MESSAGES)
def test_mending_is_done_once(messages: list[ModelMessage]) -> None:
    whole = mended(messages)
    assert mended(whole) == whole


@given(MESSAGES)
def test_nothing_that_was_said_is_lost(messages: list[ModelMessage]) -> None:
    def said(all_messages: list[ModelMessage]) -> list[object]:
        return [
            part.content
            for message in all_messages
            for part in message.parts
            if isinstance(part, TextPart | UserPromptPart) and part.content
        ]

    assert said(mended(messages)) == said(messages)


@given(MESSAGES)
def test_a_mended_conversation_survives_being_written_down(messages: list[ModelMessage]) -> None:
    whole = mended(messages)
    written = ModelMessagesTypeAdapter.dump_python(whole, mode="json", exclude_none=True)
    assert ModelMessagesTypeAdapter.validate_python(written) == whole


def test_a_call_that_nobody_finished_was_cancelled() -> None:
    conversation: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("go")]),
        ModelResponse(parts=[ToolCallPart("tool", {}, "c1"), ToolCallPart("tool", {}, "c2")]),
        ModelRequest(parts=[ToolReturnPart("tool", "done", tool_call_id="c2")]),
    ]
    answers = {
        part.tool_call_id: part.content
        for part in mended(conversation)[2].parts
        if isinstance(part, ToolReturnPart)
    }
    assert answers == {"c2": "done", "c1": CANCELLED}


def test_half_a_call_was_never_made() -> None:
    conversation: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("go")]),
        ModelResponse(
            parts=[TextPart("I will"), ToolCallPart("tool", '{"pa', "c1")], state="interrupted"
        ),
    ]
    assert mended(conversation)[1].parts == [TextPart("I will")]
    assert len(mended(conversation)) == 2
