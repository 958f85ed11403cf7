"""Servers far away, by the names that people call them by."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import urlsplit

from acphold.errors import SettingsError
from acphold.extras import require
from acphold.faces.cli.command_line import UsageError


class FarServer(NamedTuple):
    """A server: its URL, which may contain a pairing code; `ca` is a file of certificates to
    trust besides the usual ones, None for the file used when pairing."""

    url: str
    ca: str | None = None

    @property
    def without_code(self) -> str:
        """Its address alone."""
        return self.url.partition("#")[0].rstrip("/")


def server_at(given: str, ca: str | None = None) -> FarServer:
    """Return the server at a URL, or the paired one that is called so; UsageError if it is not a
    server's URL, SettingsError, MissingExtraError."""
    require("serve", "a connection to a server")
    from acp_wire.transports.known_servers import origin_of

    url = _url_of(given)
    try:
        origin_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    return FarServer(url, None if ca is None else os.path.abspath(os.path.expanduser(ca)))


def server_names() -> list[str]:
    """Return the names of the servers that we have paired with: `desk.example`, or with the
    port."""
    from acp_wire.transports.known_servers import known_servers  # late, as in `_url_of`

    origins = list(known_servers())
    hosts = [urlsplit(origin).hostname or origin for origin in origins]
    return [
        host if hosts.count(host) == 1 else urlsplit(origin).netloc
        for origin, host in zip(origins, hosts, strict=True)
    ]


def _url_of(name: str) -> str:
    """Return the URL of a server that we have paired with, by its host, with or without the port,
    or the first word of that; a URL is returned as it is. SettingsError if none or several
    match."""
    from acp_wire.transports.known_servers import is_url, known_servers  # late: few need a server

    if is_url(name):
        return name
    origins = list(known_servers())
    found = [
        origin
        for origin in origins
        for parts in (urlsplit(origin),)
        if name.lower() in (parts.netloc, parts.hostname, (parts.hostname or "").partition(".")[0])
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{name!r} is ambiguous: it fits {', '.join(found)}")
    known = f"paired with {', '.join(origins)}" if origins else "paired with none"
    raise SettingsError(
        f"no server is known as {name!r} (this machine has {known}); give its URL, the first time "
        "with the code that `acphold serve` prints there"
    )
