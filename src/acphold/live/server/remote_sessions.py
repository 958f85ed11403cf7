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
from typing import TYPE_CHECKING, Any

from acp_wire.rpc import Transport
from acp_wire.rpc.requests import Request
from acp_wire.schema import CLOSE_SESSION, encode
from acp_wire.schema.methods import ARCHIVE_SESSION
from acp_wire.tasks import TaskSet, end
from acp_wire.transports.streams import memory_pair
from acphold import errors
from acphold.journal.owners import At
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.agents.client_methods import Place
from acphold.live.hub.attachment import Client
from acphold.live.hub.hub import Hub
from acphold.live.hub.ownership import end_of_sent
from acphold.live.reading.one_question import dial_owner, is_answering
from acphold.live.server import bounds
from acphold.live.server.checked_params import queue_request
from acphold.live.server.methods import method_of

if TYPE_CHECKING:  # late below: an editor waits for the start, and few sessions are live elsewhere
    from acphold.live.lines.line import OpenSession

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
        self.hub = hub
        self.client = client
        self.limit = limit + bounds.ADDED_BYTES
        self.attend_here = attend_here
        self._lines: dict[str, SessionLine] = {}
        self._ending = TaskSet()
        self._watching: asyncio.Task[None] | None = None

    def has(self, session_id: str) -> bool:
        """Return True if the client has a session open over a line, or waits for an answer."""
        return session_id in self._lines and not self._lines[session_id].far.is_idle

    async def reach(self, session_id: str) -> bool:
        """Make a line to the owner of a session, over which nothing is open yet; return False if no
        other process owns it. Raises OwnerAwayError and HeldElsewhereError."""
        if (found := await dial_owner(self.hub.journal, session_id, self.limit)) is None:
            return False
        if session_id in self._lines:  # it was made meanwhile
            await found[1].aclose()
        else:
            self._begin(SessionLine(session_id, self, found))
        return True

    async def open(self, request: Request, session_id: str, opening: OpenSession) -> None:
        """Send a request that opens a session over its line, and return once it is answered."""
        if (line := self._lines.get(session_id)) is None:  # it has ended, idle, meanwhile
            self._begin(line := SessionLine(session_id, self))
        await line.far.open(request, opening)
        line.agent = (await self.hub.journal.session(session_id)).agent

    def follow(self, session_id: str, opened: OpenSession, agent: str) -> None:
        """Have the client follow a session of an agent that this process has lost, a line over its
        next connection."""
        if self.client.offer.is_line:  # its process follows, and the next owner answers
            self.client.part()
            self._ending.start(self.client.hang_up(), "hang up")
            opened.act()
            return
        line = SessionLine(session_id, self)
        line.agent = agent  # words are refused also before the owner is found
        line.far.follow(session_id, opened)
        self._begin(line)

    def _begin(self, line: SessionLine) -> None:
        self._lines[line.session_id] = line
        line.running = asyncio.create_task(self._run(line), name="session line")
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="watch owners")

    async def _run(self, line: SessionLine) -> None:
        try:
            await line.far.run()
        except errors.UnknownSessionError:
            self.hub.ownership.deleted.add(line.session_id)
        except errors.AcpError as exc:
            log.warning("session %s is not open any more: %s", line.session_id, exc)
        except Exception:  # nobody awaits this task
            log.exception("the line of session %s failed", line.session_id)
        self._end(line)

    def ask(self, session_id: str, request: Request) -> None:
        """Have the owner answer a request about a session. Raises TermsDifferError."""
        line = self._lines[session_id]
        self._check_terms(line, request.method, request.params)
        if request.method == CLOSE_SESSION.name and not line.far.is_connected:
            self._end(line)
            request.answer(b"{}")
            return
        line.far.ask(request)

    def tell(self, session_id: str, method: str, params: bytes) -> None:
        """Send a notification about a session to its owner. Raises TermsDifferError."""
        self._check_terms(line := self._lines[session_id], method, params)
        line.far.tell(method, params)

    def _check_terms(self, line: SessionLine, method: str, params: bytes) -> None:
        """Refuse to say anything on other terms than the client's: the owner knows nothing of
        them."""
        if (own := self.client.terms.get(line.agent)) is None:
            return
        change = queue_request(params).change if method == QUEUE_METHOD else None
        changes = change is not None and not change.takes_back
        if changes or method_of(method).by in ("agent", "prompt"):
            way_out = "close it there, then load it here to continue on yours"
            raise errors.TermsDifferError("in another process", own.label, way_out)

    async def archive(self, session_id: str) -> None:
        """Archive and close a session at its owner, if the client has it open there."""
        if self.has(session_id):
            line, named = self._lines[session_id], encode({"sessionId": session_id})
            await line.far.call(ARCHIVE_SESSION.name, named)
            self._end(line)

    def _end(self, line: SessionLine) -> None:
        if self._lines.get(line.session_id) is line:
            del self._lines[line.session_id]
            line.far.close()
            self._ending.start(line.aclose(), "end line")

    async def _watch(self) -> None:
        """Check regularly if the owners respond, and still own their sessions; end lines over which
        the client has nothing open."""
        while self._lines:
            await asyncio.sleep(bounds.OWNER_CHECK_SECONDS)
            for line in tuple(self._lines.values()):
                if line.far.is_idle:
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
        await self._ending.finish()

    async def aclose(self) -> None:
        """Leave every owner: the client has gone."""
        await end(self._watching)
        await self.leave()


