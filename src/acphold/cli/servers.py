"""`--server`: the same commands, over the sessions of an `acphold serve` far away."""

from __future__ import annotations

import os
import shlex
from typing import Final

from acphold.cli.command_line import Parser, UsageError
from acphold.cli.terminal_text import on_one_line

VARIABLE: Final = "ACPHOLD_SERVER"
"""The server that is meant where none is named, nor a journal of this machine."""


def add_server(parser: Parser) -> None:
    """`--server URL`: None where it is not given."""
    parser.add_argument(
        "--server",
        metavar="URL",
        help="the sessions of this `acphold serve`: its URL, or the name of one that you have "
        f"paired with [default: {VARIABLE}]",
    )


def server_of(given: str | None, journal: str | None) -> str | None:
    """The URL of the server that is meant; None for this machine. UsageError, SettingsError."""
    if given is not None and journal is not None:
        raise UsageError("--server and --journal: a server has a journal of its own")
    named = given if given is not None or journal is not None else os.environ.get(VARIABLE)
    if not named:
        return None
    from acphold.client.known_servers import url_of  # late: most commands are for this machine
    from acphold.transports.urls import origin_of, transport_of

    url = url_of(named)
    try:
        origin_of(url)
        transport_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    return url


def typed_server(url: str) -> str:
    """` --server URL`, to be put into a command that is told to a person; no code is in it."""
    return f" --server {shlex.quote(on_one_line(url.partition('#')[0].rstrip('/')))}"
