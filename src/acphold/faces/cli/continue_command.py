"""`acphold continue`: continues a conversation, with its files, on another machine."""

from __future__ import annotations

import asyncio
import shlex

from acp_wire.transports.known_servers import is_url
from acphold.faces.cli.command_line import Parser, UsageError, a_host
from acphold.faces.cli.continuation import title_of
from acphold.faces.cli.journals import opened
from acphold.faces.cli.move_end import add_place, lines_of, over_ssh, place_words
from acphold.faces.cli.places import place
from acphold.faces.cli.ssh import become_ssh
from acphold.faces.cli.terminal_text import on_one_line, on_terminal, visible
from acphold.live.hub.move_giver import give
from acphold.live.hub.moves import MovedSession
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.neighbours import let_go
from acphold.record.journal import SessionRow


def parser() -> Parser:
    """The arguments of `continue`."""
    made = Parser(continue_there, "continue", "[OPTIONS] [ID] --on HOST")
    made.add_value("session_id", "ID", "the session's id, or a prefix of it", nargs="?")
    made.add_value(
        "--on",
        "HOST",
        "the other machine, as `ssh` knows it: user@machine",
        type=a_host,
        required=True,
    )
    add_place(made)
    made.add_journal()
    return made


def continue_there(
    *,
    session_id: str | None,
    on: str,
    cwd: str | None,
    files: str | None,
    with_files: bool,
    journal: str | None,
) -> int:
    """Continue a conversation on another machine.

    acphold sends the conversation over ssh, with the files as they were at the end of its last
    turn, if they were kept. The files go into a new work tree beside a clone of the repository
    there. acphold finds the clone among the folders of its sessions, by the first commit of the
    project or its remotes, or you name it with --cwd. Nothing in an existing folder is changed.

    From then on the session belongs to that machine. Here the list marks it, you can still read it,
    and you can continue only a copy (`acphold fork`). `acphold resume --from HOST ID` brings it
    back.

    If the connection breaks, run the same command again: it resumes where it stopped. The two
    machines can never both continue the session. Before you start, close the session in all clients
    here; its queue must be empty.

    Not sent: ignored files, untracked files that may contain a secret, the agent's own copy of the
    conversation (the agent there gets the conversation with your next prompt), rules, tokens and
    other sessions. HOST needs the same release of acphold, and ssh has to log in without asking for
    a password.
    """
    if is_url(on):
        raise UsageError("--on takes a machine that ssh reaches, not the URL of a server")

    async def move() -> tuple[SessionRow, MovedSession]:
        async with opened(journal) as kept:
            row = (await place(LocalReader(kept), session_id, f"continues it on {on}")).row
            await let_go(kept, row.session_id)
            words = ["take", *place_words(cwd, files, with_files=with_files)]
            return row, await over_ssh(on, words, lambda far: give(kept, far, row.session_id, on))

    row, moved = asyncio.run(move())
    said = "had already moved to" if moved.was_done else "now continues on"
    print(visible(f"{title_of(row)} {said} {on_one_line(on)}"))
    print(*lines_of(moved, " there"), sep="\n")
    name = on_one_line(row.session_id)
    print(
        visible(
            f"  here you can still read it; `acphold fork {name}` makes a copy to continue here"
        )
    )
    if on_terminal():
        become_ssh(on, ["resume", row.session_id], terminal=True)
    print(visible(f"To continue: acphold resume --host {shlex.quote(on_one_line(on))} {name}"))
    return 0
