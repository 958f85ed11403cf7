"""A turn as its client sees it: the prompt is sent, updates are folded, the end is noted.

The journal's fold does it. The client adds its own prompts, the ends of its turns, its own
settings, and tool calls that it counts as cancelled because it has cancelled their turn.

| stage | | becomes |
|---|---|---|
| WAITING | the agent still works on a cancelled turn, or has gone and is restarted | QUEUED, OVER |
| QUEUED | sent to acphold, where turns of others may run before | RUNNING, CANCELLING, OVER |
| RUNNING | the agent works on it | CANCELLING, OVER |
| CANCELLING | it was told to stop, and its further updates are taken | OVER |
| OVER | answered, or given up | |
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self, overload

import msgspec

from acp_wire.rpc.requests import Answer
from acp_wire.schema import PROMPT, UnknownUpdate, Update, decode_update
from acp_wire.tasks import finish, timeout
from acphold import errors
from acphold.client import bounds
from acphold.client.inbox import Inbox
from acphold.conversation.history.entries import (
    CHILD,
    PARAMS,
    PROMPT as PROMPT_ENTRY,
    SETTINGS,
    TURN_END,
    UPDATE,
    Entry,
)
from acphold.conversation.history.fold import Fold, SessionState
from acphold.conversation.history.raw_update import (
    Role,
    encode_object,
    encode_text,
    members,
    string,
    update_kind,
)
from acphold.conversation.history.replay import TURN_MARK, as_entry, turn_end_in
from acphold.conversation.history.timeline import (
    Item,
    Message,
    ToolCall,
    TurnEnd,
    end_entry,
    shorten,
)
from acphold.live.hub.annotations import repeats

if TYPE_CHECKING:
    from acphold.client.uplink import Uplink


CANCELLED = "cancelled"
"""The status of a tool call whose turn was cancelled, until the agent reports another one.

Source: spec v1, prompt turn, "Cancellation". The schema has no such status: it is never sent.
"""


class LiveState:
    """Folds updates as they come; `value` is the state at any time."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._value: SessionState | None = None
        # Below zero: message ids are made from the numbers of prompts, and those of a journal,
        # which a replay may bring, are above.
        self._numbers = count(-1, -1)
        self._prompt = b""

    @property
    def value(self) -> SessionState:
        """The state now."""
        if self._value is None:
            state = self._fold.state()
            cancelled = {
                item.tool_call_id
                for item in state.timeline
                if isinstance(item, ToolCall) and item.status == CANCELLED
            }
            still_open = tuple(tool for tool in state.open_tools if tool not in cancelled)
            turn = state.turn
            if turn == "interrupted" and not isinstance(state.timeline[-1], TurnEnd):
                turn = "idle"  # others have prompted since
            self._value = msgspec.structs.replace(state, open_tools=still_open, turn=turn)
        return self._value

    def hear(self, kind: str, raws: Sequence[bytes]) -> None:
        """Fold updates, or params with more in them than that, as `agents.interface` sorts them, or
        `child` entries."""
        self._value = None
        entry = {"update": UPDATE, CHILD: CHILD}.get(kind, PARAMS)
        add = self._fold.add
        for raw in raws:
            if (
                self._prompt
                and b"user_message_chunk" in raw
                and update_kind(raw) == "user_message_chunk"
                and repeats(raw, self._prompt)
            ):
                continue  # some agents send the prompt back: it is on the timeline already
            if TURN_MARK.encode() in raw and (end := turn_end_in(raw)) is not None:
                self._add(TURN_END, as_entry(end))
                continue
            add(Entry(0, entry, 0, raw))

    def begin_turn(self, prompt: bytes) -> int:
        """Begin a turn with these content blocks; return its place on the timeline."""
        place = len(self._fold)
        self._prompt = prompt
        self._add(PROMPT_ENTRY, prompt)
        return place

    def end_turn(self, end: bytes) -> int:
        """End the turn; `end` as in a `turn_end` entry. Return the place after it."""
        self._prompt = b""
        self._add(TURN_END, end)
        return len(self._fold)

    def take_settings(self, answer: bytes) -> None:
        """Take the agent's answer to new, load or resume: the initial modes and options."""
        self._add(SETTINGS, answer)

    def set_mode(self, mode_id: str) -> None:
        """Note that the agent accepted this mode from us; not every agent also reports it."""
        kind = b'"current_mode_update"'
        said = encode_object({"sessionUpdate": kind, "currentModeId": encode_text(mode_id)})
        self._add(UPDATE, said)

    def cancel_tools(self) -> None:
        """Mark the tool calls of the running turn that are not finished."""
        for tool in self.value.open_tools:
            said = {"toolCallId": encode_text(tool), "status": encode_text(CANCELLED)}
            self._add(UPDATE, encode_object({"sessionUpdate": b'"tool_call_update"', **said}))

    def tool(self, tool_call_id: str) -> ToolCall | None:
        """Return a tool call as it stands."""
        for item in reversed(self.value.timeline):
            if isinstance(item, ToolCall) and item.tool_call_id == tool_call_id:
                return item
        return None

    def items(self, first: int, behind: int | None) -> tuple[Item, ...]:
        """Return the part of the timeline between two places; to its end if the second is None."""
        return self.value.timeline[first:behind]

    def _add(self, kind: str, raw: bytes) -> None:
        self._value = None
        self._fold.add(Entry(next(self._numbers), kind, int(time.time() * 1000), raw))


