"""`acphold chat`: talk to an agent in the terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from acphold.agents.identity import spoken_name
from acphold.cli.attach import join
from acphold.cli.command_line import Exit, Parser, UsageError, add_journal
from acphold.cli.journals import exists, opened, path_of
from acphold.cli.list import live_sessions, short_id
from acphold.cli.screen_session import Seat, add_look, chosen_info, on_terminal
from acphold.cli.settings import agent_names, startable
from acphold.cli.ssh import add_host, typed_host
from acphold.cli.terminal_text import on_one_line
from acphold.client import connected_to
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.errors import UnknownSessionError
from acphold.processes.own_program import own_command

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteSession
    from acphold.client.policy import Rule

CHOOSE = ""
"""`--resume` without an id: the person chooses."""


class Wanted(NamedTuple):
    """The conversation that is wanted: `resume` is an id or CHOOSE, None for a new one."""

    cwd: str
    resume: str | None
    newest: bool


def parser() -> Parser:
    """The arguments of `chat`."""
    made = Parser(
        chat, "chat", "[OPTIONS] {AGENT | -- CMD...}", runs_program=True, takes_agent=True
    )
    made.add_argument(
        "--continue",
        dest="newest",
        action="store_true",
        help="go on with the folder's newest session",
    )
    made.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const=CHOOSE,
        help="go on with this session; without ID you choose from a list",
    )
    made.add_argument("--cwd", metavar="DIR", help="the folder to work in [default: this one]")
    made.add_argument(
        "--permission",
        choices=("ask", "allow", "reject"),
        help="what to do when the agent asks whether it may use a tool [default: ask]",
    )
    add_look(made)
    add_host(made)
    add_journal(made)
    return made


def chat(
    *,
    agent: str | None,
    program: tuple[str, ...],
    newest: bool,
    resume: str | None,
    cwd: str | None,
    permission: Rule | None,
    no_color: bool,
    host: str | None,
    journal: str | None,
) -> int:
    """Talk to an agent in the terminal.

    The agent runs behind `acphold wrap`, with the options that the settings file has for AGENT;
    the conversation is kept as an editor's would be. A session that is live in another process is
    attached to, as `acphold attach` does, and then needs no AGENT.

    Enter sends; Alt-Enter, or a backslash at the end of a line, begins a new one. `/` completes
    the agent's commands, `@` files. Ctrl-C cancels the running turn, Ctrl-D leaves. Ctrl-T shows
    thoughts, F2 changes the mode, F3 the options. In a pipe each line of stdin is a prompt, and
    what needs a person's yes is rejected, unless --permission says otherwise.
    """
    assert host is None, "done there"
    if newest and resume is not None:
        raise UsageError("--continue and --resume: only one of them")
    if resume and agent is None and not program and resume in agent_names():
        agent, resume = resume, CHOOSE  # `--resume AGENT`
    if no_color:
        os.environ["NO_COLOR"] = "1"
    wanted = Wanted(os.path.abspath(os.path.expanduser(cwd or ".")), resume, newest)
    return asyncio.run(_chat(agent, program, wanted, permission, journal, typed_host()))


async def _chat(
    agent: str | None,
    program: Sequence[str],
    wanted: Wanted,
    permission: Rule | None,
    journal: str | None,
    host: str,
) -> int:
    if wanted.resume:
        wanted, is_live = await _known(wanted, journal)
        if is_live and wanted.resume:
            return await join(wanted.resume, journal, host)
    if agent is None and not program:
        raise UsageError(
            "name an agent, as in `acphold chat claude`, or give its command behind `--`: "
            "`acphold chat -- gemini --acp`"
        )
    agent, program = startable(agent, tuple(program))
    agent_words = [agent] if agent is not None else ["--", *program]
    command = own_command("wrap", f"--journal={path_of(journal)}", *agent_words)
    seat = Seat(permission=permission, reads_only=False, leaving="leaves")
    if on_terminal():
        print(f"Starting {on_one_line(agent or spoken_name(program))} …", file=sys.stderr)
    wrap = ProgramEndpoint(
        ProgramStart(command=command, cwd=wanted.cwd),
        called=agent or spoken_name(program),
        is_acphold=True,
    )
    async with connected_to(wrap, **seat.options) as there:
        session = await _session(there, wanted)
        if session is None:
            return Exit.OK
        code = await seat.sit(there, session)
    if on_terminal() and code == Exit.OK and session.state.timeline:
        called = agent or f"-- {shlex.join(program)}"
        await _say_how_to_go_on(session.id, called, journal, host)
    return code


async def _say_how_to_go_on(session_id: str, agent: str, journal: str | None, host: str) -> None:
    async with opened(journal) as kept:
        short = await short_id(kept, session_id)
    print(f"\nTo go on: acphold chat{host} --resume {on_one_line(short)} {on_one_line(agent)}")


async def _known(wanted: Wanted, journal: str | None) -> tuple[Wanted, bool]:
    """The session that is meant, with its whole id and its folder; whether it is live."""
    assert wanted.resume
    if not exists(journal):
        raise UnknownSessionError(wanted.resume)
    async with opened(journal) as kept:
        row = await kept.resolve(wanted.resume)
    live = await live_sessions()
    return wanted._replace(resume=row.session_id, cwd=row.cwd), row.session_id in live


async def _session(agent: RemoteAgent, wanted: Wanted) -> RemoteSession | None:
    """The conversation that is wanted; None when the person chose none."""
    if wanted.resume:
        return await agent.load_session(wanted.resume, wanted.cwd)
    if wanted.resume == CHOOSE:
        info = await chosen_info(agent)
        return None if info is None else await agent.load_session(info.session_id, info.cwd)
    if wanted.newest:
        async for info in agent.sessions(cwd=wanted.cwd):
            return await agent.load_session(info.session_id, info.cwd)
        print(f"No session in {on_one_line(wanted.cwd)} yet: a new one begins.", file=sys.stderr)
    return await agent.new_session(wanted.cwd)
