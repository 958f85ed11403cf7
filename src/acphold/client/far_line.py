"""The connection of a client to a remote server, replaced whenever it is lost.

To the client it is an agent that is always connected. `lines.line` decides what has to be sent over
the next connection; it is sent here, in this order:

1. `initialize`, as the client sent it;
2. for each session that the client has open, `session/resume` after its last position, so that no
   update is missing or arrives twice;
3. the client's unanswered requests, in the order in which it sent them;
4. the client's notifications since.

The server repeats its own unanswered requests; the earlier ones are withdrawn from the client here.
Cancelled prompts stay cancelled: those without an answer are cancelled over the next connection,
too, and no other turn is.

A server that is not an acphold knows no positions: its sessions are resumed, and the client is
notified of the gap.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from acp_wire import schema
from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Answer, Request, hand_on
from acp_wire.schema.methods import CANCEL_REQUEST, OPENING
from acp_wire.schema.splice import session_id_in, splice
from acp_wire.tasks import beside, end, first
from acp_wire.transports.dial import Dial
from acp_wire.transports.known_servers import Token, origin_of
from acp_wire.transports.streams import memory_pair
from acphold import errors
from acphold.client import bounds
from acphold.client.uplink import Endpoint
from acphold.extras import require
from acphold.live.agents.capabilities import (
    ClientOffer,
    asking_for_positions,
    keeps_positions,
    offer_of,
)
from acphold.live.hub.annotations import notice
from acphold.live.hub.frames import Frames
from acphold.live.lines.line import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LastingLine,
    Pending,
    Resumed,
)
from acphold.live.server.owner_line import session_of_update
from acphold.live.server.positions import (
    Sent,
    is_only_position,
    lineage_of_answer,
    position_of_update,
    question_in,
    resume_params,
    with_sent,
)

log = logging.getLogger(__name__)

AWAY = "The connection to {} is lost"
AWAY_HOW = "acphold is reconnecting. Running turns continue on that machine."
BACK = "The connection to {} is back"
BACK_HOW = "Nothing is missing."
GAP_HOW = "Some updates from the meantime are not shown here: load the session to see all of them."

OpenTransport = Callable[[], Awaitable[Transport]]
"""Makes a connection; raises ConnectionLostError, RemoteRefusalError."""

OnAway = Callable[[float | None], object]
"""Called with the time of a loss (seconds since the epoch), and with None when reconnected."""


class FarLine:
    """See the module. `client` leads to the client, `dial` connects to the server `name`; `first`
    is a connection to it that was made already. `on_away` is called at once when it is lost; the
    client gets a notice if it stays lost for UNTOLD_SECONDS."""

    def __init__(
        self,
        client: Transport,
        dial: OpenTransport,
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
        self._offer = ClientOffer()
        self._line = LastingLine[Request]()
        self._kept: list[tuple[str, bytes]] = []
        self._is_away_reported = False
        self._away: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self._tried = 0.0

    async def run(self) -> None:
        """Run until the client leaves; raises RemoteRefusalError if the server does not admit us
        any more."""
        async with connected(self._client) as pump:
            try:
                async with beside(self._serve(), "far line") as serving:
                    await first(pump, serving)
                    if serving.done():
                        await self._refuse_all(serving)
                    else:
                        await self._client.finish(bounds.REOPEN_SECONDS / 4, but=schema.PROMPT.name)
            finally:
                if self._away is not None:
                    self._away.cancel()

    async def _refuse_all(self, serving: asyncio.Task[None]) -> None:
        """Refuse all of the client's requests with the server's refusal, and raise it."""
        try:
            serving.result()
        except errors.AcpError as exc:
            for asked in self._line.pending:
                asked.request.refuse(exc)
            with suppress(errors.ConnectionLostError):
                await self._client.drain()
            raise

    async def _serve(self) -> None:
        """Stay connected: reconnect after each loss."""
        while True:
            transport = await self._next_connection()
            server = Peer(
                transport, _FromServer(self), name=self._name, limit=self._limit, is_agent=True
            )
            try:
                async with connected(server) as pump:
                    if self._introduction is not None and not self._line.introduces_itself:
                        await self._restore(server, self._introduction)
                    self._pause = FIRST_PAUSE
                    if self._away is not None:
                        self._away.cancel()
                        self._away = None
                        self._on_away(None)
                    if self._is_away_reported:
                        self._notify_all(BACK, BACK_HOW)
                    self._server = server
                    self._send_pending()
                    await asyncio.wait({pump})
            except errors.ConnectionLostError as exc:
                log.info("%s", exc)
            finally:
                self._server = None
            if self._away is None:
                loop = asyncio.get_running_loop()
                self._away = loop.call_later(
                    bounds.UNTOLD_SECONDS, self._notify_all, AWAY, AWAY_HOW
                )
                self._on_away(time.time())

    async def _restore(self, server: Peer, introduction: bytes) -> None:
        """Introduce the client over a new connection, and resume its open sessions."""
        await server.call_raw(
            schema.INITIALIZE.name,
            asking_for_positions(introduction),
            seconds=bounds.REOPEN_SECONDS,
        )
        for resumed in self._line.on_reconnect().resume:
            await self._reopen(server, resumed)

    async def _next_connection(self) -> Transport:
        """Return the next connection, however long that takes; raises RemoteRefusalError."""
        first, self._first = self._first, None
        if first is not None:
            return first
        now = asyncio.get_running_loop().time
        while True:
            # Measured from one start to the next: retry at once if the connection held, and slowly
            # if we are let in and cut off again and again.
            next_try = self._tried + self._pause * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(0.0, next_try - now()))
            self._tried = now()
            try:
                return await self._dial()
            except errors.ConnectionLostError as exc:
                log.info("%s", exc)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def _reopen(self, server: Peer, resumed: Resumed) -> None:
        session_id, opened, known = resumed
        params = splice(opened.setup, {"sessionId": schema.encode(session_id)})

        async def resume(setup: bytes) -> bytes:
            return await server.call_raw(
                schema.RESUME_SESSION.name, setup, seconds=bounds.REOPEN_SECONDS
            )

        try:
            if opened.position is not None and self._line.knows_positions:
                try:
                    place = resume_params(params, opened.position, known, opened.lineage)
                    opened.on_resumed(lineage_of_answer(await resume(place)))
                    return
                except errors.RemoteError as exc:
                    if exc.code != errors.INVALID_PARAMS:
                        raise
            # Updates were merged across its position, or belong to a lost history, or it has none.
            opened.position = None
            # Without one in the answer there is none: a former lineage goes with its position.
            opened.lineage = lineage_of_answer(await resume(params))
            self._notify(session_id, BACK, GAP_HOW)
        except errors.ConnectionLostError:
            raise
        except errors.AcpError as exc:
            self._line.sessions.pop(session_id, None)
            self._notify(session_id, BACK, f"This session is not open any more: {exc}")

    # -- messages of the client --------------------------------------------------------------

    def on_request(self, request: Request) -> None:
        session_id = session_id_in(request.params)
        asked = self._line.ask(request, request.method, request.params, session_id)

        def withdraw() -> None:
            if asked.id is not None and self._server is not None:  # which ends it, and answers
                self._server.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % asked.id)
            else:
                self._line.forget(asked)  # the Peer has answered it

        request.on_cancel = withdraw
        if request.method == schema.INITIALIZE.name:
            self._introduction = request.params
            with suppress(errors.AcpError):  # the server will report the problem
                introduction = schema.decode(schema.InitializeRequest, request.params).value
                self._offer = offer_of(introduction, request.params)
        self._send(asked)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            method, params = notification.method, notification.params
            is_cancel = method == schema.CANCEL.name
            prompts = self._line.cancel(session_id_in(params)) if is_cancel else []
            if self._server is not None:
                await self._server.notify_raw(method, params)
            elif not prompts:  # those are cancelled by their ids
                self._kept.append((method, params))

    def _send_pending(self) -> None:
        """Send pending requests and notifications over a new connection."""
        _, refused, repeated = self._line.on_reconnect()
        for asked in refused:
            self._line.on_answer(asked, None)
            asked.request.refuse(
                errors.ConnectionLostError(
                    f"the connection to {self._name} was lost before the answer to "
                    f"{asked.method}; it is unknown if the server has done it"
                )
            )
        for asked in repeated:
            self._send(asked)
            if asked.is_cancelled and self._server is not None:
                params = schema.encode({"sessionId": asked.session_id})
                self._server.tell(schema.CANCEL.name, with_sent(params, Sent(asked.sent_id)))
        kept, self._kept = self._kept, []
        for method, params in kept:
            if self._server is not None:
                self._server.tell(method, params)

    def _send(self, asked: Pending[Request]) -> None:
        if (server := self._server) is None:
            return  # it is sent when there is a connection
        method, params = asked.method, asked.params
        place = self._line.send(asked)
        if method == schema.INITIALIZE.name:
            params = asking_for_positions(params)
        elif method == schema.PROMPT.name:
            after = None if place is None else place.position
            params = with_sent(params, Sent(asked.sent_id, after))
        elif place is not None:
            method = schema.RESUME_SESSION.name
            params = resume_params(params, place.position, lineage=place.lineage)

        def take(answer: Answer) -> None:
            if isinstance(answer, errors.ConnectionLostError):
                return  # it will be sent again
            result = answer if isinstance(answer, bytes) else None
            lineage = None
            if result is not None and asked.method in OPENING:
                lineage = lineage_of_answer(result)
            if not self._line.on_answer(asked, result, lineage):
                return
            if result is not None and asked.method == schema.INITIALIZE.name:
                self._line.knows_positions = keeps_positions(result)
            asked.request.reply(answer)

        with suppress(errors.ConnectionLostError):
            asked.id = server.begin(method, params, take)

    # -- messages of the server --------------------------------------------------------------

    async def ask_client(self, request: Request) -> bytes | None:
        """Return the client's answer; None if the client has gone."""
        question = question_in(request.params)
        if (earlier_answer := self._line.answer_to(question)) is not None:
            return earlier_answer
        answer = await hand_on(request, self._client.call_raw)
        if answer is not None:
            self._line.give(question, answer)
        return answer

    async def forward_notifications(self, batch: list[NotificationReceived]) -> None:
        """Forward the server's notifications, and note the client's positions."""
        for notification in batch:
            method, params = notification.method, notification.params
            position = position_of_update(params)
            if position is None:
                self._client.tell(method, params)
                continue
            if self._offer.positions or not is_only_position(params):
                self._client.tell(method, params)
            if (opened := self._line.sessions.get(session_of_update(params))) is not None:
                opened.advance(position)
        with suppress(errors.ConnectionLostError):
            await self._client.drain()

    def _notify_all(self, title: str, description: str) -> None:
        self._is_away_reported = title is AWAY
        for session_id in self._line.sessions:
            self._notify(session_id, title, description)

    def _notify(self, session_id: str, title: str, description: str) -> None:
        update = notice(title.format(self._name), description)
        self._client.send(Frames(session_id, self._offer).aside(update))


