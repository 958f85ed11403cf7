"""The arguments and options of commands: each is declared as the default of the parameter that gets
its value; those that several commands have, once.

    @command("usage", "[OPTIONS]")
    async def usage(*, agent: str | None = options.value("NAME", "only this agent"), …

An editor waits for `wrap`, so this imports little.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

"""Names the server if no option names a server or a journal."""

LEVELS = ("debug", "info", "warning", "error")
"""The values of `--log-level`."""

HOST = "run_on"
"""The name of `--host` among the arguments."""


class Declared:
    """An argument or option, as the default of the parameter that gets its value: see `command`.

    `names` are those of an option, by default its parameter's; None for an argument. `how` is as
    for argparse.
    """

    def __init__(self, names: Sequence[str] | None, **how: Any) -> None:
        self.names = names
        self.how = how

    @property
    def otherwise(self) -> object:
        """The value of an option that is not given."""
        return self.how.get("default", False if self.how.get("action") == "store_true" else None)

    def __bool__(self) -> bool:
        raise TypeError("it only declares an option: whoever calls a command gives every argument")


# They return Any, as a parameter of any type may have such a default: `Parser` reads them, and
# always gives all parameters.


def argument(metavar: str, help: str, **how: Any) -> Any:
    """Declare an argument, which is read as its `metavar` says, see TYPES; `how` are further
    arguments of argparse's `add_argument`."""
    return Declared(None, metavar=metavar, help=help, **{"type": TYPES.get(metavar), **how})


def value(metavar: str | None, help: str, *names: str, **how: Any) -> Any:
    """Declare an option with a value, by default named as its parameter; read as an argument is."""
    return Declared(names, metavar=metavar, help=help, **{"type": TYPES.get(metavar or ""), **how})


def repeatable(metavar: str, help: str, *names: str) -> Any:
    """Declare an option that may be given several times: a list of its values."""
    return value(metavar, f"{help}; repeatable", *names, action="append", default=[])


def flag(help: str, *names: str) -> Any:
    """Declare an option without a value: True if it is given."""
    return Declared(names, help=help, action="store_true")


