"""`acphold completion`: the script for a shell, and the candidates that the script asks for."""

from __future__ import annotations

import asyncio
import os
from argparse import SUPPRESS, Action
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from acphold.errors import AcpError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import UsageError, behind_command, command
from acphold.faces.cli.main import COMMANDS, FAMILIES, LISTED, parser_of, split_name
from acphold.faces.cli.parser import Parser
from acphold.faces.cli.settings import agent_name, agent_names
from acphold.faces.cli.terminal_text import cut, on_one_line
from acphold.journal import stores
from acphold.journal.journal import rows_of
from acphold.journal.rows import ListFilter, SessionRow
from acphold.known_agents import KNOWN_AGENTS
from acphold.live.reading.local_reader import existing_journal

SCRIPTS = {
    # A loop, and not a word list: bash would expand `$(…)` in an id that an agent chose.
    "bash": r"""
_acphold() {
    local word
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        COMPREPLY+=("$word")
    done < <(acphold completion -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _acphold acphold
""",
    "zsh": r"""
_acphold() {
    local word meaning
    local -a found
    while IFS=$'\t' read -r word meaning; do
        found+=("${word//:/\\:}:$meaning")
    done < <(acphold completion -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then _describe acphold found; else _files; fi
}
compdef _acphold acphold
""",
    "fish": r"""
complete -c acphold -a '(
    acphold completion -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
)'
""",
}
"""Without candidates, all three complete file names."""


LIVE_ONLY = frozenset({"agent stop", "--watch"})
"""A command and an option for live sessions only."""

JOURNAL = "use another journal"
"""The meaning of `--journal`, which the help of `acphold` explains once for all commands."""

SESSIONS = ("session_id", "session_ids", "session", "resume")
"""Names of options and arguments that take a session's id."""


class Candidate(NamedTuple):
    """A word that would fit, and its meaning."""

    word: str
    meaning: str = ""


@command("completion", "{SHELL | -- WORD...}")
def completion(
    *,
    shell: str | None = options.argument(
        "SHELL", "bash, zsh or fish", nargs="?", choices=[*SCRIPTS]
    ),
    program: tuple[str, ...] = options.PROGRAM,
) -> None:
    """Print shell completion for commands, options and session ids.

      bash, in ~/.bashrc:                    eval "$(acphold completion bash)"
      zsh, in ~/.zshrc, after compinit:      eval "$(acphold completion zsh)"
      fish, in ~/.config/fish/config.fish:   acphold completion fish | source

    Without SHELL it prints candidates for the last of the words after `--`, one per line; the
    scripts use this.
    """
    if shell is not None:
        print(SCRIPTS[shell].strip())
        return
    if not program:
        raise UsageError(f"name a shell, one of {', '.join(SCRIPTS)}")
    for candidate in candidates(program):
        print("\t".join(candidate).rstrip())


def candidates(words: Sequence[str]) -> list[Candidate]:
    """Return candidates for the last word of a command line; none where files may stand."""
    *before, begun = words or ("",)
    found: Iterable[Candidate] = ()
    moved = behind_command(before, "")
    command, arguments = split_name(moved)
    if before[-1:] == ["--journal"]:
        pass
    elif not any(moved[:1]):
        found = chain(map(Candidate, LISTED, LISTED.values()), _options(parser_of("")))
    elif command in FAMILIES:
        found = (
            Candidate(name.split()[1], entry.summary)
            for name, entry in COMMANDS.items()
            if name.startswith(f"{command} ")
        )
    elif command in COMMANDS and "--" in arguments:
        if before[-1] == "--" and "/" not in begun:  # the shell completes a path by itself
            programs = {
                name
                for folder in os.get_exec_path()
                if os.path.isdir(folder)
                for name in os.listdir(folder)
                if name.startswith(begun) and os.access(os.path.join(folder, name), os.X_OK)
            }
            found = map(Candidate, islice(sorted(programs), bounds.CANDIDATES))
    elif command in COMMANDS:
        found = _arguments(command, arguments, begun)
    return [candidate for candidate in found if candidate.word.startswith(begun)]


def _arguments(command: str, before: Sequence[str], begun: str) -> Iterator[Candidate]:
    """Yield candidates after these words of a command: an option's value, or the next argument."""
    parser = parser_of(command)
    flags = {flag: action for action in parser.actions for flag in action.option_strings}
    arguments = [action for action in parser.actions if not action.option_strings]
    awaited = None  # the option whose value may come next
    for word in before:
        if awaited is not None and (awaited.nargs is None or not word.startswith("-")):
            awaited = None  # this word was its value
        elif word.startswith("-") and word != "-":
            option = flags.get(word)
            awaited = option if option is not None and option.nargs in (None, "?") else None
        elif arguments and arguments[0].nargs in (None, "?"):
            del arguments[0]
    is_elsewhere = any(word.startswith(("--host", "--journal", "--bring-from")) for word in before)
    wanted = [] if awaited is None else [awaited]
    if awaited is None or awaited.nargs is not None:  # the next word need not be its value
        if begun.startswith("-"):
            yield from _options(parser)
        else:
            wanted += arguments[:1]
    for action in wanted:
        if is_elsewhere and _names_session(command, action):
            continue  # ids of another machine or another journal are not known here
        yield from map(Candidate, action.choices or ())
        if action.metavar == "LEVEL":
            yield from map(Candidate, options.LEVELS)
        elif action.metavar == "AGENT":
            yield from _agents(agent_names())
        elif action.dest == "agent":
            yield from _agents([*agent_names(), *(agent_name(it.agent) for it in _sessions())])
        elif (command, action.dest) in (("connect", "host"), ("check", "server")):
            from acphold.faces.cli.servers import server_names

            with suppress(AcpError):  # as in `_sessions`
                yield from (Candidate(name) for name in server_names() if set(name) <= SAFE)
        elif _names_session(command, action):
            for row in _sessions(are_live=bool({command, *before} & LIVE_ONLY)):
                if set(row.session_id) <= SAFE:
                    yield Candidate(row.session_id, cut(on_one_line(row.title or ""), 60))


def _names_session(command: str, action: Action) -> bool:
    return action.dest in SESSIONS or (command, action.dest) == ("continue", "words")


def _options(parser: Parser) -> Iterator[Candidate]:
    for action in parser.actions:
        if action.option_strings:
            help = JOURNAL if "--journal" in action.option_strings else action.help
            meaning = "" if help in (None, SUPPRESS) else on_one_line(str(help))
            yield Candidate(action.option_strings[0], meaning)


def _agents(names: Sequence[str]) -> Iterator[Candidate]:
    """Yield agents by name, without names that a shell would have to quote."""
    for name in dict.fromkeys(names):
        if set(name) <= SAFE:
            known = KNOWN_AGENTS.get(name)
            yield Candidate(name, "" if known is None else known.title)


def _sessions(*, are_live: bool = False) -> list[SessionRow]:
    """Return the newest sessions, or the live ones; none if the journal cannot be read."""

    async def find() -> list[SessionRow]:
        async with existing_journal() as journal:
            if are_live:
                from acphold.live.reading.processes import live_anywhere  # late: brings the server

                return [row async for row in rows_of(journal, await live_anywhere(journal))]
            return await journal.page(ListFilter(archived="include"), None, bounds.CANDIDATES)

    try:
        return asyncio.run(find()) if stores.exists() else []
    except AcpError:
        return []  # nobody to tell here; the command itself will report it


SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
