"""`acphold chat`: talk to an agent in the terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from acp_wire.surroundings import Surroundings
from acphold.client import RemoteAgent, RemoteSession, connected_to
from acphold.conversation.history.prompt_queue import prompt_quantity
from acphold.errors import UnknownSessionError
from acphold.faces.cli import continuation, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import lasting_id, sessions_here
from acphold.faces.cli.screen_session import (
    ChatFrontend,
    LeftSession,
    WantedConversation,
    join,
    waiting_questions,
)
from acphold.faces.cli.session_picker import choose_session_of, pick_session
from acphold.faces.cli.session_setup import LIVE_SERVERS, setup_of
from acphold.faces.cli.settings import agent_command, agent_names, default_agent, is_demo
from acphold.faces.cli.show import show_in_pager
from acphold.faces.cli.sign_in import sign_in_program
from acphold.faces.cli.ssh import host_option
from acphold.faces.cli.starts import Start, find_start, start_in, write_start
from acphold.faces.cli.terminal_text import cut, folder, on_one_line, on_terminal, tell, visible
from acphold.journal.moves import refuse_moved
from acphold.journal.rows import SessionRow
from acphold.journal_location import default_location
from acphold.live.agents.identity import far_machine
from acphold.live.reading.local_reader import existing_journal
from acphold.live.reading.processes import live_anywhere

if TYPE_CHECKING:
    from acphold.client.answers import Rule

CHOOSE = ""
"""`--resume` without an id: the person chooses."""


def _prompted(arguments: Sequence[str]) -> str:
    """Return the hint for a prompt behind the agent's name."""
    agent, *rest = arguments
    words = " ".join(word for word in rest if not word.startswith("-"))
    if not words or agent not in agent_names() or "--" in rest:
        return ""
    return f"did you mean: acphold ask {shlex.quote(words)} {agent}"


@command("chat", "[OPTIONS] [AGENT | -- CMD...]", *options.PLACES, meant=_prompted)
async def chat(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    newest: bool = options.flag("continue the folder's newest session", "--continue"),
    resume: str | None = options.value(
        "ID", "continue this session; without ID you choose from a list", nargs="?", const=CHOOSE
    ),
    cwd: str | None = options.value("DIR", "the working folder; a resumed session moves there"),
    worktree: bool = options.flag("in a new work tree of the repository, with a branch of its own"),
    include: bool = options.flag(
        "with --worktree: also copy the ignored files that `.worktreeinclude` names"
    ),
    permission: Rule | None = options.PERMISSION,
    mcp_config: Sequence[str] = options.MCP_CONFIG,
    mode: str | None = options.MODE,
    agent_options: Sequence[str] = options.AGENT_OPTIONS,
) -> int:
    """Talk to an agent in the terminal.

    The agent runs behind `acphold wrap`, with the options that the settings file has for AGENT, and
    the conversation is stored like an editor's. If the session is already running in another
    process, this attaches to it, as `acphold continue` does, and needs no AGENT. A new conversation
    without AGENT or CMD is with the first agent of the settings file, or the first one on PATH. To
    try it without an account: `acphold chat demo` is a script that works in a scratch repository.

    --worktree begins in a copy of the repository: a new work tree beside it, with a branch of its
    own, from the commit that is checked out. `acphold session merge` brings its work back. Nothing
    is left of it if you say nothing.

    `/` completes commands, `@` completes files, and `/help` lists the keys. Ctrl-C cancels the
    running turn. Ctrl-D leaves; the turn then goes on in the background, and its questions wait in
    `acphold inbox`. In a pipe each line of stdin is a prompt, and permission requests are rejected
    unless --permission says otherwise.

    `-- acphold connect NAME` talks to an agent of a server that this machine is paired with: --cwd
    is a folder there, by default of the name of this one. Files here are not kept.
    """
    if newest and resume is not None:
        raise UsageError("use --continue or --resume, not both")
    if worktree and (newest or resume is not None):
        raise UsageError("--worktree begins a new session here: leave out the other option")
    if include and not worktree:
        raise UsageError("--include works only with --worktree")
    setup = setup_of(mcp_config, mode, agent_options)
    words = "" if resume == CHOOSE else None
    wanted = WantedConversation(
        resume or None,
        words,
        newest=newest,
        cwd=cwd,
        setup=setup,
        agent=agent,
        program=program,
        permission=permission,
    )
    if resume and agent is None and not program and resume in agent_names():
        # `--resume AGENT`
        wanted = wanted._replace(session_id=None, words="", agent=resume)
    if wanted.words is not None and not on_terminal():
        raise UsageError("in a pipe, --resume needs an ID; see `acphold list`")
    if wanted.words is not None and not wanted.names_agent:
        if (found := await _choose("")) is None:
            return Exit.OK
        wanted = wanted._replace(session_id=found, words=None)
    if cwd is None and resume is None and not newest and is_demo(agent):
        from acphold.faces.cli.demo_folder import scratch_repository  # late: few want it

        wanted = wanted._replace(cwd=scratch_repository())
    if worktree:
        from acphold.faces.cli.trees import talk_in_tree  # late: few want one

        return await talk_in_tree(wanted, wanted.cwd or os.getcwd(), talk_here, include=include)
    return await talk_here(wanted)


