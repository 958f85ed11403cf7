"""One connected client: each request of the protocol is checked, and becomes a call of the hub.

Decisions here concern this client only. Requests about a session that another process owns go there
(`server.remote_sessions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from acphold.agents.capabilities import (
    INTRODUCTION,
    TENANT,
    Offer,
    in_version_1,
    is_kept_in_front,
    offer_of,
    told_client,
    told_owner,
)
from acphold.errors import (
    AcpholdError,
    AgentError,
    AuthRequiredError,
    InterruptedTurnError,
    InvalidRequestError,
    JournalError,
    MethodNotFoundError,
    OwnerLostError,
    StoppedError,
    UnknownOutcomeError,
    UnknownSessionError,
)
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
from acphold.hub.choices import without_booleans
from acphold.hub.client_request import DECISIONS
from acphold.hub.router import Asker
from acphold.hub.session_list import AGENT
from acphold.hub.turns import CANCELLED
from acphold.mcp.servers import MCP_MESSAGE, provided_ids
from acphold.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport
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
    PROTOCOL_VERSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    InitializeRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    decode,
    encode,
)
from acphold.schema.methods import FORK_SESSION
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import members, with_meta
from acphold.server import neighbours
from acphold.server.checked_params import (
    OpenRequest,
    checked_list,
    checked_setup,
    named_agent,
    prompt_in,
    session_id_of,
)
from acphold.server.entrance import Door, Entrance, Visitor
from acphold.server.homes import LocalHome, RemoteHome, SessionHome
from acphold.server.neighbours import CHANGED, PRESENCE, SIGNED_IN, LiveSession
from acphold.server.open_pages import OpenPages
from acphold.server.openings import Openings
from acphold.server.owner_line import Opened, OwnerLine
from acphold.server.positions import (
    ANSWERED,
    answers_in,
    known_prompts_in,
    lineage_in,
    position_in,
    sent_in,
    with_lineage,
    without_position,
)
from acphold.server.principals import THIS_USER, Principal
from acphold.server.provided_servers import ProvidedServers
from acphold.server.remote_sessions import RemoteSessions
from acphold.server.sent_prompts import SentPrompt
from acphold.server.unstable import UnstableMethods, archive_filter

log = logging.getLogger(__name__)


class Connection:
    """A client from its `initialize` to its end; also the hub's view of it (hub.Client).

    A handler answers its request itself if something has to follow right behind the answer; else it
    returns the result.
    """

    def __init__(
        self,
        hub: Hub,
        transport: Transport,
        *,
        limit: int = MAX_MESSAGE,
        unstable: bool = False,
        principal: Principal = THIS_USER,
        door: Door | None = None,
        headers: Mapping[str, str] | None = None,
        stays: bool = False,
    ) -> None:
        self.offer = Offer()
        self.info = b""
        self.known_prompts: set[str] = set()
        self.peer = Peer(transport, self, name="client", limit=limit)
        self.send: Callable[[bytes], None] = self.peer.send
        self._hub = hub
        self._principal = principal
        self._entrance = Entrance(door, Visitor(principal=principal, headers=headers or {}))
        self._entering = asyncio.Lock()
        self._introduced = b"{}"
        self._told = b""
        self._pages = OpenPages()
        self._introduction: Introduction = "awaited"
        self._openings = Openings()
        self._in_order = asyncio.Lock()
        self._asked_to_open: set[Request] = set()
        self._theirs: set[str] = set()  # sessions not held here; see `_is_theirs`
        self._watched: set[str] = set()
        self._remote = RemoteSessions(hub, self, limit, self._reopen)
        self._handlers: dict[str, Handler] = {
            INITIALIZE.name: self._initialize,
            PRESENCE: self._presence,
            CHANGED: self._look_at,
            SIGNED_IN: self._signed_in,
            NEW_SESSION.name: self._while_theirs(self._new),
            LOAD_SESSION.name: self._while_theirs(self._load),
            RESUME_SESSION.name: self._while_theirs(self._resume),
            LIST_SESSIONS.name: self._list,
            PROMPT.name: self._prompt,
            CLOSE_SESSION.name: self._leaving(lambda home, asked: home.close(asked)),
            DELETE_SESSION.name: self._leaving(lambda home, asked: home.delete(asked)),
            SET_SESSION_MODE.name: self._at_home(lambda home, asked: home.set_mode(asked)),
            SET_SESSION_CONFIG_OPTION.name: self._at_home(
                lambda home, asked: home.set_config_option(asked)
            ),
        }
        # An extension's method, or one newer than this release: the agent handles it.
        self._extension = self._at_home(lambda home, asked: home.ask(asked))
        self._unstable = unstable
        self._stays = stays
        setup = partial(self._setup, ResumeSessionRequest)
        methods = UnstableMethods(hub, self, self._remote, setup, self._opened, principal.note)
        self._fork = self._while_theirs(methods.fork)
        if unstable:
            self._handlers |= methods.handlers | {FORK_SESSION.name: self._fork}
        if door is not None:
            self._handlers |= {AUTHENTICATE.name: self._authenticate, LOGOUT.name: self._log_out}
            if not principal.vouches:  # no process of ours, whatever it says
                for method in NEIGHBOURS:
                    del self._handlers[method]

    # -- as the hub sees it ---------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """The principal, as far as it is known by now."""
        return self._entrance.principal

    @property
    def sees_all(self) -> bool:
        return self.principal.sees_all

    def only_watches(self, session_id: str) -> bool:
        return self.offer.watches or session_id in self._watched

    @property
    def buffered(self) -> int:
        return self.peer.buffered

    async def drain(self) -> None:
        await self.peer.drain()

    async def ask(self, method: str, params: bytes) -> bytes:
        if method == CREATE_ELICITATION.name:
            self._pages.see(params)
        elif method == MCP_MESSAGE:
            params = self._provided.for_client(params)
        answer = await self.peer.call_raw(method, params)
        if method in DECISIONS:
            self._principal.note("answer", session_id_in(params))
        return answer

    def tell(self, method: str, params: bytes) -> None:
        if method == COMPLETE_ELICITATION.name and not self._pages.is_done(params):
            return  # another client was asked
        if method == MCP_MESSAGE:
            params = self._provided.for_client(params)
        self.peer.tell(method, params)

    # -- as the client sees it ------------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        if self._introduction != "over" and request.method not in BEFORE_INITIALIZE:
            if self._introduction == "awaited":
                raise InvalidRequestError(f"{request.method} before initialize; initialize first")
            self._introduction = "over"  # it accepts the version in the answer
        self._principal.check(request.method, request.params)
        is_known = self._entrance.is_in and not self._entering.locked()
        if (is_known and self._is_theirs(request.params)) or (
            request.method in BEFORE_ENTRY and request.method in self._handlers
        ):
            return self._handle(request)
        return self._once_in(request)

    async def _once_in(self, request: Request) -> bytes | None:
        """Handle a request of a client that has to be let in first, in wire order."""
        async with self._entering:
            await self._require_entry()
            await self._require_theirs(request.method, request.params)
            work = self._handle(request)
        return None if work is None else await work

    def _handle(self, request: Request) -> Awaitable[bytes | None] | None:
        handler = self._handlers.get(request.method)
        if request.method != INITIALIZE.name:
            self._principal.does(request.method, request.params)
        if handler is None:
            return self._extension(request)
        request.params = request.params or b"{}"
        return handler(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            if self._introduction == "awaited":
                log.warning("%s before initialize was ignored", notification.method)
                continue
            method, params = notification.method, notification.params
            try:
                self._principal.check(method, params)
                is_known = self._entrance.is_in and not self._entering.locked()
                if not (is_known and self._is_theirs(params)):
                    async with self._entering:
                        await self._require_entry()
                        await self._require_theirs(method, params)
                self._principal.does(method, params)
                if method == MCP_MESSAGE:
                    params = self._provided.named(params)
                if method == CANCEL.name:
                    await self._cancel(params)
                else:
                    await self._home(session_id_in(params)).tell(method, params)
            except JournalError as exc:
                log.error("%s is not in the journal: %s", method, exc)
            except AcpholdError as exc:
                log.warning("%s was ignored: %s", method, exc)

    async def _initialize(self, request: Request) -> bytes:
        """Introduce the client to the agent.

        A client that was answered with another version than it requested may accept that, leave, or
        start again with a version that both speak: then it may introduce itself differently.
        """
        if self._introduction == "over":
            raise InvalidRequestError("initialize was answered already; it is sent once")
        anew = self._introduction == "answered in another version"
        params = self._principal.introduced(in_version_1(request.params))
        introduction = decode(InitializeRequest, params).value
        self.offer = offer_of(introduction, params)
        if (info := introduction.client_info) is not None:
            said = {"name": info.name[:NAME_LENGTH], "version": info.version[:NAME_LENGTH]}
            self.info = encode(said)
        try:
            answer = await self._hub.initialize(params, anew=anew)
        except AgentError as exc:
            log.error("%s", exc)  # also for people who can only see the log
            raise
        self._introduced = params
        self._entrance.visitor = replace(self._entrance.visitor, client=introduction.client_info)
        vouched = (introduction.client_capabilities.meta or {}).get(TENANT, UNSET)
        if self._principal.vouches and isinstance(vouched, str | None):
            self._entrance.let_in(vouched)  # that process has authenticated the client
        if self._entrance.is_in:
            self._entered()
        if self._hub.agent.can_fork:
            self._handlers[FORK_SESSION.name] = self._fork
        is_same = introduction.protocol_version == PROTOCOL_VERSION
        self._introduction = "over" if is_same or anew else "answered in another version"
        told = told_client(
            answer,
            unstable=self._unstable,
            begun=self.offer.begun,
            positions=self.offer.positions,
            # An acphold in front of such an agent may keep its sessions, too.
            kept_in=await self._hub.kept_in() if self._hub.agent.reads_journal else None,
        )
        if self.offer.all_agents and self.offer.is_line:
            self._told = told
        return told

    # -- who is there ---------------------------------------------------------------------

    async def _require_entry(self) -> None:
        """Require the client to be let in; raises AuthRequiredError."""
        if not self._entrance.is_in:
            before = self._entrance.tenant
            await self._entrance.require()
            await self._let_in(before)

    def _is_theirs(self, params: bytes) -> bool:
        """Return True if the session that these params name, if any, is known to be open to this
        client."""
        if self._entrance.tenant is None or (session_id := session_id_in(params)) is None:
            return True
        if self._hub.holds(session_id):
            return self._entrance.principal.owns(self._hub.held(session_id).session.tenant)
        is_open = self._remote.line(session_id) is not None or self._openings.has(session_id)
        return is_open and session_id in self._theirs  # checked when the client opened it

    async def _require_theirs(self, method: str, params: bytes) -> None:
        """Look up if the session is open to this client; a share is checked each time, for it may
        end.

        Raises UnknownSessionError, the same if there is no such session and if it may not know of
        it, and ForbiddenError.
        """
        session_id = session_id_in(params)
        if self._is_theirs(params) or session_id is None:
            return
        principal = self._entrance.principal
        try:
            row = await self._hub.whereabouts.row(session_id)
        except UnknownSessionError:
            if self._hub.agent.reads_journal or not principal.owns(""):
                raise
            return  # the agent's own
        principal.check_in(row, method)
        if principal.owns(row.tenant):
            self._theirs.add(session_id)
        elif "answer" in principal.scopes_in(row):
            self._watched.discard(session_id)
        else:
            self._watched.add(session_id)

    async def _authenticate(self, request: Request) -> bytes:
        before = self._entrance.tenant
        await self._entrance.sign_in(request.params)
        async with self._entering:
            await self._let_in(before)
        return b"{}"

    async def _let_in(self, before: str | None) -> None:
        """Take a client in that has signed in; it may have been somebody else before."""
        if before not in (None, self._entrance.tenant):
            await self._leave_sessions()
        self._entered()

    def _entered(self) -> None:
        if self not in self._hub.router.clients:
            self._hub.router.clients.append(self)
        self._remote.introduction = told_owner(self._introduced, self._entrance.tenant)

    async def _log_out(self, _: Request) -> bytes:
        await self._entrance.sign_out()
        async with self._entering:
            await self._leave_sessions()
        return b"{}"

    async def _leave_sessions(self) -> None:
        """Leave all sessions, open or being opened: they are no longer the client's own."""
        self._theirs.clear()
        self._watched.clear()
        opening = []
        for request in self._asked_to_open:
            request.refuse(AuthRequiredError("who asked for this has signed out meanwhile"))
            if request.task is not None:
                request.task.cancel()
                opening.append(request.task)
        if opening:
            await asyncio.wait(opening)
        self.detach()
        await self._remote.leave()

    def _sign_in_lost(self) -> None:
        """Require a new sign-in: the agent asks the person who prompts here for one."""
        self._entrance.is_in = False

    async def _signed_in(self, request: Request) -> bytes:
        if not self._entrance.principal.sees_all:
            raise MethodNotFoundError(request.method)  # they may not restart the agent
        await self._hub.signed_in_outside()
        return b"{}"

    async def _presence(self, _: Request) -> bytes:
        principal = self._entrance.principal
        live = [
            LiveSession(
                conversation.id,
                len(conversation.session.attachments),
                conversation.turns.running is not None,
                conversation.questions.are_open,
                sum(
                    it.client.only_watches(conversation.id)
                    for it in conversation.session.attachments
                ),
                tuple(question.entry.id for question in conversation.questions.waiting),
            )
            for conversation in self._hub.conversations
            if principal.owns(conversation.session.tenant)
            and not conversation.session.is_listed_elsewhere
            and principal.session_id in (None, conversation.id)
        ]
        return neighbours.answer(self._hub.agent.key, live)

    async def _look_at(self, request: Request) -> bytes:
        session_id = session_id_of(request.params)
        await self._require_theirs(LOAD_SESSION.name, request.params)
        await self._hub.look_at(session_id)
        return b"{}"

    # -- opening --------------------------------------------------------------------------

    def _while_theirs(self, open_: Callable[[Request], Awaitable[None]]) -> Handler:
        """Return a handler for requests that open a session; it ends if the client signs out
        meanwhile."""

        async def handle(request: Request) -> None:
            self._asked_to_open.add(request)
            try:
                await open_(request)
            finally:
                self._asked_to_open.discard(request)

        return handle

    async def _new(self, request: Request) -> None:
        made: str | None = None
        try:
            setup = self._setup(NewSessionRequest, request.params)
            conversation, result = await self._hub.new(setup, Asker(self, request.id))
            made = conversation.session.id
        finally:
            self._principal.note(request.method, made)
        conversation.session.is_listed_elsewhere = setup.is_listed_elsewhere
        attachment = conversation.session.attach(self, after=0, live_after=0)
        await conversation.session.be_followed(attachment)
        request.answer(self._opened(result, conversation, attachment))
        self._remote.open_here(conversation, attachment, setup)

    async def _load(self, request: Request) -> None:
        setup = self._setup(LoadSessionRequest, request.params)
        self.known_prompts = set()  # a replay has its own prompts, too; open sessions keep the set
        await self._open(request, setup, self._hub.load, 0)

    async def _resume(self, request: Request) -> None:
        after = position_in(request.params)
        if after is not None:
            self.known_prompts |= set(known_prompts_in(request.params))
        params = request.params if after is None else without_position(request.params)
        setup = self._setup(ResumeSessionRequest, params)
        lineage = None if after is None else lineage_in(request.params)
        resume = partial(self._hub.resume, after=after, lineage=lineage)
        await self._open(request, setup, resume, after)

    async def _resumed(
        self, request: Request, conversation: Conversation, attachment: Attachment
    ) -> bytes:
        """Return the answer that opens a session; if the client names answers, also those that were
        accepted."""
        result = self._opened(conversation.opened_result, conversation, attachment)
        after, named = position_in(request.params), answers_in(request.params)
        if after is None or not named:
            return result
        taken = await self._hub.whereabouts.answered(conversation.id, {*named}, after)
        return with_meta(result, ANSWERED, encode(taken))

    async def _open(
        self, request: Request, setup: Setup, open_: OpenSession, after: int | None
    ) -> None:
        """Open a session for a client that has everything up to `after`; None if it wants only what
        follows."""
        session_id = session_id_of(request.params)

        async def here(over: int | None) -> None:
            conversation, attachment = await open_(self, session_id, setup, over)
            conversation.session.is_listed_elsewhere = setup.is_listed_elsewhere
            try:
                result = await self._resumed(request, conversation, attachment)
            except BaseException:
                conversation.put_back(attachment)
                raise
            request.answer(result)
            self._remote.open_here(conversation, attachment, setup)

        async def there(line: OwnerLine, epoch: int) -> None:
            # Nothing from now on may be missed, should the owner end at once.
            begin = await self._hub.whereabouts.last_seq(session_id) if after is None else after
            opening = Opened(setup, begin, epoch)
            await self._remote.forward_opening(line, request, session_id, opening)

        with self._openings.one(session_id):
            left = await self._remote.reopen_no_more(session_id)
            try:
                await self._remote.open(session_id, here, there)
            except BaseException:
                if left is not None:  # give the client back what it had, if possible
                    self._remote.reopen(session_id, left)
                raise

    async def _reopen(self, session_id: str, opened: Opened) -> None:
        """Open a session again whose owner has ended; the client does nothing for it."""

        async def here(over: int | None) -> None:
            conversation, attachment = await self._hub.resume(
                self,
                session_id,
                opened.setup,
                over,
                after=opened.position,
                lineage=opened.lineage,
            )
            self._remote.open_here(conversation, attachment, opened.setup)

        async def there(line: OwnerLine, epoch: int) -> None:
            opened.epoch = epoch
            await self._remote.resume(line, session_id, opened)

        with self._openings.one(session_id) as before:
            if before is not None:
                # The client itself opens it, or has just done so; if that failed, this goes on.
                await before.ends()
                is_here = self._hub.holds(session_id) and self._hub.held(session_id).session.find(
                    self
                )
                if is_here or self._remote.line(session_id) is not None:
                    return
            await self._remote.open_again(session_id, here, there)

    def _setup(self, kind: type[OpenRequest], params: bytes) -> Setup:
        is_listed, params = is_kept_in_front(params)
        named, stays = None, False
        if self._stays:
            named, params = named_agent(params)
            may_prompt = "prompt" in self._principal.scopes
            stays = named is None and may_prompt and not self.offer.watches
        setup = checked_setup(kind, params, self._hub.agent.capabilities)
        setup = replace(
            setup,
            tenant=self._entrance.tenant or "",
            introduction=self._introduced,
            is_listed_elsewhere=is_listed,
            stays=stays,
        )
        setup = replace(setup, params=self._provided.for_agent(setup.params))
        for server_id in provided_ids(members(setup.params).get("mcpServers", b"null")):
            self._hub.router.providers[server_id] = self
        return setup

    @property
    def _provided(self) -> ProvidedServers:
        return ProvidedServers(self._entrance.tenant)

    # -- in a session ---------------------------------------------------------------------

    def _prompt(self, request: Request) -> Awaitable[None] | None:
        session_id, prompt = prompt_in(request.params)
        if self._openings.has(session_id):
            return self._prompt_when_open(request, session_id, prompt)
        self._home(session_id).prompt(request, prompt, is_cancelled=False)
        return None

    async def _prompt_when_open(self, request: Request, session_id: str, prompt: bytes) -> None:
        is_cancelled = await self._openings.over(session_id, request)
        self._home(session_id).prompt(request, prompt, is_cancelled=is_cancelled)

    async def _prompt_again(self, sent: SentPrompt) -> None:
        """Send a prompt again whose line ended before the answer, or whose owner lost the session:
        see `sent_prompts`."""
        request, session_id = sent.request, sent.session_id
        try:
            if sent.refusal is not None:
                await self._remote.look_at(session_id)
            elif self._remote.line(session_id) is sent.line:
                await sent.line.is_over.wait()
            if sent.is_cancelled:
                request.answer(CANCELLED)  # a client that cancels does not wait for the owner
                await self._openings.over(session_id)
            else:
                sent.is_cancelled = await self._openings.over(session_id, request)
                if sent.is_cancelled:
                    request.answer(CANCELLED)
        finally:
            sent.line.prompts.remove(sent)
        line = self._remote.line(session_id)
        is_at_owner = line is not None and line.opened[session_id].epoch == sent.epoch
        if line is not None and is_at_owner and sent.refusal is None:
            RemoteHome(line, self.peer, session_id, self._prompt_again).go_on(sent)
            return
        if sent.is_cancelled:
            return
        if line is None and not self._hub.holds(session_id):
            raise UnknownOutcomeError
        # One at a time: a database answers in any order, but they must go on in theirs.
        async with sent.line.prompts.looking:
            has_begun = sent.has_arrived or await self._hub.whereabouts.has_prompt(
                session_id, sent.prompt, sent.after
            )
        if has_begun:
            raise InterruptedTurnError
        if sent.refusal is not None and self._remote.line(session_id) is sent.line:
            raise sent.refusal  # no other process has it
        await self._prompt_when_open(request, session_id, sent.prompt)

    async def _cancel(self, params: bytes) -> None:
        session_id = session_id_of(params)
        sent = sent_in(params)
        self._openings.cancel(session_id)
        self._remote.cancel_prompts(session_id, None if sent is None else sent.id)
        is_open = self._hub.holds(session_id) or self._remote.line(session_id) is not None
        if is_open or not self._openings.has(session_id):
            await self._home(session_id).cancel(params)

    def _home(self, session_id: str | None) -> SessionHome:
        """Return the home of a session, whether it is open to this client or not."""
        line = None if session_id is None else self._remote.line(session_id)
        if session_id is None or line is None:
            lost = self._sign_in_lost if self._entrance.wants_sign_in else None
            return LocalHome(
                self._hub, self, self.peer, session_id, self._shown, lost, self._in_order
            )
        return RemoteHome(line, self.peer, session_id, self._prompt_again)

    def _at_home(self, ask: AskHome) -> Handler:
        """Return a handler that asks the session's home, once the session is open.

        If the owner turns out to be gone or silent before it answers, the next home is asked.
        """

        async def handle(request: Request) -> None:
            session_id = session_id_in(request.params)
            if session_id is not None:
                await self._openings.over(session_id)
            await self._ask_home(ask, request, session_id)

        return handle

    async def _ask_home(self, ask: AskHome, request: Request, session_id: str | None) -> None:
        for _ in range(HOMES - 1):
            with suppress(OwnerLostError):
                await ask(self._home(session_id), request)
                return
            if session_id is not None:  # its next home is being opened
                await self._openings.over(session_id)
        await ask(self._home(session_id), request)

    def _leaving(self, ask: AskHome) -> Handler:
        """Return a handler for a request that makes the client leave the session.

        It ends any opening of the session, and does not wait for that.
        """

        async def handle(request: Request) -> None:
            session_id = session_id_of(request.params)
            await self._remote.reopen_no_more(session_id)
            await self._ask_home(ask, request, session_id)

        return handle

    # -- others ---------------------------------------------------------------------------

    async def _list(self, request: Request) -> bytes:
        asked = checked_list(request.params)
        if self._principal.session_id is not None:
            return await self._hub.sessions.only(self._principal.session_id, self._entrance.tenant)
        archived = archive_filter(request.params) if self._unstable else None
        return await self._hub.sessions.page(
            asked.cwd, asked.cursor, self._hub.held_ids, archived, self._entrance.tenant
        )

    # -- answers --------------------------------------------------------------------------

    def _opened(self, result: bytes, conversation: Conversation, attachment: Attachment) -> bytes:
        """Return the answer that opens a session, for a client with this attachment."""
        shown = self._shown(result)
        if self._told:  # where this client is, another agent may be the one that it knows
            shown = with_meta(shown, AGENT, encode(self._hub.agent.key))
            shown = with_meta(shown, INTRODUCTION, self._told)
        if not attachment.positions:
            return shown
        return with_lineage(shown, conversation.session.lineage)

    def _shown(self, result: bytes) -> bytes:
        return result if self.offer.booleans else without_booleans(result)

    async def aclose(self) -> None:
        """Detach the client, which has gone, here and from every owner."""
        self.detach()
        await self._remote.aclose()

    def dismiss(self) -> None:
        """Answer the client's open requests: this process ends, and the client stays.

        Not for a line: it looks for the next owner of its sessions with its unanswered requests.
        """
        if not self.offer.is_line:
            self.refuse(StoppedError())

    def refuse(self, error: AcpholdError) -> None:
        """Answer the client's open requests with this error, and detach it: it has to go."""
        self.detach()
        self.peer.refuse_all(error)

    def detach(self) -> None:
        """Detach the client from everything here."""
        router = self._hub.router
        if self in router.clients:
            router.clients.remove(self)
        for server_id, provider in tuple(router.providers.items()):
            if provider is self:
                del router.providers[server_id]
        self._hub.detach(self)


NAME_LENGTH = 100
"""Most characters of a client's name, and of its version, that are kept with its prompts."""

Introduction = Literal["awaited", "answered in another version", "over"]
"""The stages of a client's introduction; see `Connection._initialize`."""

Handler = Callable[[Request], Awaitable[bytes | None] | None]
"""Handles the requests of one method: see `Connection`."""

AskHome = Callable[[SessionHome, Request], Awaitable[None]]
"""Passes a request to a method of a home."""

HOMES = 5
"""Most homes of a session that are asked, each after the one before has ended or fallen silent."""

OpenSession = Callable[[Client, str, Setup, int | None], Awaitable[tuple[Conversation, Attachment]]]
"""`Hub.load` or `Hub.resume`."""

NEIGHBOURS = (PRESENCE, CHANGED, SIGNED_IN)
"""Methods that other processes of ours call."""

BEFORE_INITIALIZE = frozenset({INITIALIZE.name, PRESENCE, CHANGED})
"""Methods that are answered before `initialize`; the last two are for other processes of ours."""

BEFORE_ENTRY = BEFORE_INITIALIZE | {AUTHENTICATE.name, SIGNED_IN}
"""Methods that are answered to a client that has not been let in."""
