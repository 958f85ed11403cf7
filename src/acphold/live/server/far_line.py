"""A client's line to another process: the connection to it is replaced whenever it is lost.

To the client it is an agent that is always connected. The process is a remote server, or the owner
of a session, which may be another one after each loss (`server.remote_sessions`). `lines.line`
decides what has to be sent over the next connection; it is sent here, in this order:

1. `initialize`, as the client sent it;
2. for each session that the client has open, `session/resume` after its last position, so that no
   update is missing or arrives twice;
3. the client's unanswered requests, in the order in which it sent them;
4. the client's notifications since.

The other process repeats its own unanswered requests; the earlier ones are withdrawn from the
client here. A prompt that was cancelled is not sent again: it is answered, and cancelled by its id
over the next connection, and no other turn is.

A server that is not an acphold knows no positions: its sessions are resumed, and the client is
notified of the gap.
"""

# See docs/decisions.md, 16 and 19.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial

from acp_wire import schema
from acp_wire.rpc import CutNotification, NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Answer, Request, hand_on
from acp_wire.schema import splice
from acp_wire.schema.methods import CANCEL_REQUEST, REQUESTS
from acp_wire.schema.splice import session_id_in
from acp_wire.tasks import beside, first
from acphold import errors
from acphold.conversation.history.replay import Replayed
from acphold.live.agents.capabilities import (
    QUEUE_METHOD,
    answer_from_afar,
    asking_for_positions,
    introduction_for_afar,
    keeps_positions,
)
from acphold.live.agents.client_methods import FAR, Knows, Place, knows_none, may_ask, may_tell
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.annotations import missing_update, notice
from acphold.live.hub.attachment import LineClient
from acphold.live.hub.attachments import DELETED_NOTICE
from acphold.live.hub.frames import Frames
from acphold.live.hub.prompt_turn import CANCELLED
from acphold.live.lines.line import LastingLine, OpenSession, Pending, Resumed
from acphold.live.server import bounds
from acphold.live.server.positions import (
    Sent,
    find_sent,
    is_only_position,
    lineage_of_answer,
    place_of_cut,
    position_of_update,
    question_in,
    resume_params,
    session_of_update,
    with_sent,
    without_position,
)
from acphold.live.server.reconnection import OpenTransport, Reconnection

log = logging.getLogger(__name__)

NOT_OPEN = "This session is not open any more"
NOT_OPEN_HOW = "{}. To continue, load it again."

PASSING = frozenset({errors.HELD_ELSEWHERE, errors.AcpError.code, errors.JOURNAL_FAILED})
"""Codes of refusals after which another try may succeed: another process was quicker, a disk is
full, or the journal is locked."""


