"""`acphold continue`: continues a conversation, with its files, on another machine."""

from __future__ import annotations

import asyncio
import shlex

from acphold.cli.command_line import Parser, UsageError, add_journal
from acphold.cli.continuation import title_of
from acphold.cli.journals import opened
from acphold.cli.move_end import add_place, lines_of, over_ssh, place_words
from acphold.cli.places import place
from acphold.cli.ssh import a_host, become_ssh
from acphold.cli.terminal_text import on_one_line, on_terminal, visible
from acphold.hub.moves import MovedSession, give
from acphold.journal import SessionRow
from acphold.reading.local_reader import LocalReader
from acphold.transports.urls import is_url


def parser() -> Parser:
    """The arguments of `continue`."""
    made = Parser(continue_there, "continue", "[OPTIONS] [ID] --on HOST")
    made.add_argument(
        "session_id", metavar="ID", nargs="?", help="the session's id, or a prefix of it"
    )
    made.add_argument(
        "--on",
        metavar="HOST",
        type=a_host,
        required=True,
        help="the other machine, as `ssh` knows it: user@machine",
    )
    add_place(made)
    add_journal(made)
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

    The conversation goes there over ssh, and with it the files as they were at the end of its last
    turn, if they were kept (`snapshots = true` in the settings). They are put into a new work tree
    of the same repository: acphold there finds a clone among the folders of its sessions, by the
    first commit, or you name one with --cwd. Nothing in an existing folder is changed.

    From then on the session is that machine's. Here it is marked in the list, can be read, and
    continues only as a copy (`acphold fork`). `acphold resume --from HOST` brings it back.

    If the connection breaks, start the same command again: it goes on where it was, and at no time
    can both machines continue the session. It has to be closed here, with no prompts waiting.

    Not sent: ignored files, untracked files that may hold a secret, the agent's own memory of the
    conversation (it is handed the conversation with your next prompt), rules, tokens and other
    sessions. HOST needs acphold, and ssh has to get there without asking for a password.
    """
    if is_url(on):
        raise UsageError("--on takes a machine that ssh reaches, not the URL of a server")
    row, moved = asyncio.run(_continue(journal, session_id, on, cwd, files, with_files))
    said = "was there already" if moved.was_done else "continues there"
    print(visible(f"{title_of(row)} {said}, on {on_one_line(on)}"))
    print(*lines_of(moved, " there"), sep="\n")
    name = on_one_line(row.session_id)
    print(visible(f"  here it can be read; `acphold fork {name}` continues a copy here"))
    if on_terminal():
        become_ssh(on, ["resume", row.session_id], terminal=True)
    print(visible(f"To continue: acphold resume --host {shlex.quote(on_one_line(on))} {name}"))
    return 0


async def _continue(
    location: str | None,
    text: str | None,
    on: str,
    cwd: str | None,
    files: str | None,
    with_files: bool,
) -> tuple[SessionRow, MovedSession]:
    async with opened(location) as journal:
        found = (await place(LocalReader(journal), text, f"continues it on {on}")).row
        words = ["take", *place_words(cwd, files, with_files=with_files)]
        moved = await over_ssh(
            on, words, lambda transport: give(journal, transport, found.session_id, on)
        )
        return found, moved
