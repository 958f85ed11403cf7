"""Exit codes, all in one place: what a script may rely on."""

from __future__ import annotations

from enum import IntEnum

from acphold.errors import (
    AcpholdError,
    AgentError,
    AmbiguousIdError,
    JournalError,
    UnknownSessionError,
)


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NO_SESSION = 3
    JOURNAL = 4
    AGENT = 5
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done",
    Exit.ERROR: "something is wrong; `doctor` and `demo` say what",
    Exit.USAGE: "a command line that cannot be used",
    Exit.NO_SESSION: "no session has that id, or several do",
    Exit.JOURNAL: "the journal cannot be opened, read or written",
    Exit.AGENT: "the agent cannot be started, or ended while it was needed",
    Exit.INTERRUPTED: "interrupted from the keyboard",
}
"""What the help says of each."""


def exit_code(error: AcpholdError) -> Exit:
    """The exit code for an error that ended a command."""
    match error:
        case UnknownSessionError() | AmbiguousIdError():
            return Exit.NO_SESSION
        case JournalError():
            return Exit.JOURNAL
        case AgentError():
            return Exit.AGENT
    return Exit.ERROR
