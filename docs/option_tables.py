"""Writes the options of serving into docs/reference.md and docs/use.md: `make docs`.

A test compares them.

What they mean is in `acphold.serve_options`. The other points of these lists are written by hand.
"""

from __future__ import annotations

import re
from argparse import Action
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import FieldInfo, fields

from acphold.faces.cli.main import parser_of
from acphold.faces.cli.wrap import TYPED, settings_parser
from acphold.serve_options import OptionHelp, ServeOptions


def reference(text: str) -> str:
    """The reference with the options as they are now."""
    own = [name for name in TYPED if name != "journal"]  # every command has that
    typed = [field for field in fields(ServeOptions) if field.name in own]
    return _with(text, "### `acphold wrap ", map(_row, typed))


def settings(text: str) -> str:
    """The page with the settings file, with the options as they are now."""
    typed = [action for action in parser_of("wrap").actions if action.dest in _OPTIONS]
    only = [action for action in settings_parser().actions if action.dest not in _dests(typed)]
    rows = [
        f"- {', '.join(_keys(action for action in typed if action.nargs != 0))}: the options of "
        "`wrap`, with `_` for `-`; numbers, or texts as on a command line",
        f"- {', '.join(_keys(action for action in typed if action.nargs == 0))}: the options of "
        "`wrap` without a value: `true` or `false`",
    ]
    for action in only:
        if action.dest in _OPTIONS:
            [key] = _keys([action])
            told = str(action.help).replace("[default: ", "(default: ").removesuffix("]")
            rows.append(f"- {key}: {told}{')' * ('(default: ' in told)}")
    return _with(text, "## The settings file", rows)


_OPTIONS: Final = {action.dest for action in settings_parser().actions if action.option_strings} - {
    "help"
}


def _dests(actions: Iterable[Action]) -> set[str]:
    return {action.dest for action in actions}


def _keys(actions: Iterable[Action]) -> list[str]:
    return [
        f"`{flag[2:].replace('-', '_')}`"
        for action in actions
        for flag in action.option_strings
        if flag.startswith("--")
    ]


def _with(text: str, heading: str, rows: Iterable[str]) -> str:
    """The text with these rows below a heading, in the place of those that are about the same."""
    before, found, after = text.partition(f"\n{heading}")
    section, end, behind = after.partition("\n#")
    written = [*rows]
    lines = section.split("\n")
    old = [line for line in lines if any(_is_about_the_same(line, row) for row in written)]
    place = lines.index(old[0])
    kept = [line for line in lines if line not in old]
    return before + found + "\n".join([*kept[:place], *written, *kept[place:]]) + end + behind


def _is_about_the_same(line: str, row: str) -> bool:
    names = re.match(r"- `[^`]*`(?:, `[^`]*`)*", row)
    found = re.match(r"- `[^`]*`(?:, `[^`]*`)*", line)
    if names is None or found is None:
        return False
    return found[0] == names[0] or (", " in names[0] and line.endswith(row[names.end() :]))


def _row(field: FieldInfo) -> str:
    about = _about(field)
    plain = "" if not about.value else about.otherwise or f"{field.default}".removesuffix(".0")
    return f"- {_flag(field)}{plain and f' ({plain})'}: {about.meaning}"


def _flag(field: FieldInfo) -> str:
    value = _about(field).value
    return f"`--{field.name.replace('_', '-')}{' ' if value else ''}{value}`"


def _about(field: FieldInfo) -> OptionHelp:
    about = field.type.__metadata__[0]
    assert isinstance(about, OptionHelp)
    return about


PAGES: Final[Mapping[str, Callable[[str], str]]] = {"reference.md": reference, "use.md": settings}

if __name__ == "__main__":
    for name, written in PAGES.items():
        page = Path(__file__).with_name(name)
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
