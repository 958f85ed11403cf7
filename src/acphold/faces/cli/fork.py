"""`acphold fork`: copies a conversation, up to some turn, into a session of its own."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import suppress
from typing import NamedTuple

from acp_wire.surroundings import Surroundings
from acphold.errors import AmbiguousIdError, UnknownSessionError
from acphold.faces.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    is_confirmed,
    require_folder,
)
from acphold.faces.cli.journals import opened
from acphold.faces.cli.list import short_id
from acphold.faces.cli.places import place
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import counted, on_one_line, visible
from acphold.live.hub.forks import Forked, fork as forked
from acphold.live.hub.kept_files import KeptThere, fork_with_files
from acphold.live.reading.local_reader import LocalReader
from acphold.record.journal import Journal, SessionRow


def parser() -> Parser:
    """The arguments of `fork`."""
    made = Parser(fork, "fork", "[OPTIONS] [ID]")
    made.add_value(
        "session_id", "ID", "the session's id, or a prefix of it; with @SEQ, one entry", nargs="?"
    )
    made.add_value(
        "--files",
        "FOLDER",
        "also copy the files as they were then, into this new folder, or one beside the project",
        nargs="?",
        const=BESIDE,
    )
    made.add_flag(
        "--before", "stop before the turn with that entry; without SEQ, before the last turn"
    )
    made.add_flag(
        "--include", "with --files: also copy the ignored files that `.worktreeinclude` names"
    )
    made.add_cwd("the folder of the new session [default: the original's]")
    made.add_journal()
    return made


BESIDE = ""
"""The value of `--files` without a folder."""


class WantedFork(NamedTuple):
    """The options of a fork; `files` is the folder, BESIDE for one beside the project, or None."""

    files: str | None = None
    before: bool = False
    include: bool = False
    cwd: str | None = None


def fork(
    *,
    session_id: str | None,
    files: str | None,
    before: bool,
    include: bool,
    cwd: str | None,
    journal: str | None,
) -> int:
    """Copy a conversation into a new session of the same agent.

    The new session is listed beside the first one, and both continue independently. ID@SEQ, as
    printed by `search`, copies the conversation up to and including the turn with that entry, with
    --before up to the turn before it. A running turn is not copied and continues. Without ID you
    choose from a list.

    An agent that can fork its own sessions does so when the new one is first opened; any other
    agent gets the conversation with your next prompt. Files are not changed: they stay as the first
    session left them. --cwd puts the copy into another folder of this machine, for example when the
    first session's folder is on another machine.

    --files also copies the files as they were at the end of that turn, or with --before at its
    beginning, including changes made by commands. They go into a new work tree of the repository,
    beside the project or in FOLDER, and the new session works there. This needs a git repository,
    whose files are kept unless the settings have `snapshots = false`. Ignored files, such as
    node_modules, and untracked files that may contain a secret are not copied; --include copies
    those that the project's `.worktreeinclude` names, as they are now. This is neither a backup nor
    an undo: your own files are not changed.

    In a pipe or a file it prints only the id of the new session; the rest goes to stderr.
    """
    require_folder(cwd)
    if files is not None and cwd is not None:
        raise UsageError("--files and --cwd each name a folder; use one of them")
    if include and files is None:
        raise UsageError("--include needs --files")
    asyncio.run(_fork(journal, session_id, WantedFork(files, before, include, cwd)))
    return Exit.OK


def fork_of_list(session_id: str, journal: str | None) -> None:
    """Fork a session that was chosen from a list; ask for its files if they were kept."""
    question = "Also copy its files, as they were at its end, into a new folder?"
    has_files = asyncio.run(_has_files(journal, session_id))
    files = BESIDE if has_files and is_confirmed(question) else None
    asyncio.run(_fork(journal, session_id, WantedFork(files)))


async def _has_files(location: str | None, session_id: str) -> bool:
    async with opened(location) as journal:
        newest = await journal.snapshots.newest([session_id])
    return session_id in newest and newest[session_id].is_kept


async def _fork(location: str | None, text: str | None, wanted: WantedFork) -> None:
    async with opened(location) as journal:
        reader = LocalReader(journal)
        if text is None and wanted.files:
            with suppress(UnknownSessionError, AmbiguousIdError):
                await reader.session(wanted.files.partition("@")[0])
                raise UsageError(
                    f"{wanted.files!r} is a session: put it first, as in `acphold fork "
                    f"{wanted.files} --files`"
                )
        found = await place(reader, text, "forks it")
        if wanted.files is None:
            made = await forked(
                journal, found.row, at=found.seq, before=wanted.before, cwd=wanted.cwd
            )
            about = await description_of(journal, found.row, made)
        else:
            files, made = await fork_with_files(
                journal,
                found.row,
                Surroundings.here(),
                wanted.files or None,
                at=found.seq,
                before=wanted.before,
                include=wanted.include,
            )
            about = await description_of(journal, found.row, made)
            about += "\n" + description_of_files(files)
        print(visible(made.session_id))
        print(about, file=sys.stdout if sys.stdout.isatty() else sys.stderr)


def description_of_files(copied: KeptThere) -> str:
    """Describe the folder that was made, and what is not in it."""
    lines = [f"its files are in {copied.cwd}"]
    if copied.laid.why_plain:
        lines.append(f"a plain folder: {copied.laid.why_plain}")
    else:
        lines.append(f"`git worktree remove {shlex.quote(copied.laid.folder)}` removes it")
    missing = "ignored files"
    if count := copied.snapshot.left_out_count:
        names = ", ".join(path for path, _ in copied.snapshot.left_out[:3])
        missing += f" and {counted(count, 'file')} left out ({names}{', …' if count > 3 else ''})"
    more = copied.included
    if more.count:
        names = ", ".join(more.names) + (", …" if more.count > len(more.names) else "")
        lines.append(f"copied as they are now: {counted(more.count, 'ignored file')} ({names})")
        missing = f"other {missing}"
    if more.missing:
        lines.append(f"not all of .worktreeinclude was copied: {more.missing}")
    hint = "; --include copies those of .worktreeinclude" if more.is_possible else ""
    lines.append(f"not included: {missing}{hint}")
    if copied.snapshot.state == "later":
        lines.append("acphold exited in that turn: these files are from the start of the next one")
    elif copied.snapshot.state == "late":
        lines.append("taken late: they may contain the first changes of the next turn")
    elif copied.snapshot.state == "likely":
        lines.append("likely as they were: the agent had spoken before they were all read")
    return "\n".join(f"  {visible(on_one_line(line))}" for line in lines)


async def description_of(journal: Journal, source: SessionRow, made: Forked) -> str:
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
