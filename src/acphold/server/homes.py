"""The home of a session: the process in which it is live, as seen by a client with a request.

A `LocalHome` is this process. A `RemoteHome` is another one, its owner, to which a line leads. Each
call to that has a time limit: an owner that is stopped, or hangs, is detected (`RemoteSessions`)
and loses the session. Then calls that can be repeated end with OwnerLostError, for the session's
next home; the others are refused with what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from acphold.agents.capabilities import QUEUE_METHOD
from acphold.errors import AUTH_REQUIRED, OwnerLostError, RemoteError
from acphold.history.timeline import answer_in
from acphold.hub import Client, Conversation, Hub
from acphold.hub.prompt_turn import CANCELLED, PromptTurn
from acphold.hub.router import Asker
from acphold.reading.neighbours import tell_owner
from acphold.rpc import Peer
from acphold.rpc.request import Request
from acphold.schema import (
    AUTHENTICATE,
    CANCEL,
    CLOSE_SESSION,
    DELETE_SESSION,
    LOGOUT,
    PROMPT,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    encode,
)
from acphold.schema.methods import LEAVING, REPEATABLE
from acphold.server.checked_params import queue_request
from acphold.server.owner_line import OwnerLine
from acphold.server.positions import Sent, sent_in, with_sent, without_position
from acphold.server.sent_prompts import SentPrompt

SIGN_IN = frozenset({AUTHENTICATE.name, LOGOUT.name})
"""Methods after which an agent may let a person use its sessions, or no longer."""


class SessionHome(Protocol):
    """See the module. A method that gets a request answers it, now or later."""

    def prompt(self, request: Request, prompt: bytes, *, is_cancelled: bool) -> None:
        """Begin a turn, or queue it; one that is cancelled already is only answered."""

    async def cancel(self, params: bytes) -> None:
        """Handle `session/cancel`; only for one prompt if the params name it."""

    async def answer(self, request: Request) -> None:
        """Answer any other request; one that we do not know goes to the agent."""

    async def tell(self, method: str, params: bytes) -> None:
        """Handle a notification of the agent's own."""


