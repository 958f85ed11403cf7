"""Other processes of this user that serve sessions: what is asked of them, and told to them.

Each of them answers two methods of our own on its socket, also before `initialize`, which would
start an agent. `_acphold/presence`: which sessions are live there, and what goes on in them.
`_acphold/changed`: the row of a session has changed. The owner of the session would notice that
within seconds by itself; told so, it tells its clients at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.errors import AcpholdError, MethodNotFoundError, RuntimeFolderError
from acphold.hub.owners import reachable_at
from acphold.journal import Journal
from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.request import Request
from acphold.schema import encode
from acphold.transports.runtime_folder import is_background, is_held, sockets
from acphold.transports.unix import connect

PRESENCE = "_acphold/presence"
CHANGED = "_acphold/changed"

ANSWER_SECONDS = 2.0
"""What processes have to answer, all that are asked together: one that is stopped is not waited
for."""


class LiveSession(Struct, frozen=True, rename="camel"):
    """A session in the memory of a process.

    `clients` have it open, of which `watching` only look on; `running` while a turn runs,
    `waiting` while the agent waits for a person's answer.
    """

    session_id: str
    clients: int = 0
    running: bool = False
    waiting: bool = False
    watching: int = 0

    @property
    def state(self) -> str:
        """In one word."""
        return "waiting" if self.waiting else "running" if self.running else "live"


class Process(Struct, frozen=True, rename="camel"):
    """A process that serves sessions; `path` is its socket."""

    pid: int
    agent: str
    sessions: list[LiveSession]
    path: str = ""

    @property
    def is_background(self) -> bool:
        """Whether it outlives its clients."""
        return is_background(self.path)


def answer(agent: str, sessions: list[LiveSession]) -> bytes:
    """What this process answers."""
    return encode(Process(os.getpid(), agent, sessions))


async def processes(seconds: float = ANSWER_SECONDS) -> list[Process]:
    """All processes of this user that answer within `seconds`."""
    try:
        paths = sockets()
    except (RuntimeFolderError, OSError):
        return []  # then nobody can be reached
    asking = [
        asyncio.create_task(presence_of(path, seconds), name="ask presence") for path in paths
    ]
    return [process for process in await asyncio.gather(*asking) if process is not None]


async def has_other_clients(session_id: str) -> bool:
    """Whether somebody beside us has a session open that we have open, here or elsewhere.

    Whoever only watches does not count.
    """
    live = [it for process in await processes() for it in process.sessions]
    return any(it.session_id == session_id and it.clients - it.watching > 1 for it in live)


class Silent(Struct, frozen=True):
    """A process in the background that runs and does not answer; `pid` is None if not known."""

    path: str
    pid: int | None

    @property
    def words(self) -> str:
        """What it is, and what to do about it."""
        which = f"the process at {self.path}" if self.pid is None else f"process {self.pid}"
        how = "kill it" if self.pid is None else f"`kill -9 {self.pid}` ends it"
        return (
            f"{which} in the background does not answer: it hangs, or was stopped; {how}, and "
            "nothing that was shown is lost"
        )


def silent_processes(answered: Sequence[Process]) -> list[Silent]:
    """The processes in the background that are not among those that answered."""
    known = {process.path for process in answered}
    try:
        paths = [path for path in sockets() if is_background(path) and path not in known]
    except (RuntimeFolderError, OSError):
        return []
    return [Silent(path, _pid_at(path)) for path in paths if is_held(path)]


def _pid_at(path: str) -> int | None:
    """The process that listens on a socket, as the kernel says (unix(7), SO_PEERCRED)."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        try:
            asking.connect(path)
            raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return None
    return int(struct.unpack("3i", raw)[0])


async def presence_of(path: str, seconds: float) -> Process | None:
    """What the process at this socket answers; None when it does not within `seconds`."""
    raw = await _answer_of(path, PRESENCE, b"{}", seconds)
    try:
        if raw is None:
            return None
        return msgspec.structs.replace(msgspec.json.decode(raw, type=Process), path=path)
    except msgspec.MsgspecError:
        return None


async def tell_owner(journal: Journal, session_id: str) -> bool:
    """Tell the process that has a session live, if there is one; whether it has been told."""
    holder = await journal.holder(session_id)
    path = "" if holder.is_released else reachable_at(holder.owner)
    return bool(path) and await tell_process(path, session_id)


async def tell_process(path: str, session_id: str) -> bool:
    """Tell the process at the socket `path`; whether it has been told."""
    params = encode({"sessionId": session_id})
    return await _answer_of(path, CHANGED, params, ANSWER_SECONDS) is not None


async def _answer_of(path: str, method: str, params: bytes, seconds: float) -> bytes | None:
    """What it answers; None from one that is gone, stopped, or of another release."""
    try:
        async with asyncio.timeout(seconds):
            peer = Peer(await connect(path, seconds), _Nobody(), name="process")
            async with connected(peer):
                return await peer.call_raw(method, params)
    except (AcpholdError, TimeoutError):
        return None


class _Nobody:
    """We only ask and tell."""

    async def on_request(self, request: Request) -> bytes:
        raise MethodNotFoundError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None
