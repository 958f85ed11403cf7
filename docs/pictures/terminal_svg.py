"""Screens of a terminal as one SVG: a still, or a film of them that any browser plays.

The frames stand one below the other, and a window moves down over them in steps. A line that was
drawn before is drawn by a reference to it. Nothing is loaded, and no script is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple
from xml.etree.ElementTree import fromstring

import pyte

CELL = 8.4
LINE = 19
MARGIN = 14
BAR = 28
"""Above the screen: its title."""

COLOURS = {
    "default": "#d7d5cf",
    "black": "#22242a",
    "red": "#f2777a",
    "green": "#8fcf8a",
    "brown": "#e8c06a",
    "blue": "#7fb2ee",
    "magenta": "#cf9be8",
    "cyan": "#6fcad0",
    "white": "#d7d5cf",
    "brightblack": "#85878f",
    "brightwhite": "#ffffff",
}
PAPER = "#1b1d22"

FONTS = "ui-monospace, 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Frame(NamedTuple):
    """A screen, line by line, each in runs of one style; and what stands above it."""

    title: str
    lines: tuple[tuple[tuple[str, int, str], ...], ...]
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """What a person reads of it."""
        lines = [" ".join(" ".join(text for text, _, _ in line).split()) for line in self.lines]
        return "\n".join(filter(None, [self.title, *lines]))

    @property
    def rows(self) -> int:
        """Lines from the first to the last in which something stands."""
        return max((place for place, line in enumerate(self.lines, 1) if line), default=1)


def frame(screen: pyte.Screen, title: str, seconds: float = 0.0) -> Frame:
    """What is on the screen now, with the cursor."""
    lines = []
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        runs, place = [], 0
        for style, group in groupby(cells, key=_style):
            text = "".join(cell.data for cell in group)
            if text.strip() or "background" in style:
                runs.append((text, place, style))
            place += len(text)
        if row == screen.cursor.y and not screen.cursor.hidden:
            runs.append((" ", screen.cursor.x, "cursor"))
        lines.append(tuple(runs))
    return Frame(title, tuple(lines), seconds)


def _style(cell: pyte.screens.Char) -> str:
    """Attributes of SVG; with a background its colour stands first."""
    front = "" if cell.fg == "default" else _colour(cell.fg)
    back = "" if cell.bg == "default" else _colour(cell.bg)
    if cell.reverse:
        front, back = back or PAPER, front or COLOURS["default"]
    parts = [f'fill="{front}"'] if front else []
    parts += ['font-weight="bold"'] if cell.bold else []
    parts += ['font-style="italic"'] if cell.italics else []
    parts += [f'data-background="{back}"'] if back else []
    return " ".join(parts)


def _colour(name: str) -> str:
    if name in COLOURS:
        return COLOURS[name]
    if len(name) == 6 and all(sign in "0123456789abcdef" for sign in name.lower()):
        return f"#{name}"
    return COLOURS.get(name.removeprefix("bright"), COLOURS["default"])


def svg(frames: Sequence[Frame], columns: int, rows: int, about: str) -> str:
    """The picture; of several frames a film that begins again at its end."""
    width, height = columns * CELL + 2 * MARGIN, rows * LINE + BAR + 2 * MARGIN
    seconds = sum(each.seconds for each in frames)
    known: dict[object, str] = {}
    drawn: list[str] = []
    for place, each in enumerate(frames):
        top = place * height
        at = f'x="{width / 2:.0f}" y="{top + 19:.0f}"'
        drawn.append(f'<text class="title" {at}>{escape(each.title)}</text>')
        for row, line in enumerate(each.lines):
            if line:
                y = top + BAR + MARGIN + row * LINE
                drawn.append(_line(line, y, known))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(about)}">',
            f"<style>{_style_sheet(frames, height, seconds)}</style>",
            f'<rect width="100%" height="100%" rx="9" fill="{PAPER}"/>',
            f'<rect width="100%" height="{BAR}" rx="9" fill="#2b2e35"/>',
            *(
                f'<circle cx="{17 * place}" cy="14" r="5" fill="{COLOURS[colour]}"/>'
                for place, colour in enumerate(("red", "brown", "green"), 1)
            ),
            f'<g class="film" fill="{COLOURS["default"]}" font-family="{FONTS}" font-size="14">',
            *drawn,
            "</g>",
            "</svg>",
            "",
        ]
    )


def read(picture: str) -> list[str]:
    """What the frames of a picture say, as `Frame.text`."""
    space = "{http://www.w3.org/2000/svg}"
    film = fromstring(picture).find(f"{space}g")
    assert film is not None
    told: list[str] = []
    known: dict[str, str] = {}
    for drawn in film:
        if drawn.tag == f"{space}text":
            told.append(drawn.text or "")
            continue
        name = drawn.get("id") or (drawn.get("href") or "").removeprefix("#")
        if drawn.tag == f"{space}g":
            known[name] = " ".join(" ".join(drawn.itertext()).split())
        if known[name]:
            told[-1] += f"\n{known[name]}"
    return told


def _line(line: tuple[tuple[str, int, str], ...], y: float, known: dict[object, str]) -> str:
    """A line of text, drawn the first time, and then shown again."""
    if (name := known.get(line)) is not None:
        first = float(name.rpartition("@")[2])
        return f'<use href="#{name.partition("@")[0]}" y="{y - first:.0f}"/>'
    name = f"l{len(known)}"
    known[line] = f"{name}@{y:.0f}"
    parts = []
    for text, column, style in line:
        x = MARGIN + column * CELL
        if style == "cursor":
            parts.append(
                f'<rect class="cursor" x="{x:.1f}" y="{y:.0f}" width="{CELL}" height="{LINE - 2}"/>'
            )
            continue
        front, _, back = style.partition('data-background="')
        if back:
            wide = len(text) * CELL
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.0f}" width="{wide:.1f}" height="{LINE}" fill="{back}/>'
            )
        shown = text.rstrip() if not back else text
        if shown.strip():
            kept = len(shown) - len(shown.lstrip())
            x += kept * CELL
            words = shown.strip()
            parts.append(
                f'<text x="{x:.1f}" y="{y + 14:.0f}" textLength="{len(words) * CELL:.1f}"'
                f"{' ' + front.strip() if front.strip() else ''}>{escape(words)}</text>"
            )
    return f'<g id="{name}">{"".join(parts)}</g>'


def _style_sheet(frames: Sequence[Frame], height: float, seconds: float) -> str:
    text = (
        "text{white-space:pre}"
        ".title{font:12px system-ui,sans-serif;fill:#b9bac0;text-anchor:middle}"
        f".cursor{{fill:{COLOURS['default']};opacity:.7}}"
    )
    if len(frames) == 1:
        return text
    steps, at = [], 0.0
    for place, each in enumerate(frames):
        steps.append(f"{100 * at / seconds:.3f}%{{transform:translateY({-place * height:.0f}px)}}")
        at += each.seconds
    last = -(len(frames) - 1) * height
    return (
        f"{text}.film{{animation:film {seconds:.2f}s step-end infinite}}"
        f"@keyframes film{{{''.join(steps)}}}"
        "@media (prefers-reduced-motion:reduce)"
        f"{{.film{{animation:none;transform:translateY({last:.0f}px)}}}}"
    )