def seconds_above_zero(text: str) -> float:
    """Parse an option that takes a time in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise _argument_error(text, "a number of seconds above 0 is required, such as 2.5")
    return value


def _true_or_all(text: str) -> bool | str:
    if text not in ("true", "false", "all"):
        raise _argument_error(text, "true, false or all is required")
    return text if text == "all" else text == "true"


def _size(text: str) -> int:
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    factor = units.get(text[-1:].lower(), 1)
    try:
        value = int(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        value = 0
    if value < 1024:
        raise _argument_error(text, "a number of bytes is required, 1k at least, such as 64M")
    return value


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise _argument_error(text, f"one of {', '.join(LEVELS)} is required")
    return text.upper()


def above_zero(text: str) -> int:
    """Parse an option that takes a count."""
    if not text.isdecimal() or int(text) == 0:
        raise _argument_error(text, "a whole number above 0 is required")
    return int(text)


def a_name(text: str) -> str:
    """Parse an option that takes a name: `list` shows it, and `--agent` asks for it."""
    if not text.strip():
        raise _argument_error(text, "a name is required")
    return a_text(text.strip())


_AGO = r"(\d{1,6})([hdw])"
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}
_DAYS = ("today", "yesterday")


def a_host(text: str) -> str:
    """Parse an option that takes a machine, as `ssh` knows it."""
    if not text or text.startswith("-"):
        # ssh would read it as an option, and some options run a program.
        raise _argument_error(text, "not a host; give one as for `ssh`, such as user@machine")
    return text


def a_prompt(text: str) -> int:
    """Parse an option that takes the number of an entry, or `last`, which is 0."""
    if text == "last":
        return 0
    if not text.isdecimal() or not int(text[:10]) > 0:
        import shlex  # late, as all that few need

        words = "WORDS" if text.strip("-").isdecimal() else shlex.quote(text)
        raise _argument_error(
            text,
            "the number of an entry is required, or `last`; "
            f"`acphold search {words}` prints it after the @",
        )
    return int(text[:11])


def a_path(text: str) -> str:
    """Parse an option that takes a path: absolute, existing or not."""
    return os.path.abspath(os.path.expanduser(text))


def a_text(text: str) -> str:
    """Parse an argument that is text, not a path: its bytes are UTF-8 in any locale."""
    try:
        text.encode()
    except UnicodeEncodeError:  # Python could not decode it, and kept the bytes (PEP 383)
        return os.fsencode(text).decode(errors="replace")
    return text


def a_moment(text: str) -> int:
    """Parse an option that takes a date or an age; returns ms since the epoch, at least 0."""
    if ago := re.fullmatch(_AGO, text):
        return max(0, round((time.time() - int(ago[1]) * _HOURS[ago[2]] * 3600) * 1000))
    from datetime import date, datetime, timedelta

    if text in _DAYS:
        text = str(date.today() - timedelta(_DAYS.index(text)))
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        why = "give a date (2026-01-31, today, yesterday) or an age (12h, 30d or 8w)"
        raise _argument_error(text, why) from None


def a_later_moment(text: str) -> int:
    """Parse an option that takes a moment to come; returns ms since the epoch."""
    from acphold.conversation.history.prompt_queue import moment_meant

    try:
        return moment_meant(text)
    except (ValueError, OverflowError, OSError):
        why = "give a time (02:00, the next one) or a future date and time (2026-01-31T02:00)"
        raise _argument_error(text, why) from None


def _argument_error(text: str, why: str) -> Exception:
    from argparse import ArgumentTypeError  # late: a daemon does without

    return ArgumentTypeError(f"{text!r}: {why}")


TYPES: Final[Mapping[str, Callable[[str], object]]] = {
    "BYTES": _size,
    "DIR": a_path,
    "HOST": a_host,
    "LEVEL": _level,
    "N": above_zero,
    "NAME": a_name,
    "SECONDS": seconds_above_zero,
    "TIME": a_later_moment,
    "WHEN": a_moment,
    "WORDS": a_text,
    "true|all": _true_or_all,
}
"""What reads a value, by the word that stands for it in the help."""


# -- options that several commands have ---------------------------------------------------------

PROGRAM: Final[Any] = Declared(None)
"""Declares the words after `--`, which are not ours, for a parameter `program`: a command. The name
of an agent may replace it: that is None then, or `program` is empty."""

AGENT: Final[Any] = argument(
    "AGENT", "an agent that acphold knows, or one from the settings file", nargs="?", type=a_name
)

ON_HOST: Final[Any] = value("HOST", "run this command on that machine, over ssh", "--host")
"""`main` goes there before the command runs, which does not get it."""

JOURNAL: Final[Any] = value("URL", "", "--journal")
"""The help of `acphold` explains it for all commands, theirs only names it. `run` puts it into the
environment: a command gets it only for a parameter of another name."""

PLACES: Final = (ON_HOST, JOURNAL)
"""All places where sessions may be."""

SESSION: Final[Any] = argument("ID", "the session's id, or a prefix of it")
SESSION_IF_ANY: Final[Any] = argument("ID", "the session's id, or a prefix of it", nargs="?")
SESSIONS: Final[Any] = argument("ID", "a session's id, or a prefix of it", nargs="+")

CWD: Final[Any] = value("DIR", "only sessions of this working directory")

SURE: Final[Any] = flag("do not ask for confirmation", "--yes", "-y")

OVERWRITTEN_NOW: Final[Any] = flag(
    "overwrite the deleted text at once, not within a minute", "--now"
)

PERMISSION: Final[Any] = value(
    None,
    "how to answer permission requests [default: ask on a terminal, else reject]",
    choices=("ask", "allow", "reject"),
)
MCP_CONFIG: Final[Any] = repeatable(
    "FILE|JSON", 'MCP servers for the session: {"mcpServers": …}, as a file or inline'
)
MODE: Final[Any] = value("MODE", "start the agent in this mode")
AGENT_OPTIONS: Final[Any] = repeatable(
    "NAME=VALUE", "set an option of the agent, such as its model", "--option"
)

LOG_LEVEL: Final[Any] = value(
    "LEVEL", "debug, info, warning or error [default: warning]", default="WARNING"
)
LOG_FILE: Final[Any] = value(
    "FILE", "write the log to this file instead of stderr; only you can read it"
)


def json(line: str = "one object per line") -> Any:
    """Declare `--json`; `line` says what a line is."""
    return flag(f"print JSON, {line}", "--json")


def since(which: str) -> Any:
    """Declare `--since WHEN`: ms since the epoch, 0 by default."""
    ago = "2026-01-31, or 12h, 30d, 8w ago"
    return value("WHEN", f"{which} since {ago}", default=0)


def limit(meaning: str, default: int | None = None) -> Any:
    """Declare `--limit N`."""
    return value("N", meaning, "--limit", "-n", default=default)
