"""What answers prompts, as the hub sees it: it is sent calls, and it reports events.

Session ids on this seam are the agent's own; only `hub.agent_session` knows both ids. Everything an
agent says comes to one listener, in the order of the wire: an answer is an event like an update, so
that nothing the agent said before it can come late, and nothing it said after it can come early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from acphold.errors import AgentTimeoutError
from acphold.rpc.pending_call import Answer, PendingCall
from acphold.schema import AgentCapabilities

ANSWER_SECONDS = 60.0
"""What an agent has to answer a request of ours, unless said otherwise: opening a session may make
it load a long history, or start MCP servers."""


class Updates(Struct, frozen=True, gc=False):
    """Updates of one session that came in a row.

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
    """An update that was not taken, and why: it was over a limit."""

    session_id: str
    problem: str


class Answered(Struct, frozen=True, gc=False):
    """The answer to a call: its result, RemoteError, or AgentExitedError."""

    call: Call
    answer: Answer


class Asked(Struct, frozen=True, gc=False):
    """A request of the agent to a client; `child` is the id of the sub-agent that asks, if any."""

    method: str
    params: bytes
    child: str = ""


Event = Updates | Unheard | Notified | Answered


class Call(Protocol):
    """A request on its way to the agent."""

    method: str
    params: bytes

    def take(self, answer: Answer, /) -> Awaitable[None]:
        """Take the answer. No later event of the agent is heard before that is done."""


class Listener(Protocol):
    """Who hears what an agent reports."""

    async def hear(self, event: Event) -> None:
        """Called in the order of the wire; the agent's next event waits until it returns."""

    async def answer(self, asked: Asked) -> bytes:
        """The result of what the agent asks of a client, JSON bytes; begun in wire order."""


class ListenerToMany(Listener, Protocol):
    """One that also hears at once what several sessions say."""

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        """Hear what several sessions say in one moment, in one transaction.

        For each of them whether it was heard. If not, it is to be heard by itself: there is more to
        do about it, or something to be waited for.
        """


class Agent(Protocol):
    """A coding agent, wherever it runs."""

    key: str
    """Which agent this is, across restarts: sessions are listed only under their own."""

    capabilities: AgentCapabilities
    """What it advertised; empty before `initialize`."""

    has_sign_in: bool
    """Whether it advertised a way to sign in, and may refuse a session to who has not."""

    can_fork: bool
    """Whether it advertised `session/fork` (unstable, RFD session fork)."""

    reads_journal: bool
    """Whether its memory of a session is our journal: then it lacks nothing that is in there."""

    takes_a_moment: bool
    """Whether `send` returns within a moment: what is sent then need not be safe before."""

    start: str | None
    """The mark of how it was started, see SessionRow; None where nobody will ask for it."""

    generation: int
    """How often it has been started. What a session was restored in is lost with the next."""

    @property
    def alive(self) -> bool:
        """Whether it runs and has been initialized."""

    async def initialize(self, params: bytes) -> bytes:
        """Start it and introduce the client; the `initialize` result as it came, JSON bytes.

        Raises AgentStartError when it cannot be started or does not answer, RemoteError when it
        refuses.
        """

    async def ensure(self) -> None:
        """Start it again if it has ended; raises as `initialize`."""

    async def restart(self) -> None:
        """End it, whatever it does, and start it again; raises as `initialize`."""

    def send(self, call: Call) -> None:
        """Send a request; its answer is reported as `Answered`, once, perhaps before this returns.

        Raises AgentExitedError when the agent does not run, AgentBusyError when it does not read.
        """

    def withdraw(self, call: Call) -> None:
        """Nobody waits for the answer any more: `$/cancel_request`; `Answered` does not come."""

    def call_of(self, number: int) -> Call | None:
        """The request that the agent knows by this id, while it has not answered it."""

    async def tell(self, method: str, params: bytes) -> None:
        """Send a notification; dropped when the agent does not run."""

    async def aclose(self) -> None:
        """End it and all it has started, within seconds."""


class Exchange:
    """A call whose answer is handled before anything is heard that the agent said behind it.

        async with Exchange(agent, "session/new", params) as answer:
            ...  # the agent's next event waits for the end of this block

    So the block must not wait for the agent itself. Raises as `Agent.send`, the error that was
    answered, and AgentTimeoutError after `seconds` without an answer (None: whoever waits has a
    bound of their own). A block that is cancelled withdraws the request.
    """

    def __init__(
        self, agent: Agent, method: str, params: bytes, seconds: float | None = ANSWER_SECONDS
    ) -> None:
        self.method = method
        self.params = params
        self._agent = agent
        self._seconds = seconds
        self._call = PendingCall()
        self._handled = asyncio.Event()

    async def take(self, answer: Answer) -> None:
        if self._call.is_awaited:
            self._call.take(answer)
            await self._handled.wait()

    async def __aenter__(self) -> bytes:
        self._agent.send(self)
        try:
            return await self._call.answer(lambda: self._agent.withdraw(self), self._seconds)
        except TimeoutError:
            self._handled.set()
            raise AgentTimeoutError(self.method, self._seconds or 0) from None
        except BaseException:
            self._handled.set()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handled.set()


async def ask(
    agent: Agent, method: str, params: bytes, seconds: float | None = ANSWER_SECONDS
) -> bytes:
    """The agent's answer to a request, where nothing depends on what it says behind it."""
    async with Exchange(agent, method, params, seconds) as answer:
        return answer
