"""`holdfast.Agent`: an agent in Python, five lines and a coroutine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.agents.definition import AgentDefinition
from holdfast.agents.inprocess import InProcessAgent
from holdfast.journal import default_location
from holdfast.rpc import Transport
from holdfast.server.serving import serve, stop_at_signals
from holdfast.transports.pipes import PipeTransport
from holdfast.transports.stdio import claim_stdio


class Agent(AgentDefinition):
    """An agent that every ACP client can use, with durable sessions.

    agent = holdfast.Agent("echo", version="1.0")

    @agent.prompt
    async def echo(turn: holdfast.Turn) -> None:
        await turn.say(turn.text)

    agent.run()
    """

    def run(self, *, journal: str | Path | None = None) -> None:
        """Serve on stdin and stdout until the client leaves.

        `journal` is a path or URL; by default `HOLDFAST_JOURNAL`, else the user's data folder.
        What the agent's code prints goes to stderr: stdout belongs to the protocol.
        """
        asyncio.run(self._run_on_stdio(journal))

    async def _run_on_stdio(self, journal: str | Path | None) -> None:
        await self.serve(PipeTransport(*claim_stdio()), journal=journal, stop=stop_at_signals())

    async def serve(
        self,
        transport: Transport,
        *,
        journal: str | Path | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Serve one client on `transport` until it leaves, or `stop` is set."""
        self.prompt_handler  # noqa: B018 — an agent without one is refused before it is asked
        location = default_location() if journal is None else os.fspath(journal)
        await serve(
            transport,
            location,
            lambda listener, opened: InProcessAgent(self, listener, opened),
            stop=stop or asyncio.Event(),
        )