async def talk_here(wanted: WantedConversation) -> int:
    """Talk in the wanted session, and in each that the person goes to from there."""
    while True:
        code, left = await _chat(wanted)
        if left is None:
            return code
        where, words = left.goes_to
        if where == "new":
            wanted = wanted._replace(
                session_id=left.session_id, words=None, newest=False, is_new_beside=True
            )
            if left.is_joined:
                wanted = wanted._replace(agent=None, program=())
        elif (found := await _choose(words)) is not None:
            wanted = WantedConversation(found, permission=wanted.permission)
        else:
            return code


async def _choose(words: str) -> str | None:
    """Return the id of the session that is meant or that the person chooses; None for none."""
    if words and (found := await continuation.find_id(words)) is not None:
        return found
    choice = await pick_session(words, read=show_in_pager)
    return None if choice is None else choice.session_id


async def _chat(wanted: WantedConversation) -> tuple[int, LeftSession | None]:
    """Talk in one session; returns the exit code, and where the person went from it."""
    kept = None
    program = agent_command(wanted.agent).command if wanted.agent else wanted.program
    if wanted.session_id or (wanted.newest and not wanted.names_agent):
        try:
            kept = await continuation.session_to_continue(
                wanted.session_id, wanted.cwd or os.getcwd()
            )
        except UnknownSessionError:  # a server has sessions that are unknown here
            if not wanted.names_agent or not far_machine(program, os.getcwd()):
                raise
        if kept is not None and not wanted.is_new_beside:
            refuse_moved(kept)
            async with existing_journal() as found:
                stays = await continuation.stays_live(found, kept, wanted.cwd)
                is_live = stays and kept.session_id in await live_anywhere(found)
            if is_live:
                if wanted.setup.servers:
                    raise UsageError(LIVE_SERVERS)
                return await join(kept.session_id, setup=wanted.setup)
    if wanted.names_agent:
        start = Start(wanted.agent or "", wanted.program)
    else:
        start = Start(default_agent(), ()) if kept is None else continuation.start_of(kept)
    start = continuation.make_startable(start, kept)
    cwd = wanted.cwd or os.getcwd()
    if kept is not None and wanted.is_new_beside:
        cwd = continuation.folder_of(kept, None, start)
        kept = None
    elif kept is not None:
        cwd = await continuation.move_to_folder(kept, wanted.cwd, start)
    return await _chat_with(start, wanted, cwd, kept)


class StartClock:
    """A line on stderr with the seconds since it was shown, until it is closed."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, words: str) -> None:
        """Show the line; from a running event loop."""
        if not sys.stderr.isatty():
            return tell(words)
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        self._words, self._began = cut(visible(words), max(width - 8, 20)), time.monotonic()
        print(self._words, end="", file=sys.stderr, flush=True)
        self._timer = asyncio.get_running_loop().call_later(1, self._tick)

    def _tick(self) -> None:
        seconds = round(time.monotonic() - self._began)
        print(f"\r{self._words} {seconds} s", end="", file=sys.stderr, flush=True)
        self._timer = asyncio.get_running_loop().call_later(1, self._tick)

    def close(self) -> None:
        """End the line, once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            print(file=sys.stderr)


