"""How things look on a terminal: its colours, and text that cannot play tricks on it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

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
}
"""One name for each meaning; NO_COLOR turns them all off."""

PLAIN_WIDTH = 100
"""Columns of a report that goes into a file or a pipe."""

_UNSEEN = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}
_UNSEEN |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNSEEN |= {0x0D: ""}
"""Control characters, which a terminal obeys, and those that reverse the order of text."""


def visible(text: str) -> str:
    """`text` with nothing in it that a terminal obeys; lone surrogates become U+FFFD."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.translate(_UNSEEN)


def on_one_line(text: str) -> str:
    """`text` for a cell of a table: visible, white space in a row as one space."""
    return visible(" ".join(text.split()))


def folder(path: str) -> str:
    """A folder as a shell's prompt shows it: with ~ for the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return on_one_line(path)


def shortened(text: str, width: int) -> str:
    """`text` with its middle left out so that `width` columns are enough; both ends stay."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    end = next(text[place:] for place in range(len(text) + 1) if cell_len(text[place:]) <= tail)
    return f"{set_cell_size(text, width - 1 - cell_len(end)).rstrip()}…{end}"


def cut(text: str, width: int) -> str:
    """`text` with its end left out so that `width` columns are enough."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…"


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
