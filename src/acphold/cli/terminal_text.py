"""Text for a terminal: what cannot play tricks on it, its colours, and times and sizes in words.

All times are ms since the epoch.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# -- visible text ---------------------------------------------------------------------------

_UNSEEN = {
    *(code for code in range(0x20) if chr(code) not in "\n\t"),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
}
"""What a terminal obeys or hides: the control characters of ASCII and of Latin-1 (C0, DEL, C1), and
the marks that change the direction of text (Unicode, UAX 9)."""

_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _UNSEEN}
_SHOWN |= {0x0D: ""}
_SHOWN_IN_JSON = {code: f"\\u{code:04x}" for code in _UNSEEN if chr(code) != "\r"}


def visible(text: str) -> str:
    """`text` with nothing in it that a terminal obeys; lone surrogates become U+FFFD.

    Everything that is printed and that we did not write goes through here.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.translate(_SHOWN)


def visible_json(text: str) -> str:
    """JSON that means the same, with nothing in it that a terminal obeys."""
    return text.translate(_SHOWN_IN_JSON)


class VisibleLines(logging.Formatter):
    """What a log quotes of others must not play tricks on the terminal it is read on."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def on_one_line(text: str) -> str:
    """`text` for a cell of a table: visible, white space in a row as one space."""
    return visible(" ".join(text.split()))


def folder(path: str) -> str:
    """A folder as a shell's prompt shows it: with ~ for the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return on_one_line(path)


def cut(text: str, width: int) -> str:
    """`text` with its end left out so that `width` columns are enough."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…"


# -- numbers and times ----------------------------------------------------------------------


def size(count: int) -> str:
    """A number of bytes for people: `640 bytes`, `1.5 MiB`."""
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def iso(at: int) -> str:
    """ISO 8601 in UTC, to the millisecond: `2026-01-31T12:00:00.000Z`."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at: int) -> str:
    """To the minute, where the reader is: `2026-01-31 13:00`."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M")


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
    "added": "green",
    "removed": "red",
    "command": "bold",
    "found": "bold yellow",
}
"""One name for each meaning; NO_COLOR turns them all off."""

PLAIN_WIDTH = 100
"""Columns of a report that goes into a file or a pipe."""


def console() -> Console:
    """Stdout for rich: in colour on a terminal, plain text of PLAIN_WIDTH columns otherwise."""
    from rich.console import Console
    from rich.theme import Theme

    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(
        theme=Theme(STYLES),
        width=None if told else PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
