"""One connected client: each request of the protocol is checked, and becomes a call of the hub.

Decisions here concern this client only. Requests about a session that another process owns go there
(`server.remote_sessions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from acphold import errors, schema
from acphold.agents import capabilities
from acphold.agents.extensions import FORK_METHOD
from acphold.hub import Hub
from acphold.hub.questions import DECISIONS
from acphold.mcp.servers import MCP_MESSAGE, ProvidedServers
from acphold.newest import Newest
from acphold.reading import neighbours
from acphold.reading.neighbours import CHANGED, PRESENCE, SIGNED_IN, LiveSession
from acphold.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport
from acphold.rpc.requests import Request
from acphold.schema.methods import FORK_SESSION
from acphold.schema.splice import session_id_in
from acphold.server import bounds
from acphold.server.checked_params import (
    checked_list,
    session_id_of,
)
from acphold.server.principals import THIS_USER, Door, Entrance, Principal, Visitor
from acphold.server.remote_sessions import Openings
from acphold.server.session_opener import SessionOpener
from acphold.server.session_requests import Handler, OwnSessions, SessionRequests
from acphold.server.unstable import UnstableMethods, archive_filter, copied

log = logging.getLogger(__name__)


class ClientConnection:
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
        self.offer = capabilities.ClientOffer()
        self.info = b""
        self.known_prompts: set[str] = set()
        self.peer = Peer(transport, self, name="client", limit=limit)
        self.send: Callable[[bytes], None] = self.peer.send
        self.drain = self.peer.drain
        self._hub = hub
        self._principal = principal
        self._is_guest = principal.session_id is not None
        self._entrance = Entrance(door, Visitor(principal=principal, headers=headers or {}))
        self._entering = asyncio.Lock()
        self._pages = OpenPages()
        self._introduction: Introduction = "awaited"
        entrance, openings = self._entrance, Openings()
        opening = SessionOpener(hub, self, entrance, openings, principal, limit, stays=stays)
        remote, shown = opening.remote, opening.shown
        requests = SessionRequests(hub, self, self.peer, entrance, openings, remote, shown)
        self._opening, self._remote, self._requests = opening, remote, requests
        self._own = OwnSessions(hub, entrance, remote, openings)
        self._handlers: dict[str, Handler] = {
            schema.INITIALIZE.name: self._initialize,
            PRESENCE: self._presence,
            CHANGED: self._look_at,
            SIGNED_IN: self._signed_in,
            schema.NEW_SESSION.name: opening.while_theirs(opening.new),
            schema.LOAD_SESSION.name: opening.while_theirs(opening.load),
            schema.RESUME_SESSION.name: opening.while_theirs(opening.resume),
            schema.LIST_SESSIONS.name: self._list,
            schema.PROMPT.name: requests.prompt,
            schema.CLOSE_SESSION.name: requests.answer,
            schema.DELETE_SESSION.name: requests.answer,
            schema.SET_SESSION_MODE.name: requests.answer,
            schema.SET_SESSION_CONFIG_OPTION.name: requests.answer,
            capabilities.QUEUE_METHOD: requests.answer,
            FORK_METHOD: lambda request: copied(hub, self.principal, request.params),
        }
        self._unstable = unstable
        setup = partial(opening.setup, schema.ResumeSessionRequest)
        methods = UnstableMethods(hub, self, self._remote, setup, opening.opened, principal.note)
        self._fork = opening.while_theirs(methods.fork)
        if unstable:
            self._handlers |= methods.handlers | {FORK_SESSION.name: self._fork}
        if door is not None:
            self._handlers |= {
                schema.AUTHENTICATE.name: self._authenticate,
                schema.LOGOUT.name: self._log_out,
            }
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
        return self.offer.watches or self._own.only_watches(session_id)

    def owns(self, tenant: str) -> bool:
        return not self._is_guest and self.principal.owns(tenant)

    @property
    def buffered(self) -> int:
        return self.peer.buffered

    async def ask(self, method: str, params: bytes) -> bytes:
        if method == schema.CREATE_ELICITATION.name:
            self._pages.see(params)
        elif method == MCP_MESSAGE:
            params = self._provided.for_client(params)
        answer = await self.peer.call_raw(method, params)
        if method in DECISIONS:
            self._principal.note("answer", session_id_in(params))
        return answer

    def tell(self, method: str, params: bytes) -> None:
        if method == schema.COMPLETE_ELICITATION.name and not self._pages.is_done(params):
            return  # another client was asked
        if method == MCP_MESSAGE:
            params = self._provided.for_client(params)
        self.peer.tell(method, params)

    @property
    def _provided(self) -> ProvidedServers:
        return ProvidedServers(self._entrance.tenant)

    # -- as the client sees it ------------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        if self._introduction != "over" and request.method not in BEFORE_INITIALIZE:
            if self._introduction == "awaited":
                raise errors.InvalidRequestError(
                    f"{request.method} before initialize; initialize first"
                )
            self._introduction = "over"  # it accepts the version in the answer
        self._principal.check(request.method, request.params)
        is_free = request.method in BEFORE_ENTRY and request.method in self._handlers
        if is_free or self._is_let_in(request.params):
            return self._handle(request)
        return self._once_in(request)

    async def _once_in(self, request: Request) -> bytes | None:
        """Handle a request of a client that has to be let in first, in wire order."""
        async with self._entering:
            await self._let_into(request.method, request.params)
            work = self._handle(request)
        return None if work is None else await work

    def _handle(self, request: Request) -> Awaitable[bytes | None] | None:
        handler = self._handlers.get(request.method)
        if request.method != schema.INITIALIZE.name:
            self._principal.does(request.method, request.params)
        if handler is None:  # an extension's method, or one newer than this release
            return self._requests.answer(request)
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
                if not self._is_let_in(params):
                    async with self._entering:
                        await self._let_into(method, params)
                self._principal.does(method, params)
                if method == MCP_MESSAGE:
                    params = self._provided.named(params)
                if method == schema.CANCEL.name:
                    await self._requests.cancel(params)
                else:
                    await self._requests.home(session_id_in(params)).tell(method, params)
            except errors.JournalError as exc:
                log.error("%s is not in the journal: %s", method, exc)
            except errors.AcpholdError as exc:
                log.warning("%s was ignored: %s", method, exc)

    async def _initialize(self, request: Request) -> bytes:
        """Introduce the client to the agent.

        A client that was answered with another version than it requested may accept that, leave, or
        start again with a version that both speak: then it may introduce itself differently.
        """
        if self._introduction == "over":
            raise errors.InvalidRequestError("initialize was answered already; it is sent once")
        anew = self._introduction == "answered in another version"
        params = self._principal.introduced(capabilities.in_version_1(request.params))
        introduction = schema.decode(schema.InitializeRequest, params).value
        self.offer = capabilities.offer_of(introduction, params)
        if (info := introduction.client_info) is not None:
            said = {
                "name": info.name[: bounds.CLIENT_NAME_CHARACTERS],
                "version": info.version[: bounds.CLIENT_NAME_CHARACTERS],
            }
            self.info = schema.encode(said)
        try:
            answer = await self._hub.initialize(params, anew=anew)
        except errors.AgentError as exc:
            log.error("%s", exc)  # also for people who can only see the log
            raise
        self._opening.introduction = params
        self._entrance.visitor = replace(self._entrance.visitor, client=introduction.client_info)
        meta = introduction.client_capabilities.meta or {}
        vouched = meta.get(capabilities.TENANT, UNSET)
        if self._principal.vouches and isinstance(vouched, str | None):
            self._entrance.let_in(vouched)  # that process has authenticated the client
            self._is_guest = meta.get(capabilities.GUEST) is True
        if self._entrance.is_in:
            self._entered()
        if self._hub.agent.can_fork:
            self._handlers[FORK_SESSION.name] = self._fork
        is_same = introduction.protocol_version == schema.PROTOCOL_VERSION
        self._introduction = "over" if is_same or anew else "answered in another version"
        told = capabilities.told_client(
            answer,
            unstable=self._unstable,
            begun=self.offer.begun,
            positions=self.offer.positions,
            queue=self.offer.queue,
            # An acphold in front of such an agent may keep its sessions, too.
            kept_in=await self._hub.kept_in() if self._hub.agent.reads_journal else None,
        )
        if self.offer.all_agents and self.offer.is_line:
            self._opening.told = told
        return told

    # -- who is there ---------------------------------------------------------------------

    def _is_let_in(self, params: bytes) -> bool:
        """True if the client was let in already and is known to have access to the session."""
        is_in = self._entrance.is_in and not self._entering.locked()
        return is_in and self._own.is_known(params)

    async def _let_into(self, method: str, params: bytes) -> None:
        """Let the client in, and check its access to the session of this message; raises
        AuthRequiredError, UnknownSessionError and ForbiddenError."""
        if not self._entrance.is_in:
            before = self._entrance.tenant
            await self._entrance.require()
            await self._let_in(before)
        await self._own.require(method, params)

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
        self._remote.introduction = capabilities.told_owner(
            self._opening.introduction, self._entrance.tenant, guest=self._is_guest
        )

    async def _log_out(self, _: Request) -> bytes:
        await self._entrance.sign_out()
        async with self._entering:
            await self._leave_sessions()
        return b"{}"

    async def _leave_sessions(self) -> None:
        """Leave all sessions, open or being opened: they are no longer the client's own."""
        self._own.clear()
        await self._opening.abandon()
        self.detach()
        await self._remote.leave()

    async def _signed_in(self, request: Request) -> bytes:
        if not self._entrance.principal.sees_all:
            raise errors.MethodNotFoundError(request.method)  # they may not restart the agent
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
            and not conversation.session.row.is_listed_elsewhere
            and principal.session_id in (None, conversation.id)
        ]
        return neighbours.answer(self._hub.agent.key, live)

    async def _look_at(self, request: Request) -> bytes:
        session_id = session_id_of(request.params)
        await self._own.require(schema.LOAD_SESSION.name, request.params)
        await self._hub.look_at(session_id)
        return b"{}"

    # -- the list -------------------------------------------------------------------------

    async def _list(self, request: Request) -> bytes:
        asked = checked_list(request.params)
        if self._principal.session_id is not None:
            return await self._hub.sessions.only(self._principal.session_id, self._entrance.tenant)
        archived = archive_filter(request.params) if self._unstable else None
        return await self._hub.sessions.page(
            asked.cwd, asked.cursor, self._hub.held_ids, archived, self._entrance.tenant
        )

    async def aclose(self) -> None:
        """Detach the client, which has gone, here and from every owner."""
        self.detach()
        await self._remote.aclose()

    def dismiss(self) -> None:
        """Answer the client's open requests: this process ends, and the client stays.

        Not for a line: it looks for the next owner of its sessions with its unanswered requests.
        """
        if not self.offer.is_line:
            self.refuse(errors.StoppedError())

    def refuse(self, error: errors.AcpholdError) -> None:
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


