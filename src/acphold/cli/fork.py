"""`acphold fork`: copies a conversation, up to some turn, into a session of its own."""

from __future__ import annotations

import asyncio
import sys

from acphold.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    add_cwd,
    add_journal,
    require_folder,
)
from acphold.cli.journals import opened
from acphold.cli.list import short_id
from acphold.cli.places import place
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import counted, on_one_line, visible
from acphold.hub.forks import Forked
from acphold.hub.forks import fork as forked
from acphold.hub.kept_files import KeptThere, fork_with_files
from acphold.journal import Journal, SessionRow
from acphold.reading.local_reader import LocalReader


def parser() -> Parser:
    """The arguments of `fork`."""
    made = Parser(fork, "fork", "[OPTIONS] [ID]")
    made.add_argument(
        "session_id",
        metavar="ID",
        nargs="?",
        help="the session's id, or a prefix of it; with @SEQ, one entry",
    )
    made.add_argument(
        "--files",
        metavar="FOLDER",
        help="experimental: put the files of that moment into this new folder, for the new session",
    )
    add_cwd(made, "the folder of the new session [default: the original's]")
    add_journal(made)
    return made


def fork(*, session_id: str | None, files: str | None, cwd: str | None, journal: str | None) -> int:
    """Copy a conversation into a new session of the same agent.

    The new session is listed beside the first one, and both continue independently. ID@SEQ, as
    printed by `search`, copies the conversation up to and including the turn with that entry. A
    running turn is not copied, and goes on. Without ID you choose from a list.

    An agent that can fork its own sessions does so when the new one is first opened; any other is
    given the conversation with your next prompt. Files are not changed: they stay as the first
    session left them. --cwd puts the copy into another folder of this machine, for example when the
    first session's folder is on another machine.

    Experimental: --files FOLDER lays out the files as they were at the end of that turn, changes by
    commands included, in a new work tree of the repository; the new session is in it. That needs
    `snapshots = true` in the settings when the turn ran. Ignored files, such as node_modules, and
    untracked ones that may hold a secret are not in it.

    In a pipe or a file only the id of the new session is printed; the rest goes to stderr.
    """
    require_folder(cwd)
    if files is not None and cwd is not None:
        raise UsageError("--files and --cwd are two folders; name one")
    asyncio.run(_fork(journal, session_id, files, cwd))
    return Exit.OK


async def _fork(location: str | None, text: str | None, files: str | None, cwd: str | None) -> None:
    async with opened(location) as journal:
        found = await place(LocalReader(journal), text, "forks it")
        if files is None:
            made = await forked(journal, found.row, at=found.seq, cwd=cwd)
            what = await told(journal, found.row, made)
        else:
            there, made = await fork_with_files(journal, found.row, files, at=found.seq)
            what = await told(journal, found.row, made) + "\n" + _told_files(there, made)
        print(visible(made.session_id))
        print(what, file=sys.stdout if sys.stdout.isatty() else sys.stderr)


def _told_files(there: KeptThere, made: Forked) -> str:
    """Describe the folder that was made, and what is not in it."""
    lines = [f"its files are in {there.cwd}"]
    if there.laid.why_plain:
        lines.append(f"a plain folder: {there.laid.why_plain}")
    else:
        lines.append(f"`git worktree remove {there.laid.folder}` removes it")
    missing = "ignored files"
    if count := there.snapshot.left_out_count:
        names = ", ".join(path for path, _ in there.snapshot.left_out[:3])
        missing += f" and {counted(count, 'file')} left out ({names}{', …' if count > 3 else ''})"
    lines.append(f"not in it: {missing}")
    if there.snapshot.state != "whole":  # "later"
        lines.append("acphold ended in that turn: these files are from the start of the next one")
    return "\n".join(f"  {visible(on_one_line(line))}" for line in lines)


async def told(journal: Journal, source: SessionRow, made: Forked) -> str:
    """Return the description of a copy, printed below its id."""
    row = await journal.session(made.session_id)
    what = f"{counted(made.turns, 'turn')} of {on_one_line(source.title or source.session_id)}"
    if made.runs:
        what += "; its last turn is still running and was left out"
    elif made.left_out:
        what += f"; {counted(made.left_out, 'later turn')} left out"
    short = await short_id(journal, made.session_id)
    return visible(
        f"  {what}\n  in the list of {on_one_line(agent_name(row.agent))}; "
        f"`acphold show {short}` shows it"
    )
