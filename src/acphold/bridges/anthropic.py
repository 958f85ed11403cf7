"""A conversation as messages of Anthropic's API.

Thoughts are left out: the service accepts only thoughts that it has signed itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from acphold.bridges.conversation import ModelInput, Response, conversation, image, text

if TYPE_CHECKING:
    from anthropic.types import (
        ImageBlockParam,
        MessageParam,
        TextBlockParam,
        ToolResultBlockParam,
        ToolUseBlockParam,
    )

    from acp_wire.schema import ContentBlock
    from acphold.conversation.history.timeline import Item

__all__ = ["messages"]


def messages(timeline: Iterable[Item]) -> list[MessageParam]:
    """Return the messages of a timeline such as `(await turn.history()).timeline`."""
    history: list[MessageParam] = []
    results: list[ToolResultBlockParam] = []  # they begin the next user message
    for step in conversation(timeline):
        match step:
            case ModelInput(blocks=blocks):
                if blocks or results:
                    history.append(
                        {"role": "user", "content": [*results, *(_part(it) for it in blocks)]}
                    )
                results = []
            case Response():
                if results:
                    history.append({"role": "user", "content": results})
                results = [
                    {
                        "type": "tool_result",
                        "tool_use_id": call.id,
                        "content": [
                            {"type": "text", "text": call.result},
                            *map(_part, call.images),
                        ],
                        "is_error": call.outcome != "success",
                    }
                    for call in step.calls
                ]
                content: list[TextBlockParam | ToolUseBlockParam] = [
                    {"type": "text", "text": text(block).rstrip()}
                    for role, block in step.parts
                    if role == "agent"
                ]
                content += [
                    {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
                    for call in step.calls
                ]
                if content:
                    history.append({"role": "assistant", "content": content})
    if results:
        history.append({"role": "user", "content": results})
    return history


def _part(block: ContentBlock) -> TextBlockParam | ImageBlockParam:
    if (picture := image(block)) is not None:
        match picture.mime_type:  # the types it accepts
            case "image/jpeg" | "image/png" | "image/gif" | "image/webp" as kind:
                return {
                    "type": "image",
                    "source": {"type": "base64", "media_type": kind, "data": picture.data},
                }
    return {"type": "text", "text": text(block)}
