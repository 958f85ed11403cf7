"""Declaring a command and ending it: one form for all commands.

A command is a function that is decorated with `command`; `parser` reads its arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from acphold.errors import JournalUnavailableError
from acphold.faces.cli.packed_words import typed_variables
from acphold.journal_location import VARIABLE as JOURNAL_VARIABLE, journal_path

if TYPE_CHECKING:
    from types import FrameType

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


class UsageError(Exception):
    """Unusable arguments; the message says which and what to do."""


class NothingChosen(Exception):
    """The person left a list without choosing: there is nothing to do."""


def split_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our arguments, and the program's after `--`."""
    words = [*arguments]
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def use_journal(location: str) -> None:
    """Use this journal here and in every program that is started from here."""
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


DECLARED: Final[dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {}
"""What the modules that are imported declare, by the name of the command: the arguments of its
`Parser`."""


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
        DECLARED[name] = (execute, name, usage, *others), how
        return execute

    return declare
