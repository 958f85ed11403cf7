"""`acphold export`: sessions as Markdown, lines of JSON, or pages of HTML."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TextIO

from msgspec import Struct

from acphold.cli.command_line import Exit, Parser, UsageError, a_moment, add_journal
from acphold.cli.journals import entries, opened, sessions
from acphold.cli.terminal_text import counted, folder, visible, visible_json
from acphold.exports import destination
from acphold.exports.destination import FORMS, Form, form_of
from acphold.exports.session_head import INDEX, Head
from acphold.journal import Journal, ListFilter, SessionRow


def parser() -> Parser:
    """The arguments of `export`."""
    made = Parser(export, "export", "[OPTIONS] [ID...]")
    made.add_argument(
        "session_ids", metavar="ID", nargs="*", help="a session's id, or its beginning"
    )
    made.add_argument("--all", dest="everything", action="store_true", help="every session")
    made.add_argument("--agent", metavar="NAME", help="with --all: only those of this agent")
    made.add_argument("--cwd", metavar="DIR", help="with --all: only those of this folder")
    made.add_argument(
        "--since",
        metavar="WHEN",
        type=a_moment,
        help="with --all: only those active since: 2026-01-31, or 12h, 30d, 8w ago",
    )
    made.add_argument(
        "--format",
        dest="form",
        metavar="FORMAT",
        choices=FORMS,
        help=f"{', '.join(FORMS)} [default: as PATH is called, else markdown]",
    )
    made.add_argument(
        "--output",
        "-o",
        metavar="PATH",
        help="a file; or a folder, for a file of each session [default: stdout]",
    )
    add_journal(made)
    return made


class _Wanted(Struct, frozen=True):
    """Which sessions: those named, or all that fit the filter and were active since then."""

    session_ids: tuple[str, ...]
    filter: ListFilter
    since: float


def export(
    *,
    session_ids: list[str],
    everything: bool,
    agent: str | None,
    cwd: str | None,
    since: float | None,
    form: str | None,
    output: str | None,
    journal: str | None,
) -> int:
    """Write sessions as Markdown, JSON lines or HTML pages.

    Each ID may be any prefix of a session's id that fits only one. The lines of JSON have all
    that the journal has, and `acphold import --from FOLDER` takes them in again. A page of HTML is
    one file that needs nothing else; several, and an index of them, go into a folder.
    """
    if everything == bool(session_ids):
        raise UsageError("name the sessions, or say --all; see `acphold export --help`")
    if not everything and (agent, cwd, since) != (None, None, None):
        raise UsageError("--agent, --cwd and --since go with --all")
    several = everything or len(session_ids) > 1
    place = _place(output, form, several=several)
    wanted = _Wanted(
        tuple(session_ids),
        ListFilter(
            agent=agent,
            cwd=None if cwd is None else os.path.abspath(os.path.expanduser(cwd)),
            archived="include",
        ),
        since or 0.0,
    )
    asyncio.run(_export(journal, wanted, place))
    return Exit.OK


class _Place(Struct, frozen=True):
    """Where to: a form, and a file, a folder, or with no path stdout."""

    form: Form
    path: str | None
    is_folder: bool


def _place(output: str | None, form: str | None, *, several: bool) -> _Place:
    path = None if output in (None, "-") else os.path.expanduser(output or "")
    told = form_of(path) if path else None
    is_folder = path is not None and (
        os.path.isdir(path) or path.endswith(os.sep) or (several and told is None)
    )
    chosen = FORMS[form] if form else told or FORMS["markdown"]
    if several and chosen.has_pages and not is_folder:
        raise UsageError("several pages need a folder: --output FOLDER/")
    return _Place(chosen, path, is_folder)


# -- writing ------------------------------------------------------------------------------------


async def _export(location: str | None, wanted: _Wanted, place: _Place) -> None:
    async with opened(location) as journal:
        rows = await _rows(journal, wanted)
        if place.path is None:
            for row in rows:
                await _write(journal, row, place.form, sys.stdout)
        elif place.is_folder:
            await _write_folder(journal, rows, place.form, destination.folder(place.path))
        else:
            with destination.replaced(place.path) as file:
                for row in rows:
                    await _write(journal, row, place.form, file)
    if place.path is not None or not rows:
        where = f" to {folder(place.path)}" if place.path and rows else ""
        print(visible(f"Wrote {counted(len(rows), 'session')}{where}."), file=sys.stderr)


async def _rows(journal: Journal, wanted: _Wanted) -> list[SessionRow]:
    if wanted.session_ids:
        named = [await journal.resolve(given) for given in wanted.session_ids]
        return list({row.session_id: row for row in named}.values())
    found = []
    async for row in sessions(journal, wanted.filter):
        if row.updated_at < wanted.since * 1000:
            break
        found.append(row)
    return found


async def _write_folder(journal: Journal, rows: list[SessionRow], form: Form, path: str) -> None:
    heads = []
    for row in rows:
        head = Head.of(row)
        with destination.replaced(os.path.join(path, head.file_name + form.suffix)) as file:
            heads.append(await _write(journal, row, form, file))
    if len(heads) > 1 and (text := form.index(heads)):
        with destination.replaced(os.path.join(path, INDEX + form.suffix)) as file:
            file.write(text)


async def _write(journal: Journal, row: SessionRow, form: Form, file: TextIO) -> Head:
    head = Head.of(row, await journal.downstream(row.session_id))
    # Markdown and pages have nothing in them that a terminal obeys.
    tame = visible_json if form.name == "jsonl" and file.isatty() else str
    async for text in form.writer()(head, entries(journal, row.session_id)):
        file.write(tame(text))
    return head