class FeedStage(enum.Enum):
    """See the module."""

    WAITING = enum.auto()
    QUEUED = enum.auto()
    RUNNING = enum.auto()
    CANCELLING = enum.auto()
    OVER = enum.auto()


class PromptedSession(Protocol):
    """The session of a turn. `live` is another state once a restarted agent has opened it anew."""

    id: str
    live: LiveState

    def cancel(self) -> None:
        """Cancel what runs."""

    def send_next(self) -> None:
        """Send the turn that waits, if any: the agent has answered the one before."""


class TurnFeed:
    """See the module.

    `holds_agent` is true from the prompt until its answer: also if the turn was given up before,
    for the agent would lose a second prompt. A prompt that follows a cancelled turn is sent after
    that, which is the one `before`.
    """

    def __init__(
        self,
        uplink: Uplink,
        session: PromptedSession,
        prompt: bytes,
        before: TurnFeed | None = None,
    ) -> None:
        self.inbox: Inbox = Inbox(uplink.flow)
        self.free: asyncio.Event = asyncio.Event()  # set once another prompt may follow
        self.stage: FeedStage = FeedStage.WAITING
        self.holds_agent: bool = False
        self.stop_reason: str | None = None
        self._uplink = uplink
        self._session = session
        self._state: LiveState | None = None  # once it has begun
        self._prompt = prompt
        self._before = before
        self._first = 0
        self._behind: int | None = None
        self._overdue: Exception | None = None  # why we cancelled it, if we did
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_over(self) -> bool:
        """True if it has ended; there may be updates that were not taken yet."""
        return self.stage is FeedStage.OVER

    @property
    def is_free(self) -> bool:
        """True if another prompt may be sent."""
        return self.is_over and not self.holds_agent

    @property
    def follows(self) -> bool:
        """True while the agent works on the turn before."""
        return self._before is not None and not self._before.is_free

    @property
    def is_cancelled(self) -> bool:
        """True if the agent was told to stop, or has ended it."""
        return self.stage in (FeedStage.CANCELLING, FeedStage.OVER)

    @property
    def items(self) -> tuple[Item, ...]:
        """Its part of the session's timeline."""
        return () if self._state is None else self._state.items(self._first, self._behind)

    # -- sending --------------------------------------------------------------------------

    def send(self) -> None:
        """Send the prompt; raises ConnectionLostError if there is no agent now."""
        if not self._uplink.is_open:
            raise errors.ConnectionLostError(f"{self._uplink.name} has gone")
        session_id = msgspec.json.encode(self._session.id)
        params = b'{"sessionId":%b,"prompt":%b}' % (session_id, self._prompt)
        self._uplink.begin(PROMPT.name, params, self._take_answer)
        self.stage, self.holds_agent = FeedStage.QUEUED, True
        if (silence := self._uplink.settings.turn_silence) is not None:
            self._listen(silence, 0, self._uplink.signs_of_life())
        if not self._uplink.reports_begin:
            self.begin()

    @property
    def has_begun(self) -> bool:
        """True once incoming updates are its own."""
        return self._state is not None

    def begin(self) -> None:
        """Begin it: incoming updates are its own from now on."""
        self._state = self._session.live
        self._first = self._state.begin_turn(self._prompt)
        if self.stage is FeedStage.QUEUED:
            self.stage = FeedStage.RUNNING

    async def wait_until_sent(self) -> None:
        """Return once the prompt was sent, restarting the agent if need be."""
        if self.stage is not FeedStage.WAITING:
            return
        try:
            if self._before is not None:
                await self._before.wait_until_free()
            await self._uplink.ready()
            if self.stage is FeedStage.WAITING:  # not cancelled meanwhile
                self.send()
        except errors.ConnectionLostError:
            self._end(None, await self._uplink.loss_error())
        except errors.AcpError as error:
            self._end(None, error)

    async def wait_until_free(self) -> None:
        """Return once another prompt may be sent; AgentBusyError if the agent stays silent."""
        with suppress(TimeoutError):
            async with timeout(self._uplink.settings.silence):
                await self.free.wait()
        if not self.is_free:
            raise errors.AgentBusyError(
                f"a turn of session {self._session.id!r} was cancelled, but {self._uplink.name} "
                "has not ended it"
            )

    # -- what becomes of it ---------------------------------------------------------------

    def stop(self) -> None:
        """Cancel it if it is not over: nobody waits for it any more."""
        if not self.is_over:
            self._session.cancel()

    def limit(self, seconds: float) -> None:
        """Cancel it if it takes longer than this; its error is AgentTimeoutError then."""
        self._later("limit", seconds, self.give_up, errors.AgentTimeoutError(PROMPT.name, seconds))

    def _listen(self, silence: float, looks: int, before: int) -> None:
        """Cancel it if the agent is silent for so long, checked in steps: see `PendingCall`."""
        now = self._uplink.signs_of_life()
        looks = 0 if now != before else looks + 1
        if looks > bounds.SILENCE_CHECKS:
            self.give_up(errors.AgentTimeoutError(PROMPT.name, silence))
        else:
            step = silence / bounds.SILENCE_CHECKS
            self._later("silence", step, self._listen, silence, looks, now)

    def give_up(self, error: Exception) -> None:
        """Cancel it; this error is raised at its end."""
        self._overdue = self._overdue or error
        self.stop()

    def _later(self, what: str, seconds: float, do: Callable[..., None], *args: object) -> None:
        self._timers[what] = asyncio.get_running_loop().call_later(seconds, do, *args)

    def cancel(self, grace: float) -> None:
        """Give the agent, which was told to stop, `grace` seconds to answer."""
        if self.stage is FeedStage.WAITING:
            self._end("cancelled", None)
        elif self.stage in (FeedStage.QUEUED, FeedStage.RUNNING):
            self.stage = FeedStage.CANCELLING
            self._later("grace", grace, self._end, "cancelled", None)

    def abandon(self, error: errors.AcpError | None) -> None:
        """End it: nothing more will come. The agent has gone, or without an error the session was
        closed, which cancels it."""
        self.holds_agent = False
        self._end("cancelled" if error is None else None, error)
        self._note_free()

    async def _take_answer(self, answer: Answer) -> None:
        self.holds_agent = False
        self._note_free()
        told = await self._uplink.translate(answer, PROMPT.name)
        if isinstance(told, errors.AcpError):
            self._end(None, told)
        else:
            # Not decoded strictly: a reason newer than this release ends a turn, too.
            self._end(string(members(told).get("stopReason")) or "end_turn", None)

    def _end(self, stop_reason: str | None, error: Exception | None) -> None:
        if self.is_over:
            return
        for timer in self._timers.values():
            timer.cancel()
        error = error or self._overdue
        if self._state is not None:
            # As in a journal.
            answer: bytes | errors.AcpError
            answer = msgspec.json.encode({"stopReason": stop_reason})
            if isinstance(error, errors.AcpError):
                answer = error
            self._behind = self._state.end_turn(end_entry(answer))
        self.stage, self.stop_reason = FeedStage.OVER, stop_reason
        self.inbox.end(error)
        self._note_free()

    def _note_free(self) -> None:
        if self.is_free and not self.free.is_set():
            self.free.set()
            self._session.send_next()


