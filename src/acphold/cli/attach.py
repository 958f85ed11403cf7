"""`acphold attach`: join a session that is live in some acphold process."""

from __future__ import annotations

import asyncio
import os
import sys

from acphold.cli.chat import go_elsewhere
from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import opened, rows_of
from acphold.cli.live_session import Left, join
from acphold.cli.places import place
from acphold.cli.screen_session import add_look
from acphold.cli.servers import add_server, server_of
from acphold.cli.session_picker import chosen
from acphold.cli.ssh import add_host, typed_host
from acphold.cli.terminal_text import on_terminal
from acphold.server.neighbours import live_sessions


def parser() -> Parser:
    """The arguments of `attach`."""
    made = Parser(attach, "attach", "[OPTIONS] [ID]")
    made.add_argument(
        "session_id", metavar="ID", nargs="?", help="the session's id, or a prefix of it"
    )
    made.add_argument(
        "--watch", action="store_true", help="read only: send, answer and cancel nothing"
    )
    add_look(made)
    add_host(made)
    add_server(made)
    add_journal(made)
    return made


def attach(
    *,
    session_id: str | None,
    watch: bool,
    no_color: bool,
    host: str | None,
    server: str | None,
    ca: str | None,
    journal: str | None,
) -> int:
    """Join a running session.

    You see its history and everything that follows, can prompt, and can answer the agent's
    questions. Ctrl-C cancels the running turn. Ctrl-D leaves; leaving never ends anything. Without
    ID you choose from a list. In a pipe each line of stdin is a prompt.

    With --server you can open any session of that server, running or not. A dropped connection
    reconnects by itself; the status line says so, and what you send meanwhile is kept.
    """
    assert host is None, "done there"
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if (there := server_of(server, ca, journal)) is not None:
        from acphold.cli.far_chat import FarWanted, talk  # late: it brings TLS

        wanted = FarWanted(session_id=session_id, words="" if session_id is None else None)
        return asyncio.run(talk(there, None, wanted, watch=watch))
    code, left = asyncio.run(_attach(session_id, journal, typed_host(), watch=watch))
    if left is None:
        return code
    return go_elsewhere(left, code, journal, typed_host())


async def _attach(
    given: str | None, journal: str | None, host: str, *, watch: bool
) -> tuple[int, Left | None]:
    async with opened(journal) as kept:
        if given is not None or not on_terminal():
            session_id = (await place(kept, given, "attaches")).row.session_id
        elif live := [row.session_id async for row in rows_of(kept, await live_sessions())]:
            found = await chosen(kept, "attaches", live)
            if found is None:
                return Exit.OK, None
            session_id = found
        else:
            print(
                "No session is live. `acphold list` shows all; `acphold resume` goes on with one.",
                file=sys.stderr,
            )
            return Exit.OK, None
    return await join(session_id, journal, host, watch=watch)
