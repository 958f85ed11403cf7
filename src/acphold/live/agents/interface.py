"""Agents, as the hub sees them: they are sent calls, and report events in runs.

Session ids on this interface are the agent's own; only `hub.routes` and `hub.agent_session` know
both. Everything an agent says is handled in wire order, each message before the next: its events go
to one listener, an answer to the call it belongs to. So earlier messages cannot come late, nor
later ones early.

A run is committed as a whole. So an agent that streams many small pieces costs one commit for each
read of its pipe, and not one for each piece.
"""

# See docs/decisions.md, 3.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

import msgspec
from msgspec import Raw, Struct, field

from acp_wire.rpc import CutNotification, NotificationReceived
from acp_wire.rpc.requests import Answer, PendingCall
from acp_wire.schema import (
    UPDATE,
    AgentCapabilities,
    splice,
)
from acp_wire.schema.splice import json_value, session_id_in
from acp_wire.surroundings import Surroundings
from acphold.conversation.history.raw_update import (
    may_have_marks,
    members,
    message_without_marks,
    params_without_marks,
    without_marks,
)
from acphold.errors import AgentExitedError, AgentStartError, AgentTimeoutError
from acphold.live.agents.capabilities import answer_without_agent
from acphold.live.agents.client_methods import client_row, may_tell
from acphold.live.agents.terms import Terms

log = logging.getLogger(__name__)

EXCERPT = 200
"""Bytes of a dropped notification that are logged."""

ANSWER_SECONDS = 60.0
"""Seconds an agent has to answer a request of ours by default: opening a session may make it load a
long history, or start MCP servers."""


class Updates(Struct, frozen=True, gc=False):
    """Consecutive updates of one session.

    `kind` is "update" (each raw is an update object) or "params" (each raw is the whole params
    object, because it carries more than the session id and the update). `are_last` says that the
    answer to the session's prompt is the next event.
    """

    session_id: str
    kind: str
    raws: Sequence[bytes]
    are_last: bool = False


class Notified(Struct, frozen=True, gc=False):
    """Any other notification: an extension's, or one newer than this release."""

    method: str
    params: bytes


class Unheard(Struct, frozen=True, gc=False):
    """An update that was rejected because it was over a limit, and the reason."""

    session_id: str
    problem: str


class AgentRequest(Struct, frozen=True, gc=False):
    """A request of the agent to a client; `child` is the id of the sub-agent that asks, if any."""

    method: str
    params: bytes
    child: str = ""

    @property
    def is_decision(self) -> bool:
        """True if a person has to decide this: every attached client may answer."""
        return client_row(self.method).by == "person"


Event = Updates | Unheard | Notified


class AgentCall(Protocol):
    """A request on its way to the agent."""

    method: str
    params: bytes

    def take(self, answer: Answer, /) -> Awaitable[None]:
        """Take the answer: the result, RemoteError, or AgentExitedError. No later event of the
        agent is heard before that is done."""


class AgentListener(Protocol):
    """Receives the events of an agent."""

    async def hear(self, event: Event) -> None:
        """Handle an event; called in wire order. The agent's next event waits until it returns."""

    async def answer(self, asked: AgentRequest) -> bytes:
        """Return the result of the agent's request to a client, JSON bytes; begun in wire order."""


class ListenerToMany(AgentListener, Protocol):
    """A listener that can also take updates of several sessions at once."""

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        """Handle simultaneous updates of several sessions in one transaction.

        Return for each whether it was handled. If not, pass it to `hear`: it needs more work, or
        has to wait.
        """


NO_AGENT = "no agent is started here: name the session that you want to join"

NOWHERE = Surroundings({}, "/")

NO_TERMS = Terms()


