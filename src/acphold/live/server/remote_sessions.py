"""The sessions that a client of this process has open in other processes, their owners.

Each has a line of its own (`server.far_line`), on which this process is a client of the owner. When
the owner ends, or another process takes the session from one that was stopped, the line's next
connection leads to the next owner; to this process, if the session has none. So the client goes on
as over any lost connection: it is resumed after its last position, and its prompts are sent again
under their ids. The journal decides if such a prompt has begun (`session_requests`): it knows the
entry of its id.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from acp_wire.rpc import Transport
from acp_wire.rpc.requests import Request
from acp_wire.schema import CLOSE_SESSION, encode
from acp_wire.schema.methods import ARCHIVE_SESSION
from acp_wire.tasks import END_SECONDS, TaskSet, end
from acp_wire.transports.addresses import are_here, connect
from acp_wire.transports.streams import memory_pair
from acphold import errors
from acphold.journal.owners import seems_silent
from acphold.live.hub.attachment import Client
from acphold.live.hub.hub import Hub
from acphold.live.reading.neighbours import is_answering
from acphold.live.server import bounds

if TYPE_CHECKING:  # late below: an editor waits for the start, and few sessions are live elsewhere
    from acphold.live.lines.line import OpenSession
    from acphold.live.server.far_line import FarLine

log = logging.getLogger(__name__)

OWNER = "the process that owns this session"

MUTE = "The process that owns this session is not responding"
MUTE_HOW = (
    "It was stopped, or the connection to it is down. Your messages are waiting for it. To "
    "continue without it, cancel, and send them again."
)
RESPONDING = "The process that owns this session is responding again"

AttendHere = Callable[[Transport], Coroutine[Any, Any, None]]
"""Attends a client of this process."""


class RemoteSessions:
    """See the module. `introduction` introduces the client to owners:
    `capabilities.introduction_for_owner`; `attend_here` attends its line if that leads here."""

    def __init__(self, hub: Hub, client: Client, limit: int, attend_here: AttendHere) -> None:
        self.introduction = b"{}"
        self._is_over = False
        self._hub = hub
        self._client = client
        self._limit = limit + bounds.ADDED_BYTES
        self._attend_here = attend_here
        self._lines: dict[str, SessionLine] = {}
        self._ending = TaskSet()
        self._watching: asyncio.Task[None] | None = None

    def has(self, session_id: str) -> bool:
        """Return True if the client has a session open over a line, or is opening it there."""
        return session_id in self._lines

    async def reach(self, held: errors.HeldElsewhereError) -> None:
        """Make a line to the owner of a session, over which nothing is open yet; none if the owner
        has ended or hangs, and may be replaced from now on. Raises as `connect_to`."""
        connection = await self.connect_to(held)
        if connection is not None and held.session_id in self._lines:
            await connection.aclose()  # it was made meanwhile
        elif connection is not None:
            self._begin(held.session_id, held, connection)

    async def connect_to(
        self, held: errors.HeldElsewhereError, *, is_doubted: bool = False
    ) -> Transport | None:
        """Return a connection to the owner of a session; None if it may be replaced, as in `reach`.

        The owner is asked first if it is on this machine, or `is_doubted`. Raises
        ConnectionLostError if it cannot be reached at present, and UnreachableOwnerError if it
        never can from here.
        """
        try:
            is_asked = is_doubted or are_here(held.addresses)
            if is_asked and not await is_answering(held.addresses, bounds.OWNER_ANSWER_SECONDS):
                raise errors.SilentPeerError("it does not answer")
            return await connect(held.addresses, bounds.OWNER_ANSWER_SECONDS, self._limit)
        except errors.ConnectionLostError as problem:
            # On another machine the network may be the cause, so the journal decides.
            hangs = isinstance(problem, errors.SilentPeerError) and are_here(held.addresses)
            if hangs or isinstance(problem, errors.EndedPeerError) or held.is_silent:
                log.info("session %s may be taken over: %s", held.session_id, problem)
                self._hub.ownership.give_up(held.session_id, held.epoch)
                return None
            why = f"it is open in {held.where}, which cannot be reached from here: {problem}"
            if held.owner_id and not held.addresses:
                raise errors.UnreachableOwnerError(held.session_id, why) from problem
            raise errors.ConnectionLostError(why) from problem

    async def open(self, request: Request, session_id: str, opening: OpenSession) -> None:
        """Send a request that opens a session over its line, and return once it is answered."""
        line = self._lines[session_id]
        await line.far.open(request, opening, partial(self._end_if_left, line))

    def follow(self, session_id: str, opened: OpenSession) -> None:
        """Have the client follow a session that this process has lost."""
        if not self._is_over and session_id not in self._lines:
            self._begin(session_id).far.follow(session_id, opened)

    def _begin(
        self,
        session_id: str,
        held: errors.HeldElsewhereError | None = None,
        connection: Transport | None = None,
    ) -> SessionLine:
        from acphold.live.server.far_line import FarLine

        line = SessionLine(session_id, self, self._hub, self._attend_here, held)
        line.far = FarLine(
            self._client,
            line.dial,
            OWNER,
            self._limit,
            connection,
            introduction=self.introduction,
            follows_owner=True,
        )
        self._lines[session_id] = line
        line.running = asyncio.create_task(self._run(line), name="session line")
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="watch owners")
        return line

    async def _run(self, line: SessionLine) -> None:
        try:
            await line.far.run()
        except errors.UnknownSessionError:
            self._hub.ownership.deleted.add(line.session_id)
        except errors.AcpError as exc:
            log.warning("session %s is not open any more: %s", line.session_id, exc)
        except Exception:  # nobody awaits this task
            log.exception("the line of session %s failed", line.session_id)
        self._end(line)

    def ask(self, session_id: str, request: Request) -> None:
        """Have the owner answer a request about a session."""
        line = self._lines[session_id]
        if request.method == CLOSE_SESSION.name and not line.far.is_connected:
            self._end(line)
            request.answer(b"{}")
            return
        line.far.ask(request, partial(self._end_if_left, line))

    def tell(self, session_id: str, method: str, params: bytes) -> None:
        """Send a notification about a session to its owner."""
        self._lines[session_id].far.tell(method, params)

    async def archive(self, session_id: str) -> None:
        """Archive and close a session at its owner, if the client has it open there."""
        if (line := self._lines.get(session_id)) is not None:
            await line.far.call(ARCHIVE_SESSION.name, encode({"sessionId": session_id}))
            self._end(line)

    def _end_if_left(self, line: SessionLine) -> None:
        """End a line over which the client has nothing open."""
        if not line.far.has(line.session_id):
            self._end(line)

    def _end(self, line: SessionLine) -> None:
        if self._lines.get(line.session_id) is line:
            del self._lines[line.session_id]
            line.far.close()
            self._ending.start(line.aclose(), "end line")

    async def _watch(self) -> None:
        """Check regularly if the owners respond, and still own their sessions."""
        while self._lines:
            await asyncio.sleep(bounds.OWNER_ANSWER_SECONDS / 2)
            for line in tuple(self._lines.values()):
                if line.far.is_idle:  # it could not be opened again
                    self._end(line)
            await asyncio.gather(*(self._check(line) for line in tuple(self._lines.values())))

    async def _check(self, line: SessionLine) -> None:
        try:
            await line.check()
        except errors.AcpError as exc:
            log.info("cannot find the owner of session %s: %s", line.session_id, exc)
        except Exception:  # the others are checked, and this one again
            log.exception("could not check the owner of session %s", line.session_id)

    async def leave(self) -> None:
        """Leave every owner."""
        for line in tuple(self._lines.values()):
            self._end(line)
        await self._ending.aclose(END_SECONDS)

    async def aclose(self) -> None:
        """Leave every owner, and begin nothing any more: the client has gone."""
        self._is_over = True
        await end(self._watching)
        await self.leave()


class SessionLine:
    """The line of one session, to the owner that `held` names; None if it leads to this process."""

    far: FarLine
    running: asyncio.Task[None]

    def __init__(
        self,
        session_id: str,
        remote: RemoteSessions,
        hub: Hub,
        attend_here: AttendHere,
        held: errors.HeldElsewhereError | None,
    ) -> None:
        self.session_id = session_id
        self._remote = remote
        self._hub = hub
        self._attend_here = attend_here
        self._held = held
        self._is_mute = False
        self._attending = TaskSet()

    async def dial(self) -> Transport:
        """Connect to the process that has the session: see `reconnection.OpenTransport`."""
        try:
            await self._hub.ownership.require_free(self.session_id)
        except errors.HeldElsewhereError as held:
            is_doubted = self._held is not None and self._held.epoch == held.epoch
            transport = await self._remote.connect_to(held, is_doubted=is_doubted)
            if transport is not None:
                self._held, self._is_mute = held, False
                return transport
        except errors.JournalError as exc:
            raise errors.ConnectionLostError(str(exc)) from exc
        self._held = None
        near, far = memory_pair()
        self._attending.start(self._attend_here(far), "attend line")
        return near

    async def check(self) -> None:
        """Replace the connection if the owner has lost the session, or has owed an answer for too
        long; tell the client if the owner does not respond to it."""
        if (held := self._held) is None:
            return
        try:
            whose = await self._hub.journal.owner(self.session_id)
        except errors.UnknownSessionError:  # it was deleted: nobody can say so but a new owner
            self.far.give_up()
            return
        if whose.epoch != held.epoch:
            self.far.give_up()
            return
        if not self.far.is_waiting:
            return
        try:
            responds = await is_answering(held.addresses, bounds.UNTOLD_SECONDS)
        except errors.ConnectionLostError:  # it listens nowhere just now
            responds = not seems_silent(whose)
        if not responds and self.far.is_overdue(bounds.OWNER_ANSWER_SECONDS):
            self.far.give_up()
            return
        if self._is_mute == responds:
            self._is_mute = not responds
            if responds:
                self.far.notify_client(RESPONDING, "")
            else:
                self.far.notify_client(MUTE, MUTE_HOW, "warning")

    async def aclose(self) -> None:
        """End it, and leave the owner."""
        await end(self.running)
        await self._attending.aclose(END_SECONDS)
