"""One client's requests in sessions: each goes where the session is live.

That is this process, or another one, the owner, at the end of a line (`server.remote_sessions`).

A prompt that is sent again after its connection was lost begins only if the journal does not have
it: see `server.positions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct, field

from acp_wire import schema
from acp_wire.rpc import Peer
from acp_wire.rpc.requests import Request
from acp_wire.schema.methods import REQUESTS
from acp_wire.schema.splice import session_id_in
from acphold import errors
from acphold.conversation.history.raw_update import storable, string, with_meta
from acphold.conversation.history.timeline import answer_in
from acphold.live.agents import capabilities
from acphold.live.hub.attachment import Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.ownership import end_of_sent
from acphold.live.hub.prompt_turn import CANCELLED, PromptTurn
from acphold.live.hub.router import Asker
from acphold.live.hub.terms_in_use import TermsChange, require_known_terms, require_own_terms
from acphold.live.reading.one_question import telling_owners
from acphold.live.server.checked_params import check_words, prompt_in, queue_request, session_id_of
from acphold.live.server.directory import Directory
from acphold.live.server.methods import Asked, method_of
from acphold.live.server.open_params import STAYS, WORKTREE, OpenParams
from acphold.live.server.positions import (
    Sent,
    find_sent,
    find_sent_in_meta,
    with_sent,
    without_position,
)
from acphold.live.server.principals import Entrance
from acphold.live.server.remote_sessions import RemoteSessions
from acphold.live.server.session_opener import Openings, as_readable
from acphold.logs import heard_by

Handler = Callable[[Request], Awaitable[bytes | None] | None]
"""Handles the requests of one method: see `ClientConnection`."""


class SessionRequests(Struct, eq=False):
    """See the module. A method that gets a request answers it, now or later. Without a session,
    requests go to the agent itself. `_in_order` is held while a repeated prompt is looked up in the
    journal."""

    _directory: Directory
    _client: Client
    _peer: Peer
    _entrance: Entrance
    _openings: Openings
    _remote: RemoteSessions
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)

    # -- prompts --------------------------------------------------------------------------

    def prompt(self, request: Request) -> Awaitable[None] | None:
        """Begin a turn once the session is open, or queue it."""
        session_id, prompt, meta = prompt_in(request.params)
        begin = partial(self._prompt, request, session_id, prompt, meta)
        if not self._openings.has(session_id):
            begin()
            return None

        async def begin_when_open() -> None:
            await self._openings.wait(session_id, request)
            begin()

        return begin_when_open()

    def _prompt(self, request: Request, session_id: str, prompt: bytes, meta: bytes) -> None:
        """Begin a turn, or queue it; a prompt that was answered while its session was opened is
        cancelled, and reaches no agent."""
        self._refuse_reader(session_id, request.method, b"{}")
        if self._remote.has(session_id):
            if not request.is_answered:
                self._remote.ask(session_id, request)
            return
        conversation = self._directory.conversation(session_id, request)
        self._check_terms(conversation)
        sent = find_sent_in_meta(meta)

        def begin() -> None:
            if conversation.session.queue.terms:
                require_known_terms(conversation)
            author = conversation.session.attachments.of(self._client)
            params = request.params if sent is None else without_position(request.params)

            def reply(answer: bytes | Exception) -> None:
                if not isinstance(answer, bytes):
                    if turn.is_cancelled and isinstance(answer, errors.LeaseLostError):
                        answer = CANCELLED
                    elif self._may_begin_again(conversation, turn, answer):
                        if turn.is_recorded and turn.sent_id:
                            named = Sent(turn.sent_id, turn.began)
                            request.params = with_sent(request.params, named)
                        request.on_cancel = None
                        self._peer.continue_with(request, self._again(request))
                        return
                    if (
                        isinstance(answer, errors.RemoteError)
                        and answer.code == errors.AUTH_REQUIRED
                    ):
                        self._entrance.require_again()  # the agent asks who prompts to sign in
                request.reply(answer)

            turn = PromptTurn(params, prompt, author, reply, "" if sent is None else sent.id)
            is_cancelled = request.is_answered
            if not is_cancelled:
                self._give_up_on_cancel(conversation, request, turn)
            with heard_by(conversation.shared.heard):  # also if it is of another desk
                conversation.turns.begin(turn, is_cancelled=is_cancelled)

        if sent is None or sent.after is None:
            if sent is not None and conversation.turns.find(sent.id) is not None:
                # The client has repeated it already, and that has arrived before this one.
                raise errors.InvalidParamsError(f"the prompt {sent.id!r} has come again already")
            begin()
        elif not self._join(conversation, request, sent):
            self._peer.continue_with(request, self._repeat(conversation, request, sent, begin))

    def _may_begin_again(
        self, conversation: Conversation, turn: PromptTurn, answer: bytes | Exception
    ) -> bool:
        """Return True if the next owner of a session that was lost begins this turn, as our agent
        has not: its client follows the session there, or is opening it again. Only its id tells
        that a prompt is in the journal, which an outage of a database may have taken along; one
        without may go only if nothing has been written since."""
        session = conversation.session
        is_unwritten = not turn.is_recorded or (
            self._directory.hub.journal.file is not None and session.last_seq == turn.began
        )
        return (
            type(answer) is errors.LeaseLostError
            and turn.at_agent is None
            and (is_unwritten or bool(turn.sent_id))
            and (self._remote.has(session.id) or self._openings.has(session.id))
        )

    async def _again(self, request: Request) -> None:
        """Handle a prompt anew, where its session is by now."""
        if (waiting := self.prompt(request)) is not None:
            await waiting

    def _refuse_reader(self, session_id: str, method: str, params: bytes) -> None:
        """Refuse to act in a session that the client has open only to read; ForbiddenError."""
        if session_id not in self._openings.reading:
            return
        if "prompt" in Asked.read(method, params).needs:
            raise errors.ForbiddenError(method, "prompt")

    def _check_terms(self, conversation: Conversation) -> None:
        """Refuse to say anything to an agent on other terms than the client's: TermsDifferError."""
        if self._client.terms:
            require_own_terms(self._client, conversation, self._directory.opened)

    def _check_terms_in(self, session_id: str) -> None:
        """The same, for a session that may not be live."""
        if (conversation := self._directory.hub.live.get(session_id)) is not None:
            self._check_terms(conversation)
            require_known_terms(conversation)

    def _join(self, conversation: Conversation, request: Request, sent: Sent) -> bool:
        """Let the turn of a repeated prompt answer this request; False if no such turn waits or
        runs here, or its end is being written: that answers who waited for it before. Raises
        InvalidParamsError for a guest, if the owner's client waits for it."""
        turn = conversation.turns.find(sent.id)
        if turn is None or turn.ending.locked():
            return False
        tenant, author = conversation.session.tenant, turn.author
        is_owners = author is not None and author.client.owns(tenant)
        if is_owners and not self._client.owns(tenant):
            raise errors.InvalidParamsError(f"another client has sent the prompt {sent.id!r}")
        turn.author = conversation.session.attachments.of(self._client)
        turn.reply = request.reply
        self._client.known_prompts.add(sent.id)  # it is written perhaps only now
        if not request.is_answered:
            self._give_up_on_cancel(conversation, request, turn)
        return True

    async def _repeat(
        self,
        conversation: Conversation,
        request: Request,
        sent: Sent,
        begin: Callable[[], None],
    ) -> None:
        """Handle a prompt that its client has sent before: begin it if it never arrived here,
        otherwise answer it."""
        async with self._in_order:
            journal, after = self._directory.hub.journal, sent.after or 0
            while True:
                if (turn := conversation.turns.find(sent.id)) is not None:
                    await turn.over()
                ended = await end_of_sent(journal, conversation.id, sent.id, after)
                if self._join(conversation, request, sent):  # it has arrived meanwhile
                    return
                if conversation.turns.find(sent.id) is None:
                    break
            if ended is None:
                begin()
                return
        # The updates of the turn are on their way to this client, and come before its end.
        attachment = conversation.session.attachments.of(self._client)
        attachment.when_reached(ended.seq, partial(request.reply, answer_in(ended.raw)))

    def _give_up_on_cancel(
        self, conversation: Conversation, request: Request, turn: PromptTurn
    ) -> None:
        def give_up() -> None:
            if not self._peer.is_lost:  # the turn of a client that has gone continues
                conversation.turns.give_up(turn)

        request.on_cancel = give_up

    async def cancel(self, params: bytes) -> None:
        """Handle `session/cancel`, for one prompt if the params name it."""
        session_id, hub = session_id_of(params), self._directory.hub
        self._openings.cancel(session_id)
        self._refuse_reader(session_id, schema.CANCEL.name, params)
        sent = find_sent(params)
        if self._remote.has(session_id):
            self._remote.tell(session_id, schema.CANCEL.name, params)
        elif hub.holds(session_id) or not self._openings.has(session_id):
            conversation = hub.conversation(session_id)
            if sent is not None:
                await conversation.turns.cancel_sent(sent.id)
            else:
                await conversation.cancel(self._client)

    # -- others ---------------------------------------------------------------------------

    async def tell(self, method: str, params: bytes) -> None:
        """Handle a notification of the agent's own."""
        session_id = session_id_in(params)
        if session_id is not None and self._remote.has(session_id):
            self._remote.tell(session_id, method, params)
        else:
            check_words(method, params)
            self._check_terms_in(session_id or "")
            desk = self._directory.hub.desk_of(session_id or "") or self._directory.opened
            if desk is None:  # a notification starts no agent
                raise errors.UnknownSessionError(session_id or "")
            await desk.router.tell(method, params, session_id, self._client)

    async def answer(self, request: Request) -> None:
        """Answer any other request, once its session is open; at once if the client leaves the
        session. A method that we do not know goes to the agent."""
        named = session_id_in(request.params)
        if REQUESTS[request.method].leaves:
            named = session_id_of(request.params)
        elif named is not None:
            await self._openings.wait(named)
            self._refuse_reader(named, request.method, request.params)
        session_id, client = named or "", self._client
        changes_terms = method_of(request.method).changes_terms
        if self._remote.has(session_id) and not changes_terms:
            self._remote.ask(session_id, request)
            return
        match request.method:
            case schema.CLOSE_SESSION.name:
                await self._openings.abandon(session_id)
                await self._directory.hub.close(session_id, client)
                request.answer(b"{}")
            case schema.DELETE_SESSION.name:
                request.answer(await self._delete(request, session_id))
            case schema.SET_SESSION_MODE.name | schema.SET_SESSION_CONFIG_OPTION.name as method:
                conversation = self._directory.conversation(session_id, request)
                author = conversation.session.attachments.of(client)
                is_mode = method == schema.SET_SESSION_MODE.name
                set_ = conversation.set_mode if is_mode else conversation.set_config_option
                await set_(
                    request.params,
                    author,
                    lambda result: request.answer(as_readable(result, client)),
                )
            case capabilities.QUEUE_METHOD:
                conversation = self._directory.conversation(session_id, request)
                queue = await self._queue(conversation, request.params)
                attachment = conversation.session.attachments.find(client)
                if attachment is None:
                    request.answer(queue)
                else:
                    attachment.when_reached(
                        conversation.session.last_seq, partial(request.answer, queue)
                    )
            case _:
                check_words(request.method, request.params)
                asker = Asker(client, request.id)
                scopes = client.scopes_in(session_id)
                if not changes_terms:
                    self._check_terms_in(session_id)
                async with self._directory.of(request, named, scopes, acts=True) as desk:

                    def reply(result: bytes) -> None:
                        if method_of(request.method).by == "entrance":
                            desk.sign_in_changed()
                            # The result of these is an object, also if the agent answers `null`.
                            result = b"{}" if result == b"null" else result
                        request.answer(result)

                    accept = None
                    if changes_terms:
                        change = TermsChange(desk, client, request.method, request.params)
                        change.require_agreement()
                        accept = change.accept
                    relayed = request.method, request.params, named, asker, reply
                    await desk.router.relay(*relayed, accept)

    async def _delete(self, request: Request, session_id: str) -> bytes:
        """Delete a session, with its work tree if the client names that as it was seen."""
        client, journal = self._client, self._directory.hub.journal
        mark = string(OpenParams.decode(request.params).meta.get(WORKTREE))
        tree, stays = None, ""
        if mark is not None:
            from acphold.live.server import tree_requests  # late: it brings git

            tree_requests.require_files(client, session_id)
            tree = await tree_requests.tree_to_remove(journal, session_id, mark)
        async with (
            telling_owners(journal, [session_id]),
            self._directory.of(request, session_id, client.scopes_in("")) as desk,
        ):
            await desk.delete(session_id, client)
        if tree is not None:
            stays = await tree_requests.remove(tree)
        return with_meta(b"{}", STAYS, schema.encode(storable(stays))) if stays else b"{}"

    async def _queue(self, conversation: Conversation, params: bytes) -> bytes:
        """Return the queue, after a change of it if the params have one."""
        asked = queue_request(params)
        result: dict[str, object] = {}
        if asked.change is not None:
            if not asked.change.takes_back:
                self._check_terms(conversation)
            await conversation.waiting.wake()
            result["id"] = await conversation.waiting.change(asked.change, self._client)
        if asked.read:
            result["prompt"] = (await conversation.waiting.content(asked.read)).prompt
        return schema.encode(result | conversation.session.attachments.queue_state())
