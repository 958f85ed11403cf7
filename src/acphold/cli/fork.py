"""`acphold fork`: a conversation up to some turn, in a session of its own."""

from __future__ import annotations

import asyncio
import sys

from acphold.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    above_zero,
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
from acphold.journal import Journal, SessionRow


def parser() -> Parser:
    """The arguments of `fork`."""
    made = Parser(fork, "fork", "[OPTIONS] [ID]")
    made.add_argument(
        "session_id",
        metavar="ID",
        nargs="?",
        help="the session's id, or its beginning; with @SEQ, a place",
    )
    made.add_argument(
        "--at",
        metavar="SEQ",
        type=above_zero,
        help="up to the turn with this entry [default: all turns that are over]",
    )
    add_cwd(made, "the folder that it is at work in [default: the first session's]")
    add_journal(made)
    return made


def fork(*, session_id: str | None, at: int | None, cwd: str | None, journal: str | None) -> int:
    """Begin a session with a copy of another one's conversation.

    The new session is listed beside the first one, for the same agent, and both go on by
    themselves. ID@SEQ, as `search` prints it, or --at takes the conversation up to the turn with
    that entry, the whole of that turn included. A turn that runs is not taken, and goes on. Without
    ID you choose from a list.

    An agent that can fork its own sessions does so when the new one is first opened; any other is
    given the conversation with your next prompt. Files are not changed: they are as the first
    session left them. With --cwd the copy is at work in another folder of this machine, where the
    first one's is on another one, say.

    In a pipe or a file the id of the new session stands alone; what it has is said on stderr.
    """
    require_folder(cwd)
    asyncio.run(_fork(journal, session_id, at, cwd))
    return Exit.OK


async def _fork(location: str | None, text: str | None, at: int | None, cwd: str | None) -> None:
    async with opened(location) as journal:
        found = await place(journal, text, "forks it")
        if at is not None and found.seq not in (None, at):
            raise UsageError(f"{found} and --at {at} are two places; name one")
        if at is not None and at > found.row.last_seq:
            raise UsageError(
                f"--at {at}: the entries of this session have the numbers 1 to {found.row.last_seq}"
            )
        made = await forked(journal, found.row, at=at or found.seq, cwd=cwd)
        what = await told(journal, found.row, made)
        print(visible(made.session_id))
        print(what, file=sys.stdout if sys.stdout.isatty() else sys.stderr)


async def told(journal: Journal, source: SessionRow, made: Forked) -> str:
    """What a person is told of a copy, below its id."""
    row = await journal.session(made.session_id)
    what = f"{counted(made.turns, 'turn')} of {on_one_line(source.title or source.session_id)}"
    if made.runs:
        what += "; its last turn still runs and was not taken"
    elif made.left_out:
        what += f"; {counted(made.left_out, 'later turn')} left out"
    short = await short_id(journal, made.session_id)
    return visible(
        f"  {what}\n  in the list of {on_one_line(agent_name(row.agent))}; "
        f"`acphold show {short}` shows it"
    )
