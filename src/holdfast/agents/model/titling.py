"""A title for a session, made by the model in a moment of rest."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

from holdfast.agents.model.failing import FAILURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.usage import RequestUsage

log = logging.getLogger(__name__)

SECONDS = 30.0
"""How long a title may take."""

EXCERPT = 1500
"""Characters of what either side said that the title is made from."""

LONGEST = 80

ORDER = "Give the conversation above a title of at most six words. Answer with the title alone."


async def make_title(
    model: Model, messages: Sequence[ModelMessage]
) -> tuple[str, RequestUsage] | None:
    """A title for what these messages begin, and what it cost; None if the model makes none."""
    request = ModelRequest.user_text_prompt(f"{excerpt(messages)}\n\n{ORDER}")
    try:
        async with asyncio.timeout(SECONDS), model_request_stream(model, [request]) as stream:
            async for _ in stream:
                pass
            response = stream.get()
    except (*FAILURES, TimeoutError) as error:
        log.info("no title: %s", type(error).__name__)
        return None
    title = tidy(response.text or "")
    return (title, response.usage) if title else None


def excerpt(messages: Sequence[ModelMessage]) -> str:
    """How the conversation begins."""
    asked = next(
        (
            part.content if isinstance(part.content, str) else _texts(part.content)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ),
        "",
    )
    answers = (message.text for message in messages if isinstance(message, ModelResponse))
    answered = next((text for text in reversed([*answers]) if text), "")
    return f"Person: {asked[:EXCERPT]}\n\nAgent: {answered[:EXCERPT]}"


def tidy(said: str) -> str:
    """The title in what a model said: one line, without quotes and marks around it."""
    lines = [line.strip().strip("#*\"'“”`").strip() for line in said.splitlines()]
    title = next(filter(None, lines), "").removesuffix(".")
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1].rstrip()}…"


def _texts(content: Sequence[object]) -> str:
    return "\n".join(part for part in content if isinstance(part, str))
