"""`acphold delete`: sessions gone for good."""

from __future__ import annotations

import asyncio
import sys

import click

from acphold.cli.exits import Exit
from acphold.cli.journals import journal_option, opened
from acphold.cli.look import counted, on_one_line
from acphold.cli.when import age
from acphold.journal import Journal, SessionRow
from acphold.journal.sessions import now_ms


@click.command(name="delete")
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", "-y", "sure", is_flag=True, help="Do not ask.")
@journal_option
@click.pass_context
def command(ctx: click.Context, session_ids: tuple[str, ...], sure: bool, journal: str) -> None:
    """Delete sessions for good.

    Each ID may be any prefix of a session's id that fits only one; if one of them fits none or
    several, nothing is deleted. Gone are the conversation and its place in lists and searches.
    What the agent keeps by itself stays where it is, but is not listed by acphold again.
    """
    if not sure and not sys.stdin.isatty():
        ctx.fail("there is no terminal to ask on; say --yes to delete")
    found = asyncio.run(_found(journal, session_ids))
    # Asked outside of any event loop, which would keep a Ctrl-C to itself until it is too late.
    if not sure and not click.confirm(f"Delete {counted(len(found), 'session')}?", err=True):
        click.echo("Nothing was deleted.", err=True)
        ctx.exit(Exit.ERROR)
    asyncio.run(_delete(journal, found))
    click.echo(f"Deleted {counted(len(found), 'session')}.")


async def _found(location: str, session_ids: tuple[str, ...]) -> list[str]:
    """The ids that are meant, each of them shown to the person."""
    async with opened(location) as journal:
        rows = {(row := await journal.resolve(given)).session_id: row for given in session_ids}
        for row in rows.values():
            click.echo(await _described(journal, row), err=True)
    return list(rows)


async def _delete(location: str, session_ids: list[str]) -> None:
    async with opened(location) as journal:
        for session_id in session_ids:
            await journal.delete(session_id)


async def _described(journal: Journal, row: SessionRow) -> str:
    now = now_ms()
    title = on_one_line(row.title or "(no title)")
    messages = counted(row.message_count, "message")
    line = f"{on_one_line(row.session_id)}  {title}  ({messages}, {age(row.updated_at, now)})"
    holder = await journal.holder(row.session_id)
    if holder.expires_at > now:
        line += f"\n  it may be open still, in {on_one_line(holder.owner)}"
    return line
