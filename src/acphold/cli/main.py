"""The `acphold` command: which commands there are, and what becomes of their errors."""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from acphold.cli.command_line import MEANINGS, Exit, NothingChosen, Parser, UsageError
from acphold.cli.terminal_text import VisibleLines, visible
from acphold.errors import (
    AcpholdError,
    AgentError,
    AmbiguousIdError,
    AuthRequiredError,
    JournalError,
    RemoteError,
    SettingsError,
    UnknownSessionError,
)
from acphold.version import __version__


class Entry(NamedTuple):
    """Where a command is found, its line in the help, and what makes its parser there."""

    module: str
    summary: str
    parser: str = "parser"


COMMANDS = {
    "wrap": Entry("wrap", "Speak ACP on stdio for an editor, in front of an agent."),
    "setup": Entry("setup", "Write an agent into an editor's settings, behind acphold."),
    "connect": Entry("ssh", "Speak ACP on stdio for an editor, in front of an agent far away."),
    "serve": Entry("serve", "Serve the same sessions to other machines of yours."),
    "token": Entry("token", "Say who may come to `acphold serve`, and what they may."),
    "share": Entry("share", "Share a session with another user of `acphold serve`."),
    "run": Entry("run", "Speak ACP on stdio for an editor, with an agent in Python."),
    "stop": Entry("stop", "End what keeps sessions in the background."),
    "resume": Entry("resume", "Find a conversation, and go on with it."),
    "chat": Entry("chat", "Talk to an agent in the terminal."),
    "attach": Entry("attach", "Join a session that is live in some acphold process."),
    "inbox": Entry("inbox", "See what waits for you in all sessions, and answer it."),
    "ask": Entry("ask", "Ask an agent one thing, without an editor."),
    "sign-in": Entry("sign_in", "Sign in with an agent."),
    "sign-out": Entry("sign_in", "Sign out with an agent.", "sign_out_parser"),
    "tail": Entry("tail", "Print the last turn of a session, and what comes."),
    "list": Entry("list", "List the sessions of the journal, newest first."),
    "show": Entry("show", "Show the transcript of a session."),
    "search": Entry("search_command", "Find what was said and done, newest first."),
    "usage": Entry("usage", "Add up the tokens and the cost that agents reported."),
    "diff": Entry("diff", "Show what a session changed in files, as a patch."),
    "rename": Entry("rename", "Give a session another title."),
    "archive": Entry("archive", "Take sessions out of the list."),
    "unarchive": Entry("archive", "Put archived sessions back into the list.", "unarchive_parser"),
    "fork": Entry("fork", "Begin a session with a copy of another one's conversation."),
    "handover": Entry("handover_command", "Give a conversation to another agent."),
    "delete": Entry("delete", "Delete sessions for good."),
    "prune": Entry("prune", "Delete old sessions for good."),
    "import": Entry("import_command", "Take in the conversations that other agents keep on disk."),
    "index": Entry("index", "Make all that was imported searchable."),
    "export": Entry("export", "Write sessions as Markdown, JSON lines or HTML pages."),
    "backup": Entry("backup", "Copy the journal, safely while sessions run."),
    "journal": Entry("journal_command", "Copy all sessions of a journal into another one."),
    "shrink": Entry("shrink", "Give the disk back what deleted sessions have left."),
    "help": Entry("manual", "Read the documents: about a command, or a topic."),
    "doctor": Entry("doctor", "Check this installation, the settings, the journal and an agent."),
    "check": Entry("check", "Check what an agent keeps of the protocol."),
    "demo": Entry("demo", "See it work: talk, kill -9, list, load, go on."),
    "demo-agent": Entry("demo_agent", "A scripted agent to try acphold with, offline."),
    "completion": Entry("completion", "Print what makes your shell complete our commands."),
    "mcp": Entry("mcp_command", "Speak MCP on stdio, for agents that are to recall sessions."),
    "mcp-bridge": Entry("mcp_bridge", "Speak MCP on stdio for a server behind a URL."),
}
"""In the order of the help: by task. None is imported before it is called."""

TASKS = {
    "wrap": "serve editors",
    "resume": "use in the terminal",
    "list": "look",
    "rename": "put in order",
    "import": "keep",
    "help": "read, try and check",
    "mcp": "for agents",
}
"""The headings of the help, each by the command that it stands above."""

SAME = {"ls": "list", "version": "--version"}
"""What people call by another name out of habit."""

