"""The console that reports are printed on: coloured if it is a terminal, otherwise plain."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

from rich.console import Console
from rich.theme import Theme

STYLES: Final = {
    "heading": "bold",
    "faint": "bright_black",
    "id": "cyan",
    "good": "green",
    "bad": "bold red",
    "busy": "yellow",
}
"""One name for each meaning; NO_COLOR turns them all off."""

PLAIN_WIDTH: Final = 100
"""Columns of a report that goes into a file or a pipe."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise


def stdout_console() -> Console:
    """Return the console of stdout."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _Output(
        theme=Theme(STYLES),
        width=None if has_width else PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def plain_console(file: TextIO) -> Console:
    """Return a console for a file: plain text of PLAIN_WIDTH columns."""
    return Console(
        file=file,
        theme=Theme(STYLES),
        width=PLAIN_WIDTH,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
