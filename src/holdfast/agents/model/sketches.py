"""How a tool call looks to the person: its title, its kind and the file it is about.

Made from arguments that may be half there, while the model still writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import from_json

if TYPE_CHECKING:
    from holdfast.schema import ToolKind

SHOWN = 120
"""Characters of an argument in a title."""


class Sketch(NamedTuple):
    """What is shown of a call; `path` is as the model wrote it."""

    title: str
    kind: ToolKind
    path: str | None = None
    line: int | None = None


Arguments = Mapping[str, object]


def sketch(name: str, arguments: Arguments) -> Sketch:
    """How a call of one of our own tools looks."""
    draw = _OWN.get(name)
    return Sketch(name, "other") if draw is None else draw(arguments)


def partial_arguments(text: str) -> dict[str, object]:
    """The arguments in JSON that has not all arrived; of the last one only what is whole."""
    try:
        found = from_json(text, allow_partial=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _word(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        return ""
    text = " ".join(value.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _path(arguments: Arguments) -> str | None:
    value = arguments.get("path")
    return value if isinstance(value, str) and value else None


def _file(verb: str, kind: ToolKind) -> Callable[[Arguments], Sketch]:
    def draw(arguments: Arguments) -> Sketch:
        line = arguments.get("line")
        return Sketch(
            f"{verb} {_word(arguments, 'path')}".rstrip(),
            kind,
            _path(arguments),
            line if isinstance(line, int) and line > 0 else None,
        )

    return draw


def _list(arguments: Arguments) -> Sketch:
    what = _word(arguments, "glob") or "files"
    place = _word(arguments, "path")
    return Sketch(f"List {what}{f' in {place}' if place else ''}", "search", _path(arguments))


def _search(arguments: Arguments) -> Sketch:
    what = _word(arguments, "pattern")
    place = _word(arguments, "path")
    title = f"Search for {what}{f' in {place}' if place else ''}" if what else "Search"
    return Sketch(title, "search", _path(arguments))


def _shell(arguments: Arguments) -> Sketch:
    return Sketch(_word(arguments, "command") or "Run a command", "execute")


_OWN: dict[str, Callable[[Arguments], Sketch]] = {
    "read": _file("Read", "read"),
    "write": _file("Write", "edit"),
    "edit": _file("Edit", "edit"),
    "list": _list,
    "search": _search,
    "shell": _shell,
}
