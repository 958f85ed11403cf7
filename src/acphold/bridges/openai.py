"""A conversation as messages of OpenAI's chat completions, which many other services accept, too.

Thoughts are left out: these messages have no place for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from acp_wire.schema import AudioContent, ContentBlock
from acphold.bridges.conversation import ModelInput, Response, conversation, image, text

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionContentPartParam,
        ChatCompletionMessageParam,
    )

    from acphold.conversation.history.timeline import Item

__all__ = ["chat_messages"]

AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""The audio formats it accepts."""


def chat_messages(timeline: Iterable[Item]) -> list[ChatCompletionMessageParam]:
    """Return the messages of a timeline such as `(await turn.history()).timeline`.

    A tool message can hold only text: images in a result follow in a user message.
    """
    history: list[ChatCompletionMessageParam] = []
    for step in conversation(timeline):
        match step:
            case ModelInput(blocks=blocks):
                if blocks:
                    history.append({"role": "user", "content": [_part(block) for block in blocks]})
            case Response():
                content = "".join(text(block) for role, block in step.parts if role == "agent")
                message: ChatCompletionAssistantMessageParam = {"role": "assistant"}
                if content:
                    message["content"] = content
                if step.calls:
                    message["tool_calls"] = [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {
                                "name": call.name,
                                "arguments": json.dumps(call.arguments, ensure_ascii=False),
                            },
                        }
                        for call in step.calls
                    ]
                if len(message) == 1:
                    continue  # only thoughts
                history.append(message)
                history += [
                    {"role": "tool", "tool_call_id": call.id, "content": call.result}
                    for call in step.calls
                ]
                if images := [_part(found) for call in step.calls for found in call.images]:
                    history.append({"role": "user", "content": images})
    return history


def _part(block: ContentBlock) -> ChatCompletionContentPartParam:
    if (picture := image(block)) is not None:
        url = f"data:{picture.mime_type};base64,{picture.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if isinstance(block, AudioContent) and block.mime_type in AUDIO:
        kind = AUDIO[block.mime_type]
        sound: ChatCompletionContentPartParam = {
            "type": "input_audio",
            "input_audio": {"data": block.data, "format": "wav" if kind == "wav" else "mp3"},
        }
        return sound
    return {"type": "text", "text": text(block)}