class FarLine:
    """See the module. `dial` and `name` as in `Reconnection`; so is `first_connection`,
    its `first`.

    `introduction` are the params of the client's `initialize`, if it was answered elsewhere. A line
    that `follows_owner` is for one session: it connects again if the other process is not the owner
    any more, or cannot open the session now. The other process is at `place`, which decides what it
    may ask (`agents.client_methods`); `dial` may change it. `knows` are extensions of the client.
    """

    def __init__(
        self,
        client: LineClient,
        dial: OpenTransport,
        name: str,
        limit: int,
        first_connection: Transport | None,
        place: Place,
        *,
        introduction: bytes | None = None,
        follows_owner: bool = False,
        knows: Knows = knows_none,
    ) -> None:
        self._client = client
        self._connection = Reconnection(dial, name, first_connection, self.notify_client)
        self.place = place
        self._knows = knows
        self._name = name
        self._limit = limit
        self._server: Peer | None = None
        self._introduction = introduction
        self._line = LastingLine[Request]()
        self._given_up = asyncio.Event()
        self._is_restoring = False
        self._is_closed = False
        self._follows_owner = follows_owner

    async def run(self) -> None:
        """Stay connected: reconnect after each loss.

        Raises what ends the line, like RemoteRefusalError if the server does not admit us any more.
        Then its requests are refused with it, and the client is told in its sessions.
        """
        try:
            while True:
                await self._stay_connected()
        except errors.AcpError as exc:
            self.refuse_pending(exc)
            for session_id in tuple(self._line.sessions):
                self._lose(session_id, exc)
            await self._drain()
            raise
        finally:
            self._connection.close()

    async def _stay_connected(self) -> None:
        """Connect, and return when that connection is lost, or given up."""
        transport = await self._connection.next()
        server = Peer(
            transport,
            self,
            name=self._name.removeprefix("the "),
            limit=self._limit,
            is_agent=True,
            on_cut=self._on_cut,
        )
        self._given_up.clear()
        try:
            async with (
                connected(server) as pump,
                beside(self._given_up.wait(), "given up") as giving_up,
                beside(self._restore(server), "restore") as restoring,
            ):
                await first(restoring, pump, giving_up)
                if restoring.done():
                    restoring.result()
                    self._go_on(server)
                await first(pump, giving_up)
        except errors.ConnectionLostError as exc:
            log.info("%s", exc)
        finally:
            self._server, self._is_restoring = None, False
        self._answer_cancelled()
        self._connection.on_loss()

    async def _restore(self, server: Peer) -> None:
        """Introduce the client over a new connection, and resume its open sessions.

        Raises ConnectionLostError also for a refusal that passes.
        """
        if self._introduction is None or self._line.introduces_itself:
            return
        try:
            self._is_restoring = True
            introduced = await server.call_raw(
                schema.INITIALIZE.name,
                self._introduce(self._introduction),
                seconds=bounds.REOPEN_SECONDS,
            )
            self._line.knows_positions = keeps_positions(introduced)
            for resumed in self._line.on_reconnect().resume:
                await self._reopen(server, resumed)
        except errors.RemoteError as exc:
            if self._follows_owner and exc.code in PASSING:
                raise errors.ConnectionLostError(str(exc)) from exc
            raise

    def _introduce(self, params: bytes) -> bytes:
        """Return the params of the client's `initialize`, as the other process gets them."""
        if self.place in FAR:
            params = introduction_for_afar(params, over_ssh=self.place == "ssh")
        return asking_for_positions(params)

    def _go_on(self, server: Peer) -> None:
        """Go on over a new connection, where the sessions are open: send what is pending."""
        self._is_restoring = False
        self._connection.on_return()
        self._server = server
        _, refused, repeated = self._line.on_reconnect()
        for asked in refused:
            self._line.on_answer(asked, None)
            asked.request.refuse(
                errors.ConnectionLostError(
                    f"the connection to {self._name} was lost before the answer to "
                    f"{asked.method}; it is unknown if that was done"
                )
            )
            asked.on_answered()
        for asked in repeated:
            if not asked.is_cancelled:
                self._send(asked)
                continue
            self._line.on_answer(asked, None)
            asked.on_answered()
            params = schema.encode({"sessionId": asked.session_id})
            server.tell(schema.CANCEL.name, with_sent(params, Sent(asked.sent_id)))
        for method, params in self._line.take_kept():
            server.tell(method, params)
        for session_id, opened in self._line.sessions.items():
            if opened.due:  # the queue is told behind all that came before
                named = schema.encode({"sessionId": session_id})
                server.begin(QUEUE_METHOD, named, partial(self._act, opened))

    @staticmethod
    def _act(opened: OpenSession, answer: Answer) -> None:
        if not isinstance(answer, errors.ConnectionLostError):  # else over the next connection
            opened.act()

    async def _reopen(self, server: Peer, resumed: Resumed) -> None:
        session_id, opened, known = resumed
        named = splice(opened.setup, {"sessionId": schema.encode(session_id)})
        params = without_position(named)  # the client's own is older

        async def resume(setup: bytes) -> bytes:
            return await server.call_raw(
                schema.RESUME_SESSION.name, setup, seconds=bounds.REOPEN_SECONDS
            )

        try:
            before, place = opened.lineage, opened.position
            lineages = (before, None) if known and before else (before,)
            if place is None and known:  # nothing has come since a gap: a prompt may tell by now
                place, lineages = opened.former, (None,)
            if place is not None and self._line.knows_positions:
                # Without the lineage, a prompt of ours says where the history is the same.
                for lineage in lineages:
                    said = resume_params(params, place, known, lineage)
                    try:
                        opened.on_resumed(lineage_of_answer(await resume(said)))
                    except errors.RemoteError as exc:
                        if exc.code != errors.InvalidParamsError.code:
                            raise
                    else:
                        opened.advance(place)  # what followed may be here already
                        self._connection.has_gap |= lineage != before
                        return
            # Updates were merged across its position, or belong to a lost history, or it has none.
            opened.position, opened.former = None, opened.former if place is None else place
            # Without one in the answer there is none: a former lineage goes with its position.
            opened.lineage = lineage_of_answer(await resume(params))
            self._connection.has_gap = True
        except errors.RemoteError as exc:
            if self._follows_owner and exc.code in PASSING:
                raise
            self._lose(session_id, exc)

    def _lose(self, session_id: str, why: errors.AcpError) -> None:
        """Tell the client that a session is not open any more."""
        lost = self._line.sessions.pop(session_id)
        if not lost.is_open:
            lost.act()
            return
        if why.code == errors.MissingFileError.code:
            self._send_update(session_id, DELETED_NOTICE)
        else:
            self._send_update(session_id, notice(NOT_OPEN, NOT_OPEN_HOW.format(why), "warning"))
        lost.act()

    # -- messages of the client --------------------------------------------------------------

    def ask(self, request: Request, opening: OpenSession | None = None) -> Pending[Request]:
        """Send a request of the client, now or when there is a connection, and answer it.

        `opening` is where the client begins in the session that it opens, if that is known. Raises
        InvalidParamsError for a prompt with an id that cannot be read.
        """
        named = find_sent(request.params) if request.method == schema.PROMPT.name else None
        session_id = session_id_in(request.params)
        asked = self._line.ask(request, request.method, request.params, session_id)
        asked.begins = opening
        if named is not None:
            asked.sent_id = named.id
            if named.after is not None:  # it may be in the journal already
                asked.is_sent, asked.after = True, named.after
        elif request.method == schema.INITIALIZE.name:
            self._introduction = request.params
        request.on_cancel = lambda: self._withdraw(asked)
        self._send(asked)
        return asked

    def _withdraw(self, asked: Pending[Request]) -> None:
        """Cancel a request for which the client does not wait any more."""
        if self._client.is_lost:
            return  # the turn of a client that has gone continues
        asked.on_answered()
        asked.is_cancelled = asked.method == schema.PROMPT.name
        if self._server is not None and asked.id is not None:  # which ends it, and answers
            self._server.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % asked.id)
        elif not (asked.is_sent and asked.is_cancelled):  # by its id, over the next connection
            self._line.forget(asked)

    async def open(self, request: Request, opening: OpenSession) -> None:
        """Send a request that opens a session, as in `ask`, and return once it is answered."""
        answered, asked = asyncio.Event(), self.ask(request, opening)
        asked.on_answered = answered.set
        try:
            await answered.wait()
        finally:
            if not answered.is_set():
                self._withdraw(asked)

    def follow(self, session_id: str, opened: OpenSession) -> None:
        """Resume a session, which the client had open elsewhere, over the next connection."""
        opened.is_open = True
        self._line.sessions[session_id] = opened

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification of the client, now or when there is a connection. Raises
        InvalidParamsError for a cancel with an id that cannot be read."""
        prompts: Sequence[Pending[Request]] = ()
        if method == schema.CANCEL.name:
            sent = find_sent(params)
            prompts = self._line.cancel(session_id_in(params), None if sent is None else sent.id)
        if self._server is not None:
            self._server.tell(method, params)
        elif not prompts:
            self._line.keep(method, params)
        else:
            self._answer_cancelled()

    async def drain(self) -> None:
        """Wait until the other process has read most of what it was sent."""
        if self._server is not None:
            with suppress(errors.ConnectionLostError):
                await self._server.drain()

    def _answer_cancelled(self) -> None:
        """Answer the cancelled prompts, without a connection. Those that were sent are cancelled by
        their ids over the next one."""
        for asked in [it for it in self._line.pending if it.is_cancelled]:
            asked.request.answer(CANCELLED)
            if not asked.is_sent:
                self._line.forget(asked)

    @property
    def is_idle(self) -> bool:
        """True if nothing is open over it, and no answer is waited for."""
        return not (self._line.sessions or self._line.pending)

    @property
    def is_connected(self) -> bool:
        """True while there is a connection over which its sessions are open."""
        return self._server is not None

    @property
    def is_waiting(self) -> bool:
        """True while a request over the present connection is not answered."""
        return self._is_restoring or (self.is_connected and bool(self._line.pending))

    @property
    def is_due(self) -> bool:
        """True while an answer over the present connection is due at once."""
        return self._is_restoring or (self.is_connected and self._line.is_due)

    @property
    def sent_prompts(self) -> list[tuple[str, int]]:
        """The ids of the prompts that were sent over the present connection and are not answered,
        each with a position from before it."""
        prompts = [it for it in self._line.pending if it.method == schema.PROMPT.name]
        return [(it.sent_id, it.after) for it in prompts if it.is_sent and self.is_connected]

    def give_up(self) -> None:
        """Replace the connection: the process at the other end hangs, or has lost the session."""
        self._given_up.set()

    def close(self) -> None:
        """Answer what the client waits for, and tell it nothing more: it has left its sessions
        here."""
        self._is_closed = True
        for opened in self._line.sessions.values():
            opened.act()
        for asked in self._line.pending:
            if asked.method == schema.PROMPT.name:
                asked.request.answer(CANCELLED)
        self.refuse_pending(errors.ConnectionLostError(f"the connection to {self._name} has ended"))

    def refuse_pending(self, why: errors.AcpError) -> None:
        """Refuse what the client waits for."""
        pending, self._line.pending = self._line.pending, []
        for asked in pending:
            asked.request.refuse(why)
            asked.on_answered()

    async def call(self, method: str, params: bytes) -> None:
        """Send a request of our own; ConnectionLostError if there is no connection now."""
        if self._server is None:
            raise errors.ConnectionLostError(f"the connection to {self._name} is lost")
        await self._server.call_raw(method, params, seconds=bounds.REOPEN_SECONDS)

    def _send(self, asked: Pending[Request]) -> None:
        if (server := self._server) is None:
            return  # it is sent when there is a connection
        method, params = asked.method, asked.params
        place = self._line.send(asked)
        if method == schema.INITIALIZE.name:
            params = self._introduce(params)
        elif method == schema.PROMPT.name:
            after = None if place is None else place.position
            params = with_sent(params, Sent(asked.sent_id, after))
        elif place is not None:
            method = schema.RESUME_SESSION.name
            params = resume_params(params, place.position, lineage=place.lineage)

        def take(answer: Answer) -> None:
            if isinstance(answer, errors.ConnectionLostError):
                return  # it will be sent again
            if self._follows_owner and self._is_astray(asked, answer):
                self.give_up()
                return
            result = answer if isinstance(answer, bytes) else None
            opens = result is not None and REQUESTS[asked.method].opens
            lineage = lineage_of_answer(result or b"{}") if opens else None
            if not self._line.on_answer(asked, result, lineage):
                return
            if result is not None and asked.method == schema.INITIALIZE.name:
                self._line.knows_positions = keeps_positions(result)
                answer = answer_from_afar(result) if self.place in FAR else result
            asked.request.reply(answer)
            asked.on_answered()

        with suppress(errors.ConnectionLostError):
            asked.id = server.begin(method, params, take)

    def _is_astray(self, asked: Pending[Request], answer: Answer) -> bool:
        """Return True for a refusal because the process is not the owner of the session, or because
        it has closed it, so that this prompt did not begin."""
        if not isinstance(answer, errors.RemoteError):
            return False
        opened = self._line.sessions.get(asked.session_id or "")
        if (
            answer.code == errors.MissingFileError.code
            and asked.method == schema.PROMPT.name
            and self._line.knows_positions
            and not asked.was_refused
            and opened is not None
            and opened.is_open
        ):
            asked.was_refused = True
            return True
        return answer.code == errors.HELD_ELSEWHERE

    # -- messages of the other process -------------------------------------------------------

    async def on_request(self, request: Request) -> bytes | None:
        """Return the client's answer; None if the client has gone. Refused if the client's machine
        does nothing of the kind for the other one: MethodNotFoundError."""
        if not may_ask(self.place, request.method, self._knows):
            raise errors.MethodNotFoundError(request.method)
        question = question_in(request.params)
        if (earlier_answer := self._line.answer_to(question)) is not None:
            return earlier_answer
        answer = await hand_on(request, self._client.ask)
        if answer is not None:
            self._line.give(question, answer)
        return answer

    def on_notifications(self, batch: list[NotificationReceived]) -> Awaitable[None] | None:
        """Forward notifications, and note the client's positions."""
        if self._is_closed:
            return None
        for notification in batch:
            method, params = notification.method, notification.params
            if not may_tell(self.place, method, self._knows):
                log.warning("dropped %s of %s", method, self._name)
                continue
            position = position_of_update(method, params)
            if position is None:
                self._client.tell(method, params)
                continue
            if self._client.offer.positions or not is_only_position(params):
                self._client.tell(method, params)
            if (opened := self._line.sessions.get(session_of_update(params))) is not None:
                opened.advance(position)
        # While we do not read, the other process feeds this client from the journal.
        return self._drain() if self._client.buffered > hub_bounds.LAG_BYTES else None

    async def _drain(self) -> None:
        with suppress(errors.ConnectionLostError):
            await self._client.drain()

    def _on_cut(self, cut: CutNotification) -> None:
        """Send the client a notice in place of an update that is over this process's limit."""
        session_id, position = place_of_cut(cut)
        if session_id is None or (opened := self._line.sessions.get(session_id)) is None:
            return
        offer = self._client.offer
        frames = Frames(session_id, offer, positions=offer.positions)
        self._client.send(
            frames.lines_of([Replayed(missing_update(cut.problem), seq=position or 0)])
        )
        if position is not None:
            opened.advance(position)

    # -- notices -----------------------------------------------------------------------------

    def notify_client(self, title: str, description: str, severity: str = "info") -> None:
        """Send the client a notice in all of its sessions; it is not journalled."""
        for session_id in self._line.sessions:
            self._send_update(session_id, notice(title, description, severity))

    def _send_update(self, session_id: str, update: bytes) -> None:
        self._client.send(Frames(session_id, self._client.offer).aside(update))
