"""A turn that ended at the vendor's usage limit: what waits is held, or goes on at the reset.

With `when_limited` as "wait", a prompt that asks the agent to go on is put in front of what waits,
and the queue is held until some minutes after the reset, if the agent told it. A person can change
all of that like any queue. Nothing is answered for them, and no model is changed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from acphold.agents import HubAgent
from acphold.history.prompt_queue import (
    BY_PERSON,
    DAY_MS,
    GOING_ON,
    LIMITED,
    PromptQueue,
    QueueChange,
)
from acphold.hub.session import HubSession
from acphold.rpc.pending_call import Answer
from acphold.schema import encode

if TYPE_CHECKING:
    from acphold.agents.vendor_limits import Limit

MOST_A_DAY = 5
"""Times that a session goes on by itself within a day, if the limit comes again and again."""

LAST_ENTRIES = 500
"""Entries at the end of a turn in which an agent tells of the limit."""

EARLIEST_SECONDS = 60.0
LATEST_SECONDS = 300.0
"""Seconds after the reset, at random between these, so that not all clients come at once."""

GO_ON = "Go on with what the usage limit cut off."
"""The prompt for an agent without a command of its own for that."""


async def limit_reached(
    session: HubSession, agent: HubAgent, answer: Answer, began: int
) -> Limit | None:
    """Return the limit that ended the turn with this answer, which began behind entry `began`; None
    if it ended otherwise. Raises JournalError."""
    if isinstance(answer, bytes) and b"sessionFailure" not in answer:
        return None
    from acphold.agents.vendor_limits import limit_of  # late: few turns fail

    names = (agent.own_name, agent.key)
    if (limit := limit_of(names, answer, now=time.time())) is None:
        return None
    after = max(began, session.last_seq - LAST_ENTRIES)
    updates = [
        it.update
        async for segment in session.segments(after)
        for it in segment.entries()
        if it.update
    ]
    return limit_of(names, answer, updates, now=time.time()) or limit


def going_on(queue: PromptQueue, limit: Limit, *, guest: bool) -> list[bytes]:
    """Return the changes of the queue by which the session goes on by itself at the reset, with the
    turn of a `guest` or of its owner; none if it does not."""
    from acphold.agents.vendor_limits import VENDOR_LIMITS

    by_agent = VENDOR_LIMITS[limit.agent]
    now = int(time.time() * 1000)
    if limit.resets_at is None or by_agent.goes_on or not may_go_on(queue, now):
        return []
    if queue.held == BY_PERSON:
        return []  # nothing begins until they say so
    until = int(limit.resets_at * 1000) + some_minutes()
    held = encode(QueueChange("hold", why=LIMITED, until=until))
    return [*_prompt(queue, by_agent.continues_with or GO_ON, guest=guest), held]


def may_go_on(queue: PromptQueue, now: int) -> bool:
    """Return False if it has gone on by itself often enough within a day."""
    asked = [it.id for it in queue.ended if it.at > now - DAY_MS]
    if queue.begun is not None:
        asked.append(queue.begun.id)
    return sum(id_.startswith(GOING_ON) for id_ in asked) < MOST_A_DAY


def _prompt(queue: PromptQueue, words: str, *, guest: bool) -> list[bytes]:
    if any(it.id.startswith(GOING_ON) for it in queue.waiting):
        return []  # it waits for this limit already
    prompt = msgspec.Raw(encode([{"type": "text", "text": words}]))
    before = queue.waiting[0].id if queue.waiting else ""
    id_ = f"{GOING_ON}{uuid4().hex[:8]}"
    add = QueueChange("add", id_, prompt, before=before, guest=guest)
    return [encode(msgspec.structs.replace(add, client=msgspec.Raw(b'{"name":"acphold"}')))]


def some_minutes() -> int:
    """Return milliseconds at random between the two."""
    import random  # late: it takes long, and few turns end at a limit

    return int(random.uniform(EARLIEST_SECONDS, LATEST_SECONDS) * 1000)
