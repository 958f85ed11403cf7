"""Reading a command line and ending a command: one form for all commands.

It uses argparse, because an editor waits for `wrap` and `agent run`: besides their other imports it
costs under 2 ms, click 8 ms. A command is a module of this room with a `parser()`.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import argparse
import inspect
import os
import re
import shlex
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from acphold.errors import JournalUnavailableError
from acphold.faces.cli.packed_words import typed_variables
from acphold.journal_location import VARIABLE as JOURNAL_VARIABLE, journal_path

if TYPE_CHECKING:
    from types import FrameType

    from msgspec import Struct
    from msgspec.structs import FieldInfo

    from acphold.serve_options import OptionHelp


class Exit(IntEnum):
    """The result of a command, as its exit code, with its `meaning` for the help."""

    meaning: str

    OK = 0, "done"
    ERROR = 1, "a problem was found and printed (`doctor`, `demo`, `check`)"
    USAGE = 2, "the command line or the settings file is not valid"
    NO_SESSION = 3, "no session, or more than one, has that id"
    JOURNAL = 4, "the journal cannot be opened, read or written"
    AGENT = 5, "the agent could not be started, exited too early, or returned an error"
    REFUSED = 6, "the agent refused the prompt"
    LIMITED = 7, "the turn stopped at a limit of tokens or of requests to the model"
    CANCELLED = 8, "the turn was cancelled"
    SIGN_IN = 9, "the agent requires you to sign in first"
    INCOMPLETE = (
        10,
        "some sessions are open and were not copied completely; run it again for the rest",
    )
    TIMEOUT = 124, "the --timeout expired"
    INTERRUPTED = 130, "interrupted from the keyboard"

    def __new__(cls, code: int, meaning: str) -> Exit:
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made


ENDS = {
    "completed": Exit.OK,
    "limited": Exit.LIMITED,
    "refused": Exit.REFUSED,
    "cancelled": Exit.CANCELLED,
    "failed": Exit.AGENT,
    "interrupted": Exit.AGENT,
}
"""The exit code for each outcome of a turn."""

HOST = "run_on"
"""The name of `--host` among the arguments."""

LEVELS = ("debug", "info", "warning", "error")
"""The values of `--log-level`."""

SERVER_VARIABLE = "ACPHOLD_SERVER"
"""Names the server if no option names a server or a journal."""

MAX_WIDTH = 100
"""Widest help text, in columns."""


class UsageError(Exception):
    """Unusable arguments; the message says which and what to do."""


class NothingChosen(Exception):
    """The person left a list without choosing: there is nothing to do."""


class Parser(argparse.ArgumentParser):
    """Reads the arguments of one command; `execute`, which may be a coroutine function, is called
    with them, by name. It returns the exit code; None is Exit.OK.

    The docstring of `execute` is the help. With `runs_program` the words after `--` are not
    ours: `execute` gets them as `program`. After `add_agent` the name of an agent of the settings
    file may replace them: `execute` gets it as `agent`, or None. With `is_read` the output on a
    terminal is shown in a pager.
    """

    def __init__(
        self,
        execute: Callable[..., int | None] | Callable[..., Coroutine[Any, Any, int | None]],
        name: str,
        usage: str = "[OPTIONS]",
        *,
        epilog: str | None = None,
        runs_program: bool = False,
        is_read: bool = False,
    ) -> None:
        prog = f"acphold {name}".rstrip()
        super().__init__(
            prog=prog,
            usage=f"{prog} {usage}",
            description=inspect.cleandoc(execute.__doc__ or ""),
            epilog=epilog,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        self.execute = execute
        self._runs_program = runs_program
        self._takes_agent = False
        self._is_read = is_read
        if is_read:
            self.add_flag("--no-pager", "print without a pager")

    def add_value(self, name: str, metavar: str, help: str, **how: Any) -> None:
        """Add an argument, or an option with a value, `--output -o` for one with two names.

        `how` are further arguments of argparse's `add_argument`.
        """
        self.add_argument(*name.split(), metavar=metavar, help=help, **how)

    def add_repeatable(self, name: str, metavar: str, help: str, **how: Any) -> None:
        """Add an option that may be given several times: a list of its values."""
        self.add_value(name, metavar, f"{help}; repeatable", action="append", default=[], **how)

    def add_flag(self, name: str, help: str, dest: str | None = None) -> None:
        """Add an option without a value: True if it is given."""
        self.add_argument(*name.split(), action="store_true", help=help, dest=dest)

    def add_agent(self) -> None:
        """Take an agent's name here, after the arguments that were added before."""
        self._takes_agent = True
        known = "an agent that acphold knows, or one from the settings file"
        self.add_value("agent", "AGENT", known, nargs="?", type=a_name)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal allows."""
        import shutil  # an editor does not wait for it: see `_Help`

        width = min(shutil.get_terminal_size().columns - 2, MAX_WIDTH)
        self.formatter_class = partial(_Help, width=width)
        return super().format_help()

    def run(self, arguments: Sequence[str]) -> int:
        """Run the command; returns its exit code. Raises UsageError."""
        read = self.read(arguments)
        read.pop(HOST, None)
        typed_variables.clear()
        if (journal := read.pop("journal", None)) is not None:
            if read.get("server") is not None:
                raise UsageError(
                    "--server and --journal cannot be combined: a server has its own journal"
                )
            use_journal(str(journal))
        # Output that is followed as it comes has no end that a pager could wait for.
        from acphold.faces.cli.terminal_text import LINE_TERMINALS

        paged = self._is_read and not read.pop("no_pager") and not read.get("follow")
        if not paged or not sys.stdout.isatty() or os.environ.get("TERM") in LINE_TERMINALS:
            return self._execute(read)
        from acphold.faces.screen.terminal import output_paged

        with output_paged():
            return self._execute(read)
        return Exit.OK  # the person closed the pager before the command was done

    def _execute(self, arguments: dict[str, object]) -> int:
        code = self.execute(**arguments)
        if isinstance(code, Coroutine):
            import asyncio  # late: `--help` and `--version` do without

            code = asyncio.run(code)
        return Exit.OK if code is None else code

    def read(self, arguments: Sequence[str]) -> dict[str, object]:
        """Return the arguments by name, defaults included; raises UsageError."""
        for word in split_program(arguments)[0]:
            if re.fullmatch(
                r"--\w[\w-]*=--|-\w=?--", word
            ):  # argparse drops the `--`, and falls over that
                self.error(f"{word}: `--` cannot be a value")
        if not self._runs_program:
            # Options may stand between words; argparse then loses some words after a `--`.
            read = self.parse_args if "--" in arguments else self.parse_intermixed_args
            return vars(read(arguments))
        own, program = split_program(arguments)
        found, stray = self.parse_known_intermixed_args(own)
        named = found.agent if self._takes_agent else None
        if stray and stray[0].startswith("-") and named is None:
            self.error(f"unrecognized arguments: {stray[0]}")
        if named is not None and program:
            self.error(f"give either the agent {named} or a command after `--`, not both")
        if stray:
            place = own.index(stray[0] if named is None else named)
            unknown = f"unrecognized arguments: {stray[0]}; " if named else ""
            if named is not None:
                from acphold.known_agents import KNOWN_AGENTS

                # An agent's name may be a program's, too. Can this only be an agent's command?
                rest = own[place:]
                commands = [it for known in KNOWN_AGENTS.values() for it in known.commands]
                is_command = any(tuple(rest[: len(it)]) == it for it in commands)
                is_command = is_command or rest[0] in ("npx", "uvx", "node", "python3")
                if not is_command and "/" not in rest[0]:
                    raise UsageError(
                        f"{unknown}nothing can follow an agent's name, and a command goes after "
                        f"`--`, as in `{' '.join([self.prog, *own[:place], '-- CMD'])}`"
                    )
            words = " ".join([self.prog, *own[:place], "--", *own[place:]])
            raise UsageError(f"{unknown}the agent's command goes after `--`: {words}")
        return {**vars(found), "program": tuple(program)}

    # -- options that several commands have ---------------------------------------------------

    def add_machines(self) -> None:
        """Add `--host`, `--server` and `--journal`: the other places where sessions may be."""
        self.add_host()
        self.add_server()
        self.add_journal()

    def add_server(self) -> None:
        """Add `--server URL`; None by default."""
        self.add_value(
            "--server",
            "URL",
            "use the sessions of this `acphold serve`: its URL, or the name of a paired server "
            f"[default: {SERVER_VARIABLE}]",
        )

    def add_host(self) -> None:
        """Add `--host HOST`: `main` goes there before the command runs, which does not get it."""
        there = "run this command on that machine, over ssh"
        self.add_value("--host", "HOST", there, type=a_host, dest=HOST)

    def add_options(self, options: type[Struct], *, only: Collection[str] = ()) -> None:
        """Add the options of serving, or only the named ones; see `acphold.serve_options`."""
        for field in _fields(options):
            if only and field.name not in only:
                continue
            about: OptionHelp = field.type.__metadata__[0]
            flag = f"--{field.name.replace('_', '-')}"
            if not about.value:
                self.add_flag(flag, about.meaning)
                continue
            if about.value.startswith("true|"):
                self.add_value(
                    flag,
                    about.value,
                    f"{about.meaning} [default: {about.otherwise}]",
                    type=partial(_true_or, about.value.removeprefix("true|")),
                    default=field.default,
                )
                continue
            choices = about.value.split("|")
            otherwise = about.otherwise or (
                f"{field.default:g}" if isinstance(field.default, float) else field.default
            )
            self.add_argument(
                flag,
                metavar=about.value if len(choices) == 1 else None,
                choices=choices if len(choices) > 1 else None,
                type={"SECONDS": seconds_above_zero, "BYTES": _size}.get(about.value, str),
                default=field.default,
                help=f"{about.meaning} [default: {otherwise}]",
            )

    def add_journal(self, dest: str = "journal") -> None:
        """Add `--journal URL`; the help of `acphold` explains it for all commands.

        `run` puts it into the environment: a command gets it only with another `dest`.
        """
        self.add_value("--journal", "URL", argparse.SUPPRESS, dest=dest)
        see = "--journal URL uses another journal: see `acphold --help`."
        self.epilog = f"{self.epilog}\n\n{see}" if self.epilog else see

    def add_cwd(self, which: str = "only sessions of this working directory") -> None:
        """Add `--cwd DIR`: an absolute path, existing or not; None by default."""
        self.add_value("--cwd", "DIR", which, type=a_path)

    def add_json(self, line: str = "one object per line") -> None:
        """Add `--json`, as `as_json`; `line` says what a line is."""
        self.add_flag("--json", f"print JSON, {line}", dest="as_json")

    def add_since(self, which: str) -> None:
        """Add `--since WHEN`: ms since the epoch, 0 by default."""
        ago = "2026-01-31, or 12h, 30d, 8w ago"
        self.add_value("--since", "WHEN", f"{which} since {ago}", type=a_moment, default=0)

    def add_limit(self, meaning: str, default: int | None = None) -> None:
        """Add `--limit N`."""
        self.add_value("--limit", "N", meaning, type=above_zero, default=default)

    def add_sure(self) -> None:
        """Add `--yes`, as `sure`."""
        self.add_flag("--yes -y", "do not ask for confirmation", dest="sure")

    def add_setup(self) -> None:
        """Add `--permission`; and `--mcp-config`, `--mode` and `--option`: see
        `cli.session_setup`."""
        self.add_argument(
            "--permission",
            choices=("ask", "allow", "reject"),
            help="how to answer permission requests [default: ask on a terminal, else reject]",
        )
        servers = 'MCP servers for the session: {"mcpServers": …}, as a file or inline'
        self.add_repeatable("--mcp-config", "FILE|JSON", servers)
        self.add_value("--mode", "MODE", "start the agent in this mode")
        option = "set an option of the agent, such as its model"
        self.add_repeatable("--option", "NAME=VALUE", option)

    def add_log(self) -> None:
        """Add `--log-level` and `--log-file`."""
        levels = "debug, info, warning or error [default: warning]"
        self.add_value("--log-level", "LEVEL", levels, type=_level, default="WARNING")
        file = "write the log to this file instead of stderr; only you can read it"
        self.add_value("--log-file", "FILE", file)

    # -- reading ------------------------------------------------------------------------------

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its arguments and options; argparse has no public name for them."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`")


class _Help(argparse.HelpFormatter):
    """Wraps each paragraph of a text; in one with indented lines, it wraps each line."""

    def __init__(self, prog: str, width: int = MAX_WIDTH) -> None:
        # Always with a width: argparse makes one of these for each argument, if only to look at its
        # `metavar`, and asks `shutil` for a width, whose import takes two milliseconds.
        super().__init__(prog, max_help_position=30, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for paragraph in text.split("\n\n"):
            if "\n " not in f"\n{paragraph}":
                filled.append(textwrap.fill(paragraph, width))
                continue
            lines: list[str] = []
            for line in paragraph.splitlines():  # of two columns: wrapped in the second one
                first = re.match(r" *\S+  +", line)
                indent = " " * (len(first[0]) if first else 4)
                wrapped = textwrap.fill(
                    line, width, subsequent_indent=indent, break_on_hyphens=False
                )
                lines.append(wrapped)
            filled.append("\n".join(lines))
        return "\n\n".join(filled)


@cache
def _fields(options: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a class of options: to read their types is slow, and every start of an
    agent makes three parsers."""
    from msgspec.structs import fields  # late: `--help` and `--version` do without msgspec

    return fields(options)


