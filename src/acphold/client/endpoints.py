"""The far ends of a client's connection: a program to start, or an open transport.

`client.uplink` opens an endpoint, and opens it again after a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from acp_wire.processes.program import launch
from acp_wire.rpc import Peer, Transport
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import first
from acp_wire.transports.child import ChildProcess
from acphold.client.uplink import Endpoint
from acphold.errors import AcpError, ConnectionLostError
from acphold.live.agents.identity import display_name
from acphold.live.agents.wrapped import exit_error, hang_up_behind


class ProgramStart(Struct, frozen=True, kw_only=True):
    """A program, and how it is started; `env` is added to our environment."""

    command: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    log_file: str | None = None
    show_stderr: bool = False

    @property
    def surroundings(self) -> Surroundings:
        """Ours, with its variables."""
        here = Surroundings.here()
        return Surroundings({**here.env, **(self.env or {})}, here.folder)

    @property
    def relay_to(self) -> tuple[int, ...]:
        """The descriptors that its stderr is copied to."""
        return (2,) if self.show_stderr else ()


class ProgramEndpoint(Endpoint):
    """A program that we start and end.

    Error messages name `called` instead, if given; `is_acphold` is set for `acphold wrap`, whose
    errors name the agent themselves.
    """

    is_repeatable = True

    def __init__(
        self, program: ProgramStart, *, called: str | None = None, is_acphold: bool = False
    ) -> None:
        self.name = called or display_name(program.command, program.surroundings.folder)
        self.is_acphold = is_acphold
        self.cwd = program.cwd
        self._program = program
        self._process: ChildProcess | None = None

    def stderr_tail(self, lines: int = 10) -> str:
        """Return the last lines that it wrote to stderr."""
        return "" if self._process is None else self._process.stderr_tail(lines)

    async def open(self) -> Transport:
        start = self._program
        launched = launch(start.command, start.surroundings, cwd=start.cwd)
        self._process = ChildProcess(launched, log_path=start.log_file, relay_to=start.relay_to)
        return self._process.transport

    async def follow(self, peer: Peer, pump: asyncio.Task[None]) -> None:
        assert self._process is not None
        await first(pump, hang_up_behind(self._process, peer, pump))

    async def how_it_ended(self) -> AcpError:
        return await exit_error(self.name, self._process)

    async def aclose(self) -> None:
        if self._process is not None:
            await self._process.aclose()


class TransportEndpoint(Endpoint):
    """A transport that is open already."""

    is_repeatable = False
    is_acphold = False

    def __init__(self, transport: Transport) -> None:
        self.name = "the agent"
        self._transport = transport

    async def open(self) -> Transport:
        return self._transport

    async def how_it_ended(self) -> AcpError:
        return ConnectionLostError(f"{self.name} has gone")

    async def aclose(self) -> None:
        await self._transport.aclose()
