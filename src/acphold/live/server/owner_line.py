"""One client's connection to another process, the owner of sessions that the client has open there.

It speaks ACP like any connection. This process is a client of the owner, with the capabilities of
the client here, and forwards the messages of both. It keeps only how each session was opened, so
that it can be opened here when the owner has gone.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, field

from acp_wire.rpc import CutNotification, NotificationReceived, Peer, Transport
from acp_wire.rpc.requests import Answer, PendingCall, Request, hand_on
from acp_wire.schema import INITIALIZE, PROMPT, encode
from acp_wire.schema.methods import CANCEL_REQUEST
from acp_wire.tasks import end
from acp_wire.transports.addresses import connect
from acphold import errors
from acphold.live.agents.interface import session_of
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import missing_update
from acphold.live.hub.attachment import Client
from acphold.live.hub.frames import PARENT, POSITION, Frames
from acphold.live.lines.line import OpenSession, OpenSessions
from acphold.live.reading.neighbours import CHANGED, PRESENCE
from acphold.live.server import bounds
from acphold.live.server.positions import (
    SentPrompts,
    is_not_owner,
    is_only_position,
    position_of_update,
    reports_begin,
)
from acphold.record.history.replay import Replayed

if TYPE_CHECKING:

    class LineUser(Protocol):
        """Opens sessions over lines."""

        def on_lost(self, line: OwnerLine) -> None:
            """Open the sessions of a line again: its owner has gone."""


log = logging.getLogger(__name__)

Reply = Callable[[Answer], None]


Opened = OpenSession[Setup]
"""A session as the client has opened it there."""


class OwnerLine:
    """A line to an owner. `opened` has the sessions that the client has open there.

    `is_over` is set once the owner has gone, and its sessions are being opened again. `made_for` is
    the session that it was made for; `is_mute` is True if the owner did not respond to the last
    check.
    """

    def __init__(
        self,
        transport: Transport,
        client: Client,
        limit: int,
        user: LineUser,
        made_for: str = "",
    ) -> None:
        self.made_for = made_for
        self.opened: OpenSessions[Setup] = OpenSessions()
        self.prompts = SentPrompts()
        self._due: dict[object, float] = {}  # the time of each unanswered request
        self.is_over = asyncio.Event()
        self.is_mute = False
        self._heard = False
        # Keep reading however much is on its way to it, as for an agent. The owner stops reading us
        # while much is on its way here; if both waited for the other, that would be a deadlock.
        room = limit + bounds.ADDED_BYTES
        self.peer = Peer(
            transport, self, name="owner", limit=room, is_agent=True, on_cut=self._on_cut
        )
        self._client = client
        self._user: LineUser | None = user
        self._pump: asyncio.Task[None] | None = None

    async def start(self, introduction: bytes) -> None:
        """Introduce the client, as `capabilities.introduction_for_owner` has it;
        SilentPeerError if the owner does not answer."""
        self._pump = asyncio.create_task(self._run(), name="owner pump")
        try:
            await self.peer.call_raw(
                INITIALIZE.name, introduction, seconds=bounds.OWNER_ANSWER_SECONDS
            )
        except errors.SilentPeerError:
            raise errors.SilentPeerError(
                "the process that owns the session does not answer"
            ) from None

    def take_opened(self) -> OpenSessions[Setup]:
        """Return the sessions that the client has open there, which it has no more."""
        opened, self.opened = self.opened, OpenSessions()
        return opened

    async def _run(self) -> None:
        try:
            await self.peer.pump()
            if self._user is not None:
                self._user.on_lost(self)
        finally:
            self.is_over.set()

    def ask(self, method: str, params: bytes, reply: Reply) -> int:
        """Send a request; `reply` is called once, before any message after the answer is handled.

        Raises OwnerLostError if the owner has gone already.
        """
        id_ = 0

        def take(answer: Answer) -> None:
            self._due.pop(id_, None)
            lost = isinstance(answer, errors.ConnectionLostError)
            reply(errors.OwnerLostError(method) if lost else answer)

        try:
            id_ = self.peer.begin(method, params, take)
        except errors.ConnectionLostError:
            raise errors.OwnerLostError(method) from None
        if method != PROMPT.name:  # a turn takes as long as it takes
            self.expect(id_)
        return id_

    def expect(self, asked: object) -> None:
        """Expect the answer to this request from now on: see `is_overdue`."""
        self._due.setdefault(asked, asyncio.get_running_loop().time())

    @property
    def is_overdue(self) -> bool:
        """True if an answer has been due for so long that the owner may be stopped, or hang."""
        since = next(iter(self._due.values()), None)  # in the order of their times
        if since is None:
            return False
        return asyncio.get_running_loop().time() - since > bounds.OWNER_ANSWER_SECONDS

    def withdraw(self, id_: int) -> None:
        """Drop a request: cancel it at the owner, and ignore its answer."""
        self._due.pop(id_, None)
        self.peer.withdraw(id_)

    def give_up(self, id_: int) -> None:
        """Cancel a request at the owner, which still has to answer it."""
        self.peer.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % id_)
        self.expect(id_)

    async def call(
        self, method: str, params: bytes, on_result: Callable[[bytes], object] = bool
    ) -> None:
        """Send a request, and wait for the result; `on_result` is called before any message after
        it is handled.

        Raises OwnerLostError if the owner goes, or answers that it is not the owner; otherwise the
        error that it answers.
        """
        call = PendingCall(on_result)
        id_ = self.ask(method, params, call.take)
        try:
            await call.answer(lambda: self.withdraw(id_))
        except errors.RemoteError as error:
            raise (errors.OwnerLostError(method) if is_not_owner(error) else error) from None

    async def forward(
        self,
        request: Request,
        on_result: Callable[[bytes], object],
        may_retry: Callable[[], bool],
    ) -> None:
        """Forward a request of the client, and the answer back; return when it is answered.

        Raises OwnerLostError if the owner went before it got the request; also if it went before
        the answer and the request may be sent to another owner.
        """
        call = PendingCall()

        def reply(answer: Answer) -> None:
            if isinstance(answer, bytes):
                on_result(answer)
                request.answer(answer)
                call.take(answer)
                return
            is_lost = isinstance(answer, errors.OwnerLostError) or is_not_owner(answer)
            if is_lost and may_retry():
                call.take(errors.OwnerLostError(request.method))
            else:
                request.refuse(answer)
                call.take(b"")  # the caller has nothing more to do

        id_ = self.ask(request.method, request.params, reply)
        await call.answer(lambda: self.withdraw(id_))

    async def is_responding(self, seconds: float) -> bool:
        """Return True if any message has arrived since the last call, or arrives within
        `seconds`."""
        if not self._heard:
            with suppress(errors.ConnectionLostError, errors.RemoteError):
                await self.peer.call_raw(PRESENCE, b"{}", seconds=seconds)
                self._heard = True
        heard, self._heard = self._heard, False
        return heard

    async def report_change(self, session_id: str) -> bool:
        """Report to the owner that the row of a session has changed, or was deleted; return False
        if the owner has gone."""
        try:
            params = encode({"sessionId": session_id})
            await self.peer.call_raw(CHANGED, params, seconds=bounds.OWNER_ANSWER_SECONDS)
        except errors.ConnectionLostError:
            return False
        except errors.RemoteError:
            pass  # it has closed the session
        return True

    # -- messages of the owner ----------------------------------------------------------------

    async def on_request(self, request: Request) -> bytes | None:
        return await hand_on(request, self._client.ask)

    def on_notifications(self, batch: list[NotificationReceived]) -> Awaitable[None] | None:
        self._heard = True
        for notification in batch:
            method, params = notification.method, notification.params
            position = position_of_update(params)
            if position is None:
                self._client.tell(method, params)
                continue
            session_id = session_of_update(params)
            if session_id not in self.opened:
                continue  # the client has closed it since, or has it open elsewhere
            is_bare = is_only_position(params)
            if not is_bare or self._client.offer.positions:
                self._client.tell(method, params)
            self.opened[session_id].advance(position)
            # The owner reports the position of a prompt alone, or with the begin of its turn.
            if is_bare or reports_begin(params):
                self.prompts.on_arrival(session_id)
        # While we do not read, the owner feeds this client from the journal.
        return self._drain() if self._client.buffered > hub_bounds.LAG_BYTES else None

    def _on_cut(self, cut: CutNotification) -> None:
        """Send the client a notice in place of an update that is over this process's limit."""
        params = cut.tail.rstrip()[:-1]  # their end, without the brace of the message
        position, of_child = position_of_update(params), _OF_CHILD.search(params)
        session_id = session_of(cut) if of_child is None else msgspec.json.decode(of_child[1])
        if session_id is None or (opened := self.opened.get(session_id)) is None:
            return
        frames = Frames(
            session_id,
            self._client.offer,
            positions=self._client.offer.positions,
        )
        self._client.send(
            frames.lines_of([Replayed(missing_update(cut.problem), seq=position or 0)])
        )
        if position is not None:
            opened.advance(position)

    async def _drain(self) -> None:
        with suppress(errors.ConnectionLostError):
            await self._client.drain()

    async def aclose(self) -> None:
        """Leave the owner, and every session there."""
        self._user = None  # we left ourselves
        await end(self._pump)
        await self.peer.aclose()


