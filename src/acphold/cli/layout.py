"""Two ways to lay a transcript out: beside a gutter on a terminal, as plain text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from acphold.cli.painting import Painted

GUTTER = 9
"""Columns for the labels, of which the longest is `thought`."""

MAX_WIDTH = 110
"""Columns of a line of prose beyond which the eye loses its place."""


class Plain:
    """`label: text`, further lines indented; what an agent wrote stays as it wrote it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def head(self, title: str, facts: Sequence[str]) -> None:
        self._stream.write("\n".join(filter(None, [title, *facts])) + "\n")

    def put(self, painting: Painted) -> None:
        first, *rest = [line.plain.rstrip() for line in painting.lines] or [""]
        lines = [f"{painting.label}: {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)]
        self._stream.write("\n" + "\n".join(lines) + "\n")


class Gutter:
    """Labels on the left, in colour; text beside them, wrapped."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def head(self, title: str, facts: Sequence[str]) -> None:
        if title:
            self._console.print(Text(title, "heading"))
        for fact in facts:
            self._console.print(Text(fact, "faint"))

    def put(self, painting: Painted) -> None:
        self._console.print()
        self._console.print(Beside(painting.label, painting.style, body(painting)))


def body(painting: Painted) -> RenderableType:
    """What stands beside the label: prose is laid out, everything else stays as it is."""
    text = Text("\n").join(painting.lines)
    if not painting.markdown:
        return text
    from acphold.cli.prose import Prose

    return Prose(text.plain)


class Beside:
    """A label in the gutter with something beside it."""

    def __init__(
        self, label: str, style: str, body: RenderableType, *, gutter: int = GUTTER
    ) -> None:
        self._label = label
        self._style = style
        self._body = body
        self._gutter = gutter

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(20, min(options.max_width, MAX_WIDTH) - self._gutter)
        lines = console.render_lines(self._body, options.update(width=width), pad=False)
        label = self._label
        for line in lines:
            yield Segment(f"{label:>{self._gutter - 2}}", console.get_style(self._style))
            yield Segment("  ")
            yield from line
            yield Segment.line()
            label = ""
