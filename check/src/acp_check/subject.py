"""The agent under test: a program, or a server.

A program is started as often as a case needs it; a server is already running and is connected to.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from acp_check import bounds
from acp_check.record import StderrLog
from acp_check.verdicts import Reach
from acp_wire.errors import AcpError, AgentStartError
from acp_wire.extras import require_remote
from acp_wire.processes.program import Program, launch
from acp_wire.rpc import MAX_MESSAGE
from acp_wire.tasks import timeout
from acp_wire.transports.child import ChildProcess
from acp_wire.transports.known_servers import known_servers, transport_of

if TYPE_CHECKING:
    from acp_wire.rpc.transport import Transport
    from acp_wire.transports.route import Route


class RunningAgent:
    """A running agent; `transport` is its stdin and stdout, `stderr` its output there.

    This base class knows only the agent's connection, and closes it at the end.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.stderr = StderrLog()

    async def hang_up(self) -> None:
        """Close its stdin."""
        await self.transport.aclose()

    async def wait(self, seconds: float) -> str | None:
        """Return how it ended, in words; None if it still runs after so many seconds."""
        return "the connection is closed"

    async def leftovers(self, seconds: float) -> int | None:
        """Return how many of its processes run so many seconds after its end; None if unknown."""
        return None

    def last_words(self) -> str:
        """Return the end of its stderr."""
        return ""

    async def kill(self) -> None:
        """End it as `kill -9` does, without a chance to clean up."""
        await self.aclose()

    async def aclose(self) -> None:
        """End it in any case."""
        await self.transport.aclose()


class Subject(Protocol):
    """The agent under test. `name` is its name in a report."""

    name: str
    reach: Reach

    async def start(self) -> RunningAgent:
        """Start a new process; raises AgentStartError if it cannot be started."""


# -- a program ------------------------------------------------------------------------------


class ProgramSubject:
    """The agent that `command` starts; `env` is added to our environment."""

    reach = Reach.PROGRAM

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.name = shlex.join(command)
        self._command = tuple(command)
        self._env = {**os.environ, **(env or {})}

    async def start(self) -> RunningAgent:
        program = await asyncio.to_thread(launch, self._command, env=self._env)
        return _RunningProgram(program)


class _RunningProgram(RunningAgent):
    def __init__(self, program: Program) -> None:
        self._program = program
        loop = asyncio.get_running_loop()
        self._child = ChildProcess(
            program,
            relay_to=(),
            on_stderr=lambda data: self.stderr.take(loop.time(), data),
        )
        super().__init__(self._child.transport)

    async def hang_up(self) -> None:
        await self._child.transport.hang_up()

    async def wait(self, seconds: float) -> str | None:
        try:
            async with timeout(seconds):
                return await self._child.wait()
        except TimeoutError:
            return None

    async def leftovers(self, seconds: float) -> int | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await asyncio.to_thread(self._program.look):
            if loop.time() > deadline:
                return 1
            await asyncio.sleep(bounds.PROCESS_LOOK_SECONDS)
        return 0

    def last_words(self) -> str:
        return self._child.last_words()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        await self._child.aclose()

    async def aclose(self) -> None:
        await self._child.aclose()


# -- remote ------------------------------------------------------------------------------


class ServerSubject:
    """The server at `url`; `token` lets us in, by default the one this user has paired for.

    Each start is a connection, for which it has `seconds`.
    """

    reach = Reach.SERVER

    def __init__(
        self, url: str, token: str | None, *, seconds: float, ca: str | None = None
    ) -> None:
        from acp_wire.transports.dial import Dial  # brings TLS

        require_remote("a server", "acp-check")

        self.name = url
        self.url = transport_of(url)[0]
        self._seconds = seconds
        known = known_servers().at(self.url)
        self._token, self._ca = token or known.token, ca or known.ca
        self._dial = Dial(url, self._token, seconds=seconds, limit=MAX_MESSAGE, ca=self._ca)
        self._dial.tells_refusals = True

    def new_route(self) -> Route:
        """Return a way to the server that no connection has gone yet: it has no cookies."""
        from acp_wire.transports.route import Route

        return Route(self.url, seconds=self._seconds, token=self._token, trusted=self._ca)

    async def start(self) -> RunningAgent:
        self._dial.forget()
        try:
            return RunningAgent(await self._dial())
        except AcpError as error:
            raise AgentStartError(str(error)) from None
