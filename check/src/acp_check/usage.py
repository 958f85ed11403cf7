"""The result of the command as its exit code, and unusable arguments."""

from __future__ import annotations

from enum import IntEnum


class CheckExit(IntEnum):
    """The exit codes of the command."""

    OK = 0
    """No rule that counts was broken."""
    ERROR = 1
    """A rule that counts was broken, or a failure that was expected is gone."""
    USAGE = 2
    """The command line is not valid."""
    AGENT = 5
    """The agent could not be started."""


class CheckUsageError(Exception):
    """Unusable arguments; the message says which and what to do."""
