"""One connection to the sessions of all agents that are served here, each with its own agent.

A client requests it with `initialize`. It then has a counter at the desk of each agent that it
needs: a `ClientConnection` with the same peer. A message that names a session goes to the counter
at which that is open, or to that of its agent; any other goes to the agent that `_meta` names, or
to the default one. The agents' messages reach the client unchanged, for session ids are those of
the journal, which they share.

A session whose agent is not served here never goes to another agent by itself, because that agent
would read the conversation: the client names the agent that is to continue it, or is refused. A
session that is live is joined where it is, with its own agent.

The client is introduced to an agent when it first needs it. A session that it may only read, or
that it opens with `acphold/reads`, has a counter of its own, which starts no agent. Before it acts
in the latter, it opens the session without that. A counter is closed with the last session that
the client has open there: an agent that no client needs may end. So the answer to `initialize`
lists what acphold does for every agent, started or not. The answer that opens a session adds the
name and the capabilities of its agent.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from functools import partial

from msgspec import MsgspecError, Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema.methods import ARCHIVE_SESSION, FORK_SESSION, LEAVING, OPENING, REOPENING
from acp_wire.schema.splice import in_meta, members, session_id_in, splice, with_meta
from acp_wire.tasks import TaskSet, end, finish, first_of
from acp_wire.transports.reread import reread
from acphold import errors
from acphold.live.agents import capabilities
from acphold.live.hub.annotations import AGENT
from acphold.live.server import bounds
from acphold.live.server.connection import ClientConnection
from acphold.live.server.open_params import OpenParams
from acphold.live.server.principals import Principal
from acphold.live.server.served_agents import FoundSession, ServedAgents

log = logging.getLogger(__name__)

ACTING = REOPENING | LEAVING | {ARCHIVE_SESSION.name, FORK_SESSION.name}
"""Requests before which a counter that only reads a session is left: they begin or end more."""


async def peek(transport: Transport, limit: int) -> tuple[Transport, bool]:
    """Read the first message; return the transport with that message unread, and True if its client
    requests all agents.

    A message longer than `limit` is left to the next reader, which refuses it.
    """
    data = b""
    while b"\n" not in data and len(data) <= limit and (chunk := await transport.receive()):
        data += chunk
    wants_all = False
    with suppress(MsgspecError, UnicodeDecodeError, RecursionError):
        wants_all = _peek(data.partition(b"\n")[0]).params.offered.meta.wants_all
    return reread(transport, data), wants_all


class _Meta(Struct, frozen=True):
    wants_all: bool = field(name=capabilities.ALL_AGENTS, default=False)


class _Offered(Struct, frozen=True):
    meta: _Meta = field(name="_meta", default=_Meta())


class _Introduction(Struct, frozen=True):
    offered: _Offered = field(name="clientCapabilities", default=_Offered())


class _FirstMessage(Struct, frozen=True):
    params: _Introduction = _Introduction()


_peek = Decoder(_FirstMessage).decode  # the first message may be long: only this is read of it


async def attend(
    served: ServedAgents, name: str, transport: Transport, principal: Principal, limit: int
) -> None:
    """Serve one client of this agent, or of all agents if it asks for that, until it leaves.

    A client limited to one session gets that session's agent and hears of no other.
    """
    limit = min(served.agents[name].service.options.max_message, limit)
    transport, asks = await peek(transport, limit)
    if asks and principal.session_id is None:
        await AllAgents(served, name, transport, limit, principal).attend()
    else:
        await served.attend(name, transport, principal, limit)


class AllAgents:
    """One client that asks for all agents: see the module."""

    def __init__(
        self,
        served: ServedAgents,
        default: str,
        transport: Transport,
        limit: int,
        principal: Principal,
    ) -> None:
        self.peer = Peer(transport, self, name="client", limit=limit, parts=bounds.MESSAGE_PARTS)
        self._served = served
        self._default = default
        self._principal = principal
        self._introduction = b""
        self._watches = False
        self._counters: dict[tuple[str, str], Counter] = {}
        self._closing = TaskSet()
        # Messages that wait until the counter of their session is found, in wire order.
        self._waiting: dict[str, list[Request | NotificationReceived]] = {}

    async def attend(self) -> None:
        """Serve the client until it leaves."""
        try:
            async with connected(self.peer) as pump:
                try:
                    await asyncio.wait({pump})
                    await self.peer.finish(bounds.LAST_ANSWERS_SECONDS, but=schema.PROMPT.name)
                finally:
                    for counter in self._counters.values():
                        counter.detach()  # the client has gone; its turns continue
                    if not pump.done():  # this process ends, and the client stays
                        self.peer.refuse_all(errors.StoppedError())
        finally:
            await finish(self.aclose)

    # -- messages of the client -----------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        if request.method == schema.INITIALIZE.name:
            return self._initialize(request)
        if not self._introduction:
            raise errors.InvalidRequestError(
                f"{request.method} before initialize; initialize first"
            )
        self._principal.check(request.method, request.params)  # before an agent is started for it
        request.params = request.params or b"{}"
        if request.method == schema.LIST_SESSIONS.name:
            return self._served.page(self._principal, request.params)
        session_id = session_id_in(request.params)
        if session_id is not None:
            return self._send_to_session(session_id, request)
        asked = OpenParams.decode(request.params)
        name = self._default if asked.agent is None else self._require_served(asked.agent)
        request.params = asked.naming(None).params
        return self._send_to_agent(name, request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            session_id = session_id_in(notification.params)
            if session_id is not None:
                # One at a time: this slows down a client that names sessions that do not exist.
                if (sending := self._send_to_session(session_id, notification)) is not None:
                    await sending
            elif (counter := self._counters.get((self._default, ""))) is not None:
                await counter.tell(notification)

    async def _initialize(self, request: Request) -> bytes:
        if self._counters:
            raise errors.InvalidRequestError("initialize was answered already; send it only once")
        params = capabilities.in_version_1(request.params)
        introduction = schema.decode(schema.InitializeRequest, params).value
        offer = capabilities.offer_of(introduction, params)
        self._introduction, self._watches = params, offer.watches
        result = capabilities.answer_for_client(
            # A session index is about the sessions of one agent.
            capabilities.answer_without_agent(),
            replace(offer, air=None),
            unstable=True,
        )
        names = [*dict.fromkeys((self._default, *self._served.agents))]
        supported = with_meta(
            members(result)["agentCapabilities"], capabilities.ALL_AGENTS, schema.encode(names)
        )
        if self._principal.sees_all and (folder := self._served.folder) is not None:
            supported = with_meta(supported, capabilities.FOLDER, schema.encode(folder))
        return splice(result, {"agentCapabilities": supported})

    def _send_to_session(
        self, session_id: str, message: Request | NotificationReceived
    ) -> Awaitable[bytes | None] | None:
        """Send a message to the counter of its session; return an awaitable if that takes time."""
        counter = self._counter_of(session_id, message.method)
        if (waiting := self._waiting.get(session_id)) is not None:
            waiting.append(message)
        elif counter is None:
            self._waiting[session_id] = [message]
        elif isinstance(message, Request):
            counter.begin(message)
            return None
        else:
            return counter.tell(message)
        if isinstance(message, Request):
            message.on_cancel = lambda: None  # it is answered at once then, and left out later
        return None if waiting is not None else self._look_up_and_send(session_id)

    def _counter_of(self, session_id: str, method: str) -> Counter | None:
        """Return the counter at which a session is open, or is being opened; None also if the
        client only reads there, and would act: it may be shared to be continued by now."""
        counter = next((it for it in self._counters.values() if it.has(session_id)), None)
        is_fit = counter is not None and not (counter.reads and method in ACTING)
        return counter if is_fit else None

    async def _send_to_agent(self, name: str, request: Request) -> None:
        counter = await self._counter(name, "", self._principal)
        if not request.is_answered:
            counter.begin(request)

    async def _look_up_and_send(self, session_id: str) -> None:
        """Look up the session's agent, and send it all messages that wait for that."""
        waiting = self._waiting[session_id]
        problem: errors.AcpError = errors.StoppedError()  # if we are cancelled
        try:
            method, params = waiting[0].method, waiting[0].params
            found = await self._served.find(session_id, self._principal, method)
            reads, principal = "", self._principal
            may = principal.scopes
            if "prompt" in may and not found.may_prompt:
                reads = session_id
                principal = replace(principal, scopes=may & {"watch"}, only_reads=True)
            elif "prompt" in may and method in OPENING:
                asked = OpenParams.decode(params)
                is_held = found.held is not None and asked.agent is None
                if asked.reads or (is_held and self._watches):  # no agent here continues it
                    reads, principal = session_id, replace(principal, scopes=may - {"prompt"})
            former = [key for key in self._counters if key[1] == session_id != reads]
            for key in former if "prompt" in may else ():
                await self._counters.pop(key).aclose()  # before the session is open at another one
            while waiting:
                try:
                    await self._send(waiting[0], session_id, found, reads, principal)
                except errors.AcpError as exc:
                    _refuse(waiting[0], exc)
                del waiting[0]
        except errors.AcpError as exc:
            problem = exc
        finally:
            del self._waiting[session_id]
            for message in waiting:
                _refuse(message, problem)

    async def _send(
        self,
        message: Request | NotificationReceived,
        session_id: str,
        found: FoundSession,
        reads: str,
        principal: Principal,
    ) -> None:
        """Send a message about a session to the counter of its agent; raises AcpError.

        A request to open a session that is held with an agent that is not served has to name one
        that is.
        """
        name = found.agent
        # Those before it may have opened the session, at another agent that they named.
        counter = self._counter_of(session_id, message.method)
        if not isinstance(message, Request):
            # A notification starts no agent: the session is not open there.
            counter = counter or self._counters.get((name or self._default, reads))
            if counter is None:
                raise errors.UnknownSessionError(session_id)
            await counter.tell(message)
            return
        if counter is None and message.method in OPENING:
            asked = OpenParams.decode(message.params)
            chosen = None if asked.agent is None else self._require_served(asked.agent)
            if chosen is not None and "prompt" in principal.scopes:
                name = chosen  # the person's choice, whoever held it before; not a mere reader's
            elif chosen is None and found.held is not None and not self._watches:
                raise errors.OtherAgentError(session_id, found.held, tuple(self._served.agents))
            message.params = asked.naming(name).params
        if counter is None:
            counter = await self._counter(name or self._default, reads, principal)
        if not message.is_answered:
            message.on_cancel = None
            counter.begin(message, found.agent)

    def _require_served(self, name: str) -> str:
        """Return the name of an agent; InvalidParamsError if it is not served."""
        if name not in self._served.agents:
            names = ", ".join(self._served.agents)
            raise errors.InvalidParamsError(f"{AGENT}: must be one of {names}", f"_meta.{AGENT}")
        return name

    # -- counters -------------------------------------------------------------------------

    async def _counter(self, name: str, reads: str, principal: Principal) -> Counter:
        """Return the counter of an agent, open; raises AcpError if it cannot be opened."""
        while True:
            counter = self._counters.get((name, reads))
            if counter is None:
                coming = self._served.counter(name, self.peer, principal)
                counter = Counter(
                    (name, reads), self.peer, coming, self._introduction, self.close_if_unneeded
                )
                self._counters[name, reads] = counter
            await counter.wait_until_open()
            if self._counters.get((name, reads)) is counter:
                return counter

    def close_if_unneeded(self, counter: Counter) -> None:
        """Close a counter at which nothing is open, or that could not be opened."""
        if self._counters.get((counter.name, counter.reads)) is counter and counter.is_idle:
            del self._counters[counter.name, counter.reads]  # in this step: nothing more comes
            self._closing.start(counter.aclose(), f"close counter of {counter.name}")

    async def aclose(self) -> None:
        """Close all counters."""
        counters, self._counters = [*self._counters.values()], {}
        await asyncio.gather(*(it.aclose() for it in counters), *self._closing)


