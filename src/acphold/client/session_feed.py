"""The agent's updates for one session, handed to all their consumers.

Those are the state, the replay of a session that is being loaded, the turn, and the readers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from acp_wire import schema
from acphold.client import bounds
from acphold.client.advertised import Advertised
from acphold.client.inbox import Inbox
from acphold.client.remote_turn import FeedStage, LiveState, Replay, TurnFeed, UpdateStream
from acphold.client.uplink import Uplink
from acphold.conversation.history.entries import CHILD
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue
from acphold.conversation.history.raw_update import PROMPT_BEGUN, in_meta
from acphold.errors import AcpError, AgentBusyError, ConnectionLostError, InvalidParamsError
from acphold.live.agents.capabilities import INTRODUCTION
from acphold.live.agents.interface import update_of

if TYPE_CHECKING:
    from acphold.conversation.history.timeline import ToolCall

NO_LIMIT = 1 << 62


class QueueReport(Struct, frozen=True):
    """The queue of prompts as of entry `seq`. An answer also has the id of the changed prompt, or
    the content of the one that was read."""

    queue: PromptQueue = NO_QUEUE
    seq: int = 0
    id: str = ""
    prompt: tuple[schema.ContentBlock, ...] = ()


class SessionFeed:
    """See the module. `roots` are the session's folders, absolute, its `cwd` first. `introduction`
    is that of the session's own agent, if there are several behind one connection; `continued_by`
    names the one of them that continues a session of an agent that is not there."""

    def __init__(
        self,
        uplink: Uplink,
        session_id: str,
        roots: Sequence[str],
        reopen: Callable[[SessionFeed], Awaitable[None]],
    ) -> None:
        self.id = session_id
        self.roots: tuple[str, ...] = tuple(roots)
        self.live: LiveState = LiveState()
        self.replay: Replay = Replay()
        self.introduction: schema.InitializeResponse | None = None
        self.continued_by: str | None = None
        self.queue: PromptQueue = NO_QUEUE
        self._queue_seq = 0
        self._uplink = uplink
        self._reopen = reopen
        self._turn: TurnFeed | None = None
        self._next: TurnFeed | None = None  # waits until the agent has ended a cancelled one
        self._replaying: list[bytes] | None = None
        self._is_known = False
        # Weak: a reader that is gone must hold nobody up.
        self._readers: WeakKeyDictionary[UpdateStream, Inbox] = WeakKeyDictionary()
        self._unclaimed: Inbox | None = Inbox(uplink.flow, NO_LIMIT)
        self._is_over = False
        self._loss: AcpError | None = None

    @property
    def advertised(self) -> Advertised:
        """The session's agent as it introduced itself, or the one behind the connection."""
        known = self._uplink.advertised
        own = self.introduction
        return known if own is None else Advertised(own, known.name)

    # -- turns ----------------------------------------------------------------------------

    @property
    def turn(self) -> TurnFeed | None:
        """The turn that the agent works on; None if there is none."""
        return None if self._turn is None or self._turn.is_free else self._turn

    @property
    def is_cancelling(self) -> bool:
        """True while its cancelled turn is not over."""
        return self.turn is not None and self.turn.stage is FeedStage.CANCELLING

    @property
    def may_be_for_others(self) -> bool:
        """See `acphold.client.answers.AskingSession`."""
        return self._uplink.reports_begin and (self.turn is None or not self.turn.has_begun)

    def begin(self, prompt: bytes) -> TurnFeed:
        """Begin a turn with these content blocks; behind one that was cancelled, and has not ended.
        AgentBusyError while there is another."""
        before = self.turn
        waits = self._next is not None and not self._next.is_over
        if before is not None and (waits or not before.is_cancelled):
            state = "waits" if waits else "is running"
            raise AgentBusyError(f"a turn of session {self.id!r} {state}; await it, or cancel it")
        turn = TurnFeed(self._uplink, self, prompt, before)
        if before is None:
            self._turn = turn
        else:
            self._next = turn
        if self._is_over:
            turn.abandon(self._loss or ConnectionLostError(f"session {self.id!r} was closed"))
        return turn

    def give_up(self, error: Exception) -> bool:
        """Cancel its turn, which is to raise this error; see `AskingSession`."""
        turn = self.turn
        if turn is None or not turn.has_begun or turn.is_over:
            return False
        turn.give_up(error)
        return True

    def send_next(self) -> None:
        """Send the turn that waits, if any: the agent has answered the one before."""
        if self.turn is None and (waiting := self._next) is not None:
            self._next = None
            if not waiting.is_over:
                self._turn = waiting
                with suppress(ConnectionLostError):  # then waiting for the turn reports it
                    waiting.send()

    def cancel(self) -> None:
        """Cancel what runs; see `RemoteSession.cancel`."""
        self.live.cancel_tools()
        self._uplink.tell(
            schema.CANCEL.name, schema.encode(schema.CancelNotification(session_id=self.id))
        )
        for turn in filter(None, (self._next, self.turn)):
            turn.cancel(self._uplink.settings.cancel_grace)
        self._uplink.duties.cancel(self.id)

    # -- readers --------------------------------------------------------------------------

    def stream(self) -> UpdateStream:
        """Return a reader of all further updates; the first one also gets those since the
        opening."""
        inbox, self._unclaimed = self._unclaimed, None
        if inbox is None:
            inbox = Inbox(self._uplink.flow)
        inbox.limit = bounds.INBOX_BYTES
        stream = UpdateStream(inbox)
        self._readers[stream] = inbox
        if self._is_over:
            stream.end(self._loss)
        return stream

    # -- messages of the connection -------------------------------------------------------

    def hear(self, kind: str, raws: Sequence[bytes]) -> None:
        """Handle updates; called in the inbound lane.

        Updates of sub-agents, as `child` entries, only change the state. A replay changes it only
        when the session is new here: otherwise the state has all of it, and may have more.
        """
        if kind == CHILD:
            if self._replaying is None or not self._is_known:
                self.live.hear(kind, raws)
            return
        plain = raws if kind == "update" else [update_of(kind, raw) for raw in raws]
        if self._replaying is not None:
            self._replaying += plain
            if not self._is_known:
                self.live.hear(kind, raws)
            return
        turn = self._turn
        if turn is not None and turn.holds_agent and not turn.has_begun and PROMPT_BEGUN in plain:
            index = plain.index(PROMPT_BEGUN)
            self._deliver(kind, raws[:index], plain[:index])
            turn.begin()
            raws, plain = raws[index + 1 :], plain[index + 1 :]
        self._deliver(kind, raws, plain)

    def hear_queue(self, report: bytes) -> None:
        """Handle the state of the queue of prompts; see `Hearing`."""
        told = schema.decode(QueueReport, report).value
        if told.seq >= self._queue_seq:  # over HTTP an answer and a notification may change places
            self.queue, self._queue_seq = told.queue, told.seq

    def _deliver(self, kind: str, raws: Sequence[bytes], plain: Sequence[bytes]) -> None:
        self.live.hear(kind, raws)
        if self._turn is not None and self._turn.has_begun:
            self._turn.inbox.put(plain)
        for inbox in self._readers.values():
            inbox.put(plain)
        if self._unclaimed is not None:
            self._unclaimed.put(plain)
            if self._unclaimed.held > bounds.UNCLAIMED_BYTES:
                self._unclaimed = None

    def replay_begins(self) -> None:
        """Take the following updates as the replay."""
        self._replaying = []

    def replay_ended(self, answer: bytes) -> None:
        """End the replay: the load was answered, and further updates are live."""
        self.replay, self._replaying = Replay(self._replaying or ()), None
        self.begin_live(answer)

    def begin_live(self, answer: bytes) -> None:
        """Note that the agent has the session open; `answer` has its modes and options."""
        self._is_known = True
        self.live.take_settings(answer)
        with suppress(InvalidParamsError):  # then the connection's introduction holds here
            if (raw := in_meta(answer, INTRODUCTION)) is not None:
                self.introduction = schema.decode(schema.InitializeResponse, raw).value

    def tool(self, tool_call_id: str) -> ToolCall | None:
        """Return a tool call as it stands."""
        return self.live.tool(tool_call_id)

    async def reopen(self, *, anew: bool) -> None:
        """Open the session again: the agent is back; see `Hearing`."""
        self._queue_seq = 0  # its journal may have lost what came after an earlier entry
        if anew:
            self.live, self._is_known = LiveState(), False
        await self._reopen(self)

    def end(self, error: AcpError | None) -> None:
        """End it: the agent has gone for good, or without an error has closed the session."""
        self._loss, self._is_over = error, True
        for turn in filter(None, (self._next, self._turn)):
            turn.abandon(error)
        for stream in list(self._readers):
            stream.end(error)
