"""The result of the command as its exit code, unusable arguments, and words of an option."""

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


NOTHING: dict[str, object] = {}

OFFERS: dict[str, dict[str, object]] = {
    "some": {"loadSession": True, "sessionCapabilities": {"list": {}}},
    "others": {
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": dict.fromkeys(
            ("resume", "close", "delete", "additionalDirectories"), NOTHING
        ),
        "auth": {"logout": NOTHING},
    },
    "none": {},
    "version": {},
}
"""Capabilities of the watcher, by the word of `--offers`; `all` has the exemplar's. `version` is an
agent of another version of the protocol."""
