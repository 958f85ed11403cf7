"""`acphold handoff`: continues a conversation with another agent."""

from __future__ import annotations

from contextlib import aclosing

from acp_wire.schema import PROTOCOL_VERSION, InitializeRequest, encode
from acp_wire.surroundings import Surroundings
from acphold.errors import MethodNotFoundError
from acphold.faces.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    a_name,
    require_folder,
)
from acphold.faces.cli.fork import description_of
from acphold.faces.cli.journals import opened
from acphold.faces.cli.places import place
from acphold.faces.cli.settings import chosen_agent
from acphold.faces.cli.terminal_text import on_one_line, visible
from acphold.faces.cli.wrap import options_of
from acphold.live.agents import AgentRequest, Event
from acphold.live.agents.wrapped import ProcessAgent, ProcessOptions
from acphold.live.hub.forks import fork
from acphold.live.reading.local_reader import LocalReader


def parser() -> Parser:
    """The arguments of `handoff`."""
    usage = "[OPTIONS] ID {AGENT | -- CMD...}"
    made = Parser(handoff, "handoff", usage, runs_program=True)
    made.add_value("session_id", "ID", "the session's id, or a prefix of it; with @SEQ, one entry")
    made.add_agent()
    made.add_value(
        "--name",
        "NAME",
        "the agent's name in `list`, as in `wrap --name`; then CMD is optional",
        type=a_name,
    )
    made.add_cwd("the folder of the new session [default: the original's]")
    made.add_journal()
    return made


async def handoff(
    *,
    session_id: str,
    name: str | None,
    cwd: str | None,
    journal: str | None,
    agent: str | None,
    program: tuple[str, ...],
) -> int:
    """Continue a conversation with another agent.

    CMD starts the other agent; acphold asks for its name and stops it again. A copy of the
    conversation then appears in that agent's list, when you start it with `acphold wrap -- CMD`;
    the original is unchanged. With your next prompt there, the agent gets the conversation: all
    your prompts, and as much of the newest rest as fits. No file of either agent is written.

    AGENT is a name that acphold knows, or one from the settings file. ID@SEQ hands off the
    conversation up to the turn with that entry. A running turn is not copied and continues.
    """
    chosen = chosen_agent(agent, program)
    if name is None and isinstance(given := chosen.options.get("name"), str):
        name = given
    if not chosen.command and name is None:
        raise UsageError("give the agent's command after `--`, as in `acphold handoff ID -- CMD`")
    require_folder(cwd)
    start_timeout: float = options_of(chosen)["start_timeout"]
    async with opened(journal) as kept:
        found = await place(LocalReader(kept), session_id, "hands it off")
        agent = name or ""
        if chosen.command:
            it = ProcessAgent(
                chosen.command,
                NameOnly(),
                Surroundings.here(),
                ProcessOptions(name=name, start_timeout=start_timeout),
            )
            async with aclosing(it):
                await it.initialize(encode(InitializeRequest(protocol_version=PROTOCOL_VERSION)))
                agent = it.key
        if agent == found.row.agent:
            raise UsageError(
                f"this session already belongs to {on_one_line(agent)}; "
                f"`acphold fork {session_id}` makes a copy of it"
            )
        made = await fork(kept, found.row, at=found.seq, agent=agent, cwd=cwd)
        print(visible(made.session_id))
        print(await description_of(kept, found.row, made))
        print("  the agent gets the conversation with your next prompt")
    return Exit.OK


class NameOnly:
    """Ignores and answers nothing: the agent is only asked for its name."""

    async def hear(self, event: Event) -> None:
        return None

    async def answer(self, asked: AgentRequest) -> bytes:
        raise MethodNotFoundError(asked.method)
