"""`acphold resume`: find a conversation and continue it; plain `acphold` does the same."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from acphold.cli.chat import go_on
from acphold.cli.command_line import Exit, Parser, UsageError, add_cwd, add_journal
from acphold.cli.journals import opened_if_any
from acphold.cli.places import named
from acphold.cli.screen_session import add_look
from acphold.cli.servers import add_server, server_of
from acphold.cli.session_picker import picked
from acphold.cli.ssh import add_host, typed_host
from acphold.cli.terminal_text import on_terminal
from acphold.errors import AmbiguousIdError, JournalError, UnknownSessionError
from acphold.screen.picker import Picked


def parser() -> Parser:
    """The arguments of `resume`."""
    made = Parser(resume, "resume", "[OPTIONS] [ID | WORDS...]")
    made.add_argument(
        "words", metavar="WORDS", nargs="*", help="a session's id, or words that filter the list"
    )
    add_cwd(made, "continue in this folder; the session moves there [default: its own]")
    add_look(made)
    add_host(made)
    add_server(made)
    add_journal(made)
    return made


def resume(
    *,
    words: list[str],
    cwd: str | None,
    no_color: bool,
    host: str | None,
    server: str | None,
    ca: str | None,
    journal: str | None,
) -> int:
    """Find a conversation and continue it.

    Choose from all sessions: those waiting for you come first, then running ones, then this
    folder's, then the rest. Words filter them by title, agent and folder, and also show where the
    words were said. Enter continues the session with its agent and in its folder. Plain `acphold`
    does the same.

    With --server the sessions are those of that server, and the agent runs there.
    """
    assert host is None, "done there"
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if (there := server_of(server, ca, journal)) is not None:
        from acphold.cli.far_chat import FarWanted, talk  # late: it brings TLS

        return asyncio.run(talk(there, None, FarWanted(words=" ".join(words), cwd=cwd)))
    if len(words) == 1 and (found := asyncio.run(_meant(journal, words[0]))) is not None:
        return go_on(found, cwd, journal, typed_host())
    if not on_terminal():
        raise UsageError("in a pipe the ID of one session is required; `acphold list` has them")
    while True:
        choice = asyncio.run(picked(journal, " ".join(words)))
        if choice is None:
            return Exit.OK
        if choice.action == "open":
            return go_on(choice.session_id, cwd, journal, typed_host())
        _act(choice, journal)


async def _meant(journal: str | None, word: str) -> str | None:
    """Return the session whose id is this word or begins with it; None if there is none."""
    async with opened_if_any(journal) as kept:
        if kept is None:
            return None
        with suppress(UnknownSessionError, AmbiguousIdError, JournalError):
            return (await named(kept, word)).session_id
    return None


def _act(choice: Picked, journal: str | None) -> None:
    """Carry out the person's action; its output stands above the next list."""
    session_id = choice.session_id
    match choice.action:
        case "rename":
            from acphold.cli.rename import rename

            if words := input("New title: ").split():
                rename(session_id=session_id, words=words, journal=journal)
        case "archive":
            from acphold.cli.archive import archive

            archive(session_ids=[session_id], journal=journal)
        case "delete":
            from acphold.cli.delete import delete

            delete(session_ids=[session_id], sure=False, journal=journal)
        case "export":
            from acphold.cli.export import parser as export_parser

            file = f"{session_id[:12]}.md"
            at = [] if journal is None else ["--journal", journal]
            export_parser().run(["--output", file, *at, session_id])
        case "fork":
            from acphold.cli.fork import fork

            fork(session_id=session_id, at=None, cwd=None, journal=journal)
