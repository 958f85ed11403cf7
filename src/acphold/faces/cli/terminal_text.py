"""Text for a terminal: made harmless, coloured, with ages in words.

All times are ms since the epoch.
"""

from __future__ import annotations

import logging
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TextIO, cast

# Offered here too: all output of commands goes through these.
from acphold.conversation.presentation.visible_text import (
    local as local,
    on_one_line as on_one_line,
    quantity as quantity,
    size as size,
    visible as visible,
    visible_json as visible_json,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from acphold.faces.screen.layout import Gutter, LabelledText
    from acphold.journal.seams import SearchHit


NO_TERMINAL = "a program without a terminal"
"""The maker of a rule in a script, or in an agent's shell."""


def on_terminal() -> bool:
    """Return True if a person is at stdin and stdout."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def this_terminal() -> str:
    """Return the terminal at stdin, stdout or stderr, with its machine, or NO_TERMINAL."""
    for fd in (0, 1, 2):
        with suppress(OSError):
            return f"terminal {os.ttyname(fd)} of {os.uname().nodename}"
    return NO_TERMINAL


# -- text of others ------------------------------------------------------------------------


def tell(words: str) -> None:
    """Print words on stderr that cannot control the terminal: about the work, not its result."""
    print(visible(words), file=sys.stderr)


class VisibleLines(logging.Formatter):
    """Formats log lines so that quoted text cannot control the terminal they are read on."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def say(words: str) -> None:
    """Print words on stdout that cannot control the terminal."""
    print(visible(words))


def titled(title: str | None) -> str:
    """Return a session's title on one line, or that it has none."""
    return on_one_line(title or "") or "(no title)"


def folder(path: str) -> str:
    """Return a folder as a shell's prompt shows it: with ~ for the home folder."""
    home = (os.environ.get("HOME") or os.path.expanduser("~")).rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return on_one_line(path)


def cell_width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return `text`, cut at its end so that `width` columns are enough."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1).rstrip()}…"


# -- times ---------------------------------------------------------------------------------

_MINUTE, _DAY = 60, 24 * 60 * 60
_UNITS = (
    (1, "", ""),
    (_MINUTE, "m", "minute"),
    (60 * _MINUTE, "h", "hour"),
    (_DAY, "d", "day"),
    (7 * _DAY, "w", "week"),
    (7 * 4.35 * _DAY, "mo", "month"),
    (12 * 7 * 4.35 * _DAY, "y", "year"),
)
"""The units of an age, each with its seconds; none has a name below a minute."""

_FROM = [seconds for seconds, *_ in _UNITS]


def short_age(at: int, now: int) -> str:
    """Return an age for a table: `now`, `3m`, `2w`."""
    amount, short, _ = _age(at, now)
    return f"{amount}{short}" if short else "now"


def day(at: int, now: int) -> str:
    """Return a time's day in this machine's time zone, for a heading; after a week, the month.

    `today`, `yesterday`, `Monday`, `March 2026`.
    """
    that, this = (datetime.fromtimestamp(ms / 1000).date() for ms in (at, now))
    if (ago := (this - that).days) < 2:
        return "yesterday" if ago == 1 else "today"
    return f"{that:%A}" if ago < 7 else f"{that:%B %Y}"


def age(at: int, now: int) -> str:
    """Return an age for a sentence: `just now`, `3 minutes ago`, `2 weeks ago`."""
    amount, _, unit = _age(at, now)
    return f"{quantity(amount, unit)} ago" if unit else "just now"


def _age(at: int, now: int) -> tuple[int, str, str]:
    """Return an age in the largest unit that fits, and the unit; "" below a minute."""
    seconds = max(0, now - at) / 1000
    long, short, unit = _UNITS[bisect_right(_FROM, seconds, 1) - 1]
    return int(seconds / long), short, unit


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
    "markdown.code": "bold magenta",
}
"""One name for each meaning; NO_COLOR turns the colours off."""

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
"""Replacements for styles that nobody can read on white."""

LINE_TERMINALS = (None, "", "dumb", "unknown")
"""Values of TERM without redrawing: in a shell of Emacs, on a serial line."""

PLAIN_WIDTH = 100
"""Columns of a report that goes into a file or a pipe."""


def transcript_layout() -> Gutter | LabelledText:
    """Return the layout of a transcript on stdout: in columns on a terminal, else with labels."""
    from acphold.faces.screen.layout import Gutter, LabelledText  # late: JSON does without it

    return Gutter(console()) if sys.stdout.isatty() else LabelledText(sys.stdout)


def console(file: TextIO | None = None, *, light: bool | None = None) -> Console:
    """Return a rich console, for stdout by default: in colour on a terminal, plain text of
    PLAIN_WIDTH columns otherwise. `light` is True for a light background; None asks COLORFGBG."""
    from rich.console import Console
    from rich.theme import Theme

    if light is None:
        light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")

    class Stdout(Console):
        is_light = light

        def on_broken_pipe(self) -> None:
            raise  # as everywhere: rich would end us as if after an error

    has_width = (file or sys.stdout).isatty() or "COLUMNS" in os.environ
    return Stdout(
        file=file,
        theme=Theme({**STYLES, **LIGHT_STYLES} if light else STYLES),
        width=None if has_width else PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


@contextmanager
def progress_bars(*, quiet: bool = False, only_time: bool = False) -> Iterator[Progress]:
    """Return bars that are shown on stderr while it is a terminal, and go when they are done."""
    if quiet or not sys.stderr.isatty():
        yield cast("Progress", _NoBars())
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    columns = [TimeElapsedColumn()] if only_time else []
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield bars


class _NoBars:
    """Bars that nobody sees: rich takes longer to import than many a command to work."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


@contextmanager
def at_work() -> Iterator[None]:
    """Show on stderr how long the block takes so far, while that is a terminal."""
    with progress_bars(only_time=True) as bars:
        bars.add_task("", total=None)
        yield


def describe_missing(hits: Sequence[SearchHit], which: str = "") -> str:
    """Return the words that conversations in a search lack; "" if they have all. `which` names
    those searched."""
    if not any(hit.missing for hit in hits):
        return ""
    found = quantity(len({hit.session_id for hit in hits}), "conversation")
    nowhere, alike = hits[0].nowhere, {hit.missing for hit in hits}

    def named(words: Iterable[str]) -> str:
        return " or ".join(f"“{on_one_line(word)}”" for word in words)

    if nowhere:
        others = f"{found} with the others"
        if alike != {nowhere}:
            others = "those with most of the others, the best first"
        return " ".join(f"Nothing {which} has {named(nowhere)}; {others}".split())
    some = f"{found} without {named(hits[0].missing)}" if len(alike) == 1 else "the best first"
    return " ".join(f"No conversation {which} has all of these words; {some}".split())
