"""The first milliseconds of `acphold wrap`: only what it takes to start the agent."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from acphold.errors import AgentStartError
from acphold.processes.program import Program, launch
from acphold.transports.imports import importing
from acphold.transports.late_tls import load_asyncio


def start_wrap(arguments: list[str]) -> int:
    """Start the command behind `--` and then import the rest; `arguments` follow `wrap`."""
    place = arguments.index("--")
    options, command = arguments[:place], arguments[place + 1 :]
    wants_help = "--help" in options or "-h" in options
    if command and not options and sys.stdin is not None and sys.stdin.isatty():
        _become(command)
    if wants_help:
        from acphold.cli.main import main

        return main(["wrap", "--help"])
    launched: Program | None = None
    if command:
        with suppress(AgentStartError):  # the answer to `initialize` tells it: editors show that
            launched = launch(command)
    from acphold.transports.stdio import claim_stdio

    streams = claim_stdio()  # from here on nothing that prints disturbs the protocol
    with importing():
        load_asyncio()
        from acphold.cli.wrap import wrap

    return wrap(options, command, launched, streams)


def _become(command: list[str]) -> None:
    """On a terminal there is no editor: run the program itself, as for signing in.

    Spec v1, authentication, "Terminal authentication": a client runs the configured agent
    command, which then is this one, in a terminal with other arguments.
    """
    print(  # the command line speaks
        f"acphold: stdin is a terminal, so {command[0]} runs by itself; "
        "`acphold wrap` is meant as an editor's agent command",
        file=sys.stderr,
    )
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        print(f"acphold: cannot run {command[0]!r}: {exc.strerror}", file=sys.stderr)
        sys.exit(127)
