"""A model behind an agent, with pydantic-ai: `pip install pydantic-ai-slim`.

    python examples/model.py openai:gpt-5      any model that pydantic-ai knows

Without a name it runs offline, on a function that plays the model. The model's own messages are
kept in the session's store, so that a loaded session goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

import acphold

agent = acphold.Agent("model", version="1.0", title="A model")


async def play(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    """Stands in for a model: has the file read that the person names, and tells its length."""
    asked = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart | ToolReturnPart)
    ]
    last = messages[-1].parts[-1]
    if isinstance(last, UserPromptPart) and str(last.content).startswith("read "):
        path = str(last.content).removeprefix("read ")
        yield {0: DeltaToolCall(name="read_file", json_args=f'{{"path":"{path}"}}')}
    elif isinstance(last, ToolReturnPart):
        yield f"It has {len(str(last.content))} characters."
    else:
        for word in ("This ", "is ", f"message {len(asked)}."):
            yield word


model: Agent[acphold.Turn, str] = Agent(
    sys.argv[1] if len(sys.argv) > 1 else FunctionModel(stream_function=play),
    deps_type=acphold.Turn,
    defer_model_check=True,
)


@model.tool
async def read_file(run: RunContext[acphold.Turn], path: str) -> str:
    """Read a text file of the project."""
    turn = run.deps
    async with turn.tool(f"Read {path}", kind="read", locations=[path]):
        return await turn.files.read(path)


@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    kept = turn.session.store.get("messages", [])
    history = ModelMessagesTypeAdapter.validate_python(kept)
    async with model.run_stream(turn.text, deps=turn, message_history=history) as run:
        async for piece in run.stream_text(delta=True):
            await turn.say(piece)
        new = ModelMessagesTypeAdapter.dump_python(run.new_messages(), mode="json")
    for message in new:
        turn.session.store.append("messages", message)


if __name__ == "__main__":
    agent.run()
