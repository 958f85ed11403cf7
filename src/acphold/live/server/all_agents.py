"""One connection to the sessions of all agents that are served here, each with its own agent.

A client requests it with `initialize`. It then has a line to each agent that it needs: a connection
in memory to that agent's hub, which does not know the others. A message that names a session goes
to the session's agent; any other goes to the agent that `_meta` names, or to the default one. The
agents' messages reach the client unchanged, for session ids are those of the journal, which they
share.

A session whose agent is not served here never goes to another agent by itself, because that agent
would read the conversation: the client names the agent that is to continue it, or is refused. A
session that is live in another process is joined there, with its own agent.

The client is introduced to an agent when it first needs it. A session that it may only read, or
that it opens with `acphold/reads`, has a line of its own, which starts no agent. Before it acts in
the latter, it opens the session without that. A line is closed with the last
session that it has open there: an agent that no client needs may end. So the answer to `initialize`
lists what acphold does for every agent, started or not. The answer that opens a session adds the
name and the capabilities of its agent.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from acp_wire import schema
from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Answer, Request
from acp_wire.schema.methods import ARCHIVE_SESSION, LEAVING, MAKING, OPENING, REOPENING
from acp_wire.schema.splice import in_meta, members, session_id_in, splice, with_meta
from acp_wire.tasks import TaskSet, end
from acp_wire.transports.reread import reread
from acp_wire.transports.streams import memory_pair
from acphold import errors
from acphold.live.agents import capabilities
from acphold.live.hub.annotations import AGENT
from acphold.live.server import bounds
from acphold.live.server.far_line import FarLine, PeerClient
from acphold.live.server.open_params import READS, OpenParams
from acphold.live.server.principals import Principal
from acphold.live.server.remote_sessions import AttendHere

log = logging.getLogger(__name__)

ACTING = REOPENING | LEAVING | {ARCHIVE_SESSION.name}
"""Requests before which a line that only reads a session is closed: they begin or end more."""


class Agents(Protocol):
    """The agents that are served here together."""

    @property
    def names(self) -> Sequence[str]:
        """The names that clients use for them, the default one first."""

    @property
    def folder(self) -> str | None:
        """The folder for new sessions, until a client knows others; None for none."""

    async def attend_one(self, name: str, transport: Transport, principal: Principal) -> None:
        """Serve a client of this agent until it leaves."""

    async def agent_of(self, session_id: str) -> str | None:
        """Return the agent of a session; None if it is not served here, or not known."""

    async def agent_in_journal(self, session_id: str, principal: Principal) -> str | None:
        """Return the agent of a session that is not served here, as the journal has it; None if the
        session is live, or this client may not continue it."""

    async def may_prompt(self, session_id: str, principal: Principal) -> bool:
        """Return True if this client may prompt in a session, as far as is known."""

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """Return the result of `session/list`, of all agents."""


async def peek(transport: Transport, limit: int) -> tuple[Transport, bool]:
    """Read the first message; return the transport with that message unread, and True if its client
    requests all agents.

    A message longer than `limit` is left to the next reader, which refuses it.
    """
    data = b""
    while b"\n" not in data and len(data) <= limit:
        chunk = await transport.receive()
        if not chunk:
            break
        data += chunk
    wants_all = False
    with suppress(errors.InvalidParamsError):
        message = members(data.partition(b"\n")[0])
        offered = members(members(message.get("params", b"")).get("clientCapabilities", b""))
        wants_all = members(offered.get("_meta", b"")).get(capabilities.ALL_AGENTS) == b"true"
    return reread(transport, data), wants_all


async def attend_all(
    agents: Agents, default: str, transport: Transport, limit: int, principal: Principal
) -> None:
    """Serve one client that asks for all agents, until it leaves."""
    connection = AllAgents(agents, default, transport, limit, principal)
    try:
        async with connected(connection.peer) as pump:
            try:
                await asyncio.wait({pump})
            finally:
                if not pump.done():  # this process ends, and the client stays
                    connection.peer.refuse_all(errors.StoppedError())
    finally:
        await connection.aclose()


Way = tuple[str, str]
"""An agent's name, and `AgentLine.reads`."""


