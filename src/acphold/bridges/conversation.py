"""A timeline as models get it: requests and responses, in turns.

Anything that a model's service would refuse is repaired here, for all of them: a call without a
result gets one, texts of one speaker are joined, a person speaks first. Parts that no longer
count for the agent are left out: turns that it refused, everything before a summary, and what its
sub-agents said among themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire import schema
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Item,
    Message,
    ToolCall,
    TurnEnd,
)

BEGINNING: Final = "(What was said before this is not known.)"
CANCELLED: Final = "(The person cancelled this turn.)"
INTERRUPTED: Final = "(The turn was interrupted.)"
CUT_OFF: Final = "The call was cut off before it had a result."

Outcome: TypeAlias = Literal["success", "failed", "interrupted"]


class CalledTool(Struct, frozen=True):
    """A tool call with its result; every service accepts its `name` and `id`.

    `images` are those in the result.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    result: str
    outcome: Outcome
    images: tuple[schema.ImageContent, ...] = ()


class ModelInput(Struct):
    """Input for a model: what a person said, or the outcome of a turn."""

    blocks: list[schema.ContentBlock] = field(default_factory=list)


class Response(Struct):
    """Output of a model: thoughts and answers in order, then its calls."""

    parts: list[tuple[Literal["thought", "agent"], schema.ContentBlock]] = field(
        default_factory=list
    )
    calls: list[CalledTool] = field(default_factory=list)


def conversation(timeline: Iterable[Item]) -> list[ModelInput | Response]:
    """Return a timeline in turns, a request first; calls may separate two responses in a row."""
    steps: list[ModelInput | Response] = []
    ids: set[str] = set()
    for item in counting(timeline):
        match item:
            case Message(role="user"):
                _request(steps).blocks += _blocks(item)
            case Message(role=role):
                if blocks := _blocks(item):
                    speaker: Literal["thought", "agent"] = (
                        "thought" if role == "thought" else "agent"
                    )
                    _response(steps, speaking=True).parts += [(speaker, it) for it in blocks]
            case ToolCall():
                made = call(item)
                if made.id in ids:  # two ids that differ only in characters that services refuse
                    made = replace(made, id=f"{made.id[: ID_LENGTH - 8]}_{len(ids)}")
                ids.add(made.id)
                _response(steps, speaking=False).calls.append(made)
            case ContextCompaction():
                steps = [ModelInput(_blocks(Message("user", None, item.summary)))]
            case TurnEnd(outcome="cancelled"):
                _request(steps).blocks.append(schema.TextContent(text=CANCELLED))
            case TurnEnd(outcome="interrupted" | "failed"):
                _request(steps).blocks.append(schema.TextContent(text=INTERRUPTED))
    return steps


def counting(timeline: Iterable[Item]) -> Iterator[Item]:
    """Yield what still counts for the agent: no refused turn, no compaction without a summary."""
    turn: list[Item] = []
    for item in timeline:
        if isinstance(item, ContextCompaction) and not (
            item.status == "completed" and item.summary
        ):
            continue
        turn.append(item)
        if isinstance(item, TurnEnd):
            if item.outcome != "refused":
                yield from turn
            turn = []
    yield from turn


def _blocks(message: Message) -> list[schema.ContentBlock]:
    """Return the blocks without empty texts, which services refuse."""
    return [
        it for it in message.blocks if not isinstance(it, schema.TextContent) or it.text.strip()
    ]


def _request(steps: list[ModelInput | Response]) -> ModelInput:
    if not (steps and isinstance(last := steps[-1], ModelInput)):
        last = ModelInput()
        steps.append(last)
    return last


def _response(steps: list[ModelInput | Response], *, speaking: bool) -> Response:
    """Return the response that goes on, or a new one: text after a call has seen its result."""
    if not steps:
        steps.append(ModelInput([schema.TextContent(text=BEGINNING)]))
    last = steps[-1]
    if not isinstance(last, Response) or (speaking and last.calls):
        last = Response()
        steps.append(last)
    return last


# -- calls ---------------------------------------------------------------------------------------

NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
"""Matches the characters that services refuse in names and ids of calls."""

NAME_LENGTH: Final = 64
ID_LENGTH: Final = 40


def call(tool: ToolCall) -> CalledTool:
    """Return a tool call in the form that services accept."""
    outcome: Outcome = "interrupted"
    if tool.status in ("completed", "failed"):
        outcome = "success" if tool.status == "completed" else "failed"
    given = tool.input
    arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
    output, parts = tool.output, list[str]()
    if output is not None:
        parts = [output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)]
    else:
        parts = [text(block) for block in tool.blocks if not isinstance(block, schema.ImageContent)]
        parts += [f"{diff.path} was changed." for diff in tool.diffs]
    if outcome == "interrupted":
        parts.append(CUT_OFF)
    result = "\n".join(part for part in parts if part.strip())
    return CalledTool(
        NAMES.sub("_", tool.tool_call_id)[-ID_LENGTH:] or "call",
        NAMES.sub("_", tool.name or tool.kind)[:NAME_LENGTH],
        arguments,
        result or f"The call has {'failed' if outcome == 'failed' else 'succeeded'}.",
        outcome,
        tuple(block for block in tool.blocks if isinstance(block, schema.ImageContent)),
    )


# -- blocks, for services that cannot take them --------------------------------------------------


def text(block: schema.ContentBlock) -> str:
    """Return a block as text; a block without text is named."""
    match block:
        case schema.TextContent(text=words):
            return words
        case schema.ResourceLink(name=name, uri=uri):
            return f"[{name}]({uri})"
        case schema.EmbeddedResource(resource=schema.BlobResourceContents(uri=uri, mime_type=kind)):
            return f"({kind or 'a file'}: {uri})"
        case schema.EmbeddedResource(resource=resource):
            return f'<file uri="{resource.uri}">\n{resource.text}\n</file>'  # type: ignore[union-attr]
        case schema.ImageContent(mime_type=kind) | schema.AudioContent(mime_type=kind):
            return f"({kind})"
    return f"({block.kind})"


def image(block: schema.ContentBlock) -> schema.ImageContent | None:
    """Return the image that a block is or embeds, otherwise None."""
    match block:
        case schema.ImageContent():
            return block
        case schema.EmbeddedResource(
            resource=schema.BlobResourceContents(blob=data, mime_type=str(kind))
        ):
            return (
                schema.ImageContent(data=data, mime_type=kind)
                if kind.startswith("image/")
                else None
            )
    return None
