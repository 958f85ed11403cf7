"""`holdfast list`: the sessions of the journal, newest first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct

from holdfast.cli.journals import exists, journal_option, opened
from holdfast.cli.look import folder, on_one_line, shortened
from holdfast.cli.when import age, iso
from holdfast.errors import AmbiguousIdError
from holdfast.journal import Journal, ListFilter, ListKey, SessionRow
from holdfast.journal.sessions import now_ms

if TYPE_CHECKING:
    from rich.table import Table

PAGE = 200
"""Sessions asked of the journal at once."""

TERMINAL_LIMIT = 30
"""Sessions shown on a terminal that was not told how many: the newest are what is looked for."""

SHORT_ID = 8
"""Characters of an id to begin with; more where that is not enough."""

FOLDER_WIDTH = 40
"""Characters of a folder in the table of a terminal."""

HEADINGS = ("ID", "UPDATED", "MESSAGES", "AGENT", "FOLDER", "TITLE")


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
        click.echo(_no_sessions(wanted), err=True)
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
        lines = [Line.of(row, await short_id(journal, row.session_id)) for row in shown]
    if not lines:
        click.echo(_no_sessions(wanted), err=True)
    elif sys.stdout.isatty():
        _print_table(lines)
    else:
        _print_plain(lines)
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


class Line(Struct, frozen=True):
    """One session as the table shows it."""

    id: str
    updated: str
    messages: str
    agent: str
    folder: str
    title: str

    @classmethod
    def of(cls, row: SessionRow, short: str) -> Line:
        """The line for a session of the journal."""
        return cls(
            on_one_line(short),
            age(row.updated_at, now_ms()),
            str(row.message_count),
            on_one_line(row.agent),
            folder(row.cwd),
            on_one_line(row.title or ""),
        )


def _print_table(lines: list[Line]) -> None:
    from holdfast.cli.look import console

    console().print(_table(lines))


def _table(lines: list[Line]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="faint", pad_edge=False, padding=(0, 2, 0, 0))
    for heading, style in zip(
        HEADINGS, ("id", "", "faint", "agent", "faint", "heading"), strict=True
    ):
        table.add_column(
            heading,
            style=style,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if heading == "MESSAGES" else "left",
            # When the terminal is narrow, these give way first.
            ratio={"FOLDER": 1, "TITLE": 2}.get(heading),
        )
    for line in lines:
        table.add_row(
            line.id,
            line.updated,
            line.messages,
            line.agent,
            shortened(line.folder, FOLDER_WIDTH),
            line.title or "(no title)",
        )
    return table


def _print_plain(lines: list[Line]) -> None:
    """Columns with two spaces between them; the title is last, so its length moves nothing."""
    from rich.cells import cell_len

    rows = [
        HEADINGS,
        *(
            (line.id, line.updated, line.messages, line.agent, line.folder, line.title)
            for line in lines
        ),
    ]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = [
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


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
        return f"No sessions {which}. `holdfast list` shows those of all folders and agents."
    return (
        "No sessions yet. They begin when your editor starts its agent with "
        "`holdfast wrap -- CMD`; `holdfast demo` shows how that goes."
    )
