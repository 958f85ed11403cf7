"""One connected client: protocol requests in, hub calls out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from acphold.errors import AcpholdError, AgentError, InvalidParamsError, InvalidRequestError
from acphold.hub import Attachment, Hub, Session, Setup
from acphold.hub.choices import opened_result, set_config_option, set_mode
from acphold.hub.options import without_booleans
from acphold.mcp.servers import provided_ids
from acphold.rpc import MAX_MESSAGE, NotificationReceived, Peer, RequestReceived, Transport
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
    ClientCapabilities,
    CloseSessionRequest,
    DeleteSessionRequest,
    InitializeRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    decode,
    encode,
)
from acphold.schema.splice import members, splice
from acphold.server.capabilities import with_ours
from acphold.server.setup import OpenRequest, checked_setup

log = logging.getLogger(__name__)


class Connection:
    """A client from its `initialize` to its end; also what the hub sees of it (hub.Client)."""

    def __init__(self, hub: Hub, transport: Transport, *, limit: int = MAX_MESSAGE) -> None:
        self.capabilities = ClientCapabilities()
        self.peer = Peer(transport, self, name="client", limit=limit)
        self._hub = hub
        self._initialized = False
        self._opened: dict[str, asyncio.Event] = {}
        self._handlers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
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

    # -- as the hub sees it ---------------------------------------------------------------

    @property
    def buffered(self) -> int:
        return self.peer.buffered

    def send(self, lines: bytes) -> None:
        self.peer.send(lines)

    async def drain(self) -> None:
        await self.peer.drain()

    async def ask(self, method: str, params: bytes) -> bytes:
        return await self.peer.call_raw(method, params)

    def tell(self, method: str, params: bytes) -> None:
        self.peer.tell(method, params)

    # -- as the client sees it ------------------------------------------------------------

    async def on_request(self, request: RequestReceived) -> bytes:
        if request.method == INITIALIZE.name:
            return await self._initialize(request.params)
        if not self._initialized:
            raise InvalidRequestError(f"{request.method} before initialize; initialize first")
        handler = self._handlers.get(request.method)
        if handler is None:
            return await self._relay(request.method, request.params)
        return await handler(request.params or b"{}")

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            if not self._initialized:
                log.warning("%s before initialize was ignored", notification.method)
            elif notification.method == CANCEL.name:
                await self._cancel(notification.params)
            else:
                params = await self._for_agent(notification.params)
                await self._hub.agent.tell(notification.method, params)

    async def _initialize(self, params: bytes) -> bytes:
        if self._initialized:
            raise InvalidRequestError("initialize was answered already; it is sent once")
        self.capabilities = decode(InitializeRequest, params).value.client_capabilities
        try:
            answer = await self._hub.initialize(params)
        except AgentError as exc:
            log.error("%s", exc)  # also for whoever has only the log to look at
            raise
        if not self._initialized:
            self._initialized = True
            self._hub.clients.append(self)
        return with_ours(answer)

    async def _new(self, params: bytes) -> bytes:
        setup = self._setup(NewSessionRequest, params)
        session, result = await self._hub.new(setup)
        self._open_behind_answer(await session.attach(self, after=0, live=False))
        return self._shown(result)

    async def _load(self, params: bytes) -> bytes:
        setup = self._setup(LoadSessionRequest, params)
        with self._opening(session_id := _session_id(params)):
            attachment = await self._hub.load(self, session_id, setup)
        self._open_behind_answer(attachment)
        return self._shown(opened_result(attachment.session))

    async def _resume(self, params: bytes) -> bytes:
        setup = self._setup(ResumeSessionRequest, params)
        with self._opening(session_id := _session_id(params)):
            attachment = await self._hub.resume(self, session_id, setup)
        self._open_behind_answer(attachment)
        return self._shown(opened_result(attachment.session))

    def _setup(self, kind: type[OpenRequest], params: bytes) -> Setup:
        setup = checked_setup(kind, params, self._hub.agent.capabilities)
        for server_id in provided_ids(members(setup.params).get("mcpServers", b"null")):
            self._hub.providers[server_id] = self
        return setup

    async def _list(self, params: bytes) -> bytes:
        request = decode(ListSessionsRequest, params).value
        if request.cwd is not None and not request.cwd.startswith("/"):
            raise InvalidParamsError(f"cwd: {request.cwd!r} is not an absolute path", field="cwd")
        return await self._hub.listing.page(request.cwd, request.cursor, self._hub.held_ids)

    async def _prompt(self, params: bytes) -> bytes:
        session = await self._held(params)
        if not members(params).get("prompt", b"").startswith(b"["):
            raise InvalidParamsError("prompt: an array of content blocks is required", "prompt")
        ended = await session.turns.prompt(params, session.attachment_of(self))
        # Answered only behind every update of the turn.
        await session.delivered(self, ended.seq)
        return ended.result()

    async def _cancel(self, params: bytes) -> None:
        try:
            session = self._hub.held(_session_id(params))
        except AcpholdError as exc:
            log.warning("session/cancel was ignored: %s", exc)
            return
        await session.turns.cancel()

    async def _close(self, params: bytes) -> bytes:
        await self._hub.close(decode(CloseSessionRequest, params).value.session_id)
        return b"{}"

    async def _delete(self, params: bytes) -> bytes:
        await self._hub.delete(decode(DeleteSessionRequest, params).value.session_id)
        return b"{}"

    async def _set_mode(self, params: bytes) -> bytes:
        session = await self._held(params)
        return await set_mode(session, params, session.attachment_of(self))

    async def _set_config_option(self, params: bytes) -> bytes:
        session = await self._held(params)
        return self._shown(await set_config_option(session, params, session.attachment_of(self)))

    async def _relay(self, method: str, params: bytes) -> bytes:
        """An extension's method, or one newer than this release: the agent's own business."""
        await self._hub.ready(_about(params))
        result = await self._hub.agent.ask(method, await self._for_agent(params))
        # Known to have an object as its result, `null` or not.
        return b"{}" if result == b"null" and method in _EMPTY_RESULTS else result

    async def _for_agent(self, params: bytes) -> bytes:
        """Params with the agent's own id for a session of ours."""
        session_id = _about(params)
        agent_session = session_id and await self._hub.agent_session(session_id)
        if not agent_session or agent_session == session_id:
            return params
        return splice(params, {"sessionId": encode(agent_session)})

    @contextmanager
    def _opening(self, session_id: str) -> Iterator[None]:
        done = self._opened[session_id] = asyncio.Event()
        try:
            yield
        finally:
            done.set()
            if self._opened.get(session_id) is done:
                del self._opened[session_id]

    async def _held(self, params: bytes) -> Session:
        """The open session of a request that may have come right behind the one that opens it."""
        session_id = _session_id(params)
        if (opened := self._opened.get(session_id)) is not None:
            await opened.wait()
        return self._hub.held(session_id)

    # -- answers --------------------------------------------------------------------------

    def _shown(self, result: bytes) -> bytes:
        session = self.capabilities.session
        options = None if session is None else session.config_options
        if options is not None and options.boolean is not None:
            return result
        return without_booleans(result)

    def _open_behind_answer(self, attachment: Attachment) -> None:
        """What happens in a session is told behind the answer that opens it."""
        # Called last: the answer is sent in this same step of the event loop, the callback runs
        # in the next.
        asyncio.get_running_loop().call_soon(attachment.session.open_to, attachment)

    async def leave(self) -> None:
        """The client is gone: it is attached to nothing any more."""
        if self in self._hub.clients:
            self._hub.clients.remove(self)
        for server_id, provider in tuple(self._hub.providers.items()):
            if provider is self:
                del self._hub.providers[server_id]
        await self._hub.detach(self)


_EMPTY_RESULTS = frozenset({"authenticate", "logout"})


def _about(params: bytes) -> str | None:
    """The session that params of any method are about, if any."""
    with suppress(InvalidParamsError):
        return _session_id(params)
    return None


def _session_id(params: bytes) -> str:
    raw = members(params or b"{}").get("sessionId")
    try:
        return msgspec.json.decode(raw or b"null", type=str)
    except msgspec.MsgspecError:
        raise InvalidParamsError("sessionId: a string is required", field="sessionId") from None