def split_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our arguments, and the program's after `--`."""
    words = [*arguments]
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def use_journal(location: str) -> None:
    """Use this journal, and no server, here and in every program that is started from here."""
    os.environ.pop(SERVER_VARIABLE, None)
    if location:
        with suppress(JournalUnavailableError):  # whoever opens it says so, and no other
            location = journal_path(location)
        os.environ[JOURNAL_VARIABLE] = typed_variables[JOURNAL_VARIABLE] = location


@contextmanager
def at_ctrl_c(leave: Callable[[], NoReturn] | None = None) -> Iterator[None]:
    """Call `leave` at Ctrl-C in this block, by default raise KeyboardInterrupt; at once, while an
    event loop would handle it only when it runs.

    A Ctrl-C that is ignored, as after `nohup`, stays ignored.
    """

    def handle_signal(number: int, frame: FrameType | None) -> NoReturn:
        if leave is not None:
            leave()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, handle_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_confirmed(question: str) -> bool:
    """Ask the person; no answer is a no."""
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def require_folder(cwd: str | None) -> None:
    """Refuse a `--cwd` to work in that does not exist; UsageError."""
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(
            f"--cwd: the folder {cwd!r} does not exist on this machine; create it or name another"
        )


def seconds_above_zero(text: str) -> float:
    """Parse an option that takes a time in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise _argument_error(text, "a number of seconds above 0 is required, such as 2.5")
    return value


def _true_or(word: str, text: str) -> bool | str:
    if text not in ("true", "false", word):
        raise _argument_error(text, f"true, false or {word} is required")
    return text if text == word else text == "true"


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


def a_host(text: str) -> str:
    """Parse an option that takes a machine, as `ssh` knows it."""
    if not text or text.startswith("-"):
        # ssh would read it as an option, and some options run a program.
        raise UsageError(f"{text!r} is not a host; give one as for `ssh`, such as user@machine")
    return text


def a_prompt(text: str) -> int:
    """Parse an option that takes the number of an entry, or `last`, which is 0."""
    if text == "last":
        return 0
    if not text.isdecimal() or not int(text[:10]) > 0:
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
    from datetime import datetime

    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        why = "give a date (2026-01-31) or an age (12h, 30d or 8w)"
        raise _argument_error(text, why) from None


def a_later_moment(text: str) -> int:
    """Parse an option that takes a moment to come; returns ms since the epoch."""
    from acphold.record.history.prompt_queue import moment_meant

    try:
        return moment_meant(text)
    except (ValueError, OverflowError, OSError):
        why = "give a time (02:00, the next one) or a future date and time (2026-01-31T02:00)"
        raise _argument_error(text, why) from None


def _argument_error(text: str, why: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r}: {why}")


def behind_command(arguments: Sequence[str], otherwise: str = "continue") -> list[str]:
    """Return the arguments with a `--journal URL` before the command moved after it.

    Without a command it is put after `otherwise`: plain `acphold` is `continue`.
    """
    count = 0
    while count < len(arguments) and arguments[count].partition("=")[0] == "--journal":
        count += 1 if "=" in arguments[count] else 2
    moved, rest = arguments[:count], arguments[count:]
    return [*(rest[:1] or ([otherwise] if moved else [])), *moved, *rest[1:]]
