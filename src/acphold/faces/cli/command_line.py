"""Reading a command line and ending a command: one form for all commands.

It uses argparse, because an editor waits for `wrap` and `agent run`: besides their other imports it
costs under 2 ms, click 8 ms. A command is a function that is decorated with `command`.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from acphold.errors import JournalUnavailableError
from acphold.faces.cli.options import (
    AGENT,
    HOST,
    JOURNAL,
    ON_HOST,
    PROGRAM,
    SERVER,
    SERVER_VARIABLE,
    TYPES,
    Declared,
    flag,
    value,
)
from acphold.faces.cli.packed_words import typed_variables
from acphold.journal_location import VARIABLE as JOURNAL_VARIABLE, journal_path

if TYPE_CHECKING:
    from types import FrameType

    from msgspec import Struct
    from msgspec.structs import FieldInfo

    from acphold.serve_options import OptionHelp

Execute = Callable[..., int | None] | Callable[..., Coroutine[Any, Any, int | None]]
F = TypeVar("F", bound=Execute)


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
    "unanswered": Exit.AGENT,
}
"""The exit code for each outcome of a turn."""

HABITS: Final = {
    "all": ("a",),
    "cwd": ("C", "dir", "directory", "folder", "path", "project"),
    "json": ("format",),
    "last": ("n", "tail"),
    "listen": ("bind", "host", "p", "port"),
    "server": ("remote", "url"),
    "since": ("after", "month", "today", "week"),
    "with": ("agent", "a"),
}
"""Options, with the words for them in other programs."""

MAX_WIDTH = 100
"""Widest help text, in columns."""


class UsageError(Exception):
    """Unusable arguments; the message says which and what to do."""


class NothingChosen(Exception):
    """The person left a list without choosing: there is nothing to do."""


class Parser(argparse.ArgumentParser):
    """Reads the arguments of one command, which `execute` is called with; see `command`."""

    def __init__(
        self,
        execute: Execute,
        name: str,
        usage: str = "[OPTIONS]",
        *others: Declared,
        options: type[Struct] | None = None,
        epilog: str | None = None,
        is_read: bool = False,
        adds: Callable[[Parser], None] | None = None,
        meant: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        prog = f"acphold {name}".rstrip()
        # Neither `inspect.cleandoc` nor `textwrap.dedent`: an editor waits for their imports.
        lines = [line.removeprefix("    ") for line in (execute.__doc__ or "").split("\n")]
        super().__init__(
            prog=prog,
            usage=f"{prog} {usage}",
            description="\n".join(lines).strip(),
            epilog=epilog,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        self.execute = execute
        self._runs_program = False
        self._takes_agent = False
        self._is_read = is_read
        self._meant = meant
        if is_read:
            self.add("no_pager", flag("print without a pager"))
        declarer: Any = execute
        while hasattr(declarer, "__wrapped__"):
            declarer = declarer.__wrapped__
        declared = getattr(declarer, "__kwdefaults__", None) or {}
        for parameter, its in declared.items():
            self.add(parameter, its)
        if options is not None:
            self.add_fields(options, options.__annotations__)
        for its in others:
            self.add(HOST if its is ON_HOST else "journal", its)
        if adds is not None:
            adds(self)

    def add(self, parameter: str, its: object) -> None:
        """Add what is declared for a parameter; nothing for another default."""
        if its is PROGRAM:
            self._runs_program = True
        elif isinstance(its, Declared):
            if its is SERVER:
                self.add(HOST, ON_HOST)
            if its.names is None:
                self.add_argument(parameter, **its.how)
            else:
                names = its.names or (f"--{parameter.replace('_', '-')}",)
                self.add_argument(*names, dest=parameter, **its.how)
            self._takes_agent = self._takes_agent or its is AGENT
            if its is SERVER:
                self.add("journal", JOURNAL)
            elif its is JOURNAL:
                see = "--journal URL uses another journal: see `acphold --help`."
                self.epilog = f"{self.epilog}\n\n{see}" if self.epilog else see

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
        if "--limit" in self._option_string_actions:  # `-5`, as for `head` and `git log`
            own = [re.sub(r"^-(\d+)$", r"--limit=\1", it) for it in split_program(arguments)[0]]
            arguments = [*own, *arguments[len(own) :]]
        for word in split_program(arguments)[0]:
            if re.fullmatch(
                r"--\w[\w-]*=--|-\w=?--", word
            ):  # argparse drops the `--`, and falls over that
                self.error(f"{word}: `--` cannot be a value")
        if not self._runs_program:
            # Options may stand between words; argparse then loses some words after a `--`.
            read = self.parse_args if "--" in arguments else self.parse_intermixed_args
            try:
                return vars(read(arguments))
            except UsageError:
                if self._meant is None or not (meant := self._meant(arguments)):
                    raise
                raise UsageError(meant) from None
        own, program = split_program(arguments)
        found, stray = self.parse_known_intermixed_args(own)
        named = found.agent if self._takes_agent else None
        if stray and stray[0].startswith("-") and named not in own[: own.index(stray[0])]:
            self.error(f"unrecognized arguments: {stray[0]}")
        if stray and self._meant is not None and (meant := self._meant(arguments)):
            raise UsageError(meant)
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

    def add_fields(self, options: type[Struct], names: Iterable[str]) -> None:
        """Add what these fields declare, or for options of serving see `acphold.serve_options`."""
        fields = _fields(options)
        for field in map(fields.__getitem__, names):
            if isinstance(field.default, Declared):
                self.add(field.name, field.default)
                continue
            about: OptionHelp = field.type.__metadata__[0]
            if not about.value:
                self.add(field.name, flag(about.meaning))
                continue
            how: dict[str, Any] = {"default": field.default}
            if "|" in about.value and about.value not in TYPES:
                how["choices"] = about.value.split("|")
            otherwise = about.otherwise or (
                f"{field.default:g}" if isinstance(field.default, float) else field.default
            )
            meaning = f"{about.meaning} [default: {otherwise}]"
            metavar = None if "choices" in how else about.value
            self.add(field.name, value(metavar, meaning, **how))

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its arguments and options; argparse has no public name for them."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        if unknown := re.fullmatch(
            r"unrecognized arguments: --?(\w[\w-]*)[ =]?.*", message, re.DOTALL
        ):
            from difflib import get_close_matches  # late, as all that few need

            # Without dashes: they make all options alike.
            names = {it.lstrip("-"): it for it in self._option_string_actions}
            meant = [it for it, words in HABITS.items() if it in names and unknown[1] in words]
            near = meant or get_close_matches(unknown[1], names, 1)
            message += "".join(f" (`{names[name]}`?)" for name in near[:1])
        raise UsageError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`")


class _Help(argparse.HelpFormatter):
    """Wraps each paragraph of a text; in one with indented lines, it wraps each line."""

    def __init__(self, prog: str, width: int = MAX_WIDTH) -> None:
        # Always with a width: argparse makes one of these for each argument, if only to look at its
        # `metavar`, and asks `shutil` for a width, whose import takes two milliseconds.
        super().__init__(prog, max_help_position=30, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # late: its patterns take as long as thirty modules of ours

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
def _fields(options: type[Struct]) -> dict[str, FieldInfo]:
    """Return the fields of a class, by name: to read their types is slow, and every start of an
    agent makes three parsers."""
    from msgspec.structs import fields  # late: `--help` and `--version` do without msgspec

    return {field.name: field for field in fields(options)}


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
    """Ask the person; no answer is a no. Raises KeyboardInterrupt at Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a loop's would not end the read
    try:
        print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)  # a shell's prompt does not begin behind the question
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def confirm(question: str, done: str, *, sure: bool) -> bool:
    """Ask unless the person is `sure`; say after a no that nothing was `done`. UsageError if nobody
    can be asked."""
    if sure:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"there is no terminal to ask on; nothing was {done}; use --yes")
    if is_confirmed(question):
        return True
    print(f"Nothing was {done}.", file=sys.stderr)
    return False


