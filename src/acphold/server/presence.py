"""Which sessions are live, in which process, and what goes on in them: asked of the processes.

Every process that serves sessions answers our own method `_acphold/presence` on its socket, also
before `initialize`, which would start an agent.
"""

from __future__ import annotations

import asyncio
import os

import msgspec
from msgspec import Struct

from acphold.errors import AcpholdError, MethodNotFoundError, RuntimeFolderError
from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.request import Request
from acphold.schema import encode
from acphold.transports.runtime_folder import is_background, sockets
from acphold.transports.unix import connect

PRESENCE = "_acphold/presence"

ANSWER_SECONDS = 2.0
"""What all processes together have to answer: one that is stopped is not waited for."""


class LiveSession(Struct, frozen=True, rename="camel"):
    """A session in the memory of a process.

    `clients` have it open; `running` while a turn runs, `waiting` while the agent waits for a
    person's answer.
    """

    session_id: str
    clients: int = 0
    running: bool = False
    waiting: bool = False

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


async def presence_of(path: str, seconds: float) -> Process | None:
    """What the process at this socket answers; None when it does not within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            peer = Peer(await connect(path, seconds), _Nobody(), name="process")
            async with connected(peer):
                raw = await peer.call_raw(PRESENCE, b"{}")
    except (AcpholdError, TimeoutError):
        return None  # gone, stopped, or of another release
    try:
        return msgspec.structs.replace(msgspec.json.decode(raw, type=Process), path=path)
    except msgspec.MsgspecError:
        return None


class _Nobody:
    """We only ask."""

    async def on_request(self, request: Request) -> bytes:
        raise MethodNotFoundError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None
