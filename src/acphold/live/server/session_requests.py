"""One client's requests in sessions: each goes to the session's home, where it is live.

A `LocalHome` is this process. A `RemoteHome` is another process, the owner, at the end of a line.

A prompt that is sent again after its connection was lost begins only if the journal does not have
it: see `server.positions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.rpc import Peer
from acp_wire.rpc.requests import Request
from acp_wire.schema.methods import LEAVING
from acp_wire.schema.splice import session_id_in
from acphold import errors
from acphold.live.agents import capabilities
from acphold.live.hub.attachment import Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.ownership import end_of_sent
from acphold.live.hub.prompt_turn import CANCELLED, PromptTurn
from acphold.live.hub.router import Asker
from acphold.live.reading.neighbours import tell_owner
from acphold.live.server.checked_params import prompt_in, queue_request, session_id_of
from acphold.live.server.positions import (
    Sent,
    find_sent,
    find_sent_in_meta,
    without_position,
)
from acphold.live.server.principals import Entrance
from acphold.live.server.remote_sessions import RemoteSessions
from acphold.live.server.session_opener import SessionOpener, as_readable
from acphold.record.history.timeline import answer_in
from acphold.record.journal import Whose
from acphold.record.journal.owners import Free

SIGN_IN = frozenset({schema.AUTHENTICATE.name, schema.LOGOUT.name})
"""Methods after which an agent may let a person use its sessions, or no longer."""


class AskedPrompt(Struct, frozen=True):
    """A request to prompt: the members `prompt` and `_meta` of its params, and if it was cancelled
    already."""

    request: Request
    prompt: bytes
    meta: bytes
    is_cancelled: bool


class LocalHome(Struct, frozen=True):
    """This process. Without a session, requests go to the agent itself.

    `in_order` is held while a repeated prompt is looked up in the journal.
    """

    desk: Desk
    client: Client
    peer: Peer
    entrance: Entrance
    in_order: asyncio.Lock
    session_id: str | None = None

    def prompt(self, asked: AskedPrompt) -> None:
        """Begin a turn, or queue it; a prompt that is cancelled already is only answered."""
        conversation = self.desk.hub.conversation(self.session_id or "")
        sent = find_sent_in_meta(asked.meta)
        if sent is None or sent.after is None:
            if sent is not None and conversation.turns.find(sent.id) is not None:
                # The client has repeated it already, and that has arrived before this one.
                raise errors.InvalidParamsError(f"the prompt {sent.id!r} has come again already")
            self._begin(conversation, asked, sent)
        elif not self._join(conversation, asked.request, sent):
            self.peer.continue_with(asked.request, self._repeat(conversation, asked, sent))

    def _begin(self, conversation: Conversation, asked: AskedPrompt, sent: Sent | None) -> None:
        request, author = asked.request, conversation.session.attachments.of(self.client)
        params = request.params if sent is None else without_position(request.params)

        def reply(answer: bytes | Exception) -> None:
            if isinstance(answer, errors.RemoteError) and answer.code == errors.AUTH_REQUIRED:
                self.entrance.require_again()  # the agent asks the person who prompts to sign in
            request.reply(answer)

        turn = PromptTurn(params, asked.prompt, author, reply, "" if sent is None else sent.id)
        self._give_up_on_cancel(conversation, request, turn)
        conversation.turns.begin(turn, is_cancelled=asked.is_cancelled)

    def _join(self, conversation: Conversation, request: Request, sent: Sent) -> bool:
        """Let the turn of a repeated prompt answer this request; False if no such turn waits or
        runs here. Raises InvalidParamsError for a guest, if the owner's client waits for it."""
        turn = conversation.turns.find(sent.id)
        if turn is None:
            return False
        tenant, author = conversation.session.tenant, turn.author
        is_owners = author is not None and author.client.owns(tenant)
        if is_owners and not self.client.owns(tenant):
            raise errors.InvalidParamsError(f"another client has sent the prompt {sent.id!r}")
        turn.author = conversation.session.attachments.of(self.client)
        turn.reply = request.reply
        self._give_up_on_cancel(conversation, request, turn)
        return True

    async def _repeat(self, conversation: Conversation, asked: AskedPrompt, sent: Sent) -> None:
        """Handle a prompt that its client has sent before: begin it if it never arrived here,
        otherwise answer it."""
        async with self.in_order:
            journal, after = self.desk.hub.journal, sent.after or 0
            ended = await end_of_sent(journal, conversation.id, sent.id, after)
            if self._join(conversation, asked.request, sent):  # it has arrived meanwhile
                return
            if ended is None:
                self._begin(conversation, asked, sent)
                return
        # The updates of the turn are on their way to this client, and come before its end.
        attachment = conversation.session.attachments.of(self.client)
        attachment.when_reached(ended.seq, partial(asked.request.reply, answer_in(ended.raw)))

    def _give_up_on_cancel(
        self, conversation: Conversation, request: Request, turn: PromptTurn
    ) -> None:
        def give_up() -> None:
            if not self.peer.is_lost:  # the turn of a client that has gone continues
                conversation.turns.give_up(turn)

        request.on_cancel = give_up

    async def cancel(self, params: bytes) -> None:
        """Handle `session/cancel`, for one prompt if the params name it."""
        conversation = self.desk.hub.conversation(self.session_id or "")
        if (sent := find_sent(params)) is not None:
            await conversation.turns.cancel_sent(sent.id)
        else:
            await conversation.cancel(self.client)

    async def answer(self, request: Request) -> None:
        """Answer any other request; a method that we do not know goes to the agent."""
        session_id, client = self.session_id or "", self.client
        match request.method:
            case schema.CLOSE_SESSION.name:
                await self.desk.close(session_id, client)
                request.answer(b"{}")
            case schema.DELETE_SESSION.name:
                owner: Whose = Free(0)
                with suppress(errors.UnknownSessionError):  # one that only the agent has
                    owner = await self.desk.hub.journal.owner(session_id)
                await self.desk.delete(session_id, client)
                await tell_owner(owner, session_id)  # it notifies the clients there
                request.answer(b"{}")
            case schema.SET_SESSION_MODE.name:
                conversation = self.desk.hub.conversation(session_id)
                author = conversation.session.attachments.of(client)
                await conversation.set_mode(request.params, author, request.answer)
            case schema.SET_SESSION_CONFIG_OPTION.name:
                conversation = self.desk.hub.conversation(session_id)
                author = conversation.session.attachments.of(client)
                await conversation.set_config_option(
                    request.params,
                    author,
                    lambda result: request.answer(as_readable(result, client)),
                )
            case capabilities.QUEUE_METHOD:
                conversation = self.desk.hub.conversation(session_id)
                request.answer(await self._queue(conversation, request.params))
            case _:
                asker = Asker(client, request.id)

                def reply(result: bytes) -> None:
                    if request.method in SIGN_IN:
                        self.desk.sign_in_changed()
                        # The result of these is an object, also if the agent answers `null`.
                        result = b"{}" if result == b"null" else result
                    request.answer(result)

                await self.desk.router.relay(
                    request.method, request.params, self.session_id, asker, reply
                )

    async def _queue(self, conversation: Conversation, params: bytes) -> bytes:
        """Return the queue, after a change of it if the params have one; without the queue, if the
        client was sent the change."""
        asked = queue_request(params)
        result: dict[str, object] = {}
        if asked.change is not None:
            await conversation.waiting.wake()
            is_guest = not self.client.owns(conversation.session.tenant)
            result["id"] = await conversation.waiting.change(
                asked.change, self.client.info, guest=is_guest
            )
        if asked.read:
            result["prompt"] = (await conversation.waiting.content(asked.read)).prompt
        attachments = conversation.session.attachments
        if not result or not attachments.knows_queue(self.client):
            result |= attachments.queue_state(self.client)
        return schema.encode(result)

    async def tell(self, method: str, params: bytes) -> None:
        """Handle a notification of the agent's own."""
        await self.desk.router.tell(method, params, self.session_id, self.client)


