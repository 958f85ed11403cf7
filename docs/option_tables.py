"""Writes the options of serving into docs/reference.md and docs/use.md: `make docs`.

A test compares them.

What they mean is in `acphold.serve_options`. The other rows of these tables are written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import FieldInfo, fields

from acphold.cli.main import parser_of
from acphold.serve_options import AgentOptions, Option, ServeOptions


def reference(text: str) -> str:
    """The reference with the options as they are now."""
    shared = fields(ServeOptions)
    own = fields(AgentOptions)[len(shared) :]
    as_for_wrap = f"| {', '.join(map(_flag, shared))} | | as for `wrap` |"
    text = _with(text, "### `acphold wrap ", map(_row, shared))
    return _with(text, "### `acphold run ", [as_for_wrap, *map(_row, own)])


def settings(text: str) -> str:
    """The page with the settings file, with the options as they are now."""
    valued: list[str] = []
    switches: list[str] = []
    for action in parser_of("wrap").actions:
        for flag in action.option_strings:
            if flag.startswith("--") and flag != "--help":
                key = f"`{flag[2:].replace('-', '_')}`"
                (switches if action.nargs == 0 else valued).append(key)
    told = "the options of `wrap`, with `_` for `-`; numbers, or texts as on a command line"
    return _with(
        text,
        "## The settings file",
        [
            f'| {", ".join(valued)} | {told} (`"64M"`) |',
            f"| {', '.join(switches)} | the options of `wrap` without a value: `true` or `false` |",
        ],
    )


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
    if not line.startswith("| `"):
        return False
    names, meaning = row.split(" | ", 1)
    return line.split(" | ")[0] == names or (", " in names and line.endswith(meaning))


def _row(field: FieldInfo) -> str:
    about = _about(field)
    plain = "" if not about.value else about.otherwise or f"{field.default}".removesuffix(".0")
    return f"| {_flag(field)} |{plain and ' '}{plain} | {about.meaning} |"


def _flag(field: FieldInfo) -> str:
    value = _about(field).value.replace("|", "\\|")
    return f"`--{field.name.replace('_', '-')}{' ' if value else ''}{value}`"


def _about(field: FieldInfo) -> Option:
    about = field.type.__metadata__[0]
    assert isinstance(about, Option)
    return about


PAGES: Final[Mapping[str, Callable[[str], str]]] = {"reference.md": reference, "use.md": settings}

if __name__ == "__main__":
    for name, written in PAGES.items():
        page = Path(__file__).with_name(name)
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