class LocalHome:
    """This process. Without a session, requests go to the agent itself.

    `shown` makes a result fit for the client; `sign_in_lost` is called when the agent asks the
    person who prompts to sign in, if each connection has to do that itself. `in_order` is held
    while the fate of a prompt that the client sent before is looked up.
    """

    def __init__(
        self,
        hub: Hub,
        client: Client,
        peer: Peer,
        session_id: str | None,
        shown: Callable[[bytes], bytes],
        sign_in_lost: Callable[[], None] | None = None,
        in_order: asyncio.Lock | None = None,
    ) -> None:
        self._hub = hub
        self._client = client
        self._peer = peer
        self._session_id = session_id
        self._shown = shown
        self._sign_in_lost = sign_in_lost
        self._in_order = in_order or asyncio.Lock()

    def prompt(self, request: Request, prompt: bytes, *, is_cancelled: bool) -> None:
        conversation = self._hub.held(self._session_id or "")
        sent = sent_in(request.params)
        if sent is None or sent.after is None:
            if sent is not None and conversation.turns.sent(sent.id) is not None:
                raise OwnerLostError(PROMPT.name)  # a repeated prompt that arrived before this one
            self._begin(conversation, request, prompt, sent, is_cancelled=is_cancelled)
        elif not self._joined(conversation, request, sent):
            again = self._again(conversation, request, prompt, sent, is_cancelled=is_cancelled)
            self._peer.go_on(request, again)

    def _begin(
        self,
        conversation: Conversation,
        request: Request,
        prompt: bytes,
        sent: Sent | None,
        *,
        is_cancelled: bool,
    ) -> None:
        author = conversation.session.attachments.of(self._client)
        params = request.params if sent is None else without_position(request.params)
        reply = request.reply if self._sign_in_lost is None else self._watched(request)
        turn = PromptTurn(params, prompt, author, reply, "" if sent is None else sent.id)
        self._may_give_up(conversation, request, turn)
        conversation.turns.begin(turn, is_cancelled=is_cancelled)

    def _watched(self, request: Request) -> Callable[[bytes | Exception], None]:
        def reply(answer: bytes | Exception) -> None:
            is_refusal = isinstance(answer, RemoteError) and answer.code == AUTH_REQUIRED
            if is_refusal and self._sign_in_lost is not None:
                self._sign_in_lost()
            request.reply(answer)

        return reply

    def _joined(self, conversation: Conversation, request: Request, sent: Sent) -> bool:
        """Give this request the answer of its prompt if that waits or runs here; False if it does
        not."""
        turn = conversation.turns.sent(sent.id)
        if turn is None:
            return False
        turn.author = conversation.session.attachments.of(self._client)
        turn.reply = request.reply
        self._may_give_up(conversation, request, turn)
        return True

    async def _again(
        self,
        conversation: Conversation,
        request: Request,
        prompt: bytes,
        sent: Sent,
        *,
        is_cancelled: bool,
    ) -> None:
        """Handle a prompt that its client has sent before: begin it if it never came here, else
        answer it."""
        async with self._in_order:
            ended = await self._hub.whereabouts.end_of_sent(
                conversation.id, sent.id, sent.after or 0
            )
            if self._joined(conversation, request, sent):
                return
            if ended is None:
                self._begin(conversation, request, prompt, sent, is_cancelled=is_cancelled)
                return
        # The updates of the turn are on their way to this client, and come before its end.
        attachment = conversation.session.attachments.of(self._client)
        attachment.when_reached(ended.seq, partial(request.reply, answer_in(ended.raw)))

    def _may_give_up(self, conversation: Conversation, request: Request, turn: PromptTurn) -> None:
        def give_up() -> None:
            if not self._peer.is_lost:  # the turn of a client that has gone goes on
                conversation.turns.give_up(turn)

        request.on_cancel = give_up

    async def cancel(self, params: bytes) -> None:
        turns = self._hub.held(self._session_id or "").turns
        if (sent := sent_in(params)) is not None:
            await turns.cancel_sent(sent.id)
        else:
            await turns.cancel(self._client)

    async def answer(self, request: Request) -> None:
        session_id, client, method = self._session_id or "", self._client, request.method
        if method == CLOSE_SESSION.name:
            await self._hub.close(session_id, client)
            request.answer(b"{}")
        elif method == DELETE_SESSION.name:
            whose = await self._hub.whereabouts.owner_if_kept(session_id)
            await self._hub.delete(session_id, client)
            await tell_owner(whose, session_id)  # it tells the clients there
            request.answer(b"{}")
        elif method == SET_SESSION_MODE.name:
            conversation = self._hub.held(session_id)
            author = conversation.session.attachments.of(client)
            await conversation.set_mode(request.params, author, request.answer)
        elif method == SET_SESSION_CONFIG_OPTION.name:
            conversation = self._hub.held(session_id)
            author = conversation.session.attachments.of(client)
            await conversation.set_config_option(
                request.params, author, lambda answer: request.answer(self._shown(answer))
            )
        elif method == QUEUE_METHOD:
            await self._queue(self._hub.held(session_id), request)
        else:
            asker, its = Asker(client, request.id), self._session_id
            answered = partial(self._answered_by_agent, request)
            await self._hub.router.relay(method, request.params, its, asker, answered)

    async def _queue(self, conversation: Conversation, request: Request) -> None:
        """Read the queue of prompts that wait, perhaps after a change of it."""
        asked = queue_request(request.params)
        told: dict[str, object] = {}
        if asked.change is not None:
            client, tenant = self._client, conversation.session.tenant
            told["id"] = await conversation.waiting.change(
                asked.change, client.info, guest=not client.owns(tenant)
            )
        if asked.read:
            told["prompt"] = (await conversation.waiting.content(asked.read)).prompt
        request.answer(encode({"queue": conversation.session.queue, **told}))

    def _answered_by_agent(self, request: Request, result: bytes) -> None:
        if request.method in SIGN_IN:
            self._hub.sign_in_changed()
            # The result of these methods is an object, also if the agent answers `null`.
            result = b"{}" if result == b"null" else result
        request.answer(result)

    async def tell(self, method: str, params: bytes) -> None:
        await self._hub.router.tell(method, params, self._session_id, self._client)


class RemoteHome:
    """Another process. `again` handles a prompt whose line ended before the answer."""

    def __init__(
        self,
        line: OwnerLine,
        peer: Peer,
        session_id: str,
        again: Callable[[SentPrompt], Coroutine[None, None, None]],
    ) -> None:
        self._line = line
        self._peer = peer
        self._session_id = session_id
        self._again = again

    def prompt(self, request: Request, prompt: bytes, *, is_cancelled: bool) -> None:
        if is_cancelled:
            request.answer(CANCELLED)
            return
        self._send(request, prompt)

    def go_on(self, before: SentPrompt) -> None:
        """Send a prompt again that was sent over another line, whether it arrived there or not."""
        if before.is_cancelled:
            params = encode({"sessionId": self._session_id})
            self._line.peer.tell(CANCEL.name, with_sent(params, Sent(before.id)))
        else:
            self._send(before.request, before.prompt, before)

    def _send(self, request: Request, prompt: bytes, before: SentPrompt | None = None) -> None:
        opened = self._line.opened[self._session_id]
        sent = SentPrompt(
            self._line,
            self._peer,
            request,
            self._session_id,
            prompt,
            opened.position or 0,
            opened.epoch,
            self._again,
            before,
        )
        sent.send()

    async def cancel(self, params: bytes) -> None:
        self._line.peer.tell(CANCEL.name, params)

    async def answer(self, request: Request) -> None:
        def answered(_: bytes) -> None:
            if request.method in LEAVING:
                self._line.opened.pop(self._session_id, None)

        await self._line.forward(
            request, answered, may_ask_anew=lambda: request.method in REPEATABLE
        )

    async def tell(self, method: str, params: bytes) -> None:
        self._line.peer.tell(method, params)