class RemoteHome(Struct, frozen=True):
    """The owner of a session, at the end of the client's line; as `LocalHome`."""

    remote: RemoteSessions
    session_id: str

    def prompt(self, asked: AskedPrompt) -> None:
        if asked.is_cancelled:
            asked.request.answer(CANCELLED)
        else:
            self.remote.ask(self.session_id, asked.request)

    async def cancel(self, params: bytes) -> None:
        await self.tell(schema.CANCEL.name, params)

    async def answer(self, request: Request) -> None:
        self.remote.ask(self.session_id, request)

    async def tell(self, method: str, params: bytes) -> None:
        self.remote.tell(self.session_id, method, params)


SessionHome = LocalHome | RemoteHome
"""The place where a session is live. A method that gets a request answers it, now or later."""

Handler = Callable[[Request], Awaitable[bytes | None] | None]
"""Handles the requests of one method: see `ClientConnection`."""


class SessionRequests:
    """Sends each request to the session's home."""

    def __init__(
        self,
        desk: Desk,
        client: Client,
        peer: Peer,
        entrance: Entrance,
        opener: SessionOpener,
    ) -> None:
        self._here = LocalHome(desk, client, peer, entrance, asyncio.Lock())
        self._openings = opener.openings
        self._remote = opener.remote

    def prompt(self, request: Request) -> Awaitable[None] | None:
        session_id, prompt, meta = prompt_in(request.params)
        if self._openings.has(session_id):

            async def prompt_when_open() -> None:
                is_cancelled = await self._openings.wait(session_id, request)
                asked = AskedPrompt(request, prompt, meta, is_cancelled)
                self.home(session_id).prompt(asked)

            return prompt_when_open()
        self.home(session_id).prompt(AskedPrompt(request, prompt, meta, False))
        return None

    async def cancel(self, params: bytes) -> None:
        session_id = session_id_of(params)
        self._openings.cancel(session_id)
        is_open = self._here.desk.hub.holds(session_id) or self._remote.has(session_id)
        if is_open or not self._openings.has(session_id):
            await self.home(session_id).cancel(params)

    def home(self, session_id: str | None) -> SessionHome:
        """Return the home of a session, whether it is open to this client or not."""
        if session_id is not None and self._remote.has(session_id):
            return RemoteHome(self._remote, session_id)
        return replace(self._here, session_id=session_id)

    async def answer(self, request: Request) -> None:
        """Let the session's home answer, once the session is open; at once if the client leaves the
        session."""
        session_id = session_id_in(request.params)
        if request.method in LEAVING:
            session_id = session_id_of(request.params)
        elif session_id is not None:
            await self._openings.wait(session_id)
        await self.home(session_id).answer(request)
