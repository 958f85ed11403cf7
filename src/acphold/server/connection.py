"""One connected client: each request of the protocol is checked, and becomes a call of the hub.

Nothing is decided here that concerns more than this client. What it asks in a session that another
process owns goes there (`server.elsewhere`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from acphold.errors import (
    AcpholdError,
    AgentError,
    InterruptedTurnError,
    InvalidParamsError,
    InvalidRequestError,
    JournalError,
    OwnerLostError,
)
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
from acphold.hub.choices import without_booleans
from acphold.hub.client_request import watches
from acphold.hub.frames import wants_begun
from acphold.hub.prompt_turn import Turn
from acphold.hub.router import Asker
from acphold.hub.turns import CANCELLED
from acphold.mcp.servers import provided_ids
from acphold.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport
from acphold.rpc.peer import Answer
from acphold.rpc.request import Request
from acphold.schema import (
    AUTHENTICATE,
    CANCEL,
    CLOSE_SESSION,
    COMPLETE_ELICITATION,
    CREATE_ELICITATION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    LOGOUT,
    NEW_SESSION,
    PROMPT,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    ClientCapabilities,
    CloseSessionRequest,
    DeleteSessionRequest,
    InitializeRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    decode,
)
from acphold.schema.methods import CANCEL_REQUEST
from acphold.schema.splice import members
from acphold.server import neighbours
from acphold.server.checked_params import (
    OpenRequest,
    checked_setup,
    prompt_in,
    session_id_of,
    session_in,
)
from acphold.server.elsewhere import Elsewhere
from acphold.server.initialization import client_info, with_ours
from acphold.server.neighbours import CHANGED, PRESENCE, LiveSession
from acphold.server.open_pages import OpenPages
from acphold.server.openings import Openings
from acphold.server.owner_line import Opened, OwnerLine
from acphold.server.positions import (
    is_line,
    position_in,
    wants_positions,
    without_position,
)
from acphold.server.sent_prompts import SentPrompt
from acphold.server.unstable import UnstableMethods, archive_filter

log = logging.getLogger(__name__)


class Connection:
    """A client from its `initialize` to its end; also what the hub sees of it (hub.Client).

    A handler answers its request itself where something has to follow right behind the answer;
    else it returns the result.
    """

    def __init__(
        self, hub: Hub, transport: Transport, *, limit: int = MAX_MESSAGE, unstable: bool = False
    ) -> None:
        self.capabilities = ClientCapabilities()
        self.info = b""
        self.wants_positions = False
        self.peer = Peer(transport, self, name="client", limit=limit)
        self.send: Callable[[bytes], None] = self.peer.send
        self._hub = hub
        self._pages = OpenPages()
        self._initialized = False
        self._openings = Openings()
        self._elsewhere = Elsewhere(hub, self, limit, self._reopen)
        self._handlers: dict[str, Callable[[Request], Awaitable[bytes | None] | None]] = {
            INITIALIZE.name: self._initialize,
            PRESENCE: self._presence,
            CHANGED: self._look_at,
            NEW_SESSION.name: self._new,
            LOAD_SESSION.name: self._load,
            RESUME_SESSION.name: self._resume,
            LIST_SESSIONS.name: self._list,
            PROMPT.name: self._prompt,
            CLOSE_SESSION.name: self._close,
            DELETE_SESSION.name: self._delete,
            SET_SESSION_MODE.name: self._set_mode,
            SET_SESSION_CONFIG_OPTION.name: self._set_config_option,
        }
        self._unstable = unstable
        if unstable:
            setup = partial(self._setup, ResumeSessionRequest)
            methods = UnstableMethods(hub, self, self._elsewhere, setup, self._shown)
            self._handlers |= methods.handlers

    # -- as the hub sees it ---------------------------------------------------------------

    @property
    def buffered(self) -> int:
        return self.peer.buffered

    async def drain(self) -> None:
        await self.peer.drain()

    async def ask(self, method: str, params: bytes) -> bytes:
        if method == CREATE_ELICITATION.name:
            self._pages.see(params)
        return await self.peer.call_raw(method, params)

    def tell(self, method: str, params: bytes) -> None:
        if method == COMPLETE_ELICITATION.name and not self._pages.is_done(params):
            return  # another client was asked
        self.peer.tell(method, params)

    # -- as the client sees it ------------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        if not self._initialized and request.method not in BEFORE_INITIALIZE:
            raise InvalidRequestError(f"{request.method} before initialize; initialize first")
        handler = self._handlers.get(request.method)
        if handler is None:
            return self._relay(request)
        request.params = request.params or b"{}"
        return handler(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            if not self._initialized:
                log.warning("%s before initialize was ignored", notification.method)
            elif notification.method == CANCEL.name:
                await self._cancel(notification.params)
            else:
                await self._tell(notification.method, notification.params)

    async def _initialize(self, request: Request) -> bytes:
        params = request.params
        if self._initialized:
            raise InvalidRequestError("initialize was answered already; it is sent once")
        introduction = decode(InitializeRequest, params).value
        self.capabilities = introduction.client_capabilities
        self.info = client_info(introduction.client_info)
        self.wants_positions = wants_positions(self.capabilities)
        self._elsewhere.is_of_line = is_line(self.capabilities)
        try:
            answer = await self._hub.initialize(params)
        except AgentError as exc:
            log.error("%s", exc)  # also for whoever has only the log to look at
            raise
        if not self._initialized:
            self._initialized = True
            self._elsewhere.introduction = params
            self._hub.router.clients.append(self)
        begun = wants_begun(self.capabilities)
        return with_ours(answer, unstable=self._unstable, begun=begun)

    async def _presence(self, _: Request) -> bytes:
        live = [
            LiveSession(
                conversation.id,
                len(conversation.session.attachments),
                conversation.turns.running is not None,
                conversation.questions.are_open,
                sum(watches(it.client) for it in conversation.session.attachments),
            )
            for conversation in self._hub.conversations
        ]
        return neighbours.answer(self._hub.agent.key, live)

    async def _look_at(self, request: Request) -> bytes:
        await self._hub.look_at(session_id_of(request.params))
        return b"{}"

    # -- opening --------------------------------------------------------------------------

    async def _new(self, request: Request) -> None:
        setup = self._setup(NewSessionRequest, request.params)
        conversation, result = await self._hub.new(setup, Asker(self, request.id))
        attachment = conversation.session.attach(self, after=0, news_after=0)
        await conversation.session.be_followed(attachment)
        request.answer(self._shown(result))
        self._elsewhere.open_here(conversation, attachment, setup)

    async def _load(self, request: Request) -> None:
        setup = self._setup(LoadSessionRequest, request.params)
        await self._open(request, setup, self._hub.load, 0)

    async def _resume(self, request: Request) -> None:
        after = position_in(request.params)
        params = request.params if after is None else without_position(request.params)
        setup = self._setup(ResumeSessionRequest, params)
        await self._open(request, setup, partial(self._hub.resume, after=after), after)

    async def _open(
        self, request: Request, setup: Setup, open_: OpenSession, after: int | None
    ) -> None:
        """Open a session, for a client that has all up to `after`, or asks only for what comes."""
        session_id = session_id_of(request.params)

        async def here(dead: int | None) -> None:
            conversation, attachment = await open_(self, session_id, setup, dead)
            request.answer(self._shown(conversation.opened_result))
            self._elsewhere.open_here(conversation, attachment, setup)

        async def there(line: OwnerLine) -> None:
            # Nothing of what comes from now on is to be missing, should the owner end at once.
            begin = await self._hub.whereabouts.last_seq(session_id) if after is None else after
            await self._elsewhere.forward_opening(line, request, session_id, setup, begin)

        with self._openings.one(session_id):
            await self._elsewhere.reopen_no_more(session_id)
            await self._elsewhere.open(session_id, here, there)

    async def _reopen(self, session_id: str, opened: Opened) -> None:
        """A session whose owner has ended: the client has it open, and is asked nothing."""

        async def here(dead: int | None) -> None:
            conversation, attachment = await self._hub.resume(
                self, session_id, opened.setup, dead, after=opened.told
            )
            self._elsewhere.open_here(conversation, attachment, opened.setup)

        async def there(line: OwnerLine) -> None:
            await self._elsewhere.resume(line, session_id, opened)

        with self._openings.one(session_id) as before:
            if before is not None:
                # The client itself opens it, or has just done so; if that fails, it has it still.
                await before.ends()
                if self._has_open(session_id):
                    return
            await self._elsewhere.open(session_id, here, there)

    def _has_open(self, session_id: str) -> bool:
        """Whether the client has this session open, here or elsewhere."""
        if self._elsewhere.line(session_id) is not None:
            return True
        if not self._hub.holds(session_id):
            return False
        return self._hub.held(session_id).session.find(self) is not None

    def _setup(self, kind: type[OpenRequest], params: bytes) -> Setup:
        setup = checked_setup(kind, params, self._hub.agent.capabilities)
        for server_id in provided_ids(members(setup.params).get("mcpServers", b"null")):
            self._hub.router.providers[server_id] = self
        return setup

    # -- in a session ---------------------------------------------------------------------

    def _prompt(self, request: Request) -> Awaitable[None] | None:
        session_id, prompt = prompt_in(request.params)
        if self._openings.has(session_id):
            return self._prompt_when_open(request, session_id, prompt)
        self._prompt_open(request, session_id, prompt)
        return None

    async def _prompt_when_open(self, request: Request, session_id: str, prompt: bytes) -> None:
        cancelled = await self._openings.is_cancelled(session_id, request)
        self._prompt_open(request, session_id, prompt, is_cancelled=cancelled)

    def _prompt_open(
        self, request: Request, session_id: str, prompt: bytes, *, is_cancelled: bool = False
    ) -> None:
        """A prompt in a session that is open, here or in another process."""
        if (line := self._elsewhere.line(session_id)) is None:
            self._prompt_here(request, session_id, prompt, is_cancelled=is_cancelled)
        elif is_cancelled:
            request.answer(CANCELLED)
        else:
            self._prompt_there(line, request, session_id, prompt)

    def _prompt_here(
        self, request: Request, session_id: str, prompt: bytes, *, is_cancelled: bool
    ) -> None:
        conversation = self._hub.held(session_id)
        author = conversation.session.attachment_of(self)
        turn = Turn(request.params, prompt, author, request.reply)

        def give_up() -> None:
            if not self.peer.is_lost:  # of a client that has gone the turn goes on
                conversation.turns.give_up(turn)

        request.on_cancel = give_up
        conversation.prompt(turn, is_cancelled=is_cancelled)

    def _prompt_there(
        self, line: OwnerLine, request: Request, session_id: str, prompt: bytes
    ) -> None:
        """Hand a prompt on, and its answer back whenever it comes."""
        sent = SentPrompt(session_id, line.opened[session_id].told)

        def reply(answer: Answer) -> None:
            if not isinstance(answer, OwnerLostError):
                line.prompts.remove(sent)
                request.reply(answer)
            elif not self.peer.is_lost:
                self.peer.go_on(request, self._prompt_again(line, request, sent, prompt))

        line.prompts.add(sent)
        try:
            id_ = line.ask(PROMPT.name, request.params, reply)
        except OwnerLostError as exc:
            reply(exc)
            return

        def lose() -> None:
            line.peer.withdraw(id_)
            reply(OwnerLostError(PROMPT.name))

        sent.lose = lose

        def give_up() -> None:
            sent.is_cancelled = True
            if not self.peer.is_lost:  # of a client that has gone the turn goes on
                line.peer.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % id_)

        request.on_cancel = give_up

    async def _prompt_again(
        self, line: OwnerLine, request: Request, sent: SentPrompt, prompt: bytes
    ) -> None:
        """Its owner has ended before it answered, or lost the session: see `sent_prompts`."""
        request.on_cancel = None
        session_id = sent.session_id
        try:
            if self._elsewhere.line(session_id) is line:
                await line.is_over.wait()
            if not sent.is_cancelled and not sent.has_arrived:
                sent.is_cancelled = await self._openings.is_cancelled(session_id, request)
        finally:
            line.prompts.remove(sent)
        if sent.is_cancelled:
            request.answer(CANCELLED)
        elif sent.has_arrived or await self._hub.whereabouts.has_prompt(
            session_id, prompt, sent.after
        ):
            raise InterruptedTurnError
        else:
            await self._prompt_when_open(request, session_id, prompt)

    async def _cancel(self, params: bytes) -> None:
        try:
            session_id = session_id_of(params)
            self._openings.cancel(session_id)
            self._elsewhere.cancel_prompts(session_id)
            if (line := self._elsewhere.line(session_id)) is not None:
                line.peer.tell(CANCEL.name, params)
            elif self._hub.holds(session_id) or not self._openings.has(session_id):
                await self._hub.held(session_id).turns.cancel(self)
        except AcpholdError as exc:
            log.warning("session/cancel was ignored: %s", exc)

    async def _set_mode(self, request: Request) -> None:
        if await self._is_forwarded(request):
            return
        conversation = self._hub.held(session_id_of(request.params))
        author = conversation.session.attachment_of(self)
        await conversation.set_mode(request.params, author, request.answer)

    async def _set_config_option(self, request: Request) -> None:
        if await self._is_forwarded(request):
            return
        conversation = self._hub.held(session_id_of(request.params))
        author = conversation.session.attachment_of(self)
        await conversation.set_config_option(
            request.params, author, lambda answer: request.answer(self._shown(answer))
        )

    async def _is_forwarded(self, request: Request) -> bool:
        """Hand a request on if its session is open elsewhere; waits until it is open at all."""
        session_id = session_in(request.params)
        if session_id is None:
            return False
        await self._openings.over(session_id)
        line = self._elsewhere.line(session_id)
        if line is not None:
            await line.forward(request)
        return line is not None

    # -- others ---------------------------------------------------------------------------

    async def _list(self, request: Request) -> bytes:
        asked = decode(ListSessionsRequest, request.params).value
        if asked.cwd is not None and not asked.cwd.startswith("/"):
            raise InvalidParamsError(f"cwd: {asked.cwd!r} is not an absolute path", field="cwd")
        archived = archive_filter(request.params) if self._unstable else None
        return await self._hub.sessions.page(asked.cwd, asked.cursor, self._hub.held_ids, archived)

    async def _close(self, request: Request) -> bytes | None:
        session_id = decode(CloseSessionRequest, request.params).value.session_id
        await self._elsewhere.reopen_no_more(session_id)
        if (line := self._elsewhere.line(session_id)) is not None:
            await line.forward(request, lambda: self._elsewhere.left(line, session_id))
            return None
        await self._hub.close(session_id, self)
        return b"{}"

    async def _delete(self, request: Request) -> bytes | None:
        session_id = decode(DeleteSessionRequest, request.params).value.session_id
        await self._elsewhere.reopen_no_more(session_id)
        if (line := self._elsewhere.line(session_id)) is not None:
            await line.forward(request, lambda: self._elsewhere.left(line, session_id))
            return None
        await self._hub.delete(session_id, self)
        return b"{}"

    async def _tell(self, method: str, params: bytes) -> None:
        if (line := self._elsewhere.line(session_in(params) or "")) is not None:
            line.peer.tell(method, params)
            return
        try:
            await self._hub.relay.tell(method, params, session_in(params), self)
        except JournalError as exc:
            log.error("%s is not in the journal: %s", method, exc)

    async def _relay(self, request: Request) -> None:
        """An extension's method, or one newer than this release: the agent's own business."""
        method = request.method
        if await self._is_forwarded(request):
            return

        def reply(result: bytes) -> None:
            if method in SIGN_IN:
                self._hub.sign_in_changed()
                # Known to have an object as its result, `null` or not.
                result = b"{}" if result == b"null" else result
            request.answer(result)

        asker = Asker(self, request.id)
        await self._hub.relay.request(
            method, request.params, session_in(request.params), asker, reply
        )

    # -- answers --------------------------------------------------------------------------

    def _shown(self, result: bytes) -> bytes:
        session = self.capabilities.session
        options = None if session is None else session.config_options
        if options is not None and options.boolean is not None:
            return result
        return without_booleans(result)

    async def aclose(self) -> None:
        """The client is gone: it is attached to nothing any more, here and elsewhere."""
        self.leave()
        await self._elsewhere.aclose()

    def leave(self) -> None:
        """The client is attached to nothing here any more."""
        router = self._hub.router
        if self in router.clients:
            router.clients.remove(self)
        for server_id, provider in tuple(router.providers.items()):
            if provider is self:
                del router.providers[server_id]
        self._hub.leave(self)


OpenSession = Callable[[Client, str, Setup, int | None], Awaitable[tuple[Conversation, Attachment]]]
"""`Hub.load` or `Hub.resume`."""

BEFORE_INITIALIZE = frozenset({INITIALIZE.name, PRESENCE, CHANGED})
"""What is answered to whoever has not introduced itself; the last two, to another process of ours.
"""

SIGN_IN = frozenset({AUTHENTICATE.name, LOGOUT.name})
"""Methods after which an agent may let a person use its sessions, or no longer."""
