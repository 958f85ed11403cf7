"""How the owner of a session is named in its lease: `HOST:PID`, and where it can be reached.

Behind a second colon stands the path of its Unix socket. An owner without one cannot be reached
(an import, a process that could not make its socket): its sessions are taken over.
"""

from __future__ import annotations

import socket
from os import getpid

from msgspec import Struct

from acphold.transports.runtime_folder import is_running


class Owner(Struct, frozen=True):
    """A process that may own sessions; `path` is that of its socket, "" without one.

    `pid` is None for a name that names no process.
    """

    host: str
    pid: int | None
    path: str


def owner_name(path: str = "") -> str:
    """How this process is named in a lease."""
    return f"{socket.gethostname()}:{getpid()}" + (f":{path}" if path else "")


def parsed(name: str) -> Owner:
    """The owner behind a name of a lease."""
    host, _, rest = name.partition(":")
    pid, _, path = rest.partition(":")
    return Owner(host, int(pid) if pid.isdecimal() else None, path)


def lives(name: str) -> bool:
    """Whether the process of this name may still be there; True for one on another machine."""
    owner = parsed(name)
    if owner.host != socket.gethostname() or owner.pid is None:
        return True
    return is_running(owner.pid)


def reachable_at(name: str) -> str:
    """The path at which an owner on this machine may be reached; "" when there is none."""
    owner = parsed(name)
    return owner.path if owner.host == socket.gethostname() else ""
