"""The start of `acphold wrap` where the words alone do not say what to do: for an agent that has a
name, and on a terminal, where there is no editor.

An editor waits for it, so this imports little.
"""

from __future__ import annotations

import sys

from acp_wire.processes.program import become
from acphold.errors import AgentStartError, SettingsError


def start_wrap(arguments: list[str]) -> int:
    """Serve the command after `--`; `arguments` follow `wrap`."""
    place = arguments.index("--")
    options, command = arguments[:place], arguments[place + 1 :]
    if "--help" in options or "-h" in options:
        return _run_command_line(["--help"])
    # For terminal sign-in a client runs the configured command, this one, in a terminal (spec v1,
    # authentication): there the agent takes our place, so the exit code is the agent's.
    if command and not options:
        _become(command)
    if not command or not _are_wrap_options(options):
        return _run_command_line(arguments)
    from acphold.faces.cli.front import start_front

    return start_front(arguments)


def start_named(arguments: list[str]) -> int:
    """Start an agent of the settings file: `wrap` is followed by its name, or options and it."""
    name, options = arguments[0], arguments[1:]
    if name.startswith("-"):
        from acphold.faces.cli.wrap import split_name

        name, options = split_name(arguments)
    if not name or "--help" in options or "-h" in options:
        return _run_command_line(arguments)
    from acphold.faces.cli.settings import agent_command

    try:
        agent = agent_command(name)
    except SettingsError as exc:
        # A person reads the error on the terminal; an editor gets it as the answer to its requests.
        if _on_terminal():
            return _run_command_line(arguments)
        from acp_wire.transports.stdio import claim_stdio

        streams = claim_stdio()
        from acphold.faces.cli.wrap import refuse_all

        return refuse_all(exc, streams)
    if _on_terminal() and not _are_wrap_options(options):
        agent.enter()
        _become([*agent.command, *options])
    # The command line overrides the settings file.
    from acphold.faces.cli.front import start_front

    return start_front(arguments, agent.env, agent.command, agent.options.get("journal"))


def _run_command_line(arguments: list[str]) -> int:
    """Run a `wrap` that starts no agent: for its help, or for its error message."""
    from acphold.faces.cli.main import main

    return main(["wrap", *arguments])


def _on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _are_wrap_options(words: list[str]) -> bool:
    """Return True for options of `wrap`; for signing in, a client adds the agent's own options."""
    from acphold.faces.cli.command_line import UsageError
    from acphold.faces.cli.wrap import parser

    try:
        parser().read([*words, "--"])
    except UsageError:
        return False
    return bool(words)


def _become(command: list[str]) -> None:
    """Run the program itself: on a terminal there is no editor, as when signing in.

    Spec v1, authentication, "Terminal authentication": a client runs the configured agent
    command, which then is this one, in a terminal with other arguments.
    """
    print(
        f"acphold: stdin is a terminal, so {command[0]} runs without acphold; "
        "`acphold wrap` is meant as an editor's agent command",
        file=sys.stderr,
    )
    try:
        become(command)
    except AgentStartError as exc:
        print(f"acphold: {exc}", file=sys.stderr)
        sys.exit(127)
