"""`acphold agent sign-in` and `acphold agent sign-out`: a person's account with an agent."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from acp_wire.processes.program import on_path
from acphold.client import Options, RemoteAgent, connected_to
from acphold.client.answers import Answers
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.errors import AuthRequiredError, CapabilityError
from acphold.faces.cli import options
from acphold.faces.cli.ask_person import TerminalPerson, person_here
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.settings import NamedAgent, agent_command, enter_agent, startable
from acphold.faces.cli.starts import Start
from acphold.faces.cli.terminal_text import on_one_line
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.sign_in import SignInProgram, TerminalSignIn, ways_of
from acphold.known_agents import KNOWN_AGENTS
from acphold.live.agents.identity import display_name


@command("agent sign-in", "[OPTIONS] {AGENT | -- CMD...}")
async def sign_in(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    method: str | None = options.value("ID", "use this sign-in method without asking"),
) -> int:
    """Sign in to an agent.

    Choose one of the ways that the agent offers: it opens a browser or asks, or its own program
    runs in this terminal. `chat` and `ask` offer the same when the agent requires it.
    """
    agent, command = _resolve_agent(agent, program)
    flow = Flow()
    person = person_here(flow)
    async with _connect(agent, command, person) as (there, known):
        signing_in, ways = TerminalSignIn(known, person, flow), ways_of(there, known)
        called = on_one_line(there.name)
        if not ways:
            raise CapabilityError(f"{called} offers no way to sign in from here")
        if method is not None:
            way = next((way for way in ways if way.method_id == method), None)
            if way is None:
                those = ", ".join(on_one_line(way.method_id) for way in ways if way.method_id)
                raise UsageError(f"--method: {called} has no {method!r}; it has: {those}")
            await signing_in.go(there, way)
            print(f"signed in to {agent or display_name(command, os.getcwd())}; {way.words}")
            return Exit.OK
        if person is None:
            methods = "".join(
                f"\n  --method {on_one_line(it.method_id)}  {it.words}" for it in ways
            )
            raise AuthRequiredError(f"there is no terminal to ask on; {called} offers:{methods}")
        return Exit.OK if await signing_in.choose(there, ways) else Exit.SIGN_IN


@command("agent sign-out", "{AGENT | -- CMD...}")
async def sign_out(
    *, agent: str | None = options.AGENT, program: tuple[str, ...] = options.PROGRAM
) -> int:
    """Sign out of an agent, which then forgets who you are."""
    agent, command = _resolve_agent(agent, program)
    async with _connect(agent, command, None) as (there, known):
        if there.capabilities.auth.logout is None:
            called = on_one_line(there.name)
            usual = f"; `{shlex.join(known.usual)}` may" if known.usual else ""
            raise CapabilityError(f"{called} has no way to sign you out{usual}")
        await there.logout()
    print(f"signed out of {agent or display_name(command, os.getcwd())}")
    return Exit.OK


def sign_in_program(
    start: Start, *, stderr: Callable[[], str] = str, is_direct: bool = False
) -> SignInProgram:
    """Return how a person signs in to the agent with this start."""
    named = NamedAgent(start.command)
    if start.agent:
        named = agent_command(start.agent)
    known = KNOWN_AGENTS.get(start.agent)
    usual = tuple(shlex.split(known.sign_in)) if known is not None else ()
    return SignInProgram(
        words=shlex.join(start.words),
        command=named.command,
        env=named.env,
        usual=usual if usual and on_path(usual[0]) is not None else (),
        stderr=stderr,
        is_direct=is_direct,
    )


def _resolve_agent(
    agent: str | None, program: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the agent's name, if any, and its command."""
    if agent is None and not program:
        raise UsageError("name an agent, as in `acphold agent sign-in claude`, or `-- CMD`")
    agent, program = startable(agent, program)
    return agent, enter_agent(agent, program).command


@asynccontextmanager
async def _connect(
    agent: str | None, command: tuple[str, ...], person: TerminalPerson | None
) -> AsyncIterator[tuple[RemoteAgent, SignInProgram]]:
    """Connect to the agent directly: nothing that has to be kept is said to it."""
    endpoint = ProgramEndpoint(
        ProgramStart(command=command), called=agent or display_name(command, os.getcwd())
    )
    program = sign_in_program(
        Start(agent or "", command),
        stderr=lambda: endpoint.stderr_tail(50),
        is_direct=True,
    )
    options: Options = {}
    if person is not None:
        on_form, on_page = person.answers.on_form, person.answers.on_page
        options["on_form"], options["on_page"] = on_form, on_page
        answers = Answers(on_form=on_form, on_page=on_page, signs_in=True)
        options["capabilities"] = answers.capabilities
    async with connected_to(endpoint, **options) as there:
        yield there, program