_OF_CHILD = re.compile(
    rb'"%b":("(?:[^"\\]|\\.)*"),"%b":\d+\}\}$' % (PARENT.encode(), POSITION.encode())
)
"""The end of the params of a sub-agent's update, with the session that it belongs to."""


class _UpdateMeta(Struct):
    parent: str = field(name=PARENT, default="")


class _Params(Struct):
    sessionId: str = ""
    meta: _UpdateMeta = field(name="_meta", default_factory=_UpdateMeta)


def session_of_update(params: bytes) -> str:
    """Return the session in which an update has its position: for a sub-agent's, the one it belongs
    to."""
    try:
        update = msgspec.json.decode(params, type=_Params)
        return update.meta.parent or update.sessionId
    except msgspec.MsgspecError:
        return ""


async def line_to(
    held: errors.HeldElsewhereError,
    introduction: bytes,
    client: Client,
    limit: int,
    user: LineUser,
) -> OwnerLine:
    """Return a line to the owner of a session.

    Raises SilentPeerError if it does not answer, ConnectionLostError if nothing listens there, and
    RemoteError if it refuses the client.
    """
    transport = await connect(
        held.addresses, bounds.OWNER_ANSWER_SECONDS, limit + bounds.ADDED_BYTES
    )
    line = OwnerLine(transport, client, limit, user, held.session_id)
    try:
        await line.start(introduction)
    except BaseException:
        await line.aclose()
        raise
    return line
