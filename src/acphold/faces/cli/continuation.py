"""Continuing a session: which one, where, and how to start its agent again."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_wire.surroundings import is_same_folder
from acphold.errors import AmbiguousIdError, JournalError, NoJournalError, UnknownSessionError
from acphold.faces.cli.command_line import UsageError, require_folder
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import NEWEST, find_session
from acphold.faces.cli.settings import agent_name, agent_names, startable
from acphold.faces.cli.starts import Start, find_start
from acphold.faces.cli.terminal_text import cut, folder, on_one_line, tell, titled
from acphold.journal import stores
from acphold.journal.journal import Journal, is_live
from acphold.journal.moves import refuse_moved
from acphold.journal.rows import ListFilter, RowChange, SessionRow
from acphold.journal_location import default_location
from acphold.live.agents.identity import display_name, far_machine
from acphold.live.reading.local_reader import existing_journal
from acphold.live.reading.processes import let_go, require_answer

if TYPE_CHECKING:
    from acphold.client.endpoints import ProgramEndpoint


async def session_to_continue(session_id: str | None, cwd: str) -> SessionRow | None:
    """Return the session with this id, otherwise the newest of the folder; None if it has none."""
    try:
        async with sessions_here() as (reader, found):
            if session_id:
                return await find_session(reader, session_id, "continues it", by_words="chosen")
            newest = await found.page(ListFilter(cwd=cwd), None, 1)
            return newest[0] if newest else None
    except NoJournalError:
        if session_id:
            raise UnknownSessionError(session_id) from None
        return None


async def find_id(word: str) -> str | None:
    """Return the session whose id is this word or begins with it; None if there is none.

    Raises UnknownSessionError if the newest of this folder is meant, and it has none.
    """
    try:
        async with sessions_here() as (reader, _):
            return (await find_session(reader, word)).session_id
    except (UnknownSessionError, AmbiguousIdError, JournalError):
        if word in NEWEST:
            raise
    return None


def start_of(row: SessionRow) -> Start:
    """Return how to start the agent of a session again: as it was here, otherwise by its name.

    A name means what the settings file says now; if the file has lost it, it means what it was
    then. UsageError if neither is known.
    """
    names = agent_names()
    if (start := find_start(row.start, default_location())) is not None:
        if not start.agent or start.agent in names:
            return start
        return replace(start, agent="", options=(*start.options, "--name", row.agent))
    for name in (agent_name(row.agent), row.agent):
        if name in names:
            return Start(name, ())
    raise UsageError(
        f"this session's agent is {on_one_line(row.agent)}, and acphold does not know how to start "
        f"it; give its command: `acphold chat --resume {on_one_line(row.session_id)} -- CMD`"
    )


def for_question(session_id: str | None, cwd: str | None) -> tuple[SessionRow, Start, str | None]:
    """Return the session that `ask` continues, how to start its agent, and in which folder.

    A live session starts nothing. Raises UsageError, UnknownSessionError, AmbiguousIdError,
    SessionMovedError and SilentDaemonError.
    """

    async def find() -> tuple[SessionRow, str | None]:
        where = cwd or os.getcwd()
        row = await session_to_continue(session_id, where)
        if row is None:
            raise UnknownSessionError("", reason=f"there is no session in {where} to continue")
        refuse_moved(row)
        async with existing_journal() as journal:
            await require_answer(journal, row.session_id)
            if await stays_live(journal, row, cwd):
                return row, None
        return row, await move_to_folder(row, cwd)

    row, where = asyncio.run(find())
    if where is None:
        return row, Start("", ()), None
    start = make_startable(start_of(row), row)
    if sys.stderr.isatty():
        tell(f"Continuing {title_of(row)} with {start_name(start)} …")
    return row, start, start.folder or where


async def stays_live(journal: Journal, row: SessionRow, cwd: str | None) -> bool:
    """Return True if a process has the session; one that nobody uses is closed there first if it is
    to move to another folder, `cwd`. UsageError if it cannot move."""
    if moves := not (cwd is None or is_same_folder(row.cwd, cwd)):
        await let_go(journal, row.session_id)
    if (lives := await is_live(journal, row.session_id)) and moves:
        raise UsageError(
            f"this session is running in {folder(row.cwd)} and cannot move: leave out --cwd to "
            "attach to it, or end it with `acphold agent stop`"
        )
    return lives


def make_startable(start: Start, row: SessionRow | None) -> Start:
    """Return the start; for an agent that is not installed, one that fetches it, after asking. The
    session is for advice."""
    session_id = None if row is None else on_one_line(row.session_id)
    agent, command = startable(start.agent or None, start.command, session_id)
    return start if agent == start.agent else replace(start, agent="", command=command)


def wrap_of(start: Start, cwd: str) -> ProgramEndpoint:
    """Return `acphold wrap` with this start, in front of an agent that works in `cwd`."""
    from acphold.client.endpoints import ProgramEndpoint, ProgramStart  # late: few start one

    command, where = start.command_line(stores.journal_name()), start.folder or cwd
    called = start.agent or display_name(start.command, os.getcwd())
    return ProgramEndpoint(ProgramStart(command=command, cwd=where), called=called, is_acphold=True)


def start_name(start: Start) -> str:
    """Return a short name of what is started: the agent's, otherwise its command."""
    program, *words = start.command or ("",)
    return on_one_line(start.agent or cut(shlex.join([os.path.basename(program), *words]), 60))


async def move_to_folder(row: SessionRow, cwd: str | None, start: Start | None = None) -> str:
    """Return the folder to work in: `cwd`, to which the session moves, or its own; UsageError if it
    is gone, unless an agent with this start has it on another machine."""
    where = folder_of(row, cwd, start)
    if not is_same_folder(row.cwd, where):
        async with existing_journal() as kept:
            await kept.change(row.session_id, RowChange(cwd=where))
        tell(f"{title_of(row)} moves from {folder(row.cwd)} to {folder(where)}.")
    return where


def folder_of(row: SessionRow, cwd: str | None, start: Start | None = None) -> str:
    """Return the folder that is meant; UsageError when it is gone, as in `move_to_folder`."""
    if start is not None and far_machine(start.command, row.cwd):
        return row.cwd if cwd is None else cwd
    if cwd is None and not os.path.isdir(row.cwd):
        raise UsageError(
            f"this session's folder no longer exists: {row.cwd}; continue in another one with "
            "--cwd DIR, or here with --cwd ."
        )
    require_folder(cwd)
    return row.cwd if cwd is None else cwd


def title_of(row: SessionRow) -> str:
    """Return the session's title for use in a sentence."""
    return f"“{cut(titled(row.title), 40)}”"
