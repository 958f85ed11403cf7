"""Addresses of processes that serve sessions, as URLs.

    unix:/path/of/a/socket?on=MACHINE.FOLDER    a Unix socket, in this folder of this machine
    https://host:port/owners/MARK/NAME    a node: another machine with the same journal, or this one

The listener on a Unix socket is of the same user, as the kernel says. A node wants a token of the
nodes, which is read from NODE_TOKEN. The MARK there is of one process: another one that serves
there later says that it has ended.

Two containers have one kernel and folders of their own, which may have the same path: a socket that
is found at an owner's path there is somebody else's, mostly our own. So FOLDER says which one is
meant. Without one, the path alone counts.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, partial
from typing import Final
from zlib import crc32

from acp_wire.errors import (
    ConnectionLostError,
    RemoteRefusalError,
    SettingsError,
    SilentPeerError,
)
from acp_wire.rpc import MAX_MESSAGE, Transport
from acphold.machine import unix

UNIX = "unix:"
MARK = "?on="

NODE_TOKEN: Final = "ACPHOLD_NODE_TOKEN"
"""The variable with the token by which nodes connect to each other."""

OWNERS: Final = "/owners/"
"""The path on a node of its owners of sessions, each by the mark of its process and a name."""

MOVES: Final = "/moves/"
"""The path at which a session leaves a server, followed by its id."""

ENDED: Final = 410
"""A node's answer for an owner in a process that was there before: HTTP, Gone."""

BOOT: Final = "/proc/sys/kernel/random/boot_id"
"""An id that no other machine has, nor this one after a reboot; random(4)."""


def is_node() -> bool:
    """Return True if this machine is one of several that share a journal."""
    return NODE_TOKEN in os.environ


def become_node(env: Mapping[str, str]) -> None:
    """Connect to other nodes as a server in this environment from now on: with its token, by its
    proxy, and trusting its certificates."""
    proxies = (f"{scheme}_proxy" for scheme in ("http", "https", "all", "no"))
    names = (NODE_TOKEN, "SSL_CERT_FILE", "SSL_CERT_DIR", *proxies)
    os.environ.update((it, env[it]) for it in env if it in names or it.lower() in names)


@cache
def _machine() -> str:
    try:
        with open(BOOT, "rb") as file:
            return f"{crc32(file.read()):08x}"
    except OSError:
        return ""


def _folder(path: str) -> str:
    """The folder of a socket, as no other on this machine is called; "" when it is not there."""
    try:
        found = os.stat(os.path.dirname(path))
    except OSError:
        return ""
    return f"{found.st_dev:x}-{found.st_ino:x}"


def unix_address(path: str) -> str:
    """The address of who listens on the Unix socket `path`."""
    return f"{UNIX}{path}{MARK}{_machine()}.{_folder(path)}"


def paths_here(addresses: Iterable[str]) -> list[str]:
    """The paths of the sockets whose folders are those that we see."""
    found = []
    for address in addresses:
        path, _, mark = address.removeprefix(UNIX).rpartition(MARK)
        machine, _, folder = mark.partition(".")
        is_ours = address.startswith(UNIX) and machine == _machine()
        if is_ours and folder in ("", _folder(path)):
            found.append(path)
    return found


def are_here(addresses: Iterable[str]) -> bool:
    """Return True if the process at these addresses is on this machine, where silence is not the
    network's fault."""
    return any(map(os.path.exists, paths_here(addresses)))


def can_be_tried(addresses: Iterable[str]) -> bool:
    """Return True if any of them can be tried from here; otherwise finding nobody there proves
    nothing."""
    addresses = tuple(addresses)
    return bool(paths_here(addresses)) or (is_node() and bool(_nodes(addresses)))


def pid_at(addresses: Iterable[str]) -> int | None:
    """Return the number of the process at these addresses, as the kernel of this machine says."""
    return next(filter(None, map(unix.pid_at, paths_here(addresses))), None)


async def connect(addresses: Iterable[str], seconds: float, limit: int = MAX_MESSAGE) -> Transport:
    """Connect to the process at these addresses, at the first one that accepts.

    Raises SilentPeerError if a listener accepts no connection within `seconds`, else
    ConnectionLostError. `limit` is the longest message, in bytes.
    """
    addresses = tuple(addresses)
    ways: list[Callable[[], Awaitable[Transport]]] = [
        partial(unix.connect, path, seconds) for path in paths_here(addresses)
    ]
    if token := os.environ.get(NODE_TOKEN):
        ways += [partial(_node, url, token, seconds, limit) for url in _nodes(addresses)]
    why: ConnectionLostError | None = None
    for way in ways:
        try:
            return await way()
        except ConnectionLostError as exc:
            why = why if isinstance(why, SilentPeerError) else exc
    raise why or ConnectionLostError("none of its addresses can be reached from here")


async def are_deserted(addresses: Iterable[str], seconds: float) -> bool:
    """Return True if nobody serves at these addresses any more, which can be seen from here."""
    addresses = tuple(addresses)
    if not can_be_tried(addresses):
        return False
    try:
        transport = await connect(addresses, seconds)
    except SilentPeerError:
        return False
    except ConnectionLostError:
        return True
    await transport.aclose()
    return False


def _nodes(addresses: Iterable[str]) -> list[str]:
    """Return those that lead to a node."""
    from acp_wire.transports.known_servers import is_url  # late: a `wrap` on its own needs no URLs

    return list(filter(is_url, addresses))


async def _node(url: str, token: str, seconds: float, limit: int) -> Transport:
    from acp_wire.transports.dial import Dial  # late: few have nodes

    try:
        dial = Dial(f"{url}?transport=websocket", token, seconds=seconds, limit=limit, ca="")
        return await dial()  # nodes do not pair: none of this asks the file of pairings
    except RemoteRefusalError as exc:
        raise ConnectionLostError(str(exc)) from None
    except SettingsError as exc:  # it cannot be asked from here, so that proves nothing
        raise SilentPeerError(str(exc)) from None
