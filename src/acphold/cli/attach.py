"""`acphold attach`: join a session that is live in some acphold process."""

from __future__ import annotations

import asyncio
import os
import sys

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import opened, path_of, rows_of
from acphold.cli.list import live_sessions
from acphold.cli.places import place
from acphold.cli.screen_session import Seat, add_look
from acphold.cli.session_picker import chosen
from acphold.cli.ssh import add_host, typed_host
from acphold.cli.terminal_text import on_one_line, on_terminal, visible
from acphold.errors import ConnectionLostError


def parser() -> Parser:
    """The arguments of `attach`."""
    made = Parser(attach, "attach", "[OPTIONS] [ID]")
    made.add_argument(
        "session_id", metavar="ID", nargs="?", help="the session's id, or its beginning"
    )
    made.add_argument(
        "--watch", action="store_true", help="only read: nothing is sent, answered or cancelled"
    )
    add_look(made)
    add_host(made)
    add_journal(made)
    return made


def attach(
    *, session_id: str | None, watch: bool, no_color: bool, host: str | None, journal: str | None
) -> int:
    """Join a session that is live in some acphold process.

    You see its history and what happens from then on, may prompt, and answer what the agent asks.
    Ctrl-C cancels the running turn, Ctrl-D leaves; leaving never ends anything. Without ID you
    choose from a list. In a pipe each line of stdin is a prompt.
    """
    assert host is None, "done there"
    if no_color:
        os.environ["NO_COLOR"] = "1"
    return asyncio.run(_attach(session_id, journal, typed_host(), watch=watch))


async def _attach(given: str | None, journal: str | None, host: str, *, watch: bool) -> int:
    async with opened(journal) as kept:
        if given is not None or not on_terminal():
            session_id = (await place(kept, given, "attaches")).row.session_id
        elif live := [row.session_id async for row in rows_of(kept, await live_sessions())]:
            found = await chosen(kept, "attaches", live)
            if found is None:
                return Exit.OK
            session_id = found
        else:
            print(
                "No session is live. `acphold list` shows all; `acphold resume` goes on with one.",
                file=sys.stderr,
            )
            return Exit.OK
    return await join(session_id, journal, host, watch=watch)


async def join(session_id: str, journal: str | None, host: str, *, watch: bool = False) -> int:
    """Attach to a session; where it is not live, say what to do.

    `host` stands in the commands that are told: how the person came to this machine.
    """
    from acphold.client import connect  # late: whoever only looks does not wait for it

    seat = Seat(permission=None, reads_only=watch, leaving="detaches")
    options = seat.options
    try:
        async with connect(session=session_id, journal=path_of(journal), **options) as agent:
            session = await agent.load_session(session_id)
            code = await seat.sit(agent, session)
    except ConnectionLostError as error:
        if "is not live" not in str(error):
            raise
        why = f"acphold attach: session {session_id} is not live in any process; to go on with it"
        _say_how_to_go_on(why, session_id, host)
        return Exit.ERROR
    if on_terminal() and code == Exit.OK:
        print(f"\nDetached; the session goes on: acphold attach{host} {on_one_line(session_id)}")
    elif seat.chat.error is not None:
        _say_how_to_go_on("To go on", session_id, host)
    return code


def _say_how_to_go_on(why: str, session_id: str, host: str) -> None:
    print(visible(f"{why}: acphold resume{host} {session_id}"), file=sys.stderr)
