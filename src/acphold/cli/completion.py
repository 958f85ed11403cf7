"""`acphold completion`: the script for a shell, and the candidates that this script asks for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from acphold.cli.command_line import LEVELS, Exit, Parser, UsageError
from acphold.cli.journals import exists, opened, sessions
from acphold.cli.main import COMMANDS, parser_of
from acphold.cli.settings import agent_names
from acphold.cli.terminal_text import cut, on_one_line
from acphold.errors import AcpholdError
from acphold.journal import ListFilter

MOST = 200
"""Candidates among sessions, or programs: more than that nobody reads."""

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
"""Where there are no candidates, all three complete file names."""


class Candidate(NamedTuple):
    """A word that would fit, and what it means."""

    word: str
    meaning: str = ""


def parser() -> Parser:
    """The arguments of `completion`."""
    made = Parser(completion, "completion", "{SHELL | -- WORD...}", runs_program=True)
    made.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=[*SCRIPTS], help="bash, zsh or fish"
    )
    return made


def completion(*, shell: str | None, program: tuple[str, ...]) -> int:
    """Print what makes your shell complete our commands, their options and session ids.

      bash, in ~/.bashrc:                    eval "$(acphold completion bash)"
      zsh, in ~/.zshrc, behind compinit:     eval "$(acphold completion zsh)"
      fish, in ~/.config/fish/config.fish:   acphold completion fish | source

    Without SHELL it prints candidates for the last of the words behind `--`, one a line; the
    scripts ask for these.
    """
    if shell is not None:
        print(SCRIPTS[shell].strip())
        return Exit.OK
    if not program:
        raise UsageError(f"which shell? One of {', '.join(SCRIPTS)}")
    for candidate in candidates(program):
        print("\t".join(candidate).rstrip())
    return Exit.OK


def candidates(words: Sequence[str]) -> list[Candidate]:
    """What may stand for the last of the words of a command line; none where files may."""
    *before, begun = words or ("",)
    return [found for found in _all(before, begun) if found.word.startswith(begun)]


def _all(before: Sequence[str], begun: str) -> Iterator[Candidate]:
    if not before:
        yield from (Candidate(name, entry.summary) for name, entry in COMMANDS.items())
        yield from _options(parser_of(""))
    elif before[0] in COMMANDS and "--" in before:
        yield from _programs(begun) if before[-1] == "--" else ()
    elif before[0] in COMMANDS:
        yield from _arguments(parser_of(before[0]), before[-1], begun)


def _arguments(parser: Parser, last: str, begun: str) -> Iterator[Candidate]:
    """What may follow the word `last` in a command."""
    takes = {flag: action for action in parser.actions for flag in action.option_strings}
    if last in takes and takes[last].nargs is None:
        levels = LEVELS if takes[last].metavar == "LEVEL" else ()
        yield from map(Candidate, takes[last].choices or levels)
    elif begun.startswith("-"):
        yield from _options(parser)
    else:
        for action in parser.actions:
            yield from map(Candidate, action.choices or ())
            yield from _session_ids() if action.metavar == "ID" else ()
            yield from _agents() if action.metavar == "AGENT" else ()


def _options(parser: Parser) -> Iterator[Candidate]:
    for action in parser.actions:
        if action.option_strings:
            yield Candidate(action.option_strings[0], on_one_line(action.help or ""))


def _agents() -> Iterator[Candidate]:
    """The agents of the settings file; none whose name a shell would have to quote."""
    return (Candidate(name) for name in agent_names() if set(name) <= SAFE)


def _session_ids() -> Iterator[Candidate]:
    """The newest sessions; none whose id a shell would have to quote."""
    try:
        yield from asyncio.run(_newest())
    except AcpholdError:
        return  # there is nobody to tell it to; the command itself will say it


async def _newest() -> list[Candidate]:
    if not exists(None):
        return []
    async with opened(None) as journal:
        return [
            Candidate(row.session_id, cut(on_one_line(row.title or ""), 60))
            async for row in sessions(journal, ListFilter(archived="include"), MOST)
            if set(row.session_id) <= SAFE
        ]


SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def _programs(begun: str) -> Iterator[Candidate]:
    """Programs on PATH; none for a path, which the shell completes by itself."""
    if "/" in begun:
        return
    found = {
        name
        for folder in os.get_exec_path()
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.startswith(begun) and os.access(os.path.join(folder, name), os.X_OK)
    }
    yield from map(Candidate, islice(sorted(found), MOST))
