"""`acphold.Agent`: an agent in Python, five lines and a coroutine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from acphold.hub import CANCEL_GRACE
from acphold.journal import default_location
from acphold.library.definition import AgentDefinition
from acphold.library.in_process import MCP_TIMEOUT, InProcessAgent
from acphold.rpc import MAX_MESSAGE
from acphold.server.serving import serve, stop_at_signals
from acphold.transports.pipes import PipeTransport
from acphold.transports.stdio import claim_stdio

if TYPE_CHECKING:
    from pathlib import Path

    from acphold.rpc import Transport


class Agent(AgentDefinition):
    """An agent that every ACP client can use, with durable sessions.

        agent = acphold.Agent("echo", version="1.0")

        @agent.prompt
        async def echo(turn: acphold.Turn) -> None:
            await turn.say(turn.text)

        agent.run()

    Sessions can be listed, loaded with their whole history after a restart or a crash, resumed,
    closed and deleted without another line. `prompt` is the only thing that has to be declared;
    `mode`, `option`, `command`, `auth`, `on_new`, `on_load`, `on_close`, `method` and
    `notification` add to it, before `run`.
    """

    _is_imported: ClassVar[bool] = False

    @classmethod
    @contextmanager
    def imported(cls) -> Iterator[None]:
        """For the block, `run` returns at once: a program is imported for the agent in it."""
        cls._is_imported = True
        try:
            yield
        finally:
            cls._is_imported = False

    def run(
        self,
        *,
        journal: str | Path | None = None,
        mcp_timeout: float = MCP_TIMEOUT,
        cancel_grace: float = CANCEL_GRACE,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        """Serve on stdin and stdout until the client leaves or a signal comes.

        `journal` is a path or URL; by default `ACPHOLD_JOURNAL`, else a file in the user's data
        folder. `mcp_timeout`, in seconds, is what each MCP server of a session has to be ready;
        `cancel_grace` what a cancelled turn has to end; `max_message` is in bytes. What is
        printed from now on goes to stderr: stdout belongs to the protocol. DeclarationError when
        there is no prompt coroutine.
        """
        self.prompt_handler  # noqa: B018 — an agent without one is refused before it is asked
        if self._is_imported:
            return  # by `acphold run`, which runs it with options of its own
        self.run_on(
            claimed_stdio(self.name),
            journal=journal,
            mcp_timeout=mcp_timeout,
            cancel_grace=cancel_grace,
            max_message=max_message,
        )

    def run_on(
        self,
        streams: tuple[int, int],
        *,
        journal: str | Path | None = None,
        mcp_timeout: float = MCP_TIMEOUT,
        cancel_grace: float = CANCEL_GRACE,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        """Serve on two descriptors, one to read and one to write; else as `run`."""

        async def serve_until_signal() -> None:
            await self.serve(
                PipeTransport(*streams),
                journal=journal,
                stop=stop_at_signals(),
                mcp_timeout=mcp_timeout,
                cancel_grace=cancel_grace,
                max_message=max_message,
            )

        asyncio.run(serve_until_signal())

    async def serve(
        self,
        transport: Transport,
        *,
        journal: str | Path | None = None,
        stop: asyncio.Event | None = None,
        mcp_timeout: float = MCP_TIMEOUT,
        cancel_grace: float = CANCEL_GRACE,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        """Serve one client on `transport` until it leaves, or `stop` is set; else as `run`."""
        self.prompt_handler  # noqa: B018 — as in `run`
        location = default_location() if journal is None else os.fspath(journal)
        await serve(
            transport,
            location,
            lambda listener, opened: InProcessAgent(
                self, listener, opened, mcp_timeout=mcp_timeout
            ),
            stop=stop or asyncio.Event(),
            cancel_grace=cancel_grace,
            limit=max_message,
        )


def claimed_stdio(name: str) -> tuple[int, int]:
    """Our stdin and stdout for the protocol; tells whoever tries `name` by hand what it is."""
    if sys.stdin is not None and sys.stdin.isatty():
        print(  # noqa: T201 — to a person at a terminal
            f"{name}: this is an ACP agent and waits for an editor on stdin; "
            "name this command in your editor's settings",
            file=sys.stderr,
        )
    return claim_stdio()
