"""The `acphold` command: the table of commands, and the exit codes for their errors."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from acphold import errors
from acphold.faces.cli import options
from acphold.faces.cli.command_line import (
    Exit,
    NothingChosen,
    UsageError,
    behind_command,
)
from acphold.faces.cli.parser import Parser, declared_parser
from acphold.faces.cli.terminal_text import VisibleLines, tell
from acphold.version import __version__


class CommandEntry(NamedTuple):
    """A command: the module that declares it, and its line in the help."""

    module: str
    summary: str


COMMANDS = {
    name: CommandEntry(*entry)
    for name, entry in {
        "wrap": ("wrap", "Run an agent for your editor, with durable sessions."),
        "setup": ("setup", "Put acphold in front of the agents in your editor's settings."),
        "connect": ("ssh", "Connect your editor to an agent on another machine."),
        "serve": ("serve", "Use your sessions from a phone, a browser or another machine."),
        "access token": ("access_commands", "Create a token and print it, once."),
        "access pair": ("access_commands", "Pair a phone or a browser with `acphold serve`."),
        "access list": ("access_commands", "List tokens and paired devices."),
        "access revoke": ("access_commands", "End tokens and the access of devices."),
        "access share": (
            "access_commands",
            "Share a session with another user of `acphold serve`.",
        ),
        "access keep": ("access_commands", "Accept all tokens and shares that are held."),
        "access places": (
            "access_commands",
            "Say which sandboxes and containers may do more than look.",
        ),
        "access audit": ("access_commands", "Show who did what through `acphold serve`."),
        "agent run": ("run_agent", "Run an agent written in Python for your editor."),
        "agent sign-in": ("sign_in", "Sign in to an agent."),
        "agent sign-out": ("sign_in", "Sign out of an agent."),
        "agent status": ("process_commands", "Show what runs: processes, agents and sessions."),
        "agent stop": ("process_commands", "Stop the daemon, or one agent."),
        "agent daemon": ("daemon", "Run the daemon in the foreground."),
        "agent demo": ("demo_agent", "A scripted offline agent to try acphold with."),
        "continue": ("continue_command", "Find a conversation and continue it."),
        "chat": ("chat", "Talk to an agent in the terminal."),
        "queue": ("queue", "Show and change the queued prompts in a session."),
        "inbox": ("inbox", "Answer what agents are waiting for."),
        "rules": ("rules", "Answer an agent's questions in advance."),
        "ask": ("ask", "Send one prompt to an agent and print its answer."),
        "list": ("list", "List sessions, newest first."),
        "show": ("show", "Print a session's transcript."),
        "search": ("search_command", "Search all conversations, newest first."),
        "usage": ("usage", "Add up the tokens and the cost that agents reported."),
        "diff": ("diff", "Show what changed in files during a session, as a patch."),
        "session rename": ("session_commands", "Rename a session."),
        "session tag": ("session_commands", "Tag sessions."),
        "session pin": ("session_commands", "Keep sessions on top of your lists."),
        "session archive": ("session_commands", "Hide sessions from the list."),
        "session merge": ("trees", "Bring the work of a session back from its work tree."),
        "session delete": ("session_commands", "Delete sessions permanently."),
        "session prune": ("session_commands", "Delete old sessions permanently."),
        "forget": ("forget", "Remove a text, such as a pasted secret, from all sessions for good."),
        "import": ("import_command", "Import conversations that other agents keep on disk."),
        "export": ("export", "Write sessions as Markdown, JSON lines or HTML pages."),
        "journal backup": ("journal_commands", "Back up the journal while sessions run."),
        "journal restore": ("journal_commands", "Replace the journal with a backup."),
        "journal copy": ("journal_commands", "Copy all sessions into another journal."),
        "journal compact": ("journal_commands", "Reclaim disk space from deleted sessions."),
        "help": ("manual", "Read the documentation of a command or a topic."),
        "doctor": ("doctor", "Check the installation, the settings, the journal and an agent."),
        "check": ("check", "Check an agent, a client or a server against the protocol."),
        "demo": ("demo", "See it work: talk, kill -9, list, load, continue."),
        "completion": ("completion", "Print shell completion."),
        "mcp": ("mcp_command", "An MCP server that lets agents search past sessions."),
    }.items()
}
"""By task, in the order of `help --all`. A command's module is imported when the command runs."""

FAMILIES = {
    "access": "Manage access to `acphold serve`.",
    "agent": "Run, sign in to and stop agents.",
    "session": "Rename, archive and delete sessions.",
    "journal": "Back up, restore, copy or compact the journal.",
}
"""The first words of commands with two, with the line in the help for all of them."""