def _refuse(message: Request | NotificationReceived, error: errors.AcpError) -> None:
    """Refuse a message that cannot be sent."""
    if isinstance(message, Request):
        message.refuse(error)
    else:
        log.warning("ignored %s: %s", message.method, error)


class Counter:
    """The client at the desk of an agent.

    `way` is the agent's name, and the only session of a counter for one that the client only reads:
    such a counter starts no agent; "" on any other. `coming` lets the client, at the other end of
    the peer, come to the desk, where it is introduced with `introduction`. `on_rest` is called when
    it may not be needed any more.
    """

    def __init__(
        self,
        way: tuple[str, str],
        peer: Peer,
        coming: AbstractAsyncContextManager[ClientConnection],
        introduction: bytes,
        on_rest: Callable[[Counter], None],
    ) -> None:
        self.name, self.reads = way
        self._peer = peer
        self._connection: ClientConnection | None = None
        self._context = copy_context()
        self._introduced = b"{}"
        self._unanswered: set[Request] = set()
        self._expected = 0  # those who wait for it to open
        self._agents: dict[str, str] = {}  # of sessions, by the names of these agents
        self._on_rest = on_rest
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        staying = self._stay(coming, introduction)
        self._staying = asyncio.create_task(staying, name=f"counter of {self.name}")
        self._staying.add_done_callback(self._note_end)

    async def _stay(
        self, coming: AbstractAsyncContextManager[ClientConnection], introduction: bytes
    ) -> None:
        async with coming as connection:
            self._introduced = await connection.introduce(introduction)
            self._context = copy_context()
            self._connection = connection
            self._opened.set()
            self._rest()  # nobody may wait for it any more
            await self._closing.wait()

    def _note_end(self, staying: asyncio.Task[None]) -> None:
        if not staying.cancelled() and (error := staying.exception()) is not None:
            log.info("the counter of %s could not be opened: %s", self.name, error)
        self._rest()

    def _rest(self) -> None:
        asyncio.get_running_loop().call_soon(self._on_rest, self)

    async def wait_until_open(self) -> None:
        """Wait until it is open, as long as the agent takes to start; raises AcpError."""
        self._expected += 1
        try:
            await first_of(self._staying, self._opened.wait())
            if self._connection is None:
                self._staying.result()
        finally:
            self._expected -= 1
            self._rest()

    @property
    def is_idle(self) -> bool:
        """True if the client has nothing open there, and waits for no answer."""
        if self._unanswered or self._expected or not self._opened.is_set():
            return self._staying.done()
        return self._connection is None or self._connection.is_idle

    def has(self, session_id: str) -> bool:
        """Return True if the client has a session open there, or is opening it."""
        return self._connection is not None and self._connection.has(session_id)

    def begin(self, request: Request, agent: str | None = None) -> None:
        """Answer a request, now or later. `agent` is the name of its session's agent, if that is
        served."""
        session_id = session_id_in(request.params) or ""
        if agent is not None:
            self._agents[session_id] = agent
        self._unanswered.add(request)
        request.task = None
        request.adapt = partial(self._adapt, request, self._agents.get(session_id))
        self._context.run(self._begin, request)

    def _begin(self, request: Request) -> None:
        assert self._connection is not None, "it is open"

        async def finish(work: Awaitable[bytes | None]) -> bytes | None:
            try:
                return await work
            finally:
                self._rest()

        try:
            work = self._connection.on_request(request)
        except Exception as exc:
            request.refuse(exc)
        else:
            if work is not None:
                self._peer.continue_with(request, finish(work))

    async def tell(self, notification: NotificationReceived) -> None:
        """Handle a notification; dropped if it is not open."""
        if self._connection is not None:
            telling = self._connection.on_notifications([notification])
            await asyncio.create_task(telling, name="tell", context=self._context.copy())

    def _adapt(
        self, request: Request, agent: str | None, answer: bytes | Exception
    ) -> bytes | Exception:
        """Return an answer with the facts about the agent that the client needs."""
        self._unanswered.discard(request)
        self._rest()
        if isinstance(answer, errors.RemoteError) and answer.code == errors.AUTH_REQUIRED:
            # The client has not seen the agent's ways to sign in, in its answer to `initialize`.
            data = members(answer.raw).get("data", b"null") if answer.raw else b"null"
            if data == b"null":
                data = b"{}"
            elif not data.startswith(b"{"):
                return answer  # it has no room for them
            methods = members(self._introduced).get("authMethods", b"[]")
            data = splice(data, {AGENT: schema.encode(self.name), "authMethods": methods})
            error = {"code": answer.code, "message": answer.message}
            raw = splice(answer.raw or schema.encode(error), {"data": data})
            return errors.RemoteError(answer.code, answer.message, raw)
        if not isinstance(answer, bytes) or request.method not in OPENING:
            return answer
        name: str | None = self.name
        if in_meta(answer, capabilities.INTRODUCTION) is None:
            answer = with_meta(answer, capabilities.INTRODUCTION, self._introduced)
        elif self._connection is not None and (
            in_meta(answer, AGENT) != schema.encode(self._connection.agent)
        ):
            name = agent  # a live session keeps its own
        return answer if name is None else with_meta(answer, AGENT, schema.encode(name))

    def detach(self) -> None:
        """Leave all sessions there."""
        if self._connection is not None:
            self._connection.detach()

    async def aclose(self) -> None:
        """Leave the desk; what is not answered is refused."""
        self._closing.set()
        ended = errors.ConnectionLostError(f"the connection to {self.name} has ended")
        tasks = [request.task for request in self._unanswered]
        for request in [*self._unanswered]:
            request.refuse(ended)
        await end(*tasks)
        if self._connection is None:
            await end(self._staying)
        else:
            await asyncio.wait([self._staying])
