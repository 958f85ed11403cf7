"""One turn of a session, from the arrival of its prompt to its end: its stages.

stage      what it means                          next
---------  -------------------------------------  ------------------------------------------
QUEUED     waits behind another turn              STARTING when it is first
STARTING   first; the agent is made ready for it  RUNNING when it is sent, OVER if that fails
RUNNING    the agent has the prompt               OVER with the agent's answer
CANCELLED  the person gave it up                  OVER with the agent's answer, or after its
                                                  grace; if it was not sent, when it is first
OVER       its end is journalled, or cannot be    -
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from itertools import count
from time import monotonic

from acphold.hub.attachment import Attachment
from acphold.hub.routes import AgentTurn
from acphold.rpc.pending_call import Answer

Reply = Callable[[Answer], None]
"""Answers the prompt; called once, when its client has been sent every update of the turn."""


class Stage(Enum):
    """See the module."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELLED = "cancelled"
    OVER = "over"


_CANCELLED, _OVER = Stage.CANCELLED, Stage.OVER  # Python 3.11 takes 0.1 µs to find a member


_numbers = count(1)


class Turn:
    """One prompt from its arrival to its end; `prompt` is the member of `params`, and `sent_id` the
    id by which its client knows it, where it told one.

    `began` is the last entry before it. `at_agent` is set once the agent has ended it, which for
    one that is deaf to a cancellation is after the end for everybody else; None before it is sent.
    `starting` is the bound on making the agent ready, which a cancellation ends; `is_started` is
    set when there is nothing left to do at its beginning. Who ends it holds `ending`, for others
    may come to do so meanwhile. `number` is what the log calls it, and `arrived` (`monotonic`)
    when its prompt did.
    """

    def __init__(
        self,
        params: bytes,
        prompt: bytes,
        author: Attachment,
        reply: Reply,
        sent_id: str = "",
    ) -> None:
        self.number = next(_numbers)
        self.arrived = monotonic()
        self.params = params
        self.prompt = prompt
        self.author = author
        self.reply = reply
        self.sent_id = sent_id
        self.stage = Stage.QUEUED
        self.is_recorded = False
        self.began = 0
        self.at_agent: AgentTurn | None = None
        self.starting: asyncio.Timeout | None = None
        self.is_started = False
        self.ending = asyncio.Lock()
        self._over: asyncio.Event | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.stage is _CANCELLED

    @property
    def is_over(self) -> bool:
        return self.stage is _OVER

    @property
    def may_come_again(self) -> bool:
        """Whether its client may send it again by what it was told of it."""
        author = self.author
        return author.positions and (not author.client.offer.for_events or bool(self.sent_id))

    @property
    def is_at_agent(self) -> bool:
        return self.at_agent is not None and not self.at_agent.is_set()

    def conclude(self) -> None:
        """It is over, for everybody but perhaps the agent."""
        self.stage = Stage.OVER
        if self.at_agent is not None:
            self.at_agent.is_awaited = False
        self.start_no_more()
        if self._over is not None:
            self._over.set()

    def start_no_more(self) -> None:
        """If the agent is being made ready for it, wait for that no longer."""
        if self.starting is not None and not self.starting.expired():
            self.starting.reschedule(asyncio.get_running_loop().time())

    async def over(self) -> None:
        """Wait until it is over."""
        if not self.is_over:
            self._over = self._over or asyncio.Event()  # few wait for that
            await self._over.wait()
