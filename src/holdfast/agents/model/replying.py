"""What a coding agent does with a model: answer, sum up, make a title.

Importing this takes half a second, for pydantic-ai comes with it: `coding` does so in a thread,
once a session is open.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from pydantic_ai.settings import ModelSettings, ThinkingLevel

from holdfast.agents.model.accounts import Accounts
from holdfast.agents.model.answering import Answering
from holdfast.agents.model.compacting import summed_up
from holdfast.agents.model.failing import FAILURES, meaning
from holdfast.agents.model.memory import Memory
from holdfast.agents.model.modes import DEFAULT, OFF, THINKING
from holdfast.agents.model.titling import make_title
from holdfast.schema import SessionInfoUpdate, encode

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.model.models import Models
    from holdfast.agents.turn import Turn

log = logging.getLogger(__name__)

TITLED = "titled"
"""In the session's store: the model has named the session, and will not again."""

TITLING = "titling"
"""In the session's state: the task that does."""


class Replying:
    """Raises StopTurn, and ModelError with what the person can do."""

    def __init__(self, models: Models, max_requests: int, context_window: int | None) -> None:
        self._models = models
        self._answering = Answering(max_requests, context_window)

    async def answer(self, turn: Turn, name: str) -> None:
        """Answer the turn's prompt with the model `name`."""
        model = await self._models.get(name)
        try:
            messages = await self._answering.answer(turn, model, _settings(turn.session))
        except FAILURES as error:
            raise meaning(error, name) from None  # it may hold what nobody is to see
        if TITLED not in turn.session.store and TITLING not in turn.session.state:
            titling = _title(turn.session, model, messages)
            turn.session.state[TITLING] = asyncio.create_task(titling, name="title")

    async def compact(self, turn: Turn, name: str, wish: str) -> None:
        """Let the conversation go on from a summary of it."""
        memory = Memory(turn.session)
        messages = await memory.read()
        if len(messages) <= 2:
            await turn.say("There is nothing to sum up yet.")
            return
        model = await self._models.get(name)
        try:
            summary, response = await summed_up(model, messages, wish)
        except FAILURES as error:
            raise meaning(error, name) from None
        memory.begin_with(summary)
        Accounts(turn.session).pay(response.usage)
        await turn.say(f"Summed up {len(messages)} messages. From here on I know this:\n\n")
        await turn.say(response.text or "")


async def _title(session: AuthoredSession, model: Model, messages: list[ModelMessage]) -> None:
    try:
        made = await make_title(model, messages)
        if made is not None:
            title, usage = made
            Accounts(session).pay(usage)
            session.store[TITLED] = True
            await session.outbox.put(encode(SessionInfoUpdate(title=title)))
            await session.store.save()
    except Exception as error:  # the top of a task; a session does without a title of its own
        log.warning("session %s: no title: %s", session.id, type(error).__name__)
    finally:
        session.state.pop(TITLING, None)


def _settings(session: AuthoredSession) -> ModelSettings:
    settings = ModelSettings(cache=True)
    level = session.options.get(THINKING)
    if level == OFF:
        settings["thinking"] = False
    elif isinstance(level, str) and level != DEFAULT:
        settings["thinking"] = cast(ThinkingLevel, level)
        # OpenAI thinks aloud only when it is asked to.
        settings = cast(ModelSettings, {**settings, "openai_reasoning_summary": "auto"})
    return settings