class AllAgents:
    """One client that asks for all agents: passes its requests to the lines."""

    def __init__(
        self,
        agents: Agents,
        default: str,
        transport: Transport,
        limit: int,
        principal: Principal,
    ) -> None:
        self.peer = Peer(transport, self, name="client", limit=limit)
        self._agents = agents
        self._default = default
        self.limit = limit
        self._principal = principal
        self._introduction = b""
        self.client = PeerClient(self.peer)
        self._lines: dict[Way, AgentLine] = {}
        self._closing = TaskSet()
        # Messages that wait until the agent of their session is found, in wire order.
        self._waiting: dict[str, list[Forwarded]] = {}

    # -- messages of the client -----------------------------------------------------------

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        if request.method == schema.INITIALIZE.name:
            return self._initialize(request)
        if not self._introduction:
            raise errors.InvalidRequestError(
                f"{request.method} before initialize; initialize first"
            )
        self._principal.check(request.method, request.params)  # before an agent is started for it
        if request.method == schema.LIST_SESSIONS.name:
            return self._agents.page(self._principal, request.params or b"{}")
        forwarded = Forwarded(request.method, request.params or b"{}", request)
        session_id = session_id_in(forwarded.params)
        if session_id is None:
            asked = OpenParams.decode(forwarded.params)
            name = self._default if asked.agent is None else self._require_served(asked.agent)
            forwarded.params = asked.naming(None).params
            self._line(name).send(forwarded)
            return None
        return self._send_to_session(session_id, forwarded)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            forwarded = Forwarded(notification.method, notification.params)
            session_id = session_id_in(notification.params)
            if session_id is not None:
                # One at a time: this slows down a client that names sessions that do not exist.
                if (sending := self._send_to_session(session_id, forwarded)) is not None:
                    await sending
            elif (line := self._lines.get((self._default, ""))) is not None:
                line.send(forwarded)

    async def _initialize(self, request: Request) -> bytes:
        if self._lines:
            raise errors.InvalidRequestError("initialize was answered already; send it only once")
        params = capabilities.in_version_1(request.params)
        introduction = schema.decode(schema.InitializeRequest, params).value
        self.client.offer = offer = capabilities.offer_of(introduction, params)
        self._introduction = params
        result = capabilities.answer_for_client(
            capabilities.answer_without_agent(), offer, unstable=True
        )
        names = [self._default, *(it for it in self._agents.names if it != self._default)]
        supported = with_meta(
            members(result)["agentCapabilities"], capabilities.ALL_AGENTS, schema.encode(names)
        )
        if self._principal.sees_all and (folder := self._agents.folder) is not None:
            supported = with_meta(supported, capabilities.FOLDER, schema.encode(folder))
        return splice(result, {"agentCapabilities": supported})

    def _require_served(self, name: str) -> str:
        """Return the name of an agent; InvalidParamsError if it is not served."""
        if name not in self._agents.names:
            names = ", ".join(self._agents.names)
            raise errors.InvalidParamsError(f"{AGENT}: must be one of {names}", f"_meta.{AGENT}")
        return name

    def _send_to_session(self, session_id: str, forwarded: Forwarded) -> Awaitable[None] | None:
        """Send a message to the session's agent; return an awaitable if it has to be looked up
        first."""
        line = next((it for it in self._lines.values() if it.far.has(session_id)), None)
        if line is not None and line.reads and forwarded.method in ACTING:
            line = None  # it may be shared to be continued by now
        if (waiting := self._waiting.get(session_id)) is not None:
            waiting.append(forwarded)
        elif line is not None:
            line.send(forwarded)
        else:
            self._waiting[session_id] = [forwarded]
            return self._look_up_and_send(session_id)
        return None

    async def _look_up_and_send(self, session_id: str) -> None:
        """Look up the session's agent, and send it all messages that wait for that."""
        problem: errors.AcpError | None = errors.StoppedError()  # if we are cancelled
        name: str | None = None
        held_with: str | None = None
        reads = ""
        principal = self._principal
        [first, *_] = self._waiting[session_id]
        try:
            name = await self._agents.agent_of(session_id)
            if "prompt" in principal.scopes:
                if not await self._agents.may_prompt(session_id, principal):
                    reads, may = session_id, principal.scopes & {"watch"}
                    principal = replace(principal, scopes=may, only_reads=True)
                elif first.reads_only:
                    reads, may = session_id, principal.scopes - {"prompt"}
                    principal = replace(principal, scopes=may)
                for way in [it for it in self._lines if it[1] == session_id != reads]:
                    await self._lines.pop(way).aclose()  # before the session is open on another
            if name is None and not self.client.offer.watches:
                held_with = await self._agents.agent_in_journal(session_id, self._principal)
            problem = None
        except errors.AcpError as exc:
            problem = exc
        finally:
            for forwarded in self._waiting.pop(session_id):
                if problem is not None:
                    forwarded.refuse(problem)
                    continue
                try:
                    self._send_to((name, reads), principal, held_with, session_id, forwarded)
                except errors.AcpError as exc:
                    forwarded.refuse(exc)

    def _send_to(
        self,
        way: tuple[str | None, str],
        principal: Principal,
        held_with: str | None,
        session_id: str,
        forwarded: Forwarded,
    ) -> None:
        """Send a message about a session on this way, whose name is None if its agent is not served
        here.

        A request to open a session that was `held_with` such an agent has to name one that is
        served.
        """
        name, reads = way
        if forwarded.method in OPENING:
            asked = OpenParams.decode(forwarded.params)
            named = asked.agent
            if named is not None:  # the person's choice, whoever held it before
                name = self._require_served(named)
            elif name is None and held_with is not None:
                raise errors.OtherAgentError(session_id, held_with, tuple(self._agents.names))
            forwarded.params = asked.naming(name).params
        forwarded.joins = name is None
        name = name or self._default
        # A notification starts no agent: the session is not open there.
        line = self._lines.get((name, reads))
        if line is None and forwarded.is_asked:
            line = self._line(name, reads, principal)
        if line is None:
            raise errors.UnknownSessionError(session_id)
        line.send(forwarded)

    # -- lines ----------------------------------------------------------------------------

    def _line(self, name: str, reads: str = "", principal: Principal | None = None) -> AgentLine:
        line = self._lines.get((name, reads))
        if line is None:
            principal = principal or self._principal
            attend = partial(self._agents.attend_one, name, principal=principal)
            line = AgentLine(name, self, self._introduction, reads, attend)
            self._lines[name, reads] = line
        return line

    def on_opened(self, session_id: str | None, line: AgentLine) -> None:
        """Note that the client has the session open over this line, and over no other any more."""
        for other in self._lines.values():
            if other is not line and session_id is not None:
                other.far.forget(session_id)

    def close_if_unneeded(self, line: AgentLine) -> None:
        """Close a line that has ended, or over which nothing is open."""
        way = (line.name, line.reads)
        if self._lines.get(way) is line and (line.is_over or line.far.is_idle):
            del self._lines[way]
            self._closing.start(line.aclose(), f"end line to {line.name}")

    async def aclose(self) -> None:
        """Close all lines: the client has gone; its turns continue."""
        lines, self._lines = [*self._lines.values()], {}
        await asyncio.gather(*(line.aclose() for line in lines), *self._closing)


