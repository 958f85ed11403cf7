"""`acphold list`: the sessions of the journal, newest first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence

import click
import msgspec

from acphold.cli.journals import exists, journal_option, opened
from acphold.cli.look import console, cut, folder, on_one_line, shortened
from acphold.cli.when import age, iso
from acphold.errors import AmbiguousIdError
from acphold.journal import Journal, ListFilter, ListKey, SessionRow
from acphold.journal.location import journal_path
from acphold.journal.sessions import now_ms

PAGE = 200
"""Sessions asked of the journal at once."""

TERMINAL_LIMIT = 30
"""Sessions shown on a terminal that was not told how many: the newest are what is looked for."""

SHORT_ID = 8
"""Characters of an id to begin with; more where that is not enough."""

HEADINGS = ("ID", "UPDATED", "MESSAGES", "AGENT", "FOLDER", "TITLE")
STYLES = ("id", "", "faint", "agent", "faint", "heading")

GAP = 2
"""Columns between two columns of the table."""

LEAST = 12
"""Columns that a folder and a title keep on a narrow terminal."""


BEGIN = (
    "Sessions begin when your editor starts its agent with `acphold wrap -- CMD`; "
    "`acphold demo` shows how that goes."
)


@click.command(name="list")
@click.option("--cwd", metavar="DIR", help="Only sessions of this working directory.")
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"At most so many.  [default: {TERMINAL_LIMIT} on a terminal, else all]",
)
@click.option("--all", "unprompted", is_flag=True, help="Also those that were never prompted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@journal_option
def command(
    cwd: str | None,
    agent: str | None,
    limit: int | None,
    unprompted: bool,
    as_json: bool,
    journal: str,
) -> None:
    """List the sessions of the journal, newest first.

    With --json each line is an object with sessionId, agent, cwd, title, createdAt, updatedAt
    (ISO 8601, UTC) and messageCount.
    """
    wanted = ListFilter(
        agent=agent,
        cwd=None if cwd is None else os.path.abspath(os.path.expanduser(cwd)),
        include_unprompted=unprompted,
    )
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = TERMINAL_LIMIT
    if not exists(journal):
        click.echo(f"There is no journal yet at {journal_path(journal)}. {BEGIN}", err=True)
        return
    asyncio.run(_list(journal, wanted, limit, as_json=as_json))


async def _list(location: str, wanted: ListFilter, limit: int | None, *, as_json: bool) -> None:
    async with opened(location) as journal:
        if as_json:
            async for row in _rows(journal, wanted, limit):
                sys.stdout.write(_json(row))
            return
        # One more than is shown tells whether there are more.
        rows = [row async for row in _rows(journal, wanted, None if limit is None else limit + 1)]
        shown = rows[:limit]
        now = now_ms()
        lines = [cells(row, await short_id(journal, row.session_id), now) for row in shown]
    if lines:
        _print_table(lines)
    else:
        click.echo(_no_sessions(wanted), err=True)
    if limit is not None and len(rows) > limit:
        click.echo(f"There are more; `--limit {limit * 4}` shows them.", err=True)


async def _rows(
    journal: Journal, wanted: ListFilter, limit: int | None
) -> AsyncIterator[SessionRow]:
    after: ListKey | None = None
    left = limit
    while left is None or left > 0:
        rows = await journal.page(wanted, after, PAGE if left is None else min(PAGE, left))
        for row in rows:
            yield row
        if not rows:
            return
        after = rows[-1].key
        left = None if left is None else left - len(rows)


async def short_id(journal: Journal, session_id: str) -> str:
    """The shortest beginning of an id, of SHORT_ID characters at least, that fits no other."""
    short, fitting = SHORT_ID, len(session_id)
    if short >= fitting or await _fits_only(journal, session_id[:short], session_id):
        return session_id[:short]
    while short + 1 < fitting:
        middle = (short + fitting) // 2
        if await _fits_only(journal, session_id[:middle], session_id):
            fitting = middle
        else:
            short = middle
    return session_id[:fitting]


async def _fits_only(journal: Journal, prefix: str, session_id: str) -> bool:
    try:
        return (await journal.resolve(prefix)).session_id == session_id
    except AmbiguousIdError:
        return False


def cells(row: SessionRow, short: str, now: int) -> tuple[str, ...]:
    """The line of a session, by HEADINGS."""
    return (
        on_one_line(short),
        age(row.updated_at, now),
        str(row.message_count),
        on_one_line(row.agent),
        folder(row.cwd),
        on_one_line(row.title or "(no title)"),
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """In colour and fitted on a terminal; else all of it, aligned."""
    if not sys.stdout.isatty():
        for line in aligned([HEADINGS, *rows]):
            print("  ".join(line).rstrip())
        return
    from rich.text import Text

    terminal = console()
    heading, *lines = aligned(fitted([HEADINGS, *rows], terminal.width))
    terminal.print(Text("  ".join(heading), "faint"), no_wrap=True, overflow="crop")
    for line in lines:
        pieces = [(f"{cell}  ", style) for cell, style in zip(line, STYLES, strict=True)]
        terminal.print(Text.assemble(*pieces), no_wrap=True, overflow="crop")


def fitted(rows: Sequence[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """The rows with folders, and then titles, shortened as far as `width` columns ask for."""
    widths = _widths(rows)
    over = sum(widths) + GAP * len(widths) - width
    fitted_rows = [*rows]
    for heading, shorten in (("FOLDER", shortened), ("TITLE", cut)):
        column = HEADINGS.index(heading)
        room = min(widths[column], max(LEAST, widths[column] - max(0, over)))
        over -= widths[column] - room
        fitted_rows = [
            (*row[:column], shorten(row[column], room), *row[column + 1 :]) for row in fitted_rows
        ]
    return fitted_rows


def aligned(rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The rows with every cell as wide as its column."""
    from rich.cells import cell_len

    widths = _widths(rows)
    return [
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in rows
    ]


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _json(row: SessionRow) -> str:
    facts = {
        "sessionId": row.session_id,
        "agent": row.agent,
        "cwd": row.cwd,
        "title": row.title,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "messageCount": row.message_count,
    }
    return msgspec.json.encode(facts).decode() + "\n"


def _no_sessions(wanted: ListFilter) -> str:
    filters = [
        f"in {wanted.cwd}" if wanted.cwd is not None else "",
        f"of agent {wanted.agent!r}" if wanted.agent is not None else "",
    ]
    which = " ".join(filter(None, filters))
    if which:
        return f"No sessions {which}. `acphold list` shows those of all folders and agents."
    return f"No sessions yet. {BEGIN}"
