"""Our connection to one agent: opened, introduced, read in order, reopened after a loss, ended.

| state | | becomes |
|---|---|---|
| CLOSED | nothing was started, or all was ended | OPEN |
| OPEN | the agent has answered `initialize` | LOST, CLOSED |
| LOST | it has gone; `loss` says how | OPEN with the next request, if it can be reached again |
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from acp_wire import schema
from acp_wire.rpc import MAX_MESSAGE, CutNotification, NotificationReceived, Peer, Transport
from acp_wire.rpc.requests import Answer, PendingCall, Request
from acp_wire.schema.splice import json_value, session_id_in
from acp_wire.tasks import end, finish
from acphold import errors
from acphold.client import bounds
from acphold.client.advertised import Advertised
from acphold.client.answers import AskingSession, Duties
from acphold.client.inbox import Backpressure
from acphold.conversation.history.children import child_entry, child_of_update
from acphold.conversation.history.entries import CHILD
from acphold.conversation.history.raw_update import BEGUN, update_kind
from acphold.live.agents.capabilities import (
    QUEUE,
    QUEUE_METHOD,
    answer_from_afar,
    introduction_for_afar,
)
from acphold.live.agents.client_methods import FAR, Knows, Place, knows_none, may_ask, may_tell
from acphold.live.agents.extensions import STEERING, is_injected, steering_params
from acphold.live.agents.interface import Updates, runs, session_of, update_of
from acphold.live.agents.wrapped import START_TIMEOUT, parse_initialize, printed
from acphold.live.hub.annotations import missing_update, user_message

if TYPE_CHECKING:
    from acp_wire.schema import Method
    from acp_wire.schema.initialize import AuthMethod

P = TypeVar("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


class UplinkState(enum.Enum):
    """See the module."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    LOST = enum.auto()


class Hearing(AskingSession, Protocol):
    """A session, as the connection knows it."""

    def hear(self, kind: str, raws: Sequence[bytes]) -> None:
        """Handle updates, as `agents.interface` sorts them, or `child` entries for those of its
        sub-agents; called in the inbound lane."""

    def hear_queue(self, report: bytes) -> None:
        """Handle the state of its queue of prompts: an answer, or the params of a notification."""

    def end(self, error: errors.AcpError | None) -> None:
        """End it: the agent has gone for good, or without an error has closed the session."""

    async def reopen(self, *, anew: bool) -> None:
        """Open the session again: the agent is back.

        With `anew` its replay is the whole conversation; otherwise we may have received more than
        it kept.
        """


class Endpoint(Protocol):
    """The far end of a connection."""

    name: str
    """Its name in messages."""

    cwd: str | None = None
    """The default folder of its sessions; known once it was opened."""

    place: Place = "process"
    """Where it is; known once it was opened."""

    is_acphold: bool
    """True if acphold answers there, for an agent: its errors need no further words."""

    is_repeatable: bool
    """True if it can be opened again once it is lost."""

    async def open(self) -> Transport:
        """Reach it; raises AgentStartError, or another reason why it cannot be reached."""

    async def follow(self, peer: Peer, pump: asyncio.Task[None]) -> None:
        """Return when it has gone; `pump` is the task of `peer`, which reads from it."""
        await asyncio.wait([pump])

    async def how_it_ended(self) -> errors.AcpError:
        """Return the reason why it has gone."""

    async def aclose(self) -> None:
        """End it, if it is ours to end; may be called again."""


class UplinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a connection; see `acphold.connect`. Times in seconds."""

    client_info: schema.Implementation
    capabilities: schema.ClientCapabilities
    on_update: Callable[[str, bytes], object] | None = None
    on_notification: Callable[[str, Any], object] | None = None
    reconnect: bool = False
    start_timeout: float = START_TIMEOUT
    silence: float = bounds.SILENCE_SECONDS
    turn_silence: float | None = None
    cancel_grace: float = bounds.CANCEL_GRACE_SECONDS
    limit: int = MAX_MESSAGE
    knows: Knows = knows_none


class Uplink:
    """See the module. `hello` is the agent's answer to `initialize`, `loss` the reason of its
    loss; `sessions` are the open ones, by id."""

    def __init__(self, endpoint: Endpoint, duties: Duties, settings: UplinkSettings) -> None:
        self.hello: schema.InitializeResponse
        self.flow: Backpressure = Backpressure()
        self.loss: errors.AcpError | None = None
        self.state: UplinkState = UplinkState.CLOSED
        self.duties = duties
        self.settings = settings
        self.sessions: dict[str, Hearing] = {}
        self._endpoint = endpoint
        self._peer: Peer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        self._children: dict[str, str] = {}  # the session of each sub-agent, by their ids
        self._early: list[Updates] = []
        self._making = 0
        self._answering = 0
        self._signs = 0

    @property
    def name(self) -> str:
        """The agent's name in messages."""
        return self._endpoint.name

    @property
    def advertised(self) -> Advertised:
        """The agent as it introduced itself."""
        return Advertised(self.hello, self.name)

    @property
    def reports_begin(self) -> bool:
        """True if PROMPT_BEGUN reports when the turns of our prompts begin: there may be other
        clients."""
        return self._has(BEGUN)

    @property
    def keeps_queue(self) -> bool:
        """True if an acphold at the other end keeps the queued prompts of a session."""
        return self._has(QUEUE)

    def _has(self, extension: str) -> bool:
        return (self.hello.agent_capabilities.meta or {}).get(extension) is True

    # -- starting and ending --------------------------------------------------------------

    async def start(self) -> None:
        """Reach the agent and introduce ourselves; raises AgentStartError."""
        is_first = self.is_closed
        transport = await self._endpoint.open()
        if self.is_closed and not is_first:  # the program has left while we reached it again
            await finish(self._end_peer)
            raise await self.loss_error()
        peer = self._peer = Peer(
            transport,
            self,
            name="agent",
            limit=self.settings.limit,
            is_agent=True,
            on_cut=self._on_cut,
        )
        pump = asyncio.create_task(peer.pump(), name="agent pump")

        async def follow() -> None:
            """Wait for the agent to go, and note its loss."""
            await self._endpoint.follow(peer, pump)
            if self.state is not UplinkState.OPEN:
                return
            self.loss, self.state = await self.loss_error(), UplinkState.LOST
            if not self.can_restart:
                for session in list(self.sessions.values()):
                    session.end(self.loss)

        self._tasks = [pump, asyncio.create_task(follow(), name="agent end")]
        try:
            self.hello = await self._introduce(peer)
        except BaseException:
            await finish(self._end_peer)
            raise
        self.loss = None
        for session in list(self.sessions.values()):
            await session.reopen(anew=self._endpoint.is_acphold)
        self.state = UplinkState.OPEN

    async def aclose(self) -> None:
        """End the connection, all work for the agent here, and the agent; may be called again."""
        await finish(self._close)

    async def _close(self) -> None:
        self.state = UplinkState.CLOSED
        self.loss = self.loss or errors.ConnectionLostError(
            f"the connection to {self.name} was closed"
        )
        for session in list(self.sessions.values()):
            session.end(self.loss)
        await self._end_peer()
        await self.duties.aclose()

    async def _end_peer(self) -> None:
        """End the connection and the agent."""
        peer = self._peer
        await end(*self._tasks)
        await self._endpoint.aclose()
        if peer is not None:
            await peer.aclose()
        if self._peer is peer:
            self._tasks, self._peer = [], None

    async def _introduce(self, peer: Peer) -> schema.InitializeResponse:
        can = self.settings.capabilities
        is_far = self._endpoint.place in FAR
        request = schema.InitializeRequest(
            protocol_version=schema.PROTOCOL_VERSION,
            # With our requests to an acphold at the other end; other agents ignore them.
            client_capabilities=msgspec.structs.replace(
                can, meta={**(can.meta or {}), BEGUN: True, QUEUE: True}
            ),
            client_info=self.settings.client_info,
        )
        try:
            raw = schema.encode(request)
            params = introduction_for_afar(raw) if is_far else raw
            seconds = self.settings.start_timeout
            answer = await peer.call_raw(schema.INITIALIZE.name, params, seconds=seconds)
            answer = answer_from_afar(answer) if is_far else answer
            return parse_initialize(self.name, answer)
        except errors.SilentPeerError:
            problem = (
                f"{self.name} did not answer `initialize` within {self.settings.start_timeout:g} "
                f"s{printed(peer)}; is it an ACP agent?"
            )
        except errors.ConnectionLostError:
            reason = await self._endpoint.how_it_ended()
            problem = f"{self.name} ended before it answered `initialize`: {reason}{printed(peer)}"
        except errors.RemoteError as refusal:
            problem = str(refusal)
            if not self._endpoint.is_acphold:
                problem = f"{self.name} refused `initialize`: {problem}"
            elif (error := errors.as_raised(refusal)) is not refusal:
                raise error from None
        raise errors.AgentStartError(problem)

    @property
    def is_open(self) -> bool:
        """True if the agent is there and has all sessions open."""
        return self.state is UplinkState.OPEN and self._peer is not None and not self._peer.is_lost

    @property
    def is_closed(self) -> bool:
        """True before the start, and after the end."""
        return self.state is UplinkState.CLOSED

    @property
    def can_restart(self) -> bool:
        """True if a lost agent is started again."""
        return self.settings.reconnect and self._endpoint.is_repeatable

    async def ready(self) -> None:
        """Return when the agent is there; restart it if it went. Raises the reason of its loss."""
        peer = self._peer
        if self.is_open:
            return
        if not self.can_restart or self.is_closed:
            raise await self.loss_error()
        async with self._starting:
            if self._peer is peer and not self.is_closed:
                await finish(self._end_peer)
                await self.start()

    async def require_acphold(self, what: str) -> None:
        """Return when the agent is there; CapabilityError if it is not behind an acphold."""
        await self.ready()
        if not self.keeps_queue:
            raise errors.CapabilityError(
                f"{self.name} cannot {what}: that takes an acphold in front of it, as by "
                "`acphold wrap` or with durable=True"
            )

    async def loss_error(self) -> errors.AcpError:
        """Return the reason why there is no agent any more."""
        if self.loss is None:
            error = await self._endpoint.how_it_ended()
            self.loss = self.loss or error
        return self.loss

    # -- asking ---------------------------------------------------------------------------

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Send any request, typed; RemoteError if it is refused."""
        raw = await self.ask_raw(method.name, schema.encode(params))
        return schema.decode(method.result, raw).value

    async def ask_raw(
        self,
        method: str,
        params: bytes,
        *,
        on_result: Callable[[bytes], object] = bool,
        again: bool = True,
    ) -> bytes:
        """Send any request, JSON bytes in and out.

        `on_result` is called with the result in the inbound lane, before anything that came after
        it. With `again` false, an agent that went is not restarted.
        """
        if again:
            await self.ready()
        call = PendingCall(on_result)

        async def take(answer: Answer) -> None:
            call.take(await self.translate(answer, method))

        peer, silence = self._peer, self.settings.silence
        if method == schema.AUTHENTICATE.name:
            silence = max(silence, bounds.SIGN_IN_SECONDS)
        try:
            id_ = self.begin(method, params, take)
        except errors.ConnectionLostError:
            raise await self.loss_error() from None
        assert peer is not None
        try:
            with self.flow.awaited():
                return await call.answer(lambda: peer.withdraw(id_), silence, self.signs_of_life)
        except TimeoutError:
            raise errors.AgentTimeoutError(method, silence) from None

    def begin(
        self, method: str, params: bytes, on_answer: Callable[[Answer], Awaitable[None]]
    ) -> int:
        """Send a request now; `on_answer` is called in the inbound lane.

        Raises ConnectionLostError if the agent has gone; `loss_error` says more.
        """
        if self._peer is None:
            raise errors.ConnectionLostError(f"{self.name} has gone")
        return self._peer.begin(method, params, on_answer)

    def tell(self, method: str, params: bytes) -> None:
        """Send any notification; dropped if the agent has gone."""
        if self._peer is not None:
            self._peer.tell(method, params)

    async def translate(self, answer: Answer, method: str) -> bytes | errors.AcpError:
        """Return an answer with the exceptions of this library."""
        if isinstance(answer, errors.ConnectionLostError):
            return await self.loss_error()
        if isinstance(answer, errors.RemoteError):
            if self._endpoint.is_acphold and (error := errors.as_raised(answer)) is not answer:
                return error
            return error_for(answer, method, self.name, self.hello.auth_methods)
        return answer

    # -- messages of the agent ------------------------------------------------------------

    def adopt(self, session_id: str, session: Hearing) -> None:
        """Route this session's updates to it, and those that came before it was known."""
        self.sessions[session_id] = session
        early, self._early = self._early, []
        for updates in early:
            if updates.session_id == session_id:
                session.hear(updates.kind, updates.raws)
            elif self._making:
                self._early.append(updates)

    def drop(self, session_id: str, session: Hearing) -> None:
        """Forget a session that is no longer open."""
        if self.sessions.get(session_id) is session:
            del self.sessions[session_id]
            for child in [key for key, it in self._children.items() if it == session_id]:
                del self._children[child]

    @contextmanager
    def making(self) -> Iterator[None]:
        """Make a session during the block: its updates may come before its id is known."""
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1
            if not self._making:
                self._early.clear()

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        """Handle notifications; called by the Peer."""
        self._signs += 1
        place, knows = self._endpoint.place, self.settings.knows
        for event in runs([it for it in batch if may_tell(place, it.method, knows)]):
            if isinstance(event, Updates):
                self._hear(event)
                continue
            if event.method == QUEUE_METHOD:
                session = self.sessions.get(session_id_in(event.params) or "")
                if session is not None:
                    session.hear_queue(event.params)
            if self.settings.on_notification is not None:
                try:
                    self.settings.on_notification(
                        event.method, msgspec.json.decode(event.params or b"null")
                    )
                except Exception:  # the program's own error: later messages must still be handled
                    log.exception("on_notification failed for %s", event.method)
        await self.flow.room()

    async def steer(self, session_id: str, prompt: bytes) -> bool:
        """Send content blocks into the running turn; return False if the agent has not accepted
        them.

        The agent sends no updates for them to their sender: they are added here, at the position of
        the agent's answer.
        """

        def add_updates(answer: bytes) -> None:
            if is_injected(answer):
                self._hear(Updates(session_id, "update", list(user_message(STEERING, prompt))))

        params = steering_params(session_id, prompt)
        answer = await self.ask_raw(STEERING, params, on_result=add_updates, again=False)
        return is_injected(answer)

    def _on_cut(self, cut: CutNotification) -> None:
        """Put a notice in place of an update that is over the limit."""
        if (session_id := session_of(cut)) is not None:
            self._hear(Updates(session_id, "update", [missing_update(cut.problem)]))

    def _hear(self, event: Updates) -> None:
        if (on_update := self.settings.on_update) is not None:
            for raw in event.raws:
                try:
                    on_update(event.session_id, update_of(event.kind, raw))
                except Exception:  # the program's own error, as for notifications
                    log.exception("on_update failed")
        if (session := self.sessions.get(event.session_id)) is not None:
            self._note_children(event.session_id, event)
            session.hear(event.kind, event.raws)
            return
        parent = self._children.get(event.session_id, "")
        if (session := self.sessions.get(parent)) is not None:
            self._note_children(parent, event)
            updates = [update_of(event.kind, raw) for raw in event.raws]
            session.hear(CHILD, [child_entry(event.session_id, update) for update in updates])
            return
        early_bytes = sum(len(raw) for early in self._early for raw in early.raws)
        if self._making and early_bytes < bounds.EARLY_BYTES:
            self._early.append(event)
        else:
            log.debug("updates of a session that is not open here: %s", event.session_id)

    def _note_children(self, session_id: str, event: Updates) -> None:
        """Note sub-agents announced in this session, or in a sub-agent of it: they belong to it."""
        for raw in event.raws:
            if b'"subagent_' in raw and len(self._children) < bounds.SUBAGENTS:
                update = update_of(event.kind, raw)
                if child := child_of_update(update_kind(update), update):
                    self._children.setdefault(child, session_id)

    async def on_request(self, request: Request) -> bytes:
        """Answer a request; called by the Peer. A sub-agent's request counts as its session's."""
        self._signs += 1
        if not may_ask(self._endpoint.place, request.method, self.settings.knows):
            raise errors.MethodNotFoundError(request.method)
        session_id = session_id_in(request.params) or ""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions.get(self._children.get(session_id, ""))
        self._answering += 1
        try:
            return await self.duties.answer(request.method, request.params, session)
        finally:
            self._answering -= 1

    def signs_of_life(self) -> int:
        """Return a new number, unless the agent is silent and does not wait for us: for an answer,
        or until we read more."""
        self._signs += bool(self._answering) or self.flow.is_stopped
        return self._signs


class _AgentEnd(msgspec.Struct):
    """The data of acphold's error for an agent that has ended."""

    status: str
    stderr: str


class _EndError(msgspec.Struct):
    data: _AgentEnd


def error_for(
    refusal: errors.RemoteError, method: str, agent: str, sign_ins: Sequence[AuthMethod]
) -> errors.AcpError:
    """Return the error to raise for `agent`'s error to `method`; often itself.

    AuthRequiredError for its code (spec v1, authentication), unless the method was `authenticate`;
    AgentExitedError if acphold stands in front of an agent that has ended.
    """
    error: errors.AcpError = refusal
    # If `authenticate` itself was refused, signing in has just failed.
    if refusal.code == errors.AUTH_REQUIRED and method != schema.AUTHENTICATE.name:
        offered = ", ".join(repr(sign_in.id) for sign_in in sign_ins)
        how = f"; it offers: {offered}" if offered else ""
        error = errors.AuthRequiredError(f"{agent} wants you to sign in: {refusal}{how}")
    elif (ended := json_value(refusal.raw, _EndError)) is not None:
        error = errors.AgentExitedError(refusal.message, ended.data.status, ended.data.stderr)
    if error is not refusal:
        error.__cause__ = refusal
    return error
