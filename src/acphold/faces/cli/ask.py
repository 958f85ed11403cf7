"""`acphold ask PROMPT -- CMD`: its arguments, and its way to the daemon.

The daemon starts the agent while the rest is imported here.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from acp_wire.surroundings import Surroundings
from acphold.errors import AgentStartError
from acphold.faces.cli.ask_arguments import AskArguments
from acphold.faces.cli.command_line import Exit, UsageError, command, require_folder, use_journal
from acphold.faces.cli.front import OwnFront, first_frame, journal_of
from acphold.faces.cli.settings import (
    agent_names,
    default_agent,
    enter_agent,
    is_demo,
    near_to,
    startable,
)
from acphold.faces.cli.starts import remember, start_in
from acphold.machine.first_frame import BRIEF


@command("ask", "[OPTIONS] PROMPT [AGENT | -- CMD...]", options=AskArguments)
def ask(**given: Any) -> int:
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
    asked = AskArguments(**given)
    known, prompt = agent_names(), asked.prompt
    if asked.agent and asked.agent not in known:  # `ask demo hi`, or `ask dmeo hi`
        if prompt in known or (near_to(prompt, known) and not near_to(asked.agent, known)):
            asked.prompt, asked.agent = asked.agent, prompt
    elif not asked.agent and prompt in known:
        raise UsageError(f'the prompt is missing: acphold ask "PROMPT" {prompt}')
    agent, program = asked.agent, asked.program
    journal: object = asked.typed_journal
    if asked.typed_journal:
        use_journal(asked.typed_journal)
    waits = asked.later or asked.at is not None
    # One that waits needs no agent and no name: by itself it is for the folder's newest session.
    if not (agent or program or waits or asked.newest) and asked.session is None:
        agent = default_agent()
    if asked.session is not None and asked.newest:
        raise UsageError("use --session or --continue, not both")
    require_folder(asked.cwd)
    if waits:
        from acphold.faces.cli.queue import ask_later

        if agent or program:
            raise UsageError("--later uses the session's own agent; leave out AGENT and CMD")
        return ask_later(asked)
    if asked.cwd is None and asked.session is None and not asked.newest and is_demo(agent):
        from acphold.faces.cli.demo_folder import scratch_repository  # late: `ask` is quick

        asked.cwd = scratch_repository()
    from acphold.machine.late_tls import load_asyncio

    folder = None
    if agent or program:
        chosen = enter_agent(*startable(agent, program))
        options = () if asked.name is None else ("--name", asked.name)
        start = start_in(Surroundings.here(), chosen.name, chosen.command, options)
    else:
        load_asyncio()
        from acphold.faces.cli.continuation import for_question

        row, start, folder = for_question(asked.session, asked.cwd)
        asked.session, asked.newest = row.session_id, False
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
    from acphold.faces.cli.ask_turn import AskingTurn

    try:
        asking = AskingTurn(chosen, start, asked, started, front)
    except BaseException as error:
        if front is not None:
            front.close()
        if isinstance(error, TimeoutError):
            print(f"acphold ask: {Exit.TIMEOUT.meaning}: stdin is still open", file=sys.stderr)
            return Exit.TIMEOUT
        raise
    with remember(start, journal_of((), journal)):
        return asking.run_alone()