def require_folder(cwd: str | None) -> None:
    """Refuse a `--cwd` to work in that does not exist; UsageError."""
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(
            f"--cwd: the folder {cwd!r} does not exist on this machine; create it or name another"
        )


def behind_command(arguments: Sequence[str], otherwise: str = "continue") -> list[str]:
    """Return the arguments with a `--journal URL` before the command moved after it.

    Without a command it is put after `otherwise`: plain `acphold` is `continue`.
    """
    count = 0
    while count < len(arguments) and arguments[count].partition("=")[0] == "--journal":
        count += 1 if "=" in arguments[count] else 2
    moved, rest = arguments[:count], arguments[count:]
    return [*(rest[:1] or ([otherwise] if moved else [])), *moved, *rest[1:]]


PARSERS: Final[dict[str, Callable[[], Parser]]] = {}
"""The commands of the modules that are imported, by name."""


def command(name: str, usage: str = "[OPTIONS]", *others: Any, **how: Any) -> Callable[[F], F]:
    """Declare a function, which may be `async`, as a command; it returns the exit code, None for
    Exit.OK.

    Its docstring is the help. Its parameters, all given by name, have as defaults what declares
    their argument or option: all that is said of one is said there. With `options` these are the
    fields of a Struct. `others` are JOURNAL and ON_HOST, of which the function gets nothing. With
    `is_read` the output on a terminal is shown in a pager. Of arguments that are none, `meant` may
    say what was meant, "" if it does not know.
    """

    def declare(execute: F) -> F:
        PARSERS[name] = partial(Parser, execute, name, usage, *others, **how)
        return execute

    return declare
