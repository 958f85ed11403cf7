"""A conversation as messages of pydantic-ai, for `Agent.run(…, message_history=…)`."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic_ai import messages

from acp_wire.schema import AudioContent, ContentBlock
from acphold.bridges.conversation import ModelInput, Response, conversation, image, text

if TYPE_CHECKING:
    from acphold.conversation.history.timeline import Item

__all__ = ["model_messages"]


def model_messages(timeline: Iterable[Item]) -> list[messages.ModelMessage]:
    """Return the messages of a timeline such as `(await turn.history()).timeline`.

    They include thoughts, without a signature: each model takes or leaves them as it can.
    """
    history: list[messages.ModelMessage] = []
    results: list[messages.ModelRequestPart] = []  # they begin the next request
    for step in conversation(timeline):
        match step:
            case ModelInput(blocks=blocks):
                asked = (
                    [messages.UserPromptPart([_part(block) for block in blocks])] if blocks else []
                )
                if asked or results:
                    history.append(messages.ModelRequest([*results, *asked]))
                results = []
            case Response():
                if results:
                    history.append(messages.ModelRequest(results))
                results = []
                for call in step.calls:
                    images = map(_part, call.images)
                    content = [call.result, *images] if call.images else call.result
                    results.append(
                        messages.ToolReturnPart(call.name, content, call.id, outcome=call.outcome)
                    )
                parts: list[messages.ModelResponsePart] = [
                    messages.ThinkingPart(text(block))
                    if role == "thought"
                    else messages.TextPart(text(block))
                    for role, block in step.parts
                ]
                parts += [
                    messages.ToolCallPart(call.name, call.arguments, call.id) for call in step.calls
                ]
                history.append(messages.ModelResponse(parts))
    if results:
        history.append(messages.ModelRequest(results))
    return history


def _part(block: ContentBlock) -> messages.UserContent:
    found = block if isinstance(block, AudioContent) else image(block)
    if found is not None:
        try:
            data = b64decode(found.data, validate=True)
        except (NoBase64, ValueError):
            return text(block)
        return messages.BinaryContent.narrow_type(
            messages.BinaryContent(data, media_type=found.mime_type)
        )
    return text(block)
