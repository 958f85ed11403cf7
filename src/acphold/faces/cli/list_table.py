"""Tables of sessions and other things: their columns, cut to fit a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter, methodcaller
from typing import Final, NamedTuple

from acphold.conversation.history.prompt_queue import ELSEWHERE, moment
from acphold.faces.cli import bounds
from acphold.faces.cli.terminal_text import cell_width, console, cut, on_one_line, short_age, titled
from acphold.journal.moves import destination
from acphold.live.reading.listed_sessions import ListedSession


class Column(NamedTuple):
    """A column of the table; shown on terminals that are at least `from_width` wide.

    Cells are cut to `most` columns there; the title gets the rest. If the title
    gets less than it wants, this column is cut further, down to `least`.
    """

    heading: str
    style: str
    from_width: int = 0
    most: int = 200
    least: int = 200


COLUMNS = (
    Column("TITLE", "heading"),
    Column("ID", "id"),
    Column("STATE", "busy"),
    Column("AGE", ""),
    Column("FOLDER", "faint", most=16, least=8),
    Column("AGENT", "agent", from_width=72, most=18, least=8),
    Column("MESSAGES", "faint", from_width=96),
    Column("RULES", "faint", from_width=96),
    Column("FILES", "faint", from_width=96),
)

IF_ANY = ("STATE", "RULES", "FILES", "FOR")
"""Columns that are shown only if a session has something in them."""

GAP = "  "
"""The space between two columns."""

WANTED_TITLE = 32
"""Columns that a title gets before folders and agents are shown at length."""

LEAST_TITLE = 12
"""Columns that a title keeps on the narrowest terminal."""


def cells(listed: ListedSession, short: str, agent: str, now: int, where: str) -> list[str]:
    """Return the line of a session, by COLUMNS; `short` is its short id, `agent` a name, `where`
    its folder."""
    row, live, files = listed.row, listed.live, listed.files
    state = "unread" if row.is_unread else ""
    if row.unseen and listed.outcome not in (None, "completed"):
        state = listed.outcome
    if row.moved:
        state = f"on {on_one_line(destination(row))}" if destination(row) else "arriving"
    if live is not None:
        state = live.state if live.clients < 2 else f"{live.state} ({live.clients})"
    if row.queued:
        what = "paused" if row.held else "queued"
        if row.held == ELSEWHERE:
            what = "planned elsewhere"
        if row.held_until is not None:
            what = f"{'waits' if row.queued == 1 else 'wait'} until {moment(row.held_until)}"
        state = f"{state}, {row.queued} {what}".removeprefix(", ")
    return [
        ("★ " if listed.pinned else "")
        + ("(archived) " if row.archived else "")
        + titled(row.title),
        on_one_line(short),
        state,
        short_age(row.updated_at, now),
        where,
        agent,
        f"{row.message_count:,}",
        f"{row.ruled:,}" if row.ruled else "",
        "" if files is None else "kept" if files.state == "whole" else files.state,
    ]


class Table:
    """The lines of a list; each is one string, because there may be 100,000.

    With `is_right`, all columns but the first are aligned to the right.
    """

    def __init__(self, columns: Sequence[Column] = COLUMNS, *, is_right: bool = False) -> None:
        self.lines: list[str] = []
        self._columns = columns
        self._is_right = is_right

    def add(self, *rows: Sequence[str]) -> None:
        """Add lines, each given by its cells."""
        self.lines += map("\0".join, rows)  # no cell contains it

    def print(self, above: Sequence[str] = (), below: Sequence[str] = ()) -> None:
        """Print headings and lines, each cell as wide as its column; on a terminal cut to fit, with
        a heading `above` each group of lines that has the same, and words `below` each line."""
        headings = [column.heading for column in self._columns]
        if not sys.stdout.isatty():
            most = [0 for _ in headings]
            for start in range(0, len(self.lines), bounds.LINES_AT_ONCE):
                lines = self.lines[start : start + bounds.LINES_AT_ONCE]
                most = [*map(max, most, _widths([*map(_split, lines)]))]
            shown = [n for n, it in enumerate(headings) if it not in IF_ANY or most[n]]
            widths = [max(most[n], len(headings[n])) for n in shown]
            sides = ["-", *("" if self._is_right else "-" for _ in shown[1:])]
            aligned = GAP.join(
                f"%{side}{width}s" for side, width in zip(sides, widths, strict=True)
            )
            pick = itemgetter(*shown)
            texts = (
                aligned % pick(_split(line))  # a third of the time
                if line.isascii()
                else GAP.join(_pad(pick(_split(line)), widths, is_right=self._is_right))
                for line in chain(["\0".join(headings)], self.lines)
            )
            printed = map("{}\n".format, map(str.rstrip, texts))
            while block := "".join(islice(printed, bounds.LINES_AT_ONCE)):
                sys.stdout.write(block)  # Python may be told to write each at once
            return
        from rich.text import Text

        terminal = console()
        rows = fit_columns([*map(_split, self.lines)], terminal.width, self._columns)
        columns = [self._columns[headings.index(heading)] for heading in rows[0]]
        widths, before = _widths(rows), ""
        for number, row in enumerate(rows):
            padded = _pad(row, widths, is_right=self._is_right)
            drawn = Text(GAP.join(padded), "faint")
            if number:
                pieces = [
                    it for cell in zip(padded, columns, strict=True) for it in style_cell(*cell)
                ]
                drawn = Text.assemble(*pieces)
                if above and above[number - 1] != before:
                    before = above[number - 1]
                    terminal.print(Text(before, "faint"))
            terminal.print(drawn, no_wrap=True, overflow="crop")
            if number and below and (words := on_one_line(below[number - 1])):
                words = cut(f"  {words}", terminal.width - 1)
                terminal.print(Text(words, "faint"), no_wrap=True, overflow="crop")


_split: Final = methodcaller("split", "\0")


def style_cell(cell: str, column: Column) -> Iterator[tuple[str, str]]:
    """Yield a cell in its style; waiting sessions stand out without colours, too."""
    waits = column.heading == "STATE" and cell.startswith("waiting")
    text = cell.rstrip()
    yield text, "waits" if waits else column.style
    yield " " * (len(cell) - len(text)) + GAP, ""


def fit_columns(
    rows: Sequence[Sequence[str]], width: int, columns: Sequence[Column] = COLUMNS
) -> list[list[str]]:
    """Return headings and rows with the columns that fit into `width`, cells cut to fit."""
    shown = [
        place
        for place, column in enumerate(columns)
        if width >= column.from_width
        and (column.heading not in IF_ANY or any(row[place] for row in rows))
    ]
    table = [
        [columns[place].heading for place in shown],
        *(
            [cut(row[place], columns[place].most) if place else row[0] for place in shown]
            for row in rows
        ),
    ]
    title, *others = _widths(table)
    room = width - len(GAP) * len(others) - 1
    least = [columns[place].least for place in shown[1:]]
    for _ in range(sum(others) + min(title, WANTED_TITLE) - room):  # too wide: the widest gives
        can = [place for place, wide in enumerate(others) if wide > least[place]]
        if not can:
            break
        others[max(can, key=others.__getitem__)] -= 1
    widths = [max(LEAST_TITLE, room - sum(others)), *others]
    return [[cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in table]


def _pad(row: Sequence[str], widths: Sequence[int], *, is_right: bool) -> list[str]:
    """Return the cells of a row, each as wide as its column."""
    if not "".join(row).isascii():  # its letters are not all as wide
        widths = [width - cell_width(it) + len(it) for it, width in zip(row, widths, strict=True)]
    padded = [*map(str.ljust, row, widths)]
    return [padded[0], *map(str.rjust, row[1:], widths[1:])] if is_right else padded


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    columns = zip(*rows, strict=True)
    return [max(map(len if "".join(it).isascii() else cell_width, it)) for it in columns]


BELOW: Final = "└ "
"""Before the title of a session with turns that were left in the one above it."""


def under_origins(places: Sequence[tuple[str, str]]) -> list[tuple[int, bool]]:
    """Return the order in which to show sessions, given their ids and what they are tails of: each
    tail, marked with True, under that session, if that is shown."""
    tails: dict[str, list[int]] = {}
    for number, (_, origin) in enumerate(places):
        if origin:
            tails.setdefault(origin, []).append(number)
    if not tails:
        return [*zip(range(len(places)), repeat(False))]
    ids = {session_id for session_id, _ in places}
    order: list[tuple[int, bool]] = []
    for number, (session_id, origin) in enumerate(places):
        if origin not in ids:
            order += [(number, False), *((tail, True) for tail in tails.get(session_id, ()))]
    return order
