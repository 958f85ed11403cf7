"""`acphold ask PROMPT -- CMD`: its arguments, and its way to the daemon.

The daemon starts the agent while the rest is imported here.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from acp_wire.surroundings import Surroundings
from acp_wire.transports.first_frame import BRIEF
from acphold.errors import AgentStartError
from acphold.faces.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    a_later_moment,
    a_name,
    a_text,
    require_folder,
    seconds_above_zero,
    use_journal,
)
from acphold.faces.cli.front import OwnFront, first_frame, journal_of
from acphold.faces.cli.settings import default_agent, enter_agent, is_demo, startable
from acphold.faces.cli.starts import remember, start_in


def parser() -> Parser:
    """The arguments of `ask`."""
    made = Parser(ask, "ask", "[OPTIONS] PROMPT [AGENT | -- CMD...]", runs_program=True)
    made.add_value("prompt", "PROMPT", "the prompt; `-` reads it from stdin", type=a_text)
    made.add_agent()
    made.add_repeatable("--file -f", "PATH", "attach a file")
    made.add_value("--session", "ID", "continue this session")
    made.add_flag("--continue", "continue the newest session of the folder", dest="newest")
    made.add_cwd(
        "the working folder; with --session, the session moves there [default: . or the session's]"
    )
    made.add_setup()
    made.add_value(
        "--timeout", "SECONDS", "cancel the turn after this long", type=seconds_above_zero
    )
    made.add_flag(
        "--later", "add the prompt to the session's queue and return; see `acphold queue`"
    )
    made.add_value(
        "--at",
        "TIME",
        "like --later, but start no earlier than TIME, such as 02:00",
        type=a_later_moment,
    )
    made.add_flag("--json", "print JSON: one object per update, and one at the end")
    made.add_value("--name", "NAME", "store the session under this agent name", type=a_name)
    made.add_journal("typed_journal")  # over one of the agent's settings
    return made


def ask(*, agent: str | None, program: tuple[str, ...], **arguments: Any) -> int:
    """Send one prompt to an agent and print its answer.

    The answer goes to stdout.

      acphold ask "What does this project do?" -- gemini --acp
      git diff | acphold ask "Review this" claude
      acphold ask "And now the tests" --continue claude

    CMD starts the agent; AGENT is a name that acphold knows, or one from the settings file. Without
    either it is the first agent of the settings file, or the first one on PATH. Text
    from stdin is added to the prompt. The conversation is stored like any other. Requests that
    nobody can answer are rejected. The exit code says how the turn ended.

    With --continue or --session, CMD and AGENT are optional: acphold starts the session's own agent
    the same way as before. With --later the prompt waits in that session's queue.
    """
    started = time.monotonic()
    if journal := arguments.pop("typed_journal"):
        use_journal(journal)
    waits = arguments["later"] or arguments["at"] is not None
    # One that waits needs no agent and no name: by itself it is for the folder's newest session.
    if not (agent or program or waits or arguments["newest"]) and arguments["session"] is None:
        agent = default_agent()
    if arguments["session"] is not None and arguments["newest"]:
        raise UsageError("use --session or --continue, not both")
    cwd = arguments["cwd"]
    require_folder(cwd)
    if waits:
        from acphold.faces.cli.queue import ask_later

        if agent or program:
            raise UsageError("--later uses the session's own agent; leave out AGENT and CMD")
        return ask_later(arguments)
    if cwd is None and arguments["session"] is None and not arguments["newest"] and is_demo(agent):
        from acphold.faces.cli.demo_folder import scratch_repository  # late: `ask` is quick

        arguments["cwd"] = scratch_repository()
    from acp_wire.transports.late_tls import load_asyncio

    folder = None
    if agent or program:
        chosen = enter_agent(*startable(agent, program))
        options = () if arguments["name"] is None else ("--name", arguments["name"])
        start = start_in(Surroundings.here(), chosen.name, chosen.command, options)
    else:
        load_asyncio()
        from acphold.faces.cli.continuation import for_question

        row, start, folder = for_question(arguments["session"], cwd)
        arguments |= {"session": row.session_id, "newest": False}
        chosen = enter_agent(start.agent or None, start.command)
    front = None
    if chosen.command:
        words = (*start.options, *start.words)
        try:
            frame = first_frame(words, chosen.command, folder=folder, kind=BRIEF)
        except (OSError, ValueError) as error:
            raise AgentStartError(str(error)) from error
        if not journal and (journal := chosen.options.get("journal")):
            use_journal(str(journal))
        front = OwnFront(frame, journal_of((), journal))
    # Imported while the agent starts.
    load_asyncio()
    from acphold.faces.cli.ask_turn import ask_once, question_of

    try:
        question = question_of(chosen, start, arguments, started)
    except BaseException as error:
        if front is not None:
            front.close()
        if isinstance(error, TimeoutError):
            print(f"acphold ask: {Exit.TIMEOUT.meaning}: stdin is still open", file=sys.stderr)
            return Exit.TIMEOUT
        raise
    with remember(start):
        return ask_once(question, front)
