"""`acphold resume`, and plain `acphold`: find a conversation; continue it, join it or watch it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from contextlib import suppress

from acp_wire.rpc import Transport
from acp_wire.transports.known_servers import is_url, origin_of
from acphold.errors import AmbiguousIdError, JournalError, UnknownSessionError
from acphold.faces.cli.chat import go_on
from acphold.faces.cli.command_line import Exit, Parser, UsageError, a_host
from acphold.faces.cli.journals import opened, opened_if_any
from acphold.faces.cli.move_end import (
    add_place,
    from_server,
    lines_of,
    over_ssh,
    taken,
    wanted_place,
)
from acphold.faces.cli.places import named, place
from acphold.faces.cli.screen_session import WantedConversation, join
from acphold.faces.cli.servers import checked, server_of
from acphold.faces.cli.session_picker import chosen, picked
from acphold.faces.cli.ssh import typed_host
from acphold.faces.cli.terminal_text import on_one_line, on_terminal, visible
from acphold.faces.screen.picker import Picked
from acphold.live.hub.move_taker import WantedPlace
from acphold.live.hub.moves import MovedSession
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.neighbours import live_sessions


def parser() -> Parser:
    """The arguments of `resume`."""
    made = Parser(resume, "resume", "[OPTIONS] [ID | WORDS...]")
    made.add_value("words", "WORDS", "a session's id, or words that filter the list", nargs="*")
    made.add_flag("--watch", "only watch a running session: send, answer and cancel nothing")
    made.add_value(
        "--from",
        "HOST|URL",
        "first move the session ID here, with its files: from that machine over ssh, or from "
        "the `acphold serve` at this URL",
        dest="source",
        type=a_host,
    )
    made.add_cwd("continue in this folder; the session moves there [default: its own]")
    add_place(made)
    made.add_machines()
    return made


def resume(
    *,
    words: list[str],
    watch: bool,
    source: str | None,
    cwd: str | None,
    files: str | None,
    with_files: bool,
    server: str | None,
    journal: str | None,
) -> int:
    """Find a conversation and continue it.

    Choose from all sessions: those waiting for you come first, then running ones, then this
    folder's, then the rest. Words filter them by title, agent and folder, and also show where the
    words were said. Enter continues the session with its agent and in its folder. If it is running
    already, in an editor or anywhere else, you join it: you see its history and everything that
    follows, can prompt, and can answer the agent's questions. Plain `acphold` does the same.

    Ctrl-C cancels the running turn, Ctrl-D leaves. Leaving a session that you joined ends nothing.
    In a pipe, an ID is required, and each line of stdin is a prompt.

    With --from, the session with this ID is first moved here from another machine: the reverse of
    `acphold continue`. No client there may have it open. From a URL it is moved over a connection
    to `acphold serve`, which needs a token with the scope manage, and also files for the files.
    --cwd is then its project's folder here.

    With --server the sessions are those of that server, and the agent runs there. A dropped
    connection reconnects by itself; the status line says so, and what you send meanwhile is kept.
    """
    if source is None and (files is not None or not with_files):
        raise UsageError("--files and --no-files work only with --from")
    if source is not None:
        if watch or server is not None or len(words) != 1:
            raise UsageError(
                "--from needs the ID of one session, from `acphold list --host HOST` or `acphold "
                "list --server URL`; it does not go with --watch or --server"
            )
        wanted = wanted_place(cwd, files, with_files=with_files)
        return go_on(asyncio.run(_brought(source, words[0], wanted, journal)), None, journal, "")
    if watch and cwd is not None:
        raise UsageError("--watch does not move the session to another folder: leave out --cwd")
    if (there := server_of(server, journal)) is not None:
        from acphold.faces.cli.far_chat import talk  # late: it brings TLS

        far = WantedConversation(words=" ".join(words), cwd=cwd)
        if len(words) == 1 and not on_terminal():
            far = WantedConversation(words[0], cwd=cwd)
        return asyncio.run(talk(there, None, far, watch=watch))
    if not on_terminal() and len(words) != 1:
        raise UsageError("in a pipe, the ID of one session is required; see `acphold list`")
    if watch:
        return asyncio.run(_watch(journal, " ".join(words), typed_host()))
    if not on_terminal():
        return go_on(words[0], cwd, journal, typed_host())
    if len(words) == 1 and (found := asyncio.run(_meant(journal, words[0]))) is not None:
        return go_on(found, cwd, journal, typed_host())
    while True:
        choice = asyncio.run(picked(journal, " ".join(words)))
        if choice is None:
            return Exit.OK
        if choice.action == "open":
            return go_on(choice.session_id, cwd, journal, typed_host())
        _act(choice, journal)


async def _brought(source: str, text: str, place: WantedPlace, journal: str | None) -> str:
    """Bring a session here from another machine or a server; return its id."""

    def take(transport: Transport, wanted: str = text) -> Awaitable[MovedSession]:
        return taken(journal, transport, place, wanted)

    if is_url(source):
        moved = await from_server(checked(source, None), text, take)
        source = origin_of(source)
    else:
        moved = await over_ssh(source, ["give", text], take)
    said = "is already here" if moved.was_done else f"was moved here from {on_one_line(source)}"
    print(visible(f"{on_one_line(moved.session_id)} {said}"), *lines_of(moved, ""), sep="\n")
    print("  on that machine you can still read it, but continue only a copy")
    return moved.session_id


async def _watch(journal: str | None, words: str, host: str) -> int:
    """Look on at the running session that is meant, or that the person chooses."""
    async with opened(journal) as kept:
        reader = LocalReader(kept)
        if not on_terminal():
            session_id = (await place(reader, words, "watches it")).row.session_id
        elif named_one := words and await _meant(journal, words):
            session_id = named_one
        elif live := {*await live_sessions()}:
            if (found := await chosen(reader, "watches", words, among=live)) is None:
                return Exit.OK
            session_id = found
        else:
            print("No session is running. `acphold list` shows all.", file=sys.stderr)
            return Exit.OK
    return (await join(session_id, journal, host, watch=True))[0]


async def _meant(journal: str | None, word: str) -> str | None:
    """Return the session whose id is this word or begins with it; None if there is none."""
    async with opened_if_any(journal) as kept:
        if kept is None:
            return None
        with suppress(UnknownSessionError, AmbiguousIdError, JournalError):
            return (await named(LocalReader(kept), word)).session_id
    return None


def _act(choice: Picked, journal: str | None) -> None:
    """Carry out the person's action; its output stands above the next list."""
    session_id = choice.session_id
    match choice.action:
        case "rename":
            from acphold.faces.cli.rename import rename

            if words := input("New title: ").split():
                asyncio.run(rename(session_id=session_id, words=words, journal=journal))
        case "archive":
            from acphold.faces.cli.archive import archive

            asyncio.run(archive(session_ids=[session_id], journal=journal))
        case "delete":
            from acphold.faces.cli.delete import delete

            delete(session_ids=[session_id], sure=False, journal=journal)
        case "export":
            from acphold.faces.cli.export import parser as export_parser

            file = f"{session_id[:12]}.md"
            at = [] if journal is None else ["--journal", journal]
            export_parser().run(["--output", file, *at, session_id])
        case "fork":
            from acphold.faces.cli.fork import fork_of_list

            fork_of_list(session_id, journal)
