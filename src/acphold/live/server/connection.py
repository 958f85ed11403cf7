"""One connected client: each request of the protocol is checked, and becomes a call of the hub.

Decisions here concern this client only. Requests about a session that another process owns go there
(`server.session_opener`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.newest import Newest
from acp_wire.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport
from acp_wire.rpc.requests import Request
from acp_wire.schema.methods import REQUESTS
from acp_wire.schema.splice import session_id_in
from acphold import errors
from acphold.conversation.history.raw_update import members, string
from acphold.journal.access import SCOPES, Scope
from acphold.journal.journal import row_of, session_of
from acphold.live.agents import capabilities
from acphold.live.agents.client_methods import client_row
from acphold.live.agents.interface import HubAgent
from acphold.live.agents.terms import Terms
from acphold.live.hub.desk import Desk
from acphold.live.server import bounds
from acphold.live.server.admission import Admission
from acphold.live.server.checked_params import list_request
from acphold.live.server.directory import Directory
from acphold.live.server.methods import AnsweredBy, Asked, MethodRow, method_of
from acphold.live.server.principals import (
    THIS_USER,
    Door,
    Entrance,
    OwnSessions,
    Principal,
    Visitor,
)
from acphold.live.server.process_requests import ProcessRequests
from acphold.live.server.remote_sessions import AttendHere, RemoteSessions
from acphold.live.server.session_opener import SessionOpener
from acphold.live.server.session_requests import Handler, SessionRequests
from acphold.live.server.unstable import UnstableMethods, archive_filter
from acphold.mcp_servers.servers import MCP_MESSAGE, ProvidedServers

if TYPE_CHECKING:
    from acphold.live.server.session_index import SessionIndex

log = logging.getLogger(__name__)


class ClientConnection:
    """A client from its `initialize` to its end; also the hub's view of it (hub.Client).

    A handler answers its request itself if messages have to follow right after the answer;
    otherwise it returns the result. The client is served at `directory`.
    """

    def __init__(
        self,
        directory: Directory,
        transport: Transport,
        *,
        limit: int = MAX_MESSAGE,
        unstable: bool = False,
        principal: Principal = THIS_USER,
        door: Door | None = None,
        headers: Mapping[str, str] | None = None,
        attend_here: AttendHere,
    ) -> None:
        self.offer = capabilities.ClientOffer()
        self._names: dict[str, str] = {}
        self.known_prompts: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.terms: dict[str, Terms] = {}
        self.only_joins = directory.only_joins
        self.peer = Peer(transport, self, name="client", limit=limit, parts=bounds.MESSAGE_PARTS)
        self.send: Callable[[bytes], None] = self.peer.send
        self.drain = self.peer.drain
        self._directory, self._hub = directory, directory.hub
        self._desk: Desk | None = None  # the one that it came for
        self._principal = principal
        self._is_guest = principal.session_id is not None
        self._entrance = Entrance(door, Visitor(principal=principal, headers=headers or {}))
        # The pages that the client was asked to open: only the clients that an agent asked get the
        # notification that one is done, which names no session (spec v1, elicitation, "URL
        # completion").
        self._pages: Newest[str, None] = Newest(bounds.OPEN_PAGES)
        self._introduction: Introduction = "awaited"
        self._unstable = unstable
        entrance, remote = self._entrance, RemoteSessions(directory.hub, self, limit, attend_here)
        opener = SessionOpener(directory, self, entrance, principal, remote)
        requests = SessionRequests(directory, self, self.peer, entrance, opener.openings, remote)
        methods = UnstableMethods(directory, self, opener, entrance, principal.note)
        self._opener, self._requests, self._methods = opener, requests, methods
        self._index: SessionIndex | None = None
        self._own = OwnSessions(directory.hub, entrance, self.has, are_all=directory.has_all)
        self.admission = Admission(
            entrance, self._own, enter=self._enter, leave=self._leave_sessions
        )
        processes = ProcessRequests(directory, self, entrance, self._own, principal)
        # Behind a door nobody is a process of ours by claiming to be one.
        refuses_processes = door is not None and not principal.vouches
        self._answering: dict[AnsweredBy, Handler] = {
            "prompt": requests.prompt,
            "session": requests.answer,
            "agent": requests.answer,
            "deletion": requests.answer,
            "opener": opener.open,
            "list": self._list,
            "journal": methods.answer,
            "index": _refuse_unknown,
            "introduction": lambda request: self.introduce(request.params),
            "process": _refuse_unknown if refuses_processes else processes.answer,
            "entrance": requests.answer if door is None else self.admission.answer,
        }

    # -- as the hub sees it ---------------------------------------------------------------

    @property
    def info(self) -> bytes:
        principal = self.principal  # it may sign in, and as somebody else
        user = principal.tenant
        if self._is_guest and not user:  # a token may be named like a user
            user = f"{principal.name} (guest)" if principal.session_id else "a guest"
        known = {**self._names, "user": user} if user else self._names
        return schema.encode(known) if known else b""

    @property
    def principal(self) -> Principal:
        """The principal, as far as it is known yet."""
        return self._entrance.principal

    @property
    def sees_all(self) -> bool:
        """False for a line: behind it may be a client that sees one session only."""
        return self.principal.sees_all and not self.offer.is_line

    def only_watches(self, session_id: str) -> bool:
        return self.offer.watches or "answer" not in self._own.scopes(session_id)

    def scopes_in(self, session_id: str) -> frozenset[Scope]:
        scopes = self._own.scopes(session_id)
        return scopes - {"prompt"} if session_id in self._opener.openings.reading else scopes

    def owns(self, tenant: str) -> bool:
        return not self._is_guest and self.principal.owns(tenant)

    @property
    def is_lost(self) -> bool:
        """True once the client has gone."""
        return self.peer.is_lost

    @property
    def buffered(self) -> int:
        return self.peer.buffered

    def _to_its(self, params: bytes) -> bytes:
        return _with_id(params, self.aliases) if self.aliases else params

    def _to_ours(self, params: bytes) -> bytes:
        if not self.aliases:
            return params
        return _with_id(params, {its: ours for ours, its in self.aliases.items()})

    async def ask(self, method: str, params: bytes) -> bytes:
        if method == schema.CREATE_ELICITATION.name and (page := _page(params)):
            self._pages[page] = None
        elif method == MCP_MESSAGE:
            params = self._servers.for_client(params)
        answer = await self.peer.call_raw(method, self._to_its(params))
        if client_row(method).by == "person":
            self._principal.note("answer", session_id_in(params))
        session_id = session_id_in(params) if self._own.are_shared else None
        if "manage" not in (scopes := self._scopes_for(session_id)):
            from acphold.live.server.field_rights import restrict_answer  # late: an editor waits

            answer, left_out = restrict_answer(method, answer, scopes)
            self._principal.leaves_out(f"an answer to {method}", session_id_in(params), left_out)
        return answer

    def tell(self, method: str, params: bytes) -> None:
        if method == schema.COMPLETE_ELICITATION.name:
            if _page(params) not in self._pages:
                return  # another client was asked
            del self._pages[_page(params)]
        if method == MCP_MESSAGE:
            params = self._servers.for_client(params)
        self.peer.tell(method, self._to_its(params))

    def part(self) -> None:
        if self.offer.is_line:  # it asks again over its next connection, once this one is closed
            self.peer.part()
            self.detach()

    async def hang_up(self) -> None:
        await self.peer.aclose()

    @property
    def _servers(self) -> ProvidedServers:
        return ProvidedServers(self._entrance.tenant)

    def has(self, session_id: str) -> bool:
        """Return True if a session is open to the client, here or at its owner, or is being
        opened."""
        return self._opener.openings.has(session_id) or self._opener.is_open(session_id)

    # -- as the client sees it ------------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        request.params = self._to_ours(request.params)
        method = method_of(request.method)
        if self._introduction != "over" and not method.before_initialize:
            if self._introduction == "awaited":
                raise errors.InvalidRequestError(
                    f"{request.method} before initialize; initialize first"
                )
            self._introduction = "over"  # it accepts the version in the answer
        asked = self._check(method, request.method, request.params)
        if method.before_entry and self._is_answered_outside(asked):
            return self._handle(request, asked)
        if self.admission.has_access(asked.session_id):
            return self._handle(request, asked)
        return self._once_in(request, asked)

    def _check(self, method: MethodRow, name: str, params: bytes) -> Asked:
        """Read a message for its rights, and refuse it if the client may not send it; this user may
        send everything."""
        if self._principal is THIS_USER and self._entrance.door is None:
            return Asked(name, method)
        asked = Asked.read(name, params)
        self._principal.check(asked)
        return asked

    def _is_answered_outside(self, asked: Asked) -> bool:
        """True if this is answered before it is known whose sessions the client may use."""
        match asked.method.by:
            case "process":  # anybody else may not know the session
                is_ours = self._principal.vouches
                return is_ours or (self._entrance.door is None and asked.session_id is None)
            case "entrance":
                return self._entrance.door is not None
        return True

    async def _once_in(self, request: Request, asked: Asked) -> bytes | None:
        """Handle a request of a client that has to be admitted first, in wire order."""
        work = await self.admission.admit(asked, partial(self._handle, request, asked))
        return None if work is None else await work

    def _handle(self, request: Request, asked: Asked) -> Awaitable[bytes | None] | None:
        method = asked.method
        if method.is_notification:
            raise errors.MethodNotFoundError(request.method)
        if method.by != "introduction":
            self._principal.does(asked)
            if not REQUESTS[request.method].reopens:  # see `SessionOpener`
                request.params = self._restrict(request.method, request.params, asked.session_id)
        if method.by != "agent":
            request.params = request.params or b"{}"
        if REQUESTS[request.method].reopens and not self._is_guest:
            return self._reopen(request)
        return self._answering[method.by](request)

    async def _reopen(self, request: Request) -> None:
        """Open a session that the client knows, perhaps by the id of one that became one with it;
        for that all rights are checked again, of the session that it is."""
        its = session_id_in(request.params) or ""
        try:
            await self._opener.open(request)
        except errors.UnknownSessionError:
            if self._desk is None or its in self.aliases.values():
                raise
            ours = await session_of(self._hub.journal, self._desk.agent.key, its)
            if ours in (None, its):
                raise
            self.aliases[ours] = its
            if (work := self.on_request(request)) is not None:
                await work

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            method = notification.method
            params = self._to_ours(notification.params)
            if self._introduction == "awaited":
                log.warning("ignored %s before initialize", method)
                continue
            try:
                asked = self._check(method_of(method), method, params)
                if not self.admission.has_access(asked.session_id):
                    await self.admission.admit(asked, lambda: None)
                self._principal.does(asked)
                params = self._restrict(method, params, asked.session_id)
                if method == schema.CANCEL.name:
                    await self._requests.cancel(params)
                    continue
                if method == MCP_MESSAGE:
                    params = self._servers.to_reference(params)
                elif asked.method.by != "agent":
                    log.warning("ignored %s without an id", method)  # it is a request, and ours
                    continue
                await self._requests.tell(method, params)
            except errors.JournalError as exc:
                log.error("%s is not in the journal: %s", method, exc)
            except errors.AcpError as exc:
                log.warning("ignored %s: %s", method, exc)

    def _scopes_for(self, session_id: str | None) -> frozenset[Scope]:
        """Return the client's scopes in this session, if any."""
        if not self._own.are_shared:
            return self.principal.scopes
        return self._own.scopes(session_id or "")

    def _restrict(self, method: str, params: bytes, session_id: str | None) -> bytes:
        """Return so much of a request as the client may say: see `server.field_rights`."""
        if "manage" in (scopes := self._scopes_for(session_id)):
            return params
        from acphold.live.server.field_rights import restrict  # late: an editor waits

        params, left_out = restrict(method, params, scopes)
        self._principal.leaves_out(method, session_id, left_out)
        return params

    async def introduce(self, params: bytes) -> bytes:
        """Introduce the client to the agent; return the answer to `initialize`.

        A client that was answered with another version than it requested may accept that, leave, or
        start again with a version that both speak: then it may introduce itself differently.
        """
        if self._introduction == "over":
            raise errors.InvalidRequestError("initialize was answered already; send it only once")
        is_repeated = self._introduction == "answered in another version"
        params = self._principal.restrict_introduction(capabilities.in_version_1(params))
        introduction = schema.decode(schema.InitializeRequest, params).value
        own = self._principal
        offer = capabilities.offer_of(introduction, params)
        self.offer = replace(offer, in_frames=not (own.is_here or own.vouches))
        meta = introduction.client_capabilities.meta or {}
        tenant = meta.get(capabilities.TENANT, UNSET)
        if self._principal.vouches and isinstance(tenant, str | None):
            # It comes through another process of ours, which has authenticated it.
            named = meta.get(capabilities.SCOPES)
            may = frozenset(SCOPES).intersection(named) if isinstance(named, list) else None
            self._entrance.let_in(tenant, may)
            self._is_guest = meta.get(capabilities.GUEST) is True
        if (info := introduction.client_info) is not None:
            most = bounds.CLIENT_NAME_CHARACTERS
            self._names = {"name": info.name[:most], "version": info.version[:most]}
        may = self.principal.scopes
        told = self._restrict(schema.INITIALIZE.name, params, None)
        desk = self._desk = await self._directory.come(self.offer, self.principal, told)
        if desk is None:  # it comes to each agent when it needs that one
            answer, self._unstable = capabilities.answer_without_agent(), True
            self.offer = replace(self.offer, air=None)  # a session index is that of one agent
        else:
            guest_of = self.principal.session_id
            starts = "prompt" in may and guest_of is None
            if "prompt" in may and guest_of is not None:  # it may start only that session's agent
                row = await row_of(self._hub.journal, guest_of)
                starts = row is not None and row.agent == desk.agent.key
            for_agent = capabilities.with_workspace_here(told)
            answer = await desk.initialize(for_agent, starts=starts, anew=is_repeated)
            if desk.surroundings is not None and desk.agent.terms:
                # Those of its editor, which may have come back: nobody else comes to this desk.
                self.terms[desk.agent.key] = desk.agent.terms
        self._opener.introduction = told
        self._entrance.visitor = replace(self._entrance.visitor, client=introduction.client_info)
        if self._entrance.is_in:
            self._enter()
        await self._greet_air()
        is_same = introduction.protocol_version == schema.PROTOCOL_VERSION
        self._introduction = "over" if is_same or is_repeated else "answered in another version"
        self.only_joins |= self.offer.is_line
        if desk is None or self.only_joins:  # the session's agent has not been introduced yet
            self._opener.introduce = self._answer_for_client
        if desk is None:
            return self._directory.present(self._answer_for_client(answer), self.principal)
        return self._answer_for_client(answer, desk.agent)

    async def _greet_air(self) -> None:
        """Give JetBrains AIR what it asks for: a session index; without one it means by
        `session/delete` that the session is done."""
        if self._index is not None:  # it has introduced itself before, perhaps differently
            await self._index.clear()
            self._index = None
        self._answering |= {"index": _refuse_unknown, "deletion": self._requests.answer}
        if self.offer.has_index and self._desk is not None:
            from acphold.live.server.session_index import SessionIndex  # late: few clients have one

            self._index = SessionIndex(self._desk, self, self._entrance)
            self._answering["index"] = self._index.answer
        elif self.offer.air is not None:
            self._answering["deletion"] = self._methods.archive

    def _answer_for_client(self, answer: bytes, agent: HubAgent | None = None) -> bytes:
        """Return this agent's answer to `initialize` for this client."""
        return capabilities.answer_for_client(
            answer,
            self.offer,
            unstable=self._unstable,
            keeps_sessions=agent is not None and agent.reads_journal,
        )

    # -- access ---------------------------------------------------------------------------

    def _enter(self) -> None:
        if self._desk is not None and self not in self._desk.router.clients:
            self._desk.router.clients.append(self)
        self._opener.remote.introduction = capabilities.introduction_for_owner(
            self._opener.introduction,
            self._entrance.tenant,
            self.principal.scopes,
            guest=self._is_guest,
        )

    async def _leave_sessions(self) -> None:
        """Leave all sessions, open or being opened: they are no longer the client's own."""
        self._own.clear()
        if self._index is not None:
            await self._index.clear()
        await self._opener.abandon()
        self.detach()
        await self._opener.remote.leave()

    # -- the list -------------------------------------------------------------------------

    async def _list(self, request: Request) -> bytes:
        if self._index is not None:
            return await self._index.list(request.params)
        if self._desk is None:
            return await self._directory.page(self.principal, request.params)
        asked = list_request(request.params)
        if self._principal.session_id is not None:
            return await self._desk.sessions.only(self._principal.session_id, self._entrance.tenant)
        archived = archive_filter(request.params) or ("exclude" if self._unstable else None)
        tenant = self._entrance.tenant
        filter = self._hub.list_filter(asked.cwd, archived or "exclude", tenant)
        return await self._desk.sessions.page(filter, asked.cursor, marked=archived is not None)

    async def aclose(self) -> None:
        """Detach the client, which has gone, here and from every owner."""
        await self.admission.aclose()
        self.detach()
        if self._index is not None:
            await self._index.clear()
        await self._opener.remote.aclose()

    def dismiss(self) -> None:
        """Refuse the client's open requests: this process ends, and the client stays."""
        self.part()
        self.refuse(errors.StoppedError())

    def refuse(self, error: errors.AcpError) -> None:
        """Answer the client's open requests with this error, and detach it: it has to go."""
        self.detach()
        self.peer.refuse_all(error)

    def detach(self) -> None:
        """Detach the client from everything here."""
        self._hub.detach(self)


def _with_id(params: bytes, ids: Mapping[str, str]) -> bytes:
    """Return params with another id of their session, if there is one."""
    if (new := ids.get(session_id_in(params) or "")) is None:
        return params
    return schema.splice(params, {"sessionId": schema.encode(new)})


async def _refuse_unknown(request: Request) -> bytes:
    """Refuse a method that acphold answers, but not to this client: it goes to no agent, and to no
    owner of a session."""
    raise errors.MethodNotFoundError(request.method)


Introduction = Literal["awaited", "answered in another version", "over"]
"""The stages of a client's introduction; see `ClientConnection.introduce`."""


def _page(params: bytes) -> str:
    """Return the id of the page that these params are about; "" for none."""
    with suppress(errors.InvalidParamsError):
        return string(members(params).get("elicitationId")) or ""
    return ""
