"""Messages for pydantic-ai, which goes on with them."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import acphold
from acphold.bridges.pydantic_ai import model_messages
from acphold.testing import connect
from tests.bridges.conversations import EVERYTHING, called, prompt, timeline


def test_a_whole_conversation_is_told_and_needs_no_repair() -> None:
    told = model_messages(EVERYTHING)
    asked, look, seen, more, then, bad, failed, last = told
    assert isinstance(asked, ModelRequest)
    [user] = asked.parts
    assert isinstance(user, UserPromptPart)
    assert user.content == [
        "Look at this",
        BinaryImage(b"hi", media_type="image/png"),
        "[a](file:///a)",
    ]
    assert isinstance(look, ModelResponse)
    assert [type(part) for part in look.parts] == [
        ThinkingPart,
        TextPart,
        ToolCallPart,
        ToolCallPart,
    ]
    read, shot = seen.parts
    assert isinstance(read, ToolReturnPart)
    assert (read.tool_name, read.content, read.outcome) == ("read_file", "one", "success")
    assert isinstance(shot, ToolReturnPart)
    assert shot.content == [
        "The call has succeeded.",
        BinaryImage(b"hi", media_type="image/png"),
    ]
    cut = then.parts[0]
    assert isinstance(cut, ToolReturnPart)
    assert (cut.outcome, isinstance(then.parts[1], UserPromptPart)) == ("interrupted", True)
    assert isinstance(failed.parts[0], ToolReturnPart)
    assert failed.parts[0].outcome == "failed"
    assert [part.content for part in last.parts if isinstance(part, TextPart)] == [
        "It did not work."
    ]
    assert isinstance(more, ModelResponse)
    assert isinstance(bad, ModelResponse)
    assert len(repair_messages(told)) == len(told)
    dumped = ModelMessagesTypeAdapter.dump_json(told)
    assert (
        ModelMessagesTypeAdapter.dump_json(ModelMessagesTypeAdapter.validate_json(dumped)) == dumped
    )


def test_an_image_that_is_no_base64_is_named() -> None:
    broken = {"type": "image", "data": "☃", "mimeType": "image/png"}
    [request] = model_messages(timeline(prompt(broken)))
    [part] = request.parts
    assert isinstance(part, UserPromptPart)
    assert part.content == ["(image/png)"]


def test_a_call_that_nothing_follows_has_its_result() -> None:
    *_, result = model_messages(timeline(prompt("Go"), called("read", rawOutput="one")))
    [part] = result.parts
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_call_id, part.content) == ("read", "one")


async def test_an_agent_on_a_model_goes_on_with_its_conversation_after_a_kill() -> None:
    given: list[list[ModelMessage]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        given.append(messages)
        return ModelResponse([TextPart(f"answer {len(given)}")])

    model = Agent(FunctionModel(answer))
    agent = acphold.Agent("talker", version="1")

    @agent.prompt
    async def talk(turn: acphold.Turn) -> None:
        history = model_messages((await turn.history()).timeline)
        await turn.say((await model.run(turn.text, message_history=history)).output)

    async with connect(agent) as client:
        session = await client.new_session()
        await session.prompt("one")
        await client.restart(kill=True)
        session = await client.load_session(session.id)
        assert (await session.prompt("two")).text == "answer 2"
    words = [part.content for message in given[1] for part in message.parts]  # type: ignore[union-attr]
    assert words == [["one"], "answer 1", "two"]
