"""A client's services for an agent: files as its editor sees them, and terminals."""

from __future__ import annotations

from acphold.schema.session_requests import EnvVariable
from acphold.schema.shapes import Extensible, NullIsDefault, OrDefault, UInt32, UInt64

# -- files, unsaved changes included; paths are absolute ------------------------------------------


class ReadTextFileRequest(Extensible, frozen=True):
    """`fs/read_text_file`: `limit` lines from `line`, which counts from 1; all without them."""

    session_id: str
    path: str
    line: UInt32 | None = None
    limit: UInt32 | None = None


class ReadTextFileResponse(Extensible, frozen=True):
    """The text."""

    content: str


class WriteTextFileRequest(Extensible, frozen=True):
    """`fs/write_text_file`: the whole new text; the file is made if there is none."""

    session_id: str
    path: str
    content: str


class WriteTextFileResponse(Extensible, frozen=True):
    """The file is written."""


# -- commands the client runs for the agent -------------------------------------------------------


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
    """The end of a command: an exit code, or a signal."""

    exit_code: OrDefault[UInt32 | None] = None
    signal: OrDefault[str | None] = None


class TerminalOutputRequest(Extensible, frozen=True):
    """`terminal/output`: the command's output so far."""

    session_id: str
    terminal_id: str


class TerminalOutputResponse(Extensible, frozen=True):
    """The output; `truncated` if its beginning was dropped; a status once it ended."""

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
    """The end of a command: an exit code, or a signal."""

    exit_code: OrDefault[UInt32 | None] = None
    signal: OrDefault[str | None] = None


class KillTerminalRequest(Extensible, frozen=True):
    """`terminal/kill`: end the command; its output can still be read."""

    session_id: str
    terminal_id: str


class KillTerminalResponse(Extensible, frozen=True):
    """The command is being killed."""
