"""A long conversation summed up by the model itself, so that it can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from holdfast.agents.model.memory import mended
from holdfast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

ORDER = """\
Sum up our conversation so far, for yourself: from here on you will know nothing else of it. Say \
what I want, what was decided and why, what has been done (files by their paths), what was \
learned, and what is still to be done. Leave out what no longer matters. Use no tools."""

ATTEMPTS = 5
"""How often the older half is left out when even summing up is too long."""


async def summed_up(
    model: Model, messages: Sequence[ModelMessage], wish: str
) -> tuple[list[ModelMessage], ModelResponse]:
    """What the conversation goes on from, two messages; and the answer they are made of.

    `wish` is what the person wants kept in particular. Raises what pydantic-ai raises, and
    ModelError for a model that says nothing.
    """
    order = f"{ORDER}\n\nIn particular: {wish}" if wish else ORDER
    request = ModelRequest.user_text_prompt(order)
    rest = list(messages)
    for last in (False,) * ATTEMPTS + (True,):
        try:
            response = await _ask(model, [*rest, request])
            break
        except ModelContextWindowExceededError:
            if last or len(rest) < 2:
                raise
            rest = later_half(rest)
    if not response.text:
        raise ModelError("the model gave no summary; the conversation stays as it was")
    summary = ModelResponse(parts=[TextPart(response.text)], model_name=response.model_name)
    return [request, summary], response


def later_half(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The later messages, about half of them, from a prompt of the person's on if there is one."""
    middle = len(messages) // 2
    for place in range(middle, len(messages)):
        message = messages[place]
        if isinstance(message, ModelRequest) and any(
            isinstance(part, UserPromptPart) for part in message.parts
        ):
            return mended(messages[place:])
    return mended(messages[middle:])


async def _ask(model: Model, messages: list[ModelMessage]) -> ModelResponse:
    async with model_request_stream(model, messages) as stream:
        async for _ in stream:
            pass
        return stream.get()
