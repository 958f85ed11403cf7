"""Addresses of processes that serve sessions, as URLs: `unix:/path/of/a/socket`."""

from __future__ import annotations

from collections.abc import Iterable

from acphold.errors import ConnectionLostError, SilentPeerError
from acphold.rpc import Transport
from acphold.transports import unix

UNIX = "unix:"


def unix_address(path: str) -> str:
    """The address of who listens on the Unix socket `path`."""
    return f"{UNIX}{path}"


def pid_at(addresses: Iterable[str]) -> int | None:
    """The number of the process that these lead to, as the kernel of this machine says."""
    paths = [it.removeprefix(UNIX) for it in addresses if it.startswith(UNIX)]
    return next(filter(None, map(unix.pid_at, paths)), None)


async def connect(addresses: Iterable[str], seconds: float) -> Transport:
    """A connection to the process that these addresses lead to; the first one that takes us.

    Raises SilentPeerError when somebody listens and takes no connection within `seconds`, else
    ConnectionLostError.
    """
    why: ConnectionLostError | None = None
    for address in addresses:
        if not address.startswith(UNIX):
            continue  # of a newer release
        try:
            return await unix.connect(address.removeprefix(UNIX), seconds)
        except ConnectionLostError as exc:
            why = why if isinstance(why, SilentPeerError) else exc
    raise why or ConnectionLostError("it has no address at which it can be reached from here")