LISTED = {
    word: FAMILIES.get(word, entry.summary)
    for name, entry in COMMANDS.items()
    for word in name.split()[:1]
}
"""The lines of `help --all`."""

INTERNAL = {
    "move-end": CommandEntry("move_end", "The other end of a session's move over ssh."),
    "background-import": CommandEntry("background_import", "Read what agents have added."),
    "mcp-bridge": CommandEntry("mcp_bridge", "Forward an MCP server on stdio to one at a URL."),
}
"""Commands that acphold itself starts; no help lists them."""

TASKS = {
    "wrap": "editors and other machines",
    "continue": "talk to agents",
    "list": "look at sessions",
    "session": "organise and keep sessions",
    "help": "help and checks",
    "mcp": "for agents",
}
"""The headings of `help --all`, each with the command that comes first below it."""

FIRST = ("setup", "chat", "continue", "inbox", "list", "search", "import", "serve", "doctor")
"""The commands that `--help` shows: enough for the first weeks."""

SAME = {
    "find": "search",
    "ls": "list",
    "version": "--version",
    "status": "agent status",
    "stop": "agent stop",
}
"""Other names that work, because people type them out of habit."""

MEANT = {
    word: command
    for command, words in {
        "chat": "new start talk",
        "session delete": "remove rm",
        "session archive --undo": "restore unarchive",
        "session pin --undo": "unpin",
        "session tag --remove": "untag",
        "list": "history sessions",
        "continue": "attach fork open resume watch",
        "search": "grep",
        "serve": "page ui web",
        "setup": "config init install settings",
        "show": "cat log read tail view",
        "agent sign-in": "login",
        "agent sign-out": "logout",
        "status": "ps",
        "help remove": "uninstall",
        "stop": "kill quit",
    }.items()
    for word in words.split()
}
"""Suggestions for words that are no command."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # our parent has closed it (`>&-`)
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until we end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # On a terminal that is not UTF-8, print question marks instead of a traceback.
            stream.reconfigure(errors="replace")
    # Warnings, for commands that do not set up a log of their own.
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleLines("acphold: %(message)s"))
    logging.basicConfig(handlers=[handler])
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except errors.AcpError as error:
        text = str(error)  # as on the wire; a person gets more of these two
        if isinstance(error, errors.UnknownSessionError):
            from acphold.faces.cli.ssh import host_option

            text = f"{error}; `acphold list{host_option()} --all --archived` shows all sessions"
        elif isinstance(error, errors.RemoteError):
            from acphold.faces.cli.log import with_log

            text = with_log(f"the agent answered with an error: {error}", patiently=True)
        tell(f"acphold: {text}")
        return exit_code(error)
    except BrokenPipeError:
        _discard_output()  # as in `acphold list | head`
        return Exit.OK
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITTEN:
            raise
        tell(f"acphold: cannot write the output: {error.strerror}")
        _discard_output()
        return Exit.ERROR
    except KeyboardInterrupt:
        # Interrupted work prints nothing more, and neither does a second Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore")
        return Exit.INTERRUPTED
    return code


_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to a file that a shell has opened for us (`> FILE`)."""


def _run(arguments: Sequence[str]) -> int:
    arguments = behind_command(arguments)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not arguments and on_terminal:
        from acphold.journal import stores

        # Somebody who types only `acphold` looks for a session, or does not know yet how to begin.
        if stores.exists():
            arguments = ["continue"]
        else:
            from acphold.faces.cli.first_look import choose_command

            arguments = choose_command()
            if not arguments:
                return Exit.OK
            if arguments == ("import",):  # whoever imported wants to see what is there
                return _run(arguments) or _run(["continue"])
    name, rest = split_name(arguments)
    try:
        if not name or name in FAMILIES:
            program = parser_of(name)
            program.read(rest)  # this exits for --help and --version
            program.print_help(sys.stderr)
            return Exit.USAGE
        command = parser_of(name)
        if any(word.startswith("--host") for word in rest):
            from acphold.faces.cli.ssh import become_ssh, words_there

            if remote := words_there(command, rest):
                host, words = remote
                become_ssh(host, [*name.split(), *words], terminal=on_terminal)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not gc.isenabled():  # as `acphold.__main__` leaves it; so does `cli.start`
            gc.freeze()
            gc.enable()
        return command.run(rest)
    except NothingChosen:
        return Exit.OK
    except UsageError as error:
        called = f"acphold {name}" if name in COMMANDS else "acphold"
        tell(f"{called}: {error}")
        return Exit.USAGE