MEANT = {
    "cat": "show",
    "config": "setup",
    "continue": "resume",
    "grep": "search",
    "history": "list",
    "install": "setup",
    "kill": "stop",
    "log": "show",
    "login": "sign-in",
    "logout": "sign-out",
    "open": "resume",
    "ps": "list",
    "restore": "unarchive",
    "rm": "delete",
    "sessions": "list",
    "start": "chat",
    "status": "list",
}
"""What is meant by some words that no command is called by."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # whoever started us has closed it (`>&-`)
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until we end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that is not UTF-8 gets question marks, not a traceback.
            stream.reconfigure(errors="replace")
    # Warnings, for commands that do not set up a log of their own.
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleLines("acphold: %(message)s"))
    logging.basicConfig(handlers=[handler])
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except AcpholdError as error:
        print(visible(f"acphold: {_told(error, arguments)}"), file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        _discard_output()  # `| head` has seen enough
        return Exit.OK
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITTEN:
            raise
        print(f"acphold: the output cannot be written: {error.strerror}", file=sys.stderr)
        _discard_output()
        return Exit.ERROR
    except KeyboardInterrupt:
        # Nothing is printed of what it has cut in the middle, nor of a second Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore")
        return Exit.INTERRUPTED
    return code


_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What becomes of writing into a file that a shell has opened for us."""


def _told(error: AcpholdError, arguments: Sequence[str]) -> str:
    """What a person is told; on the wire some of it goes without saying."""
    match error:
        case UnknownSessionError():
            from acphold.cli.servers import typed_server

            there = typed_server(arguments)
            return f"{error}; `acphold list{there} --all --archived` shows those that there are"
        case RemoteError():
            from acphold.cli.log import with_log

            return with_log(f"the agent answered with an error: {error}", patiently=True)
    return str(error)


def _run(arguments: Sequence[str]) -> int:
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not arguments and on_terminal:
        from acphold.cli.journals import exists
        from acphold.cli.servers import VARIABLE

        # A person is there: if they have sessions, they want to find one of them.
        arguments = ["resume"] if os.environ.get(VARIABLE) or exists(None) else []
    name, *rest = arguments or ("",)
    name = SAME.get(name, name)
    try:
        if not name or name.startswith("-"):
            about = parser_of("")
            about.read([name, *rest] if name else [])  # which ends with --help and --version
            about.print_help(sys.stderr)
            return Exit.USAGE
        found = parser_of(name)
        if any(word.startswith("--host") for word in rest):
            from acphold.cli.ssh import become_ssh, words_there

            if there := words_there(found, rest):
                become_ssh(there[0], [name, *there[1]], terminal=on_terminal)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found.run(rest)
    except NothingChosen:
        return Exit.OK
    except UsageError as error:
        called = f"acphold {name}" if name in COMMANDS else "acphold"
        print(visible(f"{called}: {error}"), file=sys.stderr)
        return Exit.USAGE


def parser_of(name: str) -> Parser:
    """What reads the arguments of a command, or of `acphold` itself; UsageError for others."""
    if not name:
        return _overview()
    if name not in COMMANDS:
        near = (
            [MEANT[name]] if MEANT.get(name) in COMMANDS else get_close_matches(name, COMMANDS, 1)
        )
        meant = "".join(f" (`{command}`?)" for command in near)
        raise UsageError(f"no command {name!r}{meant}; `acphold help` has all of them")
    entry = COMMANDS[name]
    found = getattr(import_module(f"acphold.cli.{entry.module}"), entry.parser)()
    assert isinstance(found, Parser)
    return found


def _overview() -> Parser:
    commands = "".join(
        (f"\n\n{TASKS[name]}:" if name in TASKS else "") + f"\n  {name:<12}{entry.summary}"
        for name, entry in COMMANDS.items()
    )
    codes = "".join(f"\n  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
    made = Parser(_introduce, "", "COMMAND ...", epilog=f"{commands.strip()}\n\nexit codes:{codes}")
    made.add_argument("--version", action="version", version=f"acphold {__version__}")
    return made


def _introduce() -> int:
    """Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

    Put `acphold wrap -- CMD` where your editor's settings name the command of an agent. Its
    conversations then outlive crashes and restarts, and can be listed and loaded again.

    A session ID may be given as any prefix that fits only one; `-` is the newest of the folder. The
    journal is the one that --journal names, else ACPHOLD_JOURNAL, else a file in your data folder.
    """
    return Exit.USAGE


def exit_code(error: AcpholdError) -> Exit:
    """The exit code for an error that ended a command."""
    match error:
        case UnknownSessionError() | AmbiguousIdError():
            return Exit.NO_SESSION
        case JournalError():
            return Exit.JOURNAL
        case AgentError() | RemoteError():
            return Exit.AGENT
        case AuthRequiredError():
            return Exit.SIGN_IN
        case SettingsError():
            return Exit.USAGE
    return Exit.ERROR


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the exit does not fail over it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
