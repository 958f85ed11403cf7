"""`--server`: the same commands, over the sessions of an `acphold serve` far away."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from acphold.cli.command_line import Parser, UsageError
from acphold.cli.terminal_text import on_one_line

VARIABLE: Final = "ACPHOLD_SERVER"
"""The server that is meant where none is named, nor a journal of this machine."""


class FarServer(NamedTuple):
    """One: its URL, which may have a code to pair with in it; `ca` is a file of certificates to
    trust beside the usual, None for the one that it was paired with."""

    url: str
    ca: str | None = None

    @property
    def typed(self) -> str:
        """` --server URL`, to be put into a command that is told to a person; no code is in it."""
        return f" --server {shlex.quote(on_one_line(self.url.partition('#')[0].rstrip('/')))}"


def add_server(parser: Parser) -> None:
    """`--server URL` and `--ca FILE`: None where they are not given."""
    parser.add_argument(
        "--server",
        metavar="URL",
        help="use the sessions of this `acphold serve`: its URL, or the name of a paired server "
        f"[default: {VARIABLE}]",
    )
    add_ca(parser, "with --server")


def add_ca(parser: Parser, when: str) -> None:
    """`--ca FILE`: None where it is not given."""
    parser.add_argument(
        "--ca", metavar="FILE", help=f"{when}: also trust the certificates in this file; remembered"
    )


def server_of(given: str | None, ca: str | None, journal: str | None) -> FarServer | None:
    """The server that is meant; None for this machine. UsageError, SettingsError."""
    if given is not None and journal is not None:
        raise UsageError("--server and --journal: a server has a journal of its own")
    named = given if given is not None or journal is not None else os.environ.get(VARIABLE)
    if not named:
        if ca is not None:
            raise UsageError("--ca goes with --server")
        return None
    from acphold.transports.known_servers import url_of  # late: most commands are for this machine

    return checked(url_of(named), ca)


def typed_server(arguments: Sequence[str]) -> str:
    """` --server URL` as these arguments have it, to be told to a person; "" where they do not."""
    words = iter(arguments)
    for word in words:
        flag, mark, given = word.partition("=")
        if flag == "--server":
            return FarServer(given if mark else next(words, "")).typed
    return ""


def checked(url: str, ca: str | None) -> FarServer:
    """The server at a URL; UsageError for what is no URL of one."""
    from acphold.transports.urls import origin_of, transport_of

    try:
        origin_of(url)
        transport_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    return FarServer(url, None if ca is None else os.path.abspath(os.path.expanduser(ca)))