def split_name(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of a command, which has two words in a family, and its arguments.

    The name is "" for `acphold` itself, and that of the family if none of its commands is named.
    """
    name, *rest = arguments or ("",)
    name = SAME.get(name, name)
    if name.startswith("-"):
        return "", [name, *rest]
    if name in FAMILIES:
        rest = behind_command(rest, "--help")
        if rest and not rest[0].startswith("-"):
            return f"{name} {rest[0]}", rest[1:]
    return name, rest


def parser_of(name: str) -> Parser:
    """Return the parser of a command, of a family, or of `acphold` itself; raises UsageError for
    other names."""
    if not name:
        first = "\n".join(_line(name, LISTED[name]) for name in FIRST)
        more = (
            "`acphold status` shows what runs, `acphold stop` ends it. "
            "`acphold help --all` lists every command, `acphold help` the documentation."
        )
        epilog = f"commands:\n{first}\n\n{more}"
        made = Parser(_introduce, "", "COMMAND ...", epilog=epilog, meant=_command_for)
        made.add(
            "journal", options.value("URL", "path or URL of the journal [default: ACPHOLD_JOURNAL]")
        )
        version = f"acphold {__version__}"
        made.add_argument("--version", "-V", action="version", version=version)
        return made
    if name in FAMILIES:
        those = [each for each in COMMANDS if each.startswith(f"{name} ")]
        lines = "\n".join(_line(each.split()[1], COMMANDS[each].summary) for each in those)
        made = Parser(_introduce, name, "COMMAND ...", epilog=f"commands:\n{lines}")
        made.description = FAMILIES[name]
        return made
    if name not in COMMANDS and name not in INTERNAL:
        from difflib import get_close_matches

        from acphold.known_agents import DEMO, KNOWN_AGENTS

        words = {each: each for each in FAMILIES} | {each.split()[-1]: each for each in COMMANDS}
        words |= {each: f"chat {each}" for each in (*KNOWN_AGENTS, DEMO) if each not in words}
        last = (name.split() or [name])[-1]
        near = [words[it] for it in get_close_matches(last, words, 1)]
        near = [MEANT[last]] if last in MEANT else near
        meant = "".join(f" (`{command}`?)" for command in near)
        if not near:
            meant = f"; `acphold search {shlex.quote(name)}` searches your conversations"
        family = name.partition(" ")[0]
        lists = f"{family} --help` lists its" if family in FAMILIES else "help --all` lists all"
        raise UsageError(f"no command {name!r}{meant}; `acphold {lists} commands")
    entry = {**COMMANDS, **INTERNAL}[name]
    import_module(f"acphold.faces.cli.{entry.module}")
    return declared_parser(name)


def _command_for(arguments: Sequence[str]) -> str:
    """Return the hint for an option of an agent's program."""
    short = {"c": "continue", "p": "ask", "r": "continue", "v": "--version"}
    word = arguments[0].lstrip("-")
    meant = short.get(word) or MEANT.get(word) or (word if word in LISTED else "")
    return f"did you mean: acphold {meant}" if meant else ""


def overview() -> str:
    """Return the text of `help --all`: every command by task, and the exit codes."""
    commands = "".join(
        (f"\n{TASKS[name]}:\n" if name in TASKS else "") + f"{_line(name, summary)}\n"
        for name, summary in LISTED.items()
    )
    codes = "".join(f"  {code.value:>3}  {code.meaning}\n" for code in Exit)
    return f"{commands.lstrip()}\nexit codes:\n{codes}"


def _line(name: str, summary: str) -> str:
    return f"  {name:<12}{summary}"


def _introduce() -> int:
    """Keep every conversation with your coding agent: find, continue and share it.

    Begin with `acphold import`, then plain `acphold`; in editors `acphold setup`.
    An ID is a unique prefix or `-`, the folder's newest; `show` takes words, too.
    """
    return Exit.USAGE


def exit_code(error: errors.AcpError) -> Exit:
    """Return the exit code for an error that ended a command."""
    match error:
        case errors.UnknownSessionError() | errors.AmbiguousIdError():
            return Exit.NO_SESSION
        case errors.JournalError():
            return Exit.JOURNAL
        case errors.AgentError() | errors.DeclarationError() | errors.RemoteError():
            return Exit.AGENT
        case errors.AuthRequiredError():
            return Exit.SIGN_IN
        case errors.SettingsError():
            return Exit.USAGE
    return Exit.ERROR


def _discard_output() -> None:
    """Discard buffered output, so that flushing it at exit cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
