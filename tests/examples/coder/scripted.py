"""A model that follows a test's script, and the agent that answers with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias, cast

from msgspec import Struct
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

import acphold
from agent import coder


class Think(Struct, frozen=True):
    """A thought."""

    text: str


class Call(Struct, frozen=True):
    """A tool call, with its arguments as JSON."""

    tool: str
    arguments: str


Pause: TypeAlias = Callable[[], Awaitable[object]]
Step: TypeAlias = str | Think | Call | Pause | Exception
"""Next step of a scripted model: say a piece, think, call a tool, wait, or fail."""


def call(tool: str, **arguments: object) -> Call:
    """A tool call with these arguments."""
    return Call(tool, json.dumps(arguments))


class Script:
    """Answers in order, one for each request; `requests` and `infos` are the model's input."""

    def __init__(self, *answers: Sequence[Step] | Step, name: str = "scripted") -> None:
        self.answers = [_steps(answer) for answer in answers]
        self.requests: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        self.model = FunctionModel(stream_function=self._stream, model_name=name)

    def agent(self) -> acphold.Agent:
        """A coding agent that answers with this model."""
        return coder(self.model)

    @property
    def tools(self) -> set[str]:
        """The tools that the last request offered."""
        return {tool.name for tool in self.infos[-1].function_tools}

    def given(self, number: int = -1) -> list[str]:
        """The last request, or another, in short: `user: …`, `model: …`, `call: …`, `tool: …`."""
        return [line for message in self.requests[number] for line in _short(message)]

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
        self.requests.append(messages)
        self.infos.append(info)
        for index, step in enumerate(self.answers.pop(0)):
            match step:
                case str():
                    yield step
                case Think(text=text):
                    yield {index: DeltaThinkingPart(content=text)}
                case Call(tool=tool, arguments=arguments):
                    call_id = f"c{len(self.requests)}_{index}"
                    yield {index: DeltaToolCall(tool, arguments, tool_call_id=call_id)}
                case Exception():
                    raise step
                case _:
                    await step()


def _steps(answer: Sequence[Step] | Step) -> Sequence[Step]:
    return answer if isinstance(answer, list | tuple) else [cast(Step, answer)]


def _short(message: ModelMessage) -> list[str]:
    lines = []
    if isinstance(message, ModelRequest):
        for asked in message.parts:
            if isinstance(asked, UserPromptPart):
                content = asked.content
                parts = [content] if isinstance(content, str) else content
                lines += [f"user: {part}" for part in parts]
            elif isinstance(asked, ToolReturnPart):
                lines.append(f"tool: {asked.model_response_str(wrap_if_error=False)}")
    elif isinstance(message, ModelResponse):
        for part in message.parts:
            if isinstance(part, TextPart):
                lines.append(f"model: {part.content}")
            elif isinstance(part, ToolCallPart):
                lines.append(f"call: {part.tool_name} {part.args_as_json_str()}")
    return lines