Introduction = Literal["awaited", "answered in another version", "over"]
"""The stages of a client's introduction; see `ClientConnection._initialize`."""

NEIGHBOURS = (PRESENCE, CHANGED, SIGNED_IN)
"""Methods that other processes of ours call."""

BEFORE_INITIALIZE = frozenset({schema.INITIALIZE.name, PRESENCE, CHANGED})
"""Methods that are answered before `initialize`; the last two are for other processes of ours."""

BEFORE_ENTRY = BEFORE_INITIALIZE | {schema.AUTHENTICATE.name, SIGNED_IN}
"""Methods that are answered to a client that has not been let in."""


class _PageParams(Struct):
    elicitationId: str | None = None


class OpenPages:
    """The pages that an agent asked one client to open (`elicitation/create` in the mode `url`).

    When the agent reports that a page is done with, only the clients that were asked are told (spec
    v1, elicitation, "URL completion"): the notification names no session. Oldest first.
    """

    def __init__(self) -> None:
        self._ids: Newest[str, None] = Newest(bounds.OPEN_PAGES)

    def see(self, params: bytes) -> None:
        """Remember the page in this request to the client."""
        if (page := _page(params)) is not None:
            self._ids[page] = None

    def is_done(self, params: bytes) -> bool:
        """Forget a page that is done with; return True if this client was asked to open it."""
        page = _page(params)
        if page is None or page not in self._ids:
            return False
        del self._ids[page]
        return True


def _page(params: bytes) -> str | None:
    try:
        return msgspec.json.decode(params, type=_PageParams).elicitationId
    except msgspec.MsgspecError:
        return None
