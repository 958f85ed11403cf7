"""`acphold prune`: deletes old sessions permanently, when a person asks for it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from acphold.errors import JournalUnavailableError, UnknownSessionError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    a_moment,
    above_zero,
    is_confirmed,
)
from acphold.faces.cli.findings import removed_from_disk
from acphold.faces.cli.journals import is_live, opened, sessions
from acphold.faces.cli.settings import agent_keys
from acphold.faces.cli.terminal_text import age, counted, on_one_line
from acphold.record.history.entries import now_ms
from acphold.record.journal import ListFilter, SessionRow


def parser() -> Parser:
    """The arguments of `prune`."""
    made = Parser(prune, "prune")
    made.add_value(
        "--older-than",
        "WHEN",
        "sessions last active before 2026-01-31, or 12h, 30d, 8w ago",
        type=a_moment,
    )
    made.add_value("--keep", "N", "keep the newest N of the selected sessions", type=above_zero)
    made.add_value("--agent", "NAME", "only sessions of this agent")
    made.add_cwd()
    made.add_flag("--archived", "include archived sessions")
    made.add_flag("--dry-run", "only print what would be deleted")
    made.add_sure()
    made.add_journal()
    return made


def prune(
    *,
    older_than: int | None,
    keep: int | None,
    agent: str | None,
    cwd: str | None,
    archived: bool,
    dry_run: bool,
    sure: bool,
    journal: str | None,
) -> int:
    """Delete old sessions permanently.

    Nothing is ever pruned automatically. With both --older-than and --keep, a session is deleted if
    it is old and not among the newest. Open sessions are kept, and so are sessions that are used
    while you answer. Pruned sessions are deleted as by `delete`: neither `import` nor the agent's
    own list brings them back.
    """
    if older_than is None and keep is None:
        raise UsageError("choose sessions with --older-than 90d, --keep 500, or both")
    is_asked = not (sure or dry_run)
    if is_asked and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on; use --yes to delete, or --dry-run")
    filter = ListFilter(
        agents=agent_keys(agent),
        cwd=cwd,
        # Sessions that were never prompted may be old, but never count among the newest N.
        include_unprompted=older_than is not None,
        archived="include" if archived else "exclude",
    )
    before = now_ms() if older_than is None else min(now_ms(), older_than)
    found = asyncio.run(_found(journal, filter, before, keep or 0))
    _show(found, all_of_them=dry_run)
    if not found or dry_run:
        return Exit.OK
    if is_asked and not is_confirmed(f"Delete {counted(len(found), 'session')}?"):
        print("Nothing was deleted.", file=sys.stderr)
        return Exit.ERROR
    gone = asyncio.run(_prune(journal, found, before))
    print(f"Deleted {counted(gone, 'session')}.")
    if stayed := len(found) - gone:
        print(f"Kept {counted(stayed, 'session')}: open, or used in the meantime.")
    return Exit.OK


async def _found(
    location: str | None, filter: ListFilter, before: int, keep: int
) -> list[SessionRow]:
    """Return the sessions to delete, the newest first; `before` is in ms since the epoch."""
    found = []
    async with opened(location) as journal:
        spared = 0
        async for row in sessions(journal, filter):
            if row.prompted and spared < keep:
                spared += 1
            elif row.updated_at < before:
                with suppress(UnknownSessionError):  # it was deleted meanwhile
                    if not await is_live(journal, row.session_id):
                        found.append(row)
    return found


async def _prune(location: str | None, found: list[SessionRow], before: int) -> int:
    async with opened(location) as journal:
        try:
            ids = await journal.delete(*(row.session_id for row in found), idle_since=before)
        except JournalUnavailableError as error:
            # Some were deleted, some not. Reading works even on a full disk, and shows which.
            everything = ListFilter(include_unprompted=True, archived="include")
            left = {row.session_id async for row in sessions(journal, everything)}
            gone = sum(row.session_id not in left for row in found)
            raise JournalUnavailableError(
                f"{error}; {gone} of {counted(len(found), 'session')} were deleted before that; "
                "the next turn, or `acphold journal compact`, overwrites their remaining data"
            ) from error
        await removed_from_disk(journal)
        return len(ids)


def _show(found: list[SessionRow], *, all_of_them: bool) -> None:
    """Name the sessions to delete: on stderr before a question, on stdout for a dry run."""
    stream = sys.stdout if all_of_them else sys.stderr
    now = now_ms()
    for row in found if all_of_them else found[: bounds.PRUNED_SESSIONS]:
        title = on_one_line(row.title or "(no title)")
        facts = f"{counted(row.message_count, 'message')}, {age(row.updated_at, now)}"
        print(f"{title}\n  {on_one_line(row.session_id)}  {facts}", file=stream)
    if not all_of_them and len(found) > bounds.PRUNED_SESSIONS:
        print(f"and {counted(len(found) - bounds.PRUNED_SESSIONS, 'more session')}", file=stream)
    if not found:
        print("There is nothing to delete.", file=stream)
    elif all_of_them:
        print(f"{counted(len(found), 'session')} would be deleted.", file=stream)
