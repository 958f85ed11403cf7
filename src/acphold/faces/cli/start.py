"""The first milliseconds of `acphold wrap`: only as much as starting the agent takes.

An editor waits for the agent, so the agent must not wait for us. This imports only what
starting it needs, and none of that imports contextlib, signal or importlib: five milliseconds.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import sys

from acp_wire.processes.program import Program, become, launch
from acphold.errors import AgentStartError, SettingsError

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from acphold.faces.cli.settings import NamedAgent


def start_wrap(arguments: list[str]) -> int:
    """Start the command after `--` and then import the rest; `arguments` follow `wrap`."""
    place = arguments.index("--")
    options, command = arguments[:place], arguments[place + 1 :]
    # For terminal sign-in a client runs the configured command, this one, in a terminal (spec v1,
    # authentication): there the agent takes our place, so the exit code is the agent's.
    if command and not options and _on_terminal():
        _become(command)
    if "--help" in options or "-h" in options:
        return _run_command_line(["--help"])
    return _start(options, command)


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
    from acphold.faces.cli.front import is_background, start_front

    kept = agent.options.get("background")
    if agent.options.get("no_background") is True:
        kept = False
    if is_background(options, kept):
        return start_front(arguments, agent.env, agent.command, agent.options.get("journal"))
    agent.enter()
    return _start(options, [*agent.command], agent)


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


def _start(options: list[str], command: list[str], agent: NamedAgent | None = None) -> int:
    launched = _launch(command)
    from acp_wire.transports.stdio import claim_stdio

    streams = claim_stdio()  # from here on no print disturbs the protocol
    # The rest is imported while the agent imports its own.
    import gc

    from acp_wire.transports.late_tls import load_asyncio

    gc.disable()
    load_asyncio()
    from acphold.faces.cli.wrap import wrap

    gc.freeze()  # imported modules stay: no collection has to look at them, now or ever
    gc.enable()
    return wrap(options, command, launched, streams, agent)


def _launch(command: list[str]) -> Program | None:
    if not command:
        return None
    try:
        return launch(command)
    except AgentStartError:
        return None  # the answer to `initialize` reports it: editors show that


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
