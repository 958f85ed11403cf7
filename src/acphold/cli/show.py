"""`acphold show`: the transcript of a session."""

from __future__ import annotations

import asyncio
import sys

import click

from acphold.cli.journals import entries, journal_option, opened
from acphold.cli.look import console, counted, folder, on_one_line
from acphold.cli.when import age, iso, local
from acphold.journal import Entry, Journal, SessionRow
from acphold.journal.sessions import now_ms


@click.command(name="show")
@click.argument("session_id", metavar="ID")
@click.option("--full", is_flag=True, help="All of what tools produced, however long.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each journal entry.")
@journal_option
def command(session_id: str, full: bool, as_json: bool, journal: str) -> None:
    """Show the transcript of a session.

    ID may be any prefix of a session's id that fits only one.

    With --json each line is an object with seq, kind, at (ISO 8601, UTC) and update, the bytes
    that were journalled: an ACP update, the content blocks of a prompt, or how a turn ended.
    """
    asyncio.run(_show(journal, session_id, full=full, as_json=as_json))


async def _show(location: str, session_id: str, *, full: bool, as_json: bool) -> None:
    async with opened(location) as journal:
        row = await journal.resolve(session_id)
        if as_json:
            await _print_json(journal, row)
        else:
            await _print_transcript(journal, row, full=full)


async def _print_json(journal: Journal, row: SessionRow) -> None:
    async for entry in entries(journal, row.session_id):
        sys.stdout.buffer.write(json_line(entry))


def json_line(entry: Entry) -> bytes:
    """An entry as `--json` has it. The update keeps its bytes, but for what is not UTF-8."""
    update = entry.raw.decode(errors="replace").encode()
    return b'{"seq":%d,"kind":"%b","at":"%b","update":%b}\n' % (
        entry.seq,
        entry.kind.encode(),
        iso(entry.at).encode(),
        update,
    )


async def _print_transcript(journal: Journal, row: SessionRow, *, full: bool) -> None:
    from acphold.cli.layout import Gutter, Plain
    from acphold.cli.painting import painted
    from acphold.cli.transcript import scenes

    layout = Gutter(console()) if sys.stdout.isatty() else Plain(sys.stdout)
    layout.head(_title(row), _facts(row))
    told = False
    async for scene in scenes(entries(journal, row.session_id)):
        layout.put(painted(scene, full=full))
        told = True
    if not told:
        layout.head("", ["Nothing was said in this session."])


def _title(row: SessionRow) -> str:
    return on_one_line(row.title or "(no title)")


def _facts(row: SessionRow) -> list[str]:
    dates = f"begun {local(row.created_at)}, last active {age(row.updated_at, now_ms())}"
    return [
        f"session {on_one_line(row.session_id)}",
        f"{on_one_line(row.agent)} in {folder(row.cwd)}",
        f"{counted(row.message_count, 'message')}, {dates}",
    ]