class HubAgent:
    """A coding agent, wherever it runs.

    By itself it is that of a desk where clients only join sessions that are live at others:
    requests are refused, and what needs no answer does nothing.
    """

    key: str = ""
    """The agent's identity, across restarts: sessions are listed only under their own."""

    known_as: str = ""
    """Its name in `known_agents`, by how it was started, never by its own word; "" if none."""

    shell: str = ""
    """The shell that its environment names (SHELL); "" if none."""

    own_name: str = ""
    """Its name for itself at `initialize`; "" before that, and if it gives none."""

    capabilities: AgentCapabilities = AgentCapabilities()
    """Its advertised capabilities; empty before `initialize`."""

    has_sign_in: bool = False
    """True if it advertised a way to sign in, and may refuse a session without that."""

    can_fork: bool = False
    """True if it advertised `session/fork` (unstable, RFD session fork)."""

    index_methods: frozenset[str] = frozenset()
    """The methods by which it changes and tells its own list, see `agents.air`."""

    reads_journal: bool = False
    """True if its memory of a session is our journal: then it knows everything in there."""

    takes_a_moment: bool = False
    """True if `send` returns within a moment: then a prompt need not be committed before it is
    sent."""

    start: str | None = None
    """The mark of how it was started, see SessionRow; None if it is not needed."""

    generation: int = 0
    """Number of its starts. A new start loses the sessions that it had open."""

    def __init__(self, surroundings: Surroundings = NOWHERE) -> None:
        self.surroundings = surroundings
        """Its environment, and the folder in which it was started."""
        self.newest_surroundings: Callable[[], Surroundings | None] = lambda: None
        """Returns those that it starts in next, but for the folder; None for those that it has."""
        self.is_attended: Callable[[], bool] = bool
        """Returns True while a client came for it, or has a session of it open."""

    @property
    def pid(self) -> int | None:
        """The number of its process while it runs, if it has one of its own."""
        return None

    @property
    def alive(self) -> bool:
        """True if it runs and has been initialized."""
        return False

    @property
    def terms(self) -> Terms:
        """The terms on which it works."""
        return NO_TERMS

    async def initialize(self, params: bytes) -> bytes:
        """Start it and introduce the client; return the `initialize` result as it came, JSON bytes.

        Raises AgentStartError if it cannot be started or does not answer, RemoteError if it
        refuses.
        """
        return answer_without_agent()

    async def ensure(self) -> None:
        """Start it again if it has ended; raises as `initialize`."""
        raise AgentStartError(NO_AGENT)

    async def restart(self) -> None:
        """End it, whatever it does, and start it again; raises as `initialize`."""

    async def stop(self) -> bool:
        """Stop all of its processes until `go_on`; False if it runs in ours, and cannot be."""
        return True

    async def go_on(self) -> None:
        """Have continue what `stop` has stopped."""

    def accept_terms(self, method: str, params: bytes) -> None:
        """Note that it has accepted a request that changes its terms; a new start repeats it."""

    def forget_sign_in(self) -> None:
        """Note that the person has signed in with its own program, outside of the protocol."""

    def send(self, call: AgentCall) -> None:
        """Send a request, which takes its answer once, perhaps before this returns.

        Raises AgentExitedError if the agent does not run, AgentBusyError if it does not read.
        """
        raise AgentExitedError(NO_AGENT, "", "")

    def withdraw(self, call: AgentCall) -> None:
        """Drop a request: send `$/cancel_request`; it takes no answer any more."""

    def call_of(self, number: int) -> AgentCall | None:
        """Return the request that the agent knows by this id, while it has not answered it."""
        return None

    async def tell(self, method: str, params: bytes) -> None:
        """Send a notification; dropped if the agent does not run."""

    async def aclose(self) -> None:
        """End it and everything it has started, within seconds."""


