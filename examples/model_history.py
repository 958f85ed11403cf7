"""A conversation as messages for a language model, and an agent that goes on with them.

    pip install openai
    OPENAI_API_KEY=… acphold agent run examples/model_history.py

`steps` repairs what every model's service refuses: a call without a result, two texts of one
speaker in a row, an agent that speaks first. It leaves out what no longer counts: refused turns,
all before a summary, thoughts. `chat_messages` writes the steps as OpenAI's chat completions, which
many services accept; for Anthropic's messages, or a library, write the same steps in its words.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import acphold
from acphold.types import Content, Item

MODEL = os.environ.get("MODEL", "gpt-5")

ENDS = {
    "cancelled": "(The person cancelled this turn.)",
    "interrupted": "(The turn was interrupted.)",
    "failed": "(The turn was interrupted.)",
}


@dataclass
class Call:
    """A tool call with its result; services accept the id and the name."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str


@dataclass
class Step:
    """Words of a person, or of the agent, whose `calls` come after its words."""

    is_person: bool
    blocks: list[Content] = field(default_factory=list[Content])
    calls: list[Call] = field(default_factory=list[Call])


def steps(timeline: Iterable[Item]) -> list[Step]:
    """Return the steps of a timeline such as `(await turn.history()).timeline`."""
    made: list[Step] = []

    def step(*, is_person: bool, is_new: bool = False) -> Step:
        if not made and not is_person:
            made.append(Step(True, [acphold.TextContent("(The beginning is not known.)")]))
        if not made or made[-1].is_person is not is_person or is_new:
            made.append(Step(is_person))
        return made[-1]

    for item in counting(timeline):
        match item:
            case acphold.Message(role="user" | "agent" as role):
                if blocks := [it for it in item.blocks if text(it).strip()]:
                    # Words after a call have seen its result: they are another step.
                    is_new = bool(made) and bool(made[-1].calls)
                    step(is_person=role == "user", is_new=is_new).blocks += blocks
            case acphold.ToolCall():
                calls = step(is_person=False).calls
                number = sum(len(it.calls) for it in made)
                calls.append(called(item, number))
            case acphold.ContextCompaction(summary=summary):
                made = [Step(True, [*acphold.Message("user", None, summary).blocks])]
            case acphold.TurnEnd(outcome=outcome) if outcome in ENDS:
                step(is_person=True).blocks.append(acphold.TextContent(ENDS[outcome]))
            case _:
                pass  # what a sub-agent did stands in the result of its call
    return made


def counting(timeline: Iterable[Item]) -> Iterator[Item]:
    """Yield what still counts for the agent: no refused turn, no summary that is none."""
    turn: list[Item] = []
    for item in timeline:
        if isinstance(item, acphold.ContextCompaction) and not (
            item.status == "completed" and item.summary
        ):
            continue
        turn.append(item)
        if isinstance(item, acphold.TurnEnd):
            if item.outcome != "refused":
                yield from turn
            turn = []
    yield from turn


def called(tool: acphold.ToolCall, number: int) -> Call:
    """Return the `number`th call with a result, whether it had one or not."""
    given, output = tool.input, tool.output
    arguments: dict[str, Any] = {} if given is None else {"input": given}
    if isinstance(given, dict):
        arguments = cast("dict[str, Any]", given)
    if output is None:
        words = [*map(text, tool.blocks), *(f"{diff.path} was changed." for diff in tool.diffs)]
    else:
        words = [output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)]
    if tool.status not in ("completed", "failed"):
        words.append("The call was cut off before it had a result.")
    name = re.sub("[^a-zA-Z0-9_-]", "_", tool.name or tool.kind)[:64]
    result = "\n".join(filter(str.strip, words)) or f"The call has {tool.status}."
    return Call(f"call_{number}", name, arguments, result)


def text(block: Content) -> str:
    """Return a block as text; a block without text is named."""
    match block:
        case str():
            return block
        case acphold.TextContent(text=words):
            return words
        case acphold.ResourceLink(name=name, uri=uri):
            return f"[{name}]({uri})"
        case acphold.EmbeddedResource(resource=acphold.TextResourceContents(uri=uri, text=words)):
            return f'<file uri="{uri}">\n{words}\n</file>'
        case _:
            return f"({getattr(block, 'mime_type', None) or 'something that is no text'})"


def chat_messages(timeline: Iterable[Item]) -> list[dict[str, Any]]:
    """Return the messages of OpenAI's chat completions."""
    messages: list[dict[str, Any]] = []
    for step in steps(timeline):
        if step.is_person:
            messages.append({"role": "user", "content": [*map(part, step.blocks)]})
            continue
        said: dict[str, Any] = {"role": "assistant", "content": "".join(map(text, step.blocks))}
        if step.calls:
            said["tool_calls"] = [
                {
                    "id": it.id,
                    "type": "function",
                    "function": {"name": it.name, "arguments": json.dumps(it.arguments)},
                }
                for it in step.calls
            ]
        results = [
            {"role": "tool", "tool_call_id": it.id, "content": it.result} for it in step.calls
        ]
        messages += [said, *results]
    return messages


def part(block: Content) -> dict[str, Any]:
    """Return a block of a person's message: an image as such, all else as text."""
    if isinstance(block, acphold.ImageContent):
        url = f"data:{block.mime_type};base64,{block.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": text(block)}


async def complete(messages: list[dict[str, Any]]) -> str:
    """Ask the model."""
    import openai  # late: it takes a second

    async with openai.AsyncOpenAI() as service:
        answer = await service.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
        return answer.choices[0].message.content or ""


agent = acphold.Agent("talker", version="1.0")


@agent.prompt
async def talk(turn: acphold.Turn) -> None:
    history = chat_messages((await turn.history()).timeline)
    await turn.say(await complete([*history, {"role": "user", "content": turn.text}]))


if __name__ == "__main__":
    agent.run()
