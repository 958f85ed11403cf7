"""The connection of one client to another process, the owner of sessions that it has opened.

ACP goes over it as over any connection. This process is a client of the owner, with the
capabilities of the client here, and hands on what both ask and tell. Of the sessions it knows only
how they were opened, so that they can be opened here when the owner is gone.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from acphold.agents.runs import session_of
from acphold.errors import (
    ConnectionLostError,
    HeldElsewhereError,
    OwnerLostError,
    RemoteError,
    SilentPeerError,
)
from acphold.history.replay import Replayed
from acphold.hub import Client, Setup
from acphold.hub.annotations import left_out
from acphold.hub.attachment import LAG
from acphold.hub.frames import PARENT, POSITION, Frames
from acphold.rpc import Cut, NotificationReceived, Peer, Transport
from acphold.rpc.pending_call import Answer, PendingCall
from acphold.rpc.request import Request
from acphold.schema import INITIALIZE, PROMPT, encode
from acphold.schema.methods import CANCEL_REQUEST
from acphold.server.neighbours import CHANGED, PRESENCE
from acphold.server.positions import is_bare, tells_beginning, told_position
from acphold.server.sent_prompts import SentPrompts, is_not_owner
from acphold.transports.addresses import connect

log = logging.getLogger(__name__)

REACH_SECONDS = 10.0
"""What an owner has to answer, which it does at once. One that was stopped, or hangs, loses its
sessions; long enough for a machine under heavy load."""

ADDED_BYTES = 64 * 1024
"""More than an owner adds to what an agent or a client has said: a position, ids, who said it. A
message of just the size limit is to come through."""

Reply = Callable[[Answer], None]


class Opened:
    """A session as the client has asked for it there.

    `position` is that of the last update that it got; before the first, the one behind which it
    began. `epoch` is that of the lease under which the owner has it. `is_open` once the client has
    the answer.
    """

    __slots__ = ("epoch", "is_open", "position", "setup")

    def __init__(self, setup: Setup, position: int, epoch: int = 0) -> None:
        self.setup = setup
        self.position = position
        self.epoch = epoch
        self.is_open = False


class OwnerLine:
    """See the module. `opened` has the sessions that the client has open there.

    `is_over` is set once the owner has gone, and what was open there is being opened anew.
    `made_for` is the first session that it was made for; `is_mute` whether nothing came from the
    owner when that was looked at last.
    """

    def __init__(
        self,
        transport: Transport,
        client: Client,
        limit: int,
        on_lost: Callable[[OwnerLine], None],
        made_for: str = "",
    ) -> None:
        self.made_for = made_for
        self.opened: dict[str, Opened] = {}
        self.prompts = SentPrompts()
        self._due: dict[object, float] = {}  # since when, by what stands for the request
        self.is_over = asyncio.Event()
        self.is_mute = False
        self._heard = False
        # As an agent: it is read however much is on its way to it. It does not read us while much
        # is on its way here, and if both waited for the other, that would be for ever.
        room = limit + ADDED_BYTES
        self.peer = Peer(
            transport, self, name="owner", limit=room, is_agent=True, on_cut=self._on_cut
        )
        self._client = client
        self._on_lost = on_lost
        self._pump: asyncio.Task[None] | None = None

    async def start(self, introduction: bytes) -> None:
        """Introduce the client, as `capabilities.told_owner` has it; SilentPeerError when the owner
        does not answer."""
        self._pump = asyncio.create_task(self._run(), name="owner pump")
        try:
            await self.peer.call_raw(INITIALIZE.name, introduction, seconds=REACH_SECONDS)
        except SilentPeerError:
            raise SilentPeerError("the process that has the session does not answer") from None

    async def _run(self) -> None:
        try:
            await self.peer.pump()
            self._on_lost(self)
        finally:
            self.is_over.set()

    def ask(self, method: str, params: bytes, reply: Reply) -> int:
        """Send a request; `reply` is called once, before anything that comes behind the answer.

        Raises OwnerLostError when the owner has gone already.
        """
        id_ = 0

        def take(answer: Answer) -> None:
            self._due.pop(id_, None)
            lost = isinstance(answer, ConnectionLostError)
            reply(OwnerLostError(method) if lost else answer)

        try:
            id_ = self.peer.begin(method, params, take)
        except ConnectionLostError:
            raise OwnerLostError(method) from None
        if method != PROMPT.name:  # a turn takes as long as it takes
            self.expect(id_)
        return id_

    def expect(self, asked: object) -> None:
        """The answer to this request is due from now on: see `is_overdue`."""
        self._due.setdefault(asked, asyncio.get_running_loop().time())

    @property
    def is_overdue(self) -> bool:
        """Whether something was asked so long ago that the owner may be stopped, or hang."""
        since = next(iter(self._due.values()), None)  # they stand in the order of their times
        return since is not None and asyncio.get_running_loop().time() - since > REACH_SECONDS

    def withdraw(self, id_: int) -> None:
        """Nobody waits for the answer any more, and none is taken; the owner is told."""
        self._due.pop(id_, None)
        self.peer.withdraw(id_)

    def give_up(self, id_: int) -> None:
        """Nobody waits for the answer any more; the owner is told, and it answers."""
        self.peer.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % id_)
        self.expect(id_)

    async def call(
        self, method: str, params: bytes, on_result: Callable[[], object] = bool
    ) -> None:
        """Ask, and wait for the result; `on_result` is called before anything that comes behind it.

        Raises OwnerLostError when the owner goes, or says that it is not the owner; else what it
        answers.
        """
        call = PendingCall(lambda _: on_result())
        id_ = self.ask(method, params, call.take)
        try:
            await call.answer(lambda: self.withdraw(id_))
        except RemoteError as error:
            raise (OwnerLostError(method) if is_not_owner(error) else error) from None

    async def forward(
        self,
        request: Request,
        on_result: Callable[[], object] = bool,
        may_ask_anew: Callable[[], bool] = bool,
    ) -> None:
        """Hand a request of the client on, and the answer back; until it has been answered.

        Raises OwnerLostError when the owner went before it got it; also when it went before the
        answer and the request may be sent to another one.
        """
        call = PendingCall()

        def reply(answer: Answer) -> None:
            if isinstance(answer, bytes):
                on_result()
                request.answer(answer)
            elif may_ask_anew() and (isinstance(answer, OwnerLostError) or is_not_owner(answer)):
                answer = OwnerLostError(request.method)
            else:
                request.refuse(answer)
                answer = b""  # the client has it
            call.take(answer)

        id_ = self.ask(request.method, request.params, reply)
        await call.answer(lambda: self.withdraw(id_))

    async def says_something(self, seconds: float) -> bool:
        """Whether anything has come since this was asked last, or comes within `seconds`."""
        if not self._heard:
            with suppress(ConnectionLostError, RemoteError):
                await self.peer.call_raw(PRESENCE, b"{}", seconds=seconds)
                self._heard = True
        heard, self._heard = self._heard, False
        return heard

    async def tell_of_change(self, session_id: str) -> bool:
        """Tell the owner that the row of a session has changed, or is gone; whether it hears."""
        try:
            params = encode({"sessionId": session_id})
            await self.peer.call_raw(CHANGED, params, seconds=REACH_SECONDS)
        except ConnectionLostError:
            return False
        except RemoteError:
            pass  # it has it no more
        return True

    # -- what the owner asks and tells --------------------------------------------------------

    async def on_request(self, request: Request) -> bytes:
        return await self._client.ask(request.method, request.params)

    def on_notifications(self, batch: list[NotificationReceived]) -> Awaitable[None] | None:
        self._heard = True
        for notification in batch:
            position = told_position(notification.params)
            session_id = "" if position is None else session_of_update(notification.params)
            if position is not None and session_id not in self.opened:
                continue  # the client has closed it since, or has it open somewhere else
            tells_more = position is None or not is_bare(notification.params)
            if tells_more or self._client.offer.positions:
                self._client.tell(notification.method, notification.params)
            if position is not None:
                self.opened[session_id].position = position
                if not tells_more or tells_beginning(notification.params):
                    self.prompts.arrived(session_id)
        # While we do not read, the owner feeds this client from the journal.
        return self._room() if self._client.buffered > LAG else None

    def _on_cut(self, cut: Cut) -> None:
        """An update is longer than this process takes: the client is told so in its place."""
        params = cut.tail.rstrip()[:-1]  # the end of them, without the brace of the message
        position, of_child = told_position(params), _OF_CHILD.search(params)
        session_id = session_of(cut) if of_child is None else msgspec.json.decode(of_child[1])
        if session_id is None or (opened := self.opened.get(session_id)) is None:
            return
        frames = Frames(
            session_id,
            self._client.offer,
            positions=self._client.offer.positions,
        )
        self._client.send(frames.replayed([Replayed(left_out(cut.problem), seq=position or 0)]))
        if position is not None:
            opened.position = position

    async def _room(self) -> None:
        with suppress(ConnectionLostError):
            await self._client.drain()

    async def aclose(self) -> None:
        """Leave the owner, and every session there."""
        self._on_lost = lambda _: None  # we have left by ourselves
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        await self.peer.aclose()


_OF_CHILD = re.compile(
    rb'"%b":("(?:[^"\\]|\\.)*"),"%b":\d+\}\}$' % (PARENT.encode(), POSITION.encode())
)
"""How the params of a sub-agent's update end, with the session that it belongs to."""


class _Meta(Struct):
    parent: str = field(name=PARENT, default="")


class _Params(Struct):
    sessionId: str = ""
    meta: _Meta = field(name="_meta", default_factory=_Meta)


def session_of_update(params: bytes) -> str:
    """The session in which an update has its position: of a sub-agent's, the one it belongs to."""
    try:
        said = msgspec.json.decode(params, type=_Params)
        return said.meta.parent or said.sessionId
    except msgspec.MsgspecError:
        return ""


async def line_to(
    held: HeldElsewhereError,
    introduction: bytes,
    client: Client,
    limit: int,
    on_lost: Callable[[OwnerLine], None],
) -> OwnerLine:
    """A line to the owner that has a session.

    Raises SilentPeerError when it does not answer, ConnectionLostError when nobody listens there,
    and RemoteError when it refuses the client.
    """
    transport = await connect(held.addresses, REACH_SECONDS, limit + ADDED_BYTES)
    line = OwnerLine(transport, client, limit, on_lost, held.session_id)
    try:
        await line.start(introduction)
    except BaseException:
        await line.aclose()
        raise
    return line