class AgentExchange(Struct, eq=False):
    """A call whose answer is handled before any later message of the agent.

        async with AgentExchange(agent, "session/new", params) as answer:
            ...  # the agent's next event waits for the end of this block

    So the block must not wait for the agent itself. Raises as `HubAgent.send`, the error that was
    answered, and AgentTimeoutError after `seconds` without an answer (None: the caller has a
    timeout of its own). A block that is cancelled withdraws the request.
    """

    _agent: HubAgent
    method: str
    params: bytes
    _seconds: float | None = ANSWER_SECONDS
    _call: PendingCall = field(default_factory=PendingCall)
    _handled: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, answer: Answer) -> None:
        if self._call.is_awaited:
            self._call.take(answer)
            await self._handled.wait()

    async def __aenter__(self) -> bytes:
        self._agent.send(self)
        try:
            return await self._call.answer(lambda: self._agent.withdraw(self), self._seconds)
        except BaseException as exc:
            self._handled.set()
            if isinstance(exc, TimeoutError):
                raise AgentTimeoutError(self.method, self._seconds or 0) from None
            raise

    async def __aexit__(self, *_: object) -> None:
        self._handled.set()


async def ask(
    agent: HubAgent, method: str, params: bytes, seconds: float | None = ANSWER_SECONDS
) -> bytes:
    """Return the agent's answer to a request, if the order with its later messages does not
    matter."""
    async with AgentExchange(agent, method, params, seconds) as answer:
        return answer


class _UpdateParams(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """The params of nearly every `session/update`: only these two members."""

    session_id: str
    update: Raw


_decode = msgspec.json.Decoder(_UpdateParams).decode
_PARAMS = attrgetter("params")


def runs(
    batch: Sequence[NotificationReceived], *, unmarked: bool = False
) -> Iterator[Updates | Notified]:
    """Yield the batch in order: runs of updates, and notifications of other kinds.

    A `session/update` without an update is left out: no client could read it either. With
    `unmarked`, marks that only acphold may set are removed, and notifications of its own.
    """
    session_id, kind, raws = "", "", list[bytes]()
    # One search in all of a read takes a fifth of the time.
    may_be_marked = unmarked and may_have_marks(b"\n".join(map(_PARAMS, batch)))
    for notification in batch:
        if notification.method != UPDATE.name:
            if raws:
                yield Updates(session_id, kind, raws)
            session_id, kind, raws = "", "", []
            method, params = notification.method, notification.params
            if unmarked and not may_tell("agent", method):
                log.warning("dropped %s: it is not for an agent to say", method)
                continue
            yield Notified(method, message_without_marks(params) if may_be_marked else params)
            continue
        try:
            plain = _decode(notification.params)
            its_session: str | None = plain.session_id
            its_kind, raw = "update", bytes(plain.update)
        except msgspec.MsgspecError:  # it has further members, or is no update
            its_session, its_kind, raw = session_id_in(notification.params), "params", b""
            if its_session is not None and update_of("params", notification.params)[:1] == b"{":
                raw = notification.params  # the update stays in them
        if its_session is None or raw[:1] != b"{":
            log.warning("no update: %r", notification.params[:EXCERPT])
            continue
        if may_be_marked:
            raw = without_marks(raw) if its_kind == "update" else params_without_marks(raw)
        if its_session == session_id and its_kind == kind:
            raws.append(raw)
            continue
        if raws:
            yield Updates(session_id, kind, raws)
        session_id, kind, raws = its_session, its_kind, [raw]
    if raws:
        yield Updates(session_id, kind, raws)


def update_of(kind: str, raw: bytes) -> bytes:
    """Return the update in an item of a run of this kind; b"" if none can be read."""
    return members(raw).get("update", b"") if kind == "params" else raw


def with_update(kind: str, raw: bytes, update: bytes) -> bytes:
    """Return an item of a run of this kind with this update in place of its own."""
    return splice(raw, {"update": update}) if kind == "params" else update


def session_of(cut: CutNotification) -> str | None:
    """Return the session of an update that was over a limit; None if it was no update."""
    if cut.method != UPDATE.name:
        return None
    return json_value(cut.params.get("sessionId"), str)
