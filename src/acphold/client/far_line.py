"""The connection of one client to a server far away, made anew whenever it is lost.

To the client it is an agent that is always there. What was lost with a connection is asked for
again over the next one, in this order:

1. `initialize`, as the client said it;
2. each session that the client has open, by `session/resume` behind the last position it was told,
   so that nothing is missing and nothing comes twice;
3. what the client has asked and was not answered, in the order in which it asked:

| what | over the next connection |
|---|---|
| `session/prompt` | sent again with its id, by which an `acphold serve` knows whether it had come |
| `session/load`, once some of it has come | `session/resume` behind that |
| what may be done twice: list, load, resume, close, delete, set | asked again |
| what may not: `session/new`, fork, sign-in, extensions | refused: whether it was done is unknown |
| a prompt, at a server of others, which would run it twice | refused, too |

4. the notifications of the client since.

What the server has asked the client and was not answered, it asks again by itself; the client is
told that the earlier one is over. If the client had answered, and only the answer was lost, it is
not asked again: a question has an id. What it has cancelled stays cancelled: its prompts that are
not answered yet are cancelled over the next connection, too, and no other turn is.

A server of others knows no positions: its sessions are resumed, and the client is told of the gap.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from acphold.agents.capabilities import Offer, asking_for_positions, keeps_positions, offer_of
from acphold.errors import (
    INVALID_PARAMS,
    AcpholdError,
    ConnectionLostError,
    RemoteError,
)
from acphold.history import Segment
from acphold.history.entries import UPDATE
from acphold.hub.annotations import notice
from acphold.hub.frames import Frames
from acphold.rpc import NotificationReceived, Peer, Transport, connected
from acphold.rpc.pending_call import Answer
from acphold.rpc.request import Request
from acphold.schema import (
    CANCEL,
    CLOSE_SESSION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    InitializeRequest,
    decode,
    encode,
)
from acphold.schema.methods import CANCEL_REQUEST
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import splice
from acphold.server.owner_line import session_of_update
from acphold.server.positions import Sent, behind, is_bare, question_in, told_position, with_sent

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 15.0
"""Seconds from one try to the next: twice as long each time, and never just as long as all others
wait."""

QUIET_SECONDS: Final = 3.0
"""How long it may be away before the person is told."""

ANSWERS: Final = 100
"""Answers of the client that are kept, should their questions be asked again."""

ANSWER_SECONDS: Final = 20.0
"""What the server has to answer when a session is opened anew."""

AWAY = "The connection to {} is lost"
AWAY_HOW = "It is tried again by itself. What runs over there goes on."
BACK = "The connection to {} is back"
BACK_HOW = "Nothing is missing."
GAP_HOW = "Something that was said meanwhile is not shown here: load the session to see all of it."

REPEATABLE: Final = frozenset(
    it.name
    for it in (
        LIST_SESSIONS,
        LOAD_SESSION,
        RESUME_SESSION,
        CLOSE_SESSION,
        DELETE_SESSION,
        SET_SESSION_MODE,
        SET_SESSION_CONFIG_OPTION,
        PROMPT,
    )
)
"""What may be asked again when its answer was lost."""

OPENING: Final = frozenset({NEW_SESSION.name, LOAD_SESSION.name, RESUME_SESSION.name})

REPLAYING: Final = frozenset({LOAD_SESSION.name, RESUME_SESSION.name})

LEAVING: Final = frozenset({CLOSE_SESSION.name, DELETE_SESSION.name})

Dial = Callable[[], Awaitable[Transport]]
"""Makes a connection; raises ConnectionLostError, RemoteRefusalError."""

OnAway = Callable[[float | None], object]
"""Hears since when the connection is away (seconds since the epoch), and None when it is back."""


class Opened:
    """A session that the client has open; `told` is the last position that it was told.

    None when it was told none, and has asked for what comes alone.
    """

    __slots__ = ("params", "told")

    def __init__(self, params: bytes, told: int | None) -> None:
        self.params = params
        self.told = told


class Asked:
    """A request of the client that is not answered; `id` is that of the connection it is on."""

    __slots__ = ("after", "id", "is_cancelled", "is_sent", "request", "sent_id", "session_id")

    def __init__(self, request: Request, session_id: str | None) -> None:
        self.request = request
        self.session_id = session_id
        self.sent_id = uuid.uuid4().hex
        self.after = 0
        self.id: int | None = None
        self.is_sent = False
        self.is_cancelled = False


class FarLine:
    """See the module. `client` leads to the client, `dial` to the server, `name` is what that is
    called, `first` a connection to it that was made already. `on_away` hears at once that it is
    lost, of which the client is told when it takes longer."""

    def __init__(
        self,
        client: Transport,
        dial: Dial,
        name: str,
        limit: int,
        first: Transport,
        on_away: OnAway = bool,
    ) -> None:
        self._dial = dial
        self._on_away = on_away
        self._name = name
        self._limit = limit
        self._first: Transport | None = first
        self._client = Peer(client, self, name="client", limit=limit)
        self._server: Peer | None = None
        self._introduction: bytes | None = None
        self._offer = Offer()
        self._is_ours = False
        self._opened: dict[str, Opened] = {}
        self._asked: list[Asked] = []
        self._kept: list[tuple[str, bytes]] = []
        self._answers: dict[str, bytes] = {}
        self._is_away_told = False
        self._away: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self._tried = 0.0

    async def run(self) -> None:
        """Until the client leaves; raises RemoteRefusalError when the server lets us in no more."""
        async with connected(self._client) as pump:
            serving = asyncio.create_task(self._serve(), name="far line")
            try:
                await asyncio.wait({pump, serving}, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    await self._refuse_all(serving)
                else:
                    await self._client.finish(ANSWER_SECONDS / 4, but=PROMPT.name)
            finally:
                serving.cancel()
                await asyncio.wait({serving})
                if self._away is not None:
                    self._away.cancel()

    async def _refuse_all(self, serving: asyncio.Task[None]) -> None:
        """We are let in no more: tell the client in answer to whatever it asks, and raise it."""
        try:
            serving.result()
        except AcpholdError as exc:
            for asked in self._asked:
                asked.request.refuse(exc)
            with suppress(ConnectionLostError):
                await self._client.drain()
            raise

    async def _serve(self) -> None:
        """Be connected, and again whenever that is lost."""
        while True:
            transport = await self._connected()
            server = Peer(
                transport, _FromServer(self), name=self._name, limit=self._limit, is_agent=True
            )
            try:
                async with connected(server) as pump:
                    if await self._took_up(server):
                        self._is_back()
                        self._server = server
                        self._ask_all()
                        await asyncio.wait({pump})
            except ConnectionLostError as exc:
                log.info("%s", exc)
            finally:
                self._server = None
            self._is_lost()

    async def _connected(self) -> Transport:
        """The next connection, however long that takes; raises RemoteRefusalError."""
        first, self._first = self._first, None
        if first is not None:
            return first
        now = asyncio.get_running_loop().time
        while True:
            # From one beginning to the next: at once where it held, and without haste where we are
            # let in and cut off again and again.
            next_try = self._tried + self._pause * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(0.0, next_try - now()))
            self._tried = now()
            try:
                return await self._dial()
            except ConnectionLostError as exc:
                log.info("%s", exc)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _is_lost(self) -> None:
        """The connection is away from now on, unless it has been since before."""
        if self._away is None:
            loop = asyncio.get_running_loop()
            self._away = loop.call_later(QUIET_SECONDS, self._tell_all, AWAY, AWAY_HOW)
            self._on_away(time.time())

    def _is_back(self) -> None:
        """It is there, with all that the client has open."""
        self._pause = FIRST_PAUSE
        if self._away is not None:
            self._away.cancel()
            self._away = None
            self._on_away(None)
        if self._is_away_told:
            self._tell_all(BACK, BACK_HOW)

    async def _took_up(self, server: Peer) -> bool:
        """Introduce the client again, and open what it has open; False when it is lost meanwhile.

        The first time there is nothing to take up.
        """
        if self._introduction is None or self._introduces_itself:
            return True
        try:
            await server.call_raw(
                INITIALIZE.name, asking_for_positions(self._introduction), seconds=ANSWER_SECONDS
            )
            for session_id, opened in tuple(self._opened.items()):
                await self._open_again(server, session_id, opened)
        except ConnectionLostError as exc:
            log.info("%s", exc)
            return False
        return True

    @property
    def _introduces_itself(self) -> bool:
        return any(asked.request.method == INITIALIZE.name for asked in self._asked)

    async def _open_again(self, server: Peer, session_id: str, opened: Opened) -> None:
        params = splice(opened.params, {"sessionId": encode(session_id)})
        known = [it.sent_id for it in self._asked if it.session_id == session_id and it.is_sent]
        try:
            if opened.told is not None and self._is_ours:
                try:
                    there = behind(params, opened.told, known)
                    await server.call_raw(RESUME_SESSION.name, there, seconds=ANSWER_SECONDS)
                    return
                except RemoteError as exc:
                    if exc.code != INVALID_PARAMS:
                        raise
            # What was said was put together meanwhile, or nothing had been told of it.
            await server.call_raw(RESUME_SESSION.name, params, seconds=ANSWER_SECONDS)
            self._tell(session_id, BACK, GAP_HOW)
        except RemoteError as exc:
            del self._opened[session_id]
            self._tell(session_id, BACK, f"This session is not open any more: {exc}")

    # -- what the client asks and tells ------------------------------------------------------

    def on_request(self, request: Request) -> None:
        asked = Asked(request, session_id_in(request.params))
        request.on_cancel = lambda: self._withdraw(asked)
        if request.method == INITIALIZE.name:
            self._introduction = request.params
            with suppress(AcpholdError):  # the server says what is wrong with it
                said = decode(InitializeRequest, request.params).value
                self._offer = offer_of(said, request.params)
        self._asked.append(asked)
        self._send(asked)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            method, params = notification.method, notification.params
            prompts = self._cancelled(params) if method == CANCEL.name else []
            if self._server is not None:
                await self._server.notify_raw(method, params)
            elif not prompts:  # those are cancelled by their ids
                self._kept.append((method, params))

    def _cancelled(self, params: bytes) -> list[Asked]:
        """Note that the client has cancelled what it has asked in a session; what that is."""
        session_id = session_id_in(params)
        prompts = [it for it in self._asked if it.request.method == PROMPT.name]
        prompts = [it for it in prompts if it.session_id == session_id]
        for asked in prompts:
            asked.is_cancelled = True
        return prompts

    def _ask_all(self) -> None:
        """Over a new connection: what was asked before it, and told."""
        for asked in tuple(self._asked):
            method = asked.request.method
            may_repeat = method in (*REPEATABLE, INITIALIZE.name)
            if asked.is_sent and not (self._is_ours if method == PROMPT.name else may_repeat):
                self._asked.remove(asked)
                asked.request.refuse(
                    ConnectionLostError(
                        f"the connection to {self._name} was lost before the answer to "
                        f"{method}; whether it was done is not known"
                    )
                )
            else:
                self._send(asked)
                if asked.is_cancelled and self._server is not None:
                    params = encode({"sessionId": asked.session_id})
                    self._server.tell(CANCEL.name, with_sent(params, Sent(asked.sent_id)))
        kept, self._kept = self._kept, []
        for method, params in kept:
            if self._server is not None:
                self._server.tell(method, params)

    def _send(self, asked: Asked) -> None:
        if (server := self._server) is None:
            return  # it is sent when there is a connection
        method, params = asked.request.method, asked.request.params
        opened = self._opened.get(asked.session_id or "")
        if method == INITIALIZE.name:
            params = asking_for_positions(params)
        elif method == PROMPT.name:
            if not asked.is_sent and opened is not None:
                asked.after = opened.told or 0
            params = with_sent(params, Sent(asked.sent_id, asked.after if asked.is_sent else None))
        elif method in REPLAYING and asked.session_id is not None:
            if asked.is_sent and opened is not None and opened.told:
                method, params = RESUME_SESSION.name, behind(params, opened.told)
            else:  # what is replayed has positions, and comes before the answer
                self._opened[asked.session_id] = Opened(params, None)
        asked.is_sent = True

        def take(answer: Answer) -> None:
            self._answered(asked, answer)

        with suppress(ConnectionLostError):
            asked.id = server.begin(method, params, take)

    def _answered(self, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, ConnectionLostError) or asked not in self._asked:
            return  # it is asked again
        self._asked.remove(asked)
        request, session_id = asked.request, asked.session_id
        if isinstance(answer, bytes):
            if request.method == INITIALIZE.name:
                self._is_ours = keeps_positions(answer)
            if request.method == NEW_SESSION.name:
                session_id = session_id_in(answer)
            if session_id is not None and request.method in OPENING:
                begins = None if request.method == RESUME_SESSION.name else 0
                told = self._opened[session_id].told if session_id in self._opened else None
                self._opened[session_id] = Opened(request.params, begins if told is None else told)
            if session_id is not None and request.method in LEAVING:
                self._opened.pop(session_id, None)
        request.reply(answer)

    def _withdraw(self, asked: Asked) -> None:
        """Nobody waits for the answer; the server is asked to end what it does, and answers."""
        if asked.id is not None and self._server is not None:
            self._server.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % asked.id)
        elif asked in self._asked:
            self._asked.remove(asked)  # the request has been answered for

    # -- what the server asks and tells ------------------------------------------------------

    async def ask_client(self, request: Request) -> bytes:
        """The client's answer; it is not waited for when the connection is lost."""
        question = question_in(request.params)
        if (given := self._answers.get(question)) is not None:
            return given
        answer = await self._client.call_raw(request.method, request.params)
        if question:
            while len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = answer
        return answer

    async def tell_client(self, batch: list[NotificationReceived]) -> None:
        """Pass on what the server tells, and note how far the client was told."""
        for notification in batch:
            position = told_position(notification.params)
            if position is None or not is_bare(notification.params) or self._offer.positions:
                self._client.tell(notification.method, notification.params)
            if position is not None:
                session_id = session_of_update(notification.params)
                if session_id in self._opened:
                    self._opened[session_id].told = position
        with suppress(ConnectionLostError):
            await self._client.drain()

    def _tell_all(self, title: str, description: str) -> None:
        self._is_away_told = title is AWAY
        for session_id in self._opened:
            self._tell(session_id, title, description)

    def _tell(self, session_id: str, title: str, description: str) -> None:
        frames = Frames(session_id, self._offer)
        update = notice(title.format(self._name), description)
        self._client.send(frames.live(Segment(0, 0, UPDATE, 0, update)))


class _FromServer:
    """What a connection to the server hears."""

    def __init__(self, line: FarLine) -> None:
        self._line = line

    async def on_request(self, request: Request) -> bytes:
        return await self._line.ask_client(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        await self._line.tell_client(batch)