class Forwarded:
    """A message of the client, on its way to an agent; `request` is None for a notification.

    `is_cancelled` is set once the client no longer waits for the answer. With `joins` the session's
    agent is not served here, so the session's owner names it.
    """

    def __init__(self, method: str, params: bytes, request: Request | None = None) -> None:
        self.method = method
        self.params = params
        self.request = request
        self.is_cancelled = False
        self.joins = False
        if request is not None:
            request.on_cancel = self._forget

    def _forget(self) -> None:
        self.is_cancelled = True

    @property
    def reads_only(self) -> bool:
        """True if it opens a session only to read it; raises InvalidParamsError."""
        return self.method in OPENING and OpenParams.decode(self.params).meta.get(READS) == b"true"

    @property
    def is_asked(self) -> bool:
        """True if it has to be answered."""
        return self.request is not None

    def refuse(self, error: errors.AcpError) -> None:
        """Refuse it: it cannot be sent."""
        if self.request is not None:
            self.request.refuse(error)
        else:
            log.warning("ignored %s: %s", self.method, error)


class AgentLine:
    """The client at one agent's hub, over a line in memory.

    `reads` is the only session of a line for a session that the client only reads: such a line
    starts no agent; "" on any other. `attend` attends the client there.
    """

    def __init__(
        self, name: str, client: AllAgents, introduction: bytes, reads: str, attend: AttendHere
    ) -> None:
        self.name = name
        self.reads = reads
        self.is_over = False
        self._client = client
        self._attend = attend
        self._attending: asyncio.Task[None] | None = None
        room = client.limit + bounds.ADDED_BYTES
        self.far = FarLine(
            client.client, self._dial, name, room, None, introduction=introduction, seconds=None
        )
        self._running = asyncio.create_task(self._run(), name=f"line to {name}")

    async def _dial(self) -> Transport:
        if self._attending is not None:
            raise errors.StoppedError  # the hub of this process has left the client
        ours, theirs = memory_pair()
        self._attending = asyncio.create_task(self._attend(theirs), name=f"attend at {self.name}")
        return ours

    async def _run(self) -> None:
        try:
            await self.far.run()
        except errors.AcpError as exc:
            log.info("the line to %s has ended: %s", self.name, exc)
        finally:
            self.is_over = True
            self._client.close_if_unneeded(self)

    def send(self, forwarded: Forwarded) -> None:
        """Send it after earlier messages, once the client is introduced."""
        request = forwarded.request
        if request is None:
            try:
                self.far.tell(forwarded.method, forwarded.params)
            except errors.AcpError as exc:
                forwarded.refuse(exc)
        elif not forwarded.is_cancelled:
            request.params = forwarded.params
            self.far.ask(
                request,
                partial(self._client.close_if_unneeded, self),
                adapt=partial(self._for_client, forwarded),
            )

    def _for_client(self, forwarded: Forwarded, answer: Answer) -> Answer:
        """Return the hub's answer with the facts about the agent that the client needs, and note
        the session that it opens."""
        if isinstance(answer, errors.RemoteError) and answer.code == errors.AUTH_REQUIRED:
            return self._with_sign_in(answer)
        if not isinstance(answer, bytes):
            return answer
        if forwarded.method not in OPENING:
            return answer
        named = answer if forwarded.method in MAKING else forwarded.params
        self._client.on_opened(session_id_in(named), self)
        if forwarded.joins and in_meta(answer, capabilities.INTRODUCTION) is not None:
            return answer  # the session's owner has named its agent
        answer = with_meta(answer, AGENT, schema.encode(self.name))
        return with_meta(answer, capabilities.INTRODUCTION, self.far.introduced)

    def _with_sign_in(self, refusal: errors.RemoteError) -> errors.RemoteError:
        """Return the refusal with the agent's ways to sign in, from its answer to `initialize`,
        which the client has not seen."""
        data = members(refusal.raw).get("data", b"null") if refusal.raw else b"null"
        if data == b"null":
            data = b"{}"
        elif not data.startswith(b"{"):
            return refusal  # it has no room for them
        methods = members(self.far.introduced).get("authMethods", b"[]")
        data = splice(data, {AGENT: schema.encode(self.name), "authMethods": methods})
        error = {"code": refusal.code, "message": refusal.message}
        raw = splice(refusal.raw or schema.encode(error), {"data": data})
        return errors.RemoteError(refusal.code, refusal.message, raw)

    async def aclose(self) -> None:
        """Leave the hub; it answers or ends open requests."""
        self.far.close()
        await end(self._running)
        if self._attending is None:
            return
        await asyncio.wait([self._attending])
        if not self._attending.cancelled() and (error := self._attending.exception()) is not None:
            log.error("the line to %s failed", self.name, exc_info=error)