class SessionLine:
    """The line of one session; `first` is what `dial_owner` returned, if that was asked already."""

    running: asyncio.Task[None]

    def __init__(
        self,
        session_id: str,
        remote: RemoteSessions,
        first: tuple[At, Transport, Place] | None = None,
    ) -> None:
        from acphold.live.server.far_line import FarLine

        self.session_id = session_id
        self.agent = ""
        """The key of its agent, once it is known."""
        self._remote = remote
        self._whose: At | None = first[0] if first else None
        self._is_mute = False
        self._attending = TaskSet()
        self.far = FarLine(
            *(remote.client, self.dial, OWNER, remote.limit, first and first[1]),
            first[2] if first else "process",
            introduction=remote.introduction,
            follows_owner=True,
        )

    async def dial(self) -> Transport:
        """Connect to the process that has the session: see `reconnection.OpenTransport`."""
        journal, self._whose, self._is_mute = self._remote.hub.journal, None, False
        try:
            self.agent = (await journal.session(self.session_id)).agent
            found = await dial_owner(journal, self.session_id, self._remote.limit)
        except errors.JournalError as exc:
            raise errors.ConnectionLostError(str(exc)) from exc
        if found is not None:
            self._whose, transport, self.far.place = found
            return transport
        self.far.place = "process"
        near, far = memory_pair()
        self._attending.start(self._remote.attend_here(far), "attend line")
        return near

    async def check(self) -> None:
        """Replace the connection if the owner has lost the session, or is silent and owes an
        answer, or has not begun a prompt; tell the client if the owner does not respond to it."""
        if (known := self._whose) is None:
            return
        try:
            whose = await self._remote.hub.journal.owner(self.session_id)
        except errors.UnknownSessionError:  # it was deleted: nobody can say so but a new owner
            self.far.give_up()
            return
        lives = isinstance(whose, At)
        if whose.epoch != known.epoch or (
            not lives and (self.far.is_due or await self._owes_a_beginning())
        ):
            self.far.give_up()
            return
        if not self.far.is_waiting:
            return
        try:
            responds = await is_answering(known.owner.addresses, bounds.UNTOLD_SECONDS)
        except errors.ConnectionLostError:  # it listens nowhere just now
            responds = lives
        if self._is_mute == responds:
            self._is_mute = not responds
            if responds:
                self.far.notify_client(RESPONDING, "")
            else:
                self.far.notify_client(MUTE, MUTE_HOW, "warning")

    async def _owes_a_beginning(self) -> bool:
        """Return True if a prompt that was sent to the owner is not in the journal: the next owner
        begins it. A turn that has begun there may go on."""
        for sent_id, after in self.far.sent_prompts:
            if await end_of_sent(self._remote.hub.journal, self.session_id, sent_id, after) is None:
                return True
        return False

    async def aclose(self) -> None:
        """End it, and leave the owner."""
        await end(self.running)
        await self._attending.finish()
