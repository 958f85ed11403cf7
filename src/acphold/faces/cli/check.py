"""`acphold check`: the command of acp-check, for an agent of the settings file as well."""

from __future__ import annotations

import asyncio

from acp_check import command as checker, usage
from acphold.faces.cli import options
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.servers import server_at
from acphold.faces.cli.settings import enter_agent


@command("check", "[OPTIONS] {AGENT | --server URL | -- CMD...}", adds=checker.add_options)
def check(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    server: str | None,
    token: str | None,
    ca: str | None,
    **given: object,
) -> int:
    """Check an agent, a client or a server against the protocol.

    CMD starts the agent as an editor would; AGENT is a name from the settings file. It is sent
    every request that an editor can send, in temporary folders, and is restarted where a check
    needs that. Each check names the paragraph it comes from. A rule that could not be observed
    never counts as passed.

      acphold check -- gemini --acp

    With --server it checks the agent of a server: `acphold serve`, for which this user is paired,
    or another one that speaks ACP over WebSocket and HTTP. Checks that need a local program are
    skipped.

    With --client it acts as an agent and checks the editor that starts it: set `acphold check
    --client --report FILE` as the agent's command there. Any prompt will do; the report in FILE is
    updated after each turn.

    The exit code is 1 if a check of level MUST (see --fail-on) fails and is not in the baseline, or
    if a check in the baseline passes.
    """
    command_words = enter_agent(agent, program).command
    if server is not None and not command_words and not given["client"]:
        from acphold.faces.cli.remote import obtain_token  # late: it brings HTTP

        far = server_at(server, ca)
        token = token or asyncio.run(obtain_token(far))
        server, ca = far.url, far.ca
    try:
        return checker.check(
            program=tuple(command_words),
            name="acphold check",
            began=checker.process_start(),
            server=server,
            token=token,
            ca=ca,
            **given,
        )
    except usage.CheckUsageError as error:
        raise UsageError(str(error)) from None
