"""`--server`: the same commands for the sessions of an `acphold serve` far away."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from acphold.extras import require
from acphold.faces.cli import options
from acphold.faces.cli.command_line import UsageError
from acphold.faces.cli.terminal_text import on_one_line


class FarServer(NamedTuple):
    """A server: its URL, which may contain a pairing code; `ca` is a file of certificates to
    trust besides the usual ones, None for the file used when pairing."""

    url: str
    ca: str | None = None

    @property
    def without_code(self) -> FarServer:
        """The server by its address alone."""
        return self._replace(url=self.url.partition("#")[0])

    @property
    def option(self) -> str:
        """` --server URL`, for commands that are printed; never contains the code."""
        return f" --server {shlex.quote(on_one_line(self.without_code.url.rstrip('/')))}"


def server_of(given: str | None, *, ca: str | None = None) -> FarServer | None:
    """Return the server that is meant; None for this machine. UsageError, SettingsError."""
    named = os.environ.get(options.SERVER_VARIABLE) if given is None else given
    if not named:
        if ca is not None:
            raise UsageError("--ca goes with --server")
        return None
    from acp_wire.transports.known_servers import url_of  # late: most commands are for this machine

    return server_at(url_of(named), ca)


def server_option(arguments: Sequence[str]) -> str:
    """Return ` --server URL` as typed in these arguments, for printing; "" if there is none."""
    words = iter(arguments)
    for word in words:
        flag, mark, given = word.partition("=")
        if flag == "--server":
            return FarServer(given if mark else next(words, "")).option
    return ""


def server_at(url: str, ca: str | None) -> FarServer:
    """Return the server at a URL; UsageError if it is not a server's URL, MissingExtraError."""
    require("serve", "a connection to a server")
    from acp_wire.transports.known_servers import origin_of, transport_of

    try:
        origin_of(url)
        transport_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    return FarServer(url, None if ca is None else os.path.abspath(os.path.expanduser(ca)))
