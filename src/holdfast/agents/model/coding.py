"""A coding agent on a language model: what it declares, and who answers what.

agent = holdfast.Agent("helper", version="1.0")
coding(agent, ["openai:gpt-5"])
agent.run()
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pydantic_ai.settings import ModelSettings, ThinkingLevel

from holdfast.agents.model.accounts import Accounts
from holdfast.agents.model.answering import Answering
from holdfast.agents.model.compacting import summed_up
from holdfast.agents.model.failing import FAILURES, meaning
from holdfast.agents.model.memory import Memory
from holdfast.agents.model.models import Models
from holdfast.agents.model.titling import make_title
from holdfast.agents.model.work import ASK, CODE, PLAN
from holdfast.errors import ModelError
from holdfast.schema import SessionInfoUpdate, encode

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.definition import AgentDefinition
    from holdfast.agents.turn import Turn

MODEL = "model"
THINKING = "thinking"
DEFAULT = "default"
LEVELS = (DEFAULT, "off", "low", "medium", "high")
"""How much a model thinks, as far as it lets that be chosen."""

TITLED = "titled"
"""In the session's store: the model has named the session, and will not again."""

TITLING = "titling"
LOADING = "loading"
"""Tasks, in the session's state; they end with it."""

MAX_REQUESTS = 100


def coding(
    agent: AgentDefinition,
    models: Sequence[str | Model],
    *,
    max_requests: int = MAX_REQUESTS,
    context_window: int | None = None,
) -> None:
    """Make `agent` a coding agent that answers with `models`, the first unless one is chosen.

    A model is a name as pydantic-ai has it, such as "anthropic:claude-sonnet-4-5"; keys and base
    URLs come from the environment variables of its provider. `max_requests` is how often a model
    is asked in one turn; `context_window`, in tokens, is for models that pydantic-ai does not
    know. Raises DeclarationError when the agent has a prompt handler, or modes, already.
    """
    coder = Coder(Models(models), Answering(max_requests, context_window))
    agent.image = agent.embedded_context = True
    agent.mode(ASK, "Ask", "Asks before each change and each command")
    agent.mode(CODE, "Code", "Changes files freely, asks before each command")
    agent.mode(PLAN, "Plan", "Explores and proposes; changes nothing")
    names = coder.models.names
    agent.option(MODEL, "Model", default=names[0], values=names, category="model")
    agent.option(THINKING, "Thinking", default=DEFAULT, values=LEVELS, category="thought_level")
    agent.prompt(coder.answer)
    agent.command("compact", "Sum the conversation up, to make room", hint="what to keep")(
        coder.compact
    )
    agent.command("model", "Show the models, or choose one", hint="name")(coder.choose_model)
    agent.on_new(coder.opened)
    agent.on_load(coder.opened)
    agent.on_close(coder.closed)


class Coder:
    """What answers the prompts and the commands of one agent."""

    def __init__(self, models: Models, answering: Answering) -> None:
        self.models = models
        self._answering = answering

    async def answer(self, turn: Turn) -> None:
        """The prompt handler. Raises StopTurn, and ModelError with what the person can do."""
        name = self._chosen(turn.session)
        try:
            model = await self.models.get(name)
            messages = await self._answering.answer(turn, model, _settings(turn.session))
        except FAILURES as error:
            raise meaning(error, name) from None  # it may hold what nobody is to see
        if TITLED not in turn.session.store and TITLING not in turn.session.state:
            titling = self._title(turn.session, model, messages)
            turn.session.state[TITLING] = asyncio.create_task(titling, name="title")

    async def compact(self, turn: Turn, words: str) -> None:
        """`/compact`: let the conversation go on from a summary of it."""
        memory = Memory(turn.session)
        messages = await memory.read()
        if len(messages) <= 2:
            await turn.say("There is nothing to sum up yet.")
            return
        name = self._chosen(turn.session)
        try:
            model = await self.models.get(name)
            summary, response = await summed_up(model, messages, words)
        except FAILURES as error:
            raise meaning(error, name) from None
        memory.begin_with(summary)
        Accounts(turn.session).pay(response.usage)
        await turn.say(f"Summed up {len(messages)} messages. From here on I know this:\n\n")
        await turn.say(response.text or "")

    async def choose_model(self, turn: Turn, words: str) -> None:
        """`/model`, `/model NAME`: show the models, or go on with another."""
        fitting = [name for name in self.models.names if words and words in name]
        if words in self.models.names:
            fitting = [words]
        if len(fitting) == 1:
            await turn.session.set_option(MODEL, fitting[0])
            await turn.say(f"Going on with {fitting[0]}.")
            return
        chosen = self._chosen(turn.session)
        shown = [f"- {name}{' (in use)' if name == chosen else ''}" for name in self.models.names]
        why = f"Not one model fits {words!r}. " if words else ""
        await turn.say("\n".join([f"{why}There are:", "", *shown]))

    async def opened(self, session: AuthoredSession) -> None:
        """Begin to load the model: its SDK takes longer than a person takes to type."""
        loading = self._load(self._chosen(session))
        session.state[LOADING] = asyncio.create_task(loading, name="load model")

    async def closed(self, session: AuthoredSession) -> None:
        """End what goes on beside the turns."""
        tasks = [session.state.pop(key, None) for key in (TITLING, LOADING)]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _load(self, name: str) -> None:
        with suppress(ModelError):  # told when it is needed
            await self.models.get(name)

    async def _title(
        self, session: AuthoredSession, model: Model, messages: list[ModelMessage]
    ) -> None:
        try:
            made = await make_title(model, messages)
            if made is not None:
                title, usage = made
                Accounts(session).pay(usage)
                session.store[TITLED] = True
                await session.outbox.put(encode(SessionInfoUpdate(title=title)))
                await session.store.save()
        finally:
            session.state.pop(TITLING, None)

    def _chosen(self, session: AuthoredSession) -> str:
        chosen = session.options.get(MODEL)
        return chosen if isinstance(chosen, str) else self.models.names[0]


def _settings(session: AuthoredSession) -> ModelSettings:
    settings = ModelSettings(cache=True)
    level = session.options.get(THINKING)
    if isinstance(level, str) and level != DEFAULT:
        settings["thinking"] = False if level == "off" else cast(ThinkingLevel, level)
        if level != "off":
            # OpenAI thinks aloud only when it is asked to.
            settings = cast(ModelSettings, {**settings, "openai_reasoning_summary": "auto"})
    return settings
