"""A coding agent on a language model: what it declares, and who answers what.

agent = holdfast.Agent("helper", version="1.0")
coding(agent, ["openai:gpt-5"])
agent.run()
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.agents.model.models import Models
from holdfast.agents.model.modes import ASK, CODE, DEFAULT, LEVELS, MODEL, PLAN, THINKING

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.definition import AgentDefinition
    from holdfast.agents.model.replying import Replying
    from holdfast.agents.turn import Turn

LOADING = "loading"
"""In the session's state: the task that loads the model."""

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
    know. Raises DeclarationError when the agent has a prompt handler, or these modes, already.
    """
    coder = Coder(Models(models), max_requests, context_window)
    agent.image = agent.embedded_context = True
    agent.mode(ASK, "Ask", "Asks before each change and each command")
    agent.mode(CODE, "Code", "Changes files freely, asks before each command")
    agent.mode(PLAN, "Plan", "Explores and proposes; changes nothing")
    names = coder.models.names
    agent.option(MODEL, "Model", default=names[0], values=names, category="model")
    levels = [(level, level.title()) for level in LEVELS]
    agent.option(THINKING, "Thinking", default=DEFAULT, values=levels, category="thought_level")
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

    def __init__(self, models: Models, max_requests: int, context_window: int | None) -> None:
        self.models = models
        self._max_requests = max_requests
        self._context_window = context_window
        self._made: Replying | None = None

    async def answer(self, turn: Turn) -> None:
        """The prompt handler."""
        await (await self._replying()).answer(turn, self._chosen(turn.session))

    async def compact(self, turn: Turn, words: str) -> None:
        """`/compact`, `/compact WHAT TO KEEP`."""
        await (await self._replying()).compact(turn, self._chosen(turn.session), words)

    async def choose_model(self, turn: Turn, words: str) -> None:
        """`/model`, `/model NAME`: show the models, or go on with another."""
        names = self.models.names
        fitting = [words] if words in names else [name for name in names if words in name]
        if words and len(fitting) == 1:
            await turn.session.set_option(MODEL, fitting[0])
            await turn.say(f"Going on with {fitting[0]}.")
            return
        chosen = self._chosen(turn.session)
        shown = [f"- {name}{' (in use)' if name == chosen else ''}" for name in names]
        why = f"{words!r} does not say which model. " if words else ""
        await turn.say("\n".join([f"{why}There are:", "", *shown]))

    async def opened(self, session: AuthoredSession) -> None:
        """Begin to load the model: that takes longer than a person takes to type."""
        session.state[LOADING] = asyncio.create_task(self._load(session), name="load model")

    async def closed(self, session: AuthoredSession) -> None:
        """End what goes on beside the turns."""
        tasks = [task for task in session.state.values() if isinstance(task, asyncio.Task)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _load(self, session: AuthoredSession) -> None:
        with suppress(Exception):  # whatever it is, it is told when the model is needed
            await self._replying()
            await self.models.get(self._chosen(session))

    async def _replying(self) -> Replying:
        if self._made is None:
            await asyncio.to_thread(import_module, "holdfast.agents.model.replying")
            from holdfast.agents.model.replying import Replying

            self._made = Replying(self.models, self._max_requests, self._context_window)
        return self._made

    def _chosen(self, session: AuthoredSession) -> str:
        chosen = session.options.get(MODEL)
        return chosen if isinstance(chosen, str) else self.models.names[0]
