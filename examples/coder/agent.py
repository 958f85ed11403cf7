"""A coding agent on a language model: what it declares to an editor, and who answers what.

Read on in `answer.py` (one turn), `toolbox.py` (what the model can do), `finder.py` (how it finds
files), `memory.py` (what it knows after a restart) and `models.py` (names, keys, errors).
pydantic-ai takes a second to import: nothing here does, `Models` has a thread do it
(docs/decisions.md, 33)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import acphold
from models import Models

if TYPE_CHECKING:
    from pydantic_ai.models import Model


def coder(*models: str | Model) -> acphold.Agent:
    """A coding agent that answers with the first of `models`, or the one the person chooses.

    A model is a name as pydantic-ai has it, such as "openai:gpt-5", or one made by hand. Without
    any it is those that CODER_MODEL names, with blanks between them.
    """
    available = Models(models or os.environ.get("CODER_MODEL", "").split())
    agent = acphold.Agent("coder", version="1.0", title="Coder", image=True, embedded_context=True)
    agent.mode("ask", "Ask", "Asks before each change and each command")
    agent.mode("code", "Code", "Changes files freely, asks before each command")
    agent.mode("plan", "Plan", "Looks around and proposes; changes nothing")
    if names := available.names:
        agent.option("model", default=names[0], values=names, category="model")

    @agent.on_new
    @agent.on_load
    async def begin(session: acphold.Session) -> None:
        available.load()  # beside: it takes longer than opening a session may

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None:
        model = await available.get(turn.session.config_options.get("model"))
        from answer import answer_prompt  # imported by now

        await answer_prompt(turn, model)

    @agent.command("clear", "Have the model forget this conversation, to make room")
    async def clear(turn: acphold.Turn, words: str) -> None:
        turn.session.store.pop("messages", None)
        await turn.say("Forgotten: from here on I know nothing of what was said.")

    return agent


agent = coder()  # what `acphold agent run examples/coder/agent.py` serves
