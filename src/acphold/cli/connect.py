"""`acphold connect HOST`: an editor's agent command for an agent on another machine."""

from __future__ import annotations

from acphold.cli.command_line import Parser, UsageError
from acphold.cli.ssh import a_host, become_ssh


def parser() -> Parser:
    """The arguments of `connect`."""
    usage = "HOST {AGENT | -- CMD...}"
    made = Parser(connect, "connect", usage, runs_program=True)
    made.add_argument(
        "host", metavar="HOST", type=a_host, help="a machine, as `ssh` knows it: user@machine"
    )
    made.add_agent()
    return made


def connect(*, host: str, agent: str | None, program: tuple[str, ...]) -> int:
    """Speak ACP on stdio for an editor, in front of an agent far away: on another machine.

    It is `ssh HOST acphold wrap --background -- CMD`, with your own ssh settings: the agent, its
    files and the journal are there, and go on when the connection breaks. AGENT is a name of the
    settings file there.
    """
    if (agent is None) == (not program):
        raise UsageError("either the name of an agent there, or its command behind `--`")
    words = [agent] if agent is not None else ["--", *program]
    become_ssh(host, ["wrap", "--background", *words])
