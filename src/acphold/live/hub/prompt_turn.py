"""One turn of a session, from the arrival of its prompt to its end.

stage      what it means                          next
---------  -------------------------------------  ------------------------------------------
QUEUED     waits behind another turn              STARTING when it is first
STARTING   first; the agent is made ready for it  RUNNING when it is sent, OVER if that fails
RUNNING    the agent has the prompt               OVER with the agent's answer
CANCELLED  the person cancelled it                OVER with the agent's answer, or after its
                                                  grace; if it was not sent, when it is first
OVER       its end is journalled, or cannot be    -
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from itertools import count
from time import monotonic

from msgspec import Struct, field

from acp_wire.rpc.requests import Answer
from acp_wire.schema import PROMPT, encode
from acphold.conversation.history.entries import AUTHOR, SENT
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.routes import AgentTurn

Reply = Callable[[Answer], None]
"""Answers the prompt; called once, when its client has been sent every update of the turn."""


CANCELLED = b'{"stopReason":"cancelled"}'
ENDED = b'{"stopReason":"end_turn"}'
"""Answers that acphold itself gives to a prompt."""


class PromptCall(Struct, eq=False):
    """The prompt of a turn on its way to the agent, an `AgentCall`; `turn` is the turn's number."""

    params: bytes
    take: Callable[[Answer], Awaitable[None]]
    turn: int
    method: str = PROMPT.name


class TurnStage(Enum):
    """The stages of a turn: see the module."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELLED = "cancelled"
    OVER = "over"


_CANCELLED, _OVER = TurnStage.CANCELLED, TurnStage.OVER  # Python 3.11 takes 0.1 µs to find a member


class PromptTurn(Struct, eq=False):
    """One prompt from its arrival to its end; `prompt` is the member of `params`, and `sent_id` the
    client's own id for it, if it gave one.

    `began` is the last entry before it. `at_agent` is None until the prompt is sent, and
    then set when the agent ends the turn: if it ignores a cancellation, after the client was
    answered. `starting` is the timeout on making the agent ready, which a cancellation ends;
    `is_started` is set when its beginning is complete. Its end runs under `ending`, for several
    callers may try to end it. `number` is its name in the log, and `arrived` (`monotonic`) the time
    of its prompt. Without an `author` it comes out of the queue (`hub.waiting_prompts`). `speakers`
    are the clients that have said something in it, also those that have left since; `usage`
    is the last `usage_update` before it.
    """

    params: bytes
    prompt: bytes
    author: Attachment | None
    reply: Reply
    sent_id: str = ""
    number: int = field(default_factory=count(1).__next__)
    arrived: float = field(default_factory=monotonic)
    speakers: set[Client] = set()
    stage: TurnStage = TurnStage.QUEUED
    is_recorded: bool = False
    began: int = 0
    at_agent: AgentTurn | None = None
    starting: asyncio.Timeout | None = None
    is_started: bool = False
    usage: bytes | None = None
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _over: asyncio.Event | None = None

    def __post_init__(self) -> None:
        if self.author is not None:
            self.speakers.add(self.author.client)

    @property
    def is_cancelled(self) -> bool:
        return self.stage is _CANCELLED

    @property
    def is_over(self) -> bool:
        return self.stage is _OVER

    @property
    def may_come_again(self) -> bool:
        """True if its client, or the queue, may send it again: by its position or id."""
        author = self.author
        if author is None:  # its client is no longer waiting for it
            return True
        return author.positions and (not author.client.offer.for_events or bool(self.sent_id))

    @property
    def client(self) -> Client | None:
        """The client that waits for its answer; None if nobody does."""
        return None if self.author is None else self.author.client

    @property
    def is_by_program(self) -> bool:
        """True if its client is a program that nobody sits at."""
        return self.author is not None and self.author.client.offer.is_automatic

    def is_by_owner(self, tenant: str) -> bool:
        """Return False if a guest in the sessions of this tenant has said anything in it."""
        return all(client.owns(tenant) for client in self.speakers)

    def may_begin(self) -> bool:
        """Return False if something has happened since that it must not begin over."""
        return True

    def preface(self) -> list[tuple[str, bytes]]:
        """Return the entries that are committed right before the prompt: their kinds and raws."""
        entries = [(SENT, encode({"id": self.sent_id}))] if self.sent_id else []
        if self.author is not None and (info := self.author.client.info):
            entries.append((AUTHOR, info))
        return entries

    @property
    def is_at_agent(self) -> bool:
        return self.at_agent is not None and not self.at_agent.is_set()

    def conclude(self) -> None:
        """End it, for everybody but perhaps the agent."""
        self.stage = TurnStage.OVER
        if self.at_agent is not None:
            self.at_agent.is_awaited = False
        self.start_no_more()
        if self._over is not None:
            self._over.set()

    def start_no_more(self) -> None:
        """Stop waiting for the agent to be made ready for it."""
        if self.starting is not None and not self.starting.expired():
            self.starting.reschedule(asyncio.get_running_loop().time())

    async def over(self) -> None:
        """Wait until it is over."""
        if not self.is_over:
            self._over = self._over or asyncio.Event()  # rarely needed
            await self._over.wait()
