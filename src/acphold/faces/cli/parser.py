"""Reading a command line.

It uses argparse, because many commands are short: besides their other imports it costs under 2 ms,
click 8 ms. A daemon makes no parser unless it has words to read.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from acphold.faces.cli.command_line import (
    DECLARED,
    Execute,
    Exit,
    UsageError,
    split_program,
    use_journal,
)
from acphold.faces.cli.options import (
    AGENT,
    HOST,
    JOURNAL,
    ON_HOST,
    PROGRAM,
    TYPES,
    Declared,
    flag,
    value,
)
from acphold.faces.cli.packed_words import typed_variables

if TYPE_CHECKING:
    from msgspec import Struct
    from msgspec.structs import FieldInfo

    from acphold.serve_options import OptionHelp

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


def declared_parser(name: str) -> Parser:
    """Return the parser of a command whose module is imported."""
    declared, how = DECLARED[name]
    return Parser(*declared, **how)


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
            if its.names is None:
                self.add_argument(parameter, **its.how)
            else:
                names = its.names or (f"--{parameter.replace('_', '-')}",)
                hidden = {"help": argparse.SUPPRESS} if its is JOURNAL else {}
                self.add_argument(*names, dest=parameter, **{**its.how, **hidden})
            self._takes_agent = self._takes_agent or its is AGENT
            if its is JOURNAL:
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
