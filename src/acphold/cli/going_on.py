"""Going on with a session: which one is meant, where, and how its agent is started again."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping

from msgspec import Struct, convert
from msgspec.structs import replace

from acphold.cli.command_line import UsageError, require_folder
from acphold.cli.journals import is_live, opened, opened_if_any
from acphold.cli.places import named
from acphold.cli.settings import agent_name, agent_names, startable
from acphold.cli.starts import Start, known_start
from acphold.cli.terminal_text import cut, folder, on_one_line
from acphold.errors import UnknownSessionError
from acphold.journal import ListFilter, RowChange, SessionRow
from acphold.journal.location import is_same_folder


async def meant(journal: str | None, session_id: str | None, cwd: str) -> SessionRow | None:
    """The session with this id, or else the newest of the folder; None where that has none yet."""
    async with opened_if_any(journal) as found:
        if found is None:
            if session_id:
                raise UnknownSessionError(session_id)
            return None
        if session_id:
            return await named(found, session_id, "goes on")
        newest = await found.page(ListFilter(cwd=cwd), None, 1)
        return newest[0] if newest else None


def start_of(row: SessionRow) -> Start:
    """How the agent of a session is started again: as it was here, else by its name.

    A name means what the settings file says now; if that has it no more, it is what it was then.
    UsageError where neither is known.
    """
    names = agent_names()
    if (start := known_start(row.start)) is not None:
        if not start.agent or start.agent in names:
            return start
        return replace(start, agent="", options=(*start.options, "--name", row.agent))
    for name in (agent_name(row.agent), row.agent):
        if name in names:
            return Start("wrap", name, ())
    raise UsageError(
        f"this session was held with {on_one_line(row.agent)}, and acphold does not know how that "
        f"is started: `acphold chat --resume {on_one_line(row.session_id)} -- CMD`"
    )


def is_startable(row: SessionRow) -> bool:
    """Whether it needs no words to go on with this session."""
    try:
        start_of(row)
    except UsageError:
        return False
    return True


def for_question(arguments: Mapping[str, object]) -> tuple[SessionRow, Start, str | None]:
    """The session that `ask` goes on with, how its agent is started, and in which folder.

    Of one that is live nothing is started. Raises UsageError, UnknownSessionError and
    AmbiguousIdError.
    """
    wanted = convert(arguments, _Wanted)
    cwd = None if wanted.cwd is None else os.path.abspath(wanted.cwd)

    async def found() -> tuple[SessionRow, str | None]:
        row = await meant(wanted.journal, wanted.session, cwd or os.getcwd())
        if row is None:
            where = cwd or os.getcwd()
            raise UnknownSessionError("", reason=f"there is no session in {where} to go on with")
        async with opened(wanted.journal) as journal:
            if await is_live(journal, row.session_id):
                return row, None
        return row, await settled_in(wanted.journal, row, cwd)

    row, where = asyncio.run(found())
    if where is None:
        return row, Start("wrap", "", ()), None
    start = fetched(start_of(row))
    if sys.stderr.isatty():
        print(f"Going on with {title_of(row)}, with {told(start)} …", file=sys.stderr)
    return row, start, start.folder or where


class _Wanted(Struct):
    session: str | None
    cwd: str | None
    journal: str | None


def fetched(start: Start) -> Start:
    """The same; of an agent that is not installed one that fetches it, if the person says so."""
    agent, command = startable(start.agent or None, start.command)
    return start if agent == start.agent else replace(start, agent="", command=command)


def told(start: Start) -> str:
    """What is started, in a few words."""
    program, *words = start.command or ("",)
    return on_one_line(start.agent or cut(shlex.join([os.path.basename(program), *words]), 60))


async def settled_in(journal: str | None, row: SessionRow, cwd: str | None) -> str:
    """Where to work: in `cwd`, into which the session moves, or its own folder; UsageError."""
    where = folder_of(row, cwd)
    if not is_same_folder(row.cwd, where):
        async with opened(journal) as kept:
            await kept.change(row.session_id, RowChange(cwd=where))
        print(f"{title_of(row)} moves from {folder(row.cwd)} to {folder(where)}.", file=sys.stderr)
    return where


def folder_of(row: SessionRow, cwd: str | None) -> str:
    """The folder that is meant; UsageError when it is gone."""
    if cwd is None and not os.path.isdir(row.cwd):
        raise UsageError(
            f"the folder of this session is gone: {row.cwd}; --cwd DIR goes on with it in another "
            "one, as --cwd . in this one"
        )
    require_folder(cwd)
    return row.cwd if cwd is None else cwd


def title_of(row: SessionRow) -> str:
    """Its title, as it is said in a sentence."""
    return f"“{cut(on_one_line(row.title or '(no title)'), 40)}”"