async def _chat_with(
    start: Start, wanted: WantedConversation, cwd: str, kept: SessionRow | None
) -> tuple[int, LeftSession | None]:
    """Start an agent in `cwd` and talk to it: in the session `kept`, or as is wanted."""
    program = agent_command(start.agent).command if start.agent else start.command
    here = os.getcwd() if (far := far_machine(program, os.getcwd())) else cwd
    within = Surroundings(os.environ, os.path.realpath(start.folder or here))
    wrap = continuation.wrap_of(start, here)
    frontend = ChatFrontend(
        permission=wanted.permission,
        reads_only=False,
        program=sign_in_program(start, stderr=lambda: wrap.stderr_tail(500)),
        is_far=bool(far),
    )
    clock = StartClock()
    if on_terminal():
        where = (
            "" if kept is None else f" in {folder(cwd)} to continue {continuation.title_of(kept)}"
        )
        clock.start(f"Starting {continuation.start_name(start)}{where} …")
    if far:
        clock.close()
        tell(f"{on_one_line(cwd)} is a folder on {on_one_line(far)}; its files are not kept here.")

    async def show_how_to_continue(session: RemoteSession) -> None:
        if not on_terminal() or not session.state.timeline:
            return
        async with sessions_here() as (reader, found):
            word = await lasting_id(found, session.id)
            asked = await waiting_questions(reader, session.id)
            row = await found.session(session.id)
        journal = default_location()
        if find_start(row.start, journal) is None:  # the wrap behind it takes seconds to write it
            begun = start_in(within, start.agent, program, start.options)
            if begun.mark == row.start:
                write_start(begun, journal)
        command = f"chat{host_option()} --resume {word} {shlex.join(start.words)}"
        with suppress(UsageError):  # without naming an agent, if its own is known
            continuation.start_of(row)
            command = f"continue{host_option()} {word}"
        runs_on = frontend.chat.in_turn and frontend.chat.turns.error is None
        state = asked or ("The turn continues in the background. " if runs_on else "")
        waiting = len(session.queue.state.waiting)
        state += f"{prompt_quantity(waiting)}. " if waiting else ""
        print(f"\n{state}To continue: acphold {on_one_line(command)}")

    with closing(clock):
        async with connected_to(wrap, **frontend.options) as agent:

            async def open_session() -> RemoteSession | None:
                with closing(clock):  # a question about the sign-in stands below it
                    return await _session(agent, wanted, cwd, kept, clock)

            session = await frontend.with_sign_in(agent, open_session)
            if session is None:
                return Exit.OK, None
            code = await frontend.run(agent, session)
    await show_how_to_continue(session)
    goes_to = frontend.chat.commands.goes_to
    return code, None if goes_to is None else LeftSession(session.id, goes_to)


async def _session(
    agent: RemoteAgent,
    wanted: WantedConversation,
    cwd: str,
    kept: SessionRow | None,
    clock: StartClock,
) -> RemoteSession | None:
    """Open the wanted conversation; None when the person chose none."""
    servers = wanted.setup.servers
    if kept is not None:
        found = await agent.load_session(kept.session_id, cwd, mcp_servers=servers)
    elif wanted.session_id:
        theirs = (it async for it in agent.sessions() if it.session_id == wanted.session_id)
        if (info := await anext(theirs, None)) is None:
            raise UnknownSessionError(wanted.session_id)
        found = await agent.load_session(info, mcp_servers=servers)
    elif wanted.words is not None:
        clock.close()
        if (info := await choose_session_of(agent)) is None:
            return None
        found = await agent.load_session(info, mcp_servers=servers)
    else:
        newest = await anext(agent.sessions(cwd=cwd), None) if wanted.newest else None
        if newest is not None:
            found = await agent.load_session(newest, mcp_servers=servers)
        else:
            if wanted.newest:
                clock.close()
                tell(f"No session in {on_one_line(cwd)} yet; starting a new one.")
            found = await agent.new_session(cwd, mcp_servers=servers)
    await wanted.setup.apply(found)
    return found
