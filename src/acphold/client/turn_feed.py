"""One turn under way: its prompt is sent, its updates are collected, its end is noted.

| stage | | becomes |
|---|---|---|
| WAITING | the agent has gone, and is restarted before the prompt is sent | QUEUED, OVER |
| QUEUED | sent to acphold, where turns of others may run before | RUNNING, CANCELLING, OVER |
| RUNNING | the agent works on it | CANCELLING, OVER |
| CANCELLING | it was told to stop, and its further updates are taken | OVER |
| OVER | answered, or given up | |
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING

import msgspec

from acphold.client.inbox import Inbox
from acphold.errors import (
    AcpholdError,
    AgentTimeoutError,
    ConnectionLostError,
    InvalidParamsError,
)
from acphold.history.raw_update import members, string, update_kind
from acphold.history.timeline import end_entry
from acphold.rpc.pending_call import LOOKS
from acphold.schema import PROMPT, decode_update
from acphold.schema.updates import UnknownUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acphold.client.live_state import LiveState
    from acphold.client.uplink import Uplink
    from acphold.history.timeline import Item
    from acphold.rpc.pending_call import Answer
    from acphold.schema import Update


class FeedStage(enum.Enum):
    """See the module."""

    WAITING = enum.auto()
    QUEUED = enum.auto()
    RUNNING = enum.auto()
    CANCELLING = enum.auto()
    OVER = enum.auto()


class TurnFeed:
    """See the module.

    `holds_agent` is true from the prompt until its answer: also if the turn was given up before,
    for the agent would lose a second prompt. `cancel` cancels what runs in the session.
    """

    def __init__(
        self,
        uplink: Uplink,
        live: Callable[[], LiveState],
        session_id: str,
        prompt: bytes,
        cancel: Callable[[], None],
    ) -> None:
        self.inbox: Inbox = Inbox(uplink.flow)
        self.stage: FeedStage = FeedStage.WAITING
        self.holds_agent: bool = False
        self.stop_reason: str | None = None
        self.error: AcpholdError | None = None
        self._uplink = uplink
        self._live = live
        self._state: LiveState | None = None  # once it has begun
        self._session_id = session_id
        self._prompt = prompt
        self._cancel_all = cancel
        self._first = 0
        self._behind: int | None = None
        self._overdue: AcpholdError | None = None  # why we cancelled it, if we did
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_over(self) -> bool:
        """True if it has ended; there may be updates that were not taken yet."""
        return self.stage is FeedStage.OVER

    @property
    def is_free(self) -> bool:
        """True if another prompt may follow."""
        return self.is_over and not self.holds_agent

    @property
    def items(self) -> tuple[Item, ...]:
        """Its part of the session's timeline."""
        return () if self._state is None else self._state.items(self._first, self._behind)

    # -- sending --------------------------------------------------------------------------

    def send(self) -> None:
        """Send the prompt; raises ConnectionLostError if there is no agent now."""
        if not self._uplink.is_open:
            raise ConnectionLostError(f"{self._uplink.name} has gone")
        session = msgspec.json.encode(self._session_id)
        params = b'{"sessionId":%b,"prompt":%b}' % (session, self._prompt)
        self._uplink.begin(PROMPT.name, params, self._answered)
        self.stage, self.holds_agent = FeedStage.QUEUED, True
        if (silence := self._uplink.settings.turn_silence) is not None:
            self._listen(silence, 0, self._uplink.signs_of_life())
        if not self._uplink.tells_begun:
            self.begun()

    @property
    def has_begun(self) -> bool:
        """True once incoming updates are its own."""
        return self._state is not None

    def begun(self) -> None:
        """Begin it: incoming updates are its own from now on."""
        self._state = self._live()
        self._first = self._state.prompted(self._prompt)
        if self.stage is FeedStage.QUEUED:
            self.stage = FeedStage.RUNNING

    async def sent(self) -> None:
        """Return once the prompt was sent, restarting the agent if need be."""
        if self.stage is not FeedStage.WAITING:
            return
        try:
            await self._uplink.ready()
            if self.stage is FeedStage.WAITING:  # not cancelled meanwhile
                self.send()
        except ConnectionLostError:
            self._end(None, await self._uplink.lost_error())
        except AcpholdError as error:
            self._end(None, error)

    # -- what becomes of it ---------------------------------------------------------------

    def put(self, raws: Sequence[bytes]) -> None:
        """Take its updates; called in the inbound lane."""
        self.inbox.put(raws)

    def stop(self) -> None:
        """Cancel it if it is not over: nobody waits for it any more."""
        if not self.is_over:
            self._cancel_all()

    def limit(self, seconds: float) -> None:
        """Cancel it if it takes longer than this; its error is AgentTimeoutError then."""
        self._later("limit", seconds, self._give_up, AgentTimeoutError(PROMPT.name, seconds))

    def _listen(self, silence: float, looks: int, before: int) -> None:
        """Cancel it if the agent is silent for so long, checked in steps: see `PendingCall`."""
        now = self._uplink.signs_of_life()
        looks = 0 if now != before else looks + 1
        if looks > LOOKS:
            self._give_up(AgentTimeoutError(PROMPT.name, silence))
        else:
            self._later("silence", silence / LOOKS, self._listen, silence, looks, now)

    def _give_up(self, error: AcpholdError) -> None:
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

    def lost(self, error: AcpholdError) -> None:
        """End it: the agent has gone, and nothing more will come."""
        self.holds_agent = False
        self._end(None, error)

    def closed(self) -> None:
        """End it as cancelled: the session was closed."""
        self.holds_agent = False
        self._end("cancelled", None)

    async def _answered(self, answer: Answer) -> None:
        self.holds_agent = False
        told = await self._uplink.told(answer, PROMPT.name)
        if isinstance(told, AcpholdError):
            self._end(None, told)
        else:
            # Not decoded strictly: a reason newer than this release ends a turn, too.
            self._end(string(members(told).get("stopReason")) or "end_turn", None)

    def _end(self, stop_reason: str | None, error: AcpholdError | None) -> None:
        if self.is_over:
            return
        for timer in self._timers.values():
            timer.cancel()
        error = error or self._overdue
        if self._state is not None:
            # As in a journal.
            answer = error or msgspec.json.encode({"stopReason": stop_reason})
            self._behind = self._state.turn_ended(end_entry(answer))
        self.stage, self.stop_reason, self.error = FeedStage.OVER, stop_reason, error
        self.inbox.end()


def typed(raw: bytes) -> Update:
    """Return an update by its type; one that breaks the schema is returned as it came."""
    try:
        return decode_update(raw).value
    except InvalidParamsError:
        return UnknownUpdate(update_kind(raw), raw)
