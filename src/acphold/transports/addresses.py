"""Addresses of processes that serve sessions, as URLs.

    unix:/path/of/a/socket?on=MARK    a Unix socket, on the machine with this mark
    https://host:port/owners/MARK/NAME    a node: another machine with the same journal, or this one

Who listens on a Unix socket is of the same user, as the kernel says. A node wants a token of the
nodes, which is read from NODE_TOKEN. The MARK there is of one process: another one that serves
there later says that it has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from typing import Final
from zlib import crc32

from acphold.errors import (
    ConnectionLostError,
    EndedPeerError,
    RemoteRefusalError,
    SilentPeerError,
)
from acphold.rpc import MAX_MESSAGE, Transport
from acphold.transports import unix
from acphold.transports.urls import is_url

UNIX = "unix:"
MARK = "?on="

NODE_TOKEN: Final = "ACPHOLD_NODE_TOKEN"
"""The variable with the token by which nodes come to each other."""

OWNERS: Final = "/owners/"
"""Where a node has its owners of sessions, each by the mark of its process and a name."""

ENDED: Final = 410
"""What a node says of an owner of a process that was there before: HTTP, Gone."""

BOOT: Final = "/proc/sys/kernel/random/boot_id"
"""What the kernel of no other machine says, nor this one's at another time; random(4)."""


def is_node() -> bool:
    """Whether this machine is one of several that share a journal."""
    return NODE_TOKEN in os.environ


@cache
def _mark() -> str:
    try:
        with open(BOOT, "rb") as file:
            return f"{crc32(file.read()):08x}"
    except OSError:
        return ""


def unix_address(path: str) -> str:
    """The address of who listens on the Unix socket `path`."""
    return f"{UNIX}{path}{MARK}{_mark()}"


def _here(addresses: Iterable[str]) -> list[str]:
    """The paths of the sockets that are on this machine."""
    cut = [it.removeprefix(UNIX).rpartition(MARK) for it in addresses if it.startswith(UNIX)]
    return [path for path, _, mark in cut if mark == _mark()]


def are_here(addresses: Iterable[str]) -> bool:
    """Whether the process that these lead to is on this machine, where silence is not the
    network's. One in a container beside us has our kernel, and a socket in folders of its own."""
    return any(map(os.path.exists, _here(addresses)))


def can_be_tried(addresses: Iterable[str]) -> bool:
    """Whether any of them leads somewhere from here: else that nobody is met there says nothing."""
    addresses = tuple(addresses)
    return bool(_here(addresses)) or (is_node() and any(map(is_url, addresses)))


def pid_at(addresses: Iterable[str]) -> int | None:
    """The number of the process that these lead to, as the kernel of this machine says."""
    return next(filter(None, map(unix.pid_at, _here(addresses))), None)


async def connect(addresses: Iterable[str], seconds: float, limit: int = MAX_MESSAGE) -> Transport:
    """A connection to the process that these addresses lead to; the first one that takes us.

    Raises SilentPeerError when somebody listens and takes no connection within `seconds`,
    EndedPeerError when somebody else listens there now, else ConnectionLostError. `limit` is the
    longest message, in bytes.
    """
    addresses = tuple(addresses)
    why: ConnectionLostError | None = None
    for path in _here(addresses):
        try:
            return await unix.connect(path, seconds)
        except ConnectionLostError as exc:
            why = why if isinstance(why, SilentPeerError) else exc
    token = os.environ.get(NODE_TOKEN)
    for url in filter(is_url, addresses if token else ()):
        try:
            return await _node(url, token or "", seconds, limit)
        except ConnectionLostError as exc:
            why = why if isinstance(why, SilentPeerError) else exc
    raise why or ConnectionLostError("it has no address at which it can be reached from here")


async def _node(url: str, token: str, seconds: float, limit: int) -> Transport:
    from acphold.transports import websocket  # late: next to nobody has nodes
    from acphold.transports.route import Route

    try:
        return await websocket.connect(Route(url, seconds=seconds, limit=limit, token=token))
    except websocket.NoUpgradeError as exc:
        kind = EndedPeerError if exc.status == ENDED else ConnectionLostError
        raise kind(str(exc)) from None
    except RemoteRefusalError as exc:
        raise ConnectionLostError(str(exc)) from None
