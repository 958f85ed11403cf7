"""Commands the client runs for the agent."""

from __future__ import annotations

from acphold.schema.mcp_servers import EnvVariable
from acphold.schema.shapes import Extensible, NullIsDefault, OrDefault, UInt32, UInt64


class CreateTerminalRequest(Extensible, frozen=True):
    """`terminal/create`: run a command; `output_byte_limit` keeps that many last bytes."""

    session_id: str
    command: str
    args: NullIsDefault[tuple[str, ...]] = ()
    env: NullIsDefault[tuple[EnvVariable, ...]] = ()
    cwd: str | None = None
    output_byte_limit: UInt64 | None = None


class CreateTerminalResponse(Extensible, frozen=True):
    """The command runs."""

    terminal_id: str


class TerminalExitStatus(Extensible, frozen=True):
    """How a command ended: with a code, or by a signal."""

    exit_code: OrDefault[UInt32 | None] = None
    signal: OrDefault[str | None] = None


class TerminalOutputRequest(Extensible, frozen=True):
    """`terminal/output`: what the command has printed so far."""

    session_id: str
    terminal_id: str


class TerminalOutputResponse(Extensible, frozen=True):
    """The output; `truncated` when its beginning was dropped; a status once it ended."""

    output: str
    truncated: bool
    exit_status: OrDefault[TerminalExitStatus | None] = None


class ReleaseTerminalRequest(Extensible, frozen=True):
    """`terminal/release`: kill the command if it runs, and forget the terminal."""

    session_id: str
    terminal_id: str


class ReleaseTerminalResponse(Extensible, frozen=True):
    """The terminal is gone."""


class WaitForTerminalExitRequest(Extensible, frozen=True):
    """`terminal/wait_for_exit`: answered when the command ends."""

    session_id: str
    terminal_id: str


class WaitForTerminalExitResponse(Extensible, frozen=True):
    """How the command ended: with a code, or by a signal."""

    exit_code: OrDefault[UInt32 | None] = None
    signal: OrDefault[str | None] = None


class KillTerminalRequest(Extensible, frozen=True):
    """`terminal/kill`: end the command; its output can still be read."""

    session_id: str
    terminal_id: str


class KillTerminalResponse(Extensible, frozen=True):
    """The command was told to end."""
