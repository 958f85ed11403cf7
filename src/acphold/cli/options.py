"""The options of `acphold wrap`, written down once.

`wrap` reads them with getopt, because an editor waits for it and click costs a tenth of a
second; the other commands, and the help, are click's.
"""

from __future__ import annotations

from collections.abc import Callable
from getopt import GetoptError, getopt
from typing import NamedTuple


class Option(NamedTuple):
    """One option that takes a value; `read` raises ValueError for one it cannot use."""

    name: str
    metavar: str
    read: Callable[[str], object]
    default: object
    help: str


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("a number of seconds above 0 is required, such as 2.5")
    return value


def _size(text: str) -> int:
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    factor = units.get(text[-1:].lower(), 1)
    try:
        value = int(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        value = 0
    if value < 1024:
        raise ValueError("a number of bytes is required, 1k at least, such as 64M")
    return value


def _level(text: str) -> str:
    if text.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ValueError("one of debug, info, warning, error is required")
    return text.upper()


WRAP_OPTIONS = (
    Option("journal", "URL", str, None, "Where conversations are kept (ACPHOLD_JOURNAL)."),
    Option("start-timeout", "SECONDS", _seconds, 60.0, "For the agent to answer `initialize`."),
    Option("cancel-grace", "SECONDS", _seconds, 10.0, "For the agent to end a cancelled turn."),
    Option("max-message", "BYTES", _size, 64 << 20, "Longest message; 64M, say."),
    Option("log-level", "LEVEL", _level, "WARNING", "debug, info, warning or error."),
    Option("log-file", "FILE", str, None, "Log here instead of stderr, and the agent's stderr."),
)


class UsageError(Exception):
    """Arguments that cannot be used; the message says which and what to do."""


def read_options(arguments: list[str], options: tuple[Option, ...]) -> dict[str, object]:
    """Option name to value, defaults included; raises UsageError."""
    values = {option.name: option.default for option in options}
    known = {option.name: option for option in options}
    try:
        given, rest = getopt(arguments, "", [f"{name}=" for name in known])
    except GetoptError as exc:
        raise UsageError(f"{exc.msg}; see `acphold wrap --help`") from None
    if rest:
        raise UsageError(f"unexpected {rest[0]!r}: the agent's command goes behind `--`")
    for flag, text in given:
        option = known[flag[2:]]
        try:
            values[option.name] = option.read(text)
        except ValueError as exc:
            raise UsageError(f"{flag} {text!r}: {exc}") from None
    return values