def as_update(raw: bytes) -> Update:
    """Return an update by its type; one that breaks the schema is returned as it came."""
    try:
        return decode_update(raw).value
    except errors.InvalidParamsError:
        return UnknownUpdate(update_kind(raw), raw)


def said_by(role: Role, items: Iterable[Item]) -> str:
    """Return all words of the agent in this role."""
    said = [item for item in items if isinstance(item, Message)]
    return "".join(message.text for message in said if message.role == role)


async def _next(inbox: Inbox) -> Update:
    """Return the next update for an iterator; at the end, raises what ends that."""
    if (raw := await inbox.take()) is None:
        raise StopAsyncIteration
    return as_update(raw)


class RemoteTurn:
    """One turn. Iterate over it for its updates:

        async for update in session.prompt("hello"):
            ...

    or await it, which skips the updates and returns the turn. Either way raises what ended the
    turn: RemoteError, AuthRequiredError, AgentExitedError, ConnectionLostError, AgentTimeoutError,
    or an exception of `on_permission`, `on_form` or `on_page`.

    If the awaiting task is cancelled, the turn is, too: when the `await` is left, the agent has
    ended it, or has had its time to. When a megabyte is unread, the agent has to wait, unless this
    program waits for something else from it.
    """

    def __init__(self, feed: TurnFeed) -> None:
        self._feed = feed

    def __repr__(self) -> str:
        how = self.stop_reason or ("failed" if self.is_over else "running")
        return f"<RemoteTurn {how}: {shorten(self.text)!r}>"

    @property
    def stop_reason(self) -> str | None:
        """`end_turn`, `max_tokens`, `max_turn_requests`, `refusal` or `cancelled`, or a newer one.

        None until the agent has answered, and if it answered with an error.
        """
        return self._feed.stop_reason

    @property
    def has_begun(self) -> bool:
        """True once the agent works on it; others' turns may run before."""
        return self._feed.has_begun

    @property
    def is_over(self) -> bool:
        """True if it has ended; there may be unread updates."""
        return self._feed.is_over

    @property
    def items(self) -> tuple[Item, ...]:
        """Its part of the timeline so far."""
        return self._feed.items

    @property
    def text(self) -> str:
        """The agent's words in it so far."""
        return said_by("agent", self.items)

    @property
    def thoughts(self) -> str:
        """The agent's thoughts in it so far."""
        return said_by("thought", self.items)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls so far."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        if self._feed.stage is FeedStage.WAITING:
            await self._feed.wait_until_sent()
        return await _next(self._feed.inbox)

    async def _take_all(self) -> list[bytes]:
        await self._feed.wait_until_sent()
        return await self._feed.inbox.take_all()

    def __await__(self) -> Generator[object, None, Self]:
        return self._over().__await__()

    async def _over(self) -> Self:
        try:
            while await self._take_all():
                pass
        except asyncio.CancelledError:
            # Its end is limited in time: wait for it, so that the program knows how far it came.
            self._feed.stop()
            await finish(self._rest)
            raise
        return self

    async def _rest(self) -> None:
        with suppress(errors.AcpError):
            while await self._take_all():
                pass


class UpdateStream:
    """Each update of a session as it comes, until it is closed; raises the agent's error if that
    has gone.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def __aiter__(self) -> UpdateStream:
        return self

    async def __anext__(self) -> Update:
        return await _next(self._inbox)

    async def _take_all(self) -> list[bytes]:
        return await self._inbox.take_all()

    def end(self, error: errors.AcpError | None = None) -> None:
        """End it; unread updates can still be read."""
        self._inbox.end(error)


async def take_all(updates: RemoteTurn | UpdateStream) -> list[bytes]:
    """Return the updates that are there, at least one, as JSON; [] at the end. Raises as their
    iterator does."""
    return await updates._take_all()


class Replay(Sequence["Update"]):
    """The updates that `session/load` replayed, in order; decoded when accessed."""

    def __init__(self, raws: Sequence[bytes] = ()) -> None:
        self._raws = list(raws)

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, place: int) -> Update: ...
    @overload
    def __getitem__(self, place: slice) -> Replay: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Replay(self._raws[place])
        return as_update(self._raws[place])

    def __iter__(self) -> Iterator[Update]:
        return map(as_update, self._raws)
