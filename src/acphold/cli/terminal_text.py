"""Text for a terminal: what cannot play tricks on it, its colours, and ages in words.

All times are ms since the epoch.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

# Offered here too: what commands print goes through these.
from acphold.presentation.visible_text import counted as counted
from acphold.presentation.visible_text import iso as iso
from acphold.presentation.visible_text import local as local
from acphold.presentation.visible_text import on_one_line as on_one_line
from acphold.presentation.visible_text import size as size
from acphold.presentation.visible_text import visible as visible
from acphold.presentation.visible_text import visible_json as visible_json

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console


def on_terminal() -> bool:
    """Whether there is a person at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


# -- of others -----------------------------------------------------------------------------


class VisibleLines(logging.Formatter):
    """What a log quotes of others must not play tricks on the terminal it is read on."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def folder(path: str) -> str:
    """A folder as a shell's prompt shows it: with ~ for the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return on_one_line(path)


def cell_width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """`text` with its end left out so that `width` columns are enough."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1).rstrip()}…"


# -- times ---------------------------------------------------------------------------------

_LARGER_UNITS = (
    (60, "m", "minute"),
    (60, "h", "hour"),
    (24, "d", "day"),
    (7, "w", "week"),
    (4.35, "mo", "month"),
    (12, "y", "year"),
)
"""How many of the unit before make one of this."""


def short_age(at: int, now: int) -> str:
    """How long ago, for a table: `now`, `3m`, `2w`."""
    amount, short, _ = _age(at, now)
    return f"{amount}{short}" if short else "now"


def day(at: int, now: int) -> str:
    """The day of this machine's time zone, for a heading; of what is older than a week, the month.

    `today`, `yesterday`, `Monday`, `March 2026`.
    """
    from datetime import datetime

    that, this = (datetime.fromtimestamp(ms / 1000).date() for ms in (at, now))
    if (ago := (this - that).days) < 2:
        return "yesterday" if ago == 1 else "today"
    return f"{that:%A}" if ago < 7 else f"{that:%B %Y}"


def age(at: int, now: int) -> str:
    """How long ago, for a sentence: `just now`, `3 minutes ago`, `2 weeks ago`."""
    amount, _, unit = _age(at, now)
    return f"{counted(amount, unit)} ago" if unit else "just now"


def _age(at: int, now: int) -> tuple[int, str, str]:
    """An age in the largest unit that fits, and that unit; none below a minute."""
    amount, short, unit = max(0, now - at) / 1000, "", ""
    for factor, *larger in _LARGER_UNITS:
        if amount < factor:
            break
        amount, (short, unit) = amount / factor, larger
    return int(amount), short, unit


# -- colours --------------------------------------------------------------------------------

STYLES = {
    "heading": "bold",
    "faint": "bright_black",
    "id": "cyan",
    "you": "bold cyan",
    "agent": "bold green",
    "thought": "italic bright_black",
    "tool": "bold magenta",
    "plan": "bold blue",
    "acphold": "bold yellow",
    "good": "green",
    "bad": "bold red",
    "busy": "yellow",
    "waits": "bold reverse yellow",
    "added": "green",
    "removed": "red",
    "command": "bold",
    "found": "bold yellow",
    "markdown.code": "magenta",
}
"""One name for each meaning; NO_COLOR turns them all off."""

LIGHT_STYLES = {
    "id": "blue",
    "you": "bold blue",
    "agent": "bold rgb(0,95,0)",
    "acphold": "bold rgb(135,75,0)",
    "good": "rgb(0,95,0)",
    "busy": "rgb(135,75,0)",
    "added": "rgb(0,95,0)",
    "removed": "rgb(175,0,0)",
    "found": "bold rgb(135,75,0)",
}
"""In place of those that nobody can read on white."""

LINE_TERMINALS = (None, "", "dumb", "unknown")
"""What TERM is where nothing can be drawn again: in a shell of Emacs, on a serial line."""

PLAIN_WIDTH = 100
"""Columns of a report that goes into a file or a pipe."""


def plain_console(file: TextIO) -> Console:
    """A file for rich: plain text of PLAIN_WIDTH columns."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(
        file=file,
        theme=Theme(STYLES),
        width=PLAIN_WIDTH,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def console(file: TextIO | None = None, *, light: bool | None = None) -> Console:
    """A file for rich, stdout by default: in colour on a terminal, plain text of PLAIN_WIDTH
    columns otherwise. `light` where the background is; None where only COLORFGBG can say so."""
    from rich.console import Console
    from rich.theme import Theme

    if light is None:
        light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")

    class Stdout(Console):
        is_light = light

        def on_broken_pipe(self) -> None:
            raise  # as everywhere: rich would end us as if something were wrong

    told = (file or sys.stdout).isatty() or "COLUMNS" in os.environ
    return Stdout(
        file=file,
        theme=Theme({**STYLES, **LIGHT_STYLES} if light else STYLES),
        width=None if told else PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