class _FromServer:
    """Receives the messages of a connection to the server."""

    def __init__(self, line: FarLine) -> None:
        self._line = line

    async def on_request(self, request: Request) -> bytes | None:
        return await self._line.ask_client(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        await self._line.forward_notifications(batch)


class ServerEndpoint(Endpoint):
    """The server at a URL; a lost connection to it is replaced (`client.far_line`).

    `on_away` is called when it is lost, and when it is back.
    """

    is_acphold = True
    is_repeatable = True

    def __init__(
        self,
        url: str,
        token: Token | None,
        *,
        seconds: float,
        limit: int,
        on_away: OnAway = bool,
        ca: str | None = None,
    ) -> None:
        require("serve", "a connection to a server")
        try:
            self.name = origin_of(url)
            self._dial = Dial(url, token, seconds=seconds, limit=limit, ca=ca)
        except ValueError as exc:
            raise errors.DeclarationError(str(exc)) from None
        self._limit = limit
        self._on_away = on_away
        self._line: asyncio.Task[None] | None = None

    async def open(self) -> Transport:
        await self.aclose()
        first = await self._dial()
        ours, theirs = memory_pair()
        line = FarLine(theirs, self._dial, self.name, self._limit, first, self._on_away)
        self._line = asyncio.create_task(line.run(), name="far line")
        return ours

    async def how_it_ended(self) -> errors.AcpError:
        if self._line is not None and self._line.done() and not self._line.cancelled():
            why = self._line.exception()
            if isinstance(why, errors.AcpError):
                return why
        return errors.ConnectionLostError(f"the connection to {self.name} is lost")

    async def aclose(self) -> None:
        await end(self._line)
        self._line = None
