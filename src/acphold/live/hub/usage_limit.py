"""A turn that ended at the agent's usage limit: recognised, and continued after the reset.

With `when_limited` as "wait", a prompt that asks the agent to go on is put in front of what waits,
and the queue is held until some minutes after the reset, if the agent told it. A person can change
all of that like any queue. Nothing is answered for them, and no model is changed.
"""

from __future__ import annotations

import random
from uuid import uuid4

import msgspec

from acp_wire.rpc.requests import Answer
from acp_wire.schema import encode
from acphold.conversation.history import prompt_queue
from acphold.conversation.history.entries import QUEUE
from acphold.conversation.history.timeline import with_limit
from acphold.live.agents.interface import HubAgent
from acphold.live.agents.vendor_limits import Limit, limit_of
from acphold.live.hub import bounds
from acphold.live.hub.prompt_turn import PromptTurn
from acphold.live.hub.session import HubSession

GO_ON = "Go on with what the usage limit cut off."
"""The prompt by which an agent goes on."""


async def with_limit_reached(
    entry: bytes,
    turn: PromptTurn,
    answer: Answer,
    session: HubSession,
    agent: HubAgent,
    *,
    waits: bool,
) -> bytes:
    """Return the end of a turn with the usage limit that ended it, if one did; if the session
    `waits` for its reset, hold the changes of the queue by which it continues then. Raises
    JournalError."""
    names, now = (agent.own_name, agent.key), session.now_ms() / 1000
    if (limit := limit_of(names, answer, now=now)) is None:
        return entry
    after = max(turn.began, session.last_seq - bounds.LIMIT_ENTRIES)
    updates = [
        it.update
        async for segment in session.segments(after)
        for it in segment.entries()
        if it.update
    ]
    limit = limit_of(names, answer, updates, now=now) or limit
    if waits:
        guest = not turn.is_by_owner(session.tenant)
        for change in going_on(session.queue, limit, session.now_ms(), guest=guest):
            session.hold(QUEUE, [change])
    at = None if limit.resets_at is None else int(limit.resets_at * 1000)
    return with_limit(entry, limit.words, at)


def going_on(
    queue: prompt_queue.PromptQueue, limit: Limit, now: int, *, guest: bool
) -> list[bytes]:
    """Return the changes of the queue by which the session goes on by itself at the reset, with the
    turn of a `guest` or of its owner; none if it does not. It is `now`, in ms since the epoch."""
    if limit.resets_at is None:
        return []
    if queue.held in (prompt_queue.BY_PERSON, prompt_queue.ELSEWHERE):
        return []  # nothing begins until they say so
    since = now - prompt_queue.DAY_MS
    asked = [it.id for it in queue.ended if it.at_ms > since]
    if queue.begun is not None:
        asked.append(queue.begun.id)
    if sum(id_.startswith(prompt_queue.GOING_ON) for id_ in asked) >= bounds.CONTINUED_A_DAY:
        return []
    first, last = bounds.EARLIEST_AFTER_RESET_SECONDS, bounds.LATEST_AFTER_RESET_SECONDS
    until = int(limit.resets_at * 1000) + int(random.uniform(first, last) * 1000)
    held = encode(prompt_queue.QueueChange("hold", why=prompt_queue.LIMITED, until=until))
    if any(it.id.startswith(prompt_queue.GOING_ON) for it in queue.waiting):
        return [held]  # a prompt waits for this limit already
    add = prompt_queue.QueueChange(
        "add",
        f"{prompt_queue.GOING_ON}{uuid4().hex[:8]}",
        msgspec.Raw(encode([{"type": "text", "text": GO_ON}])),
        before=queue.waiting[0].id if queue.waiting else "",
        client=msgspec.Raw(b'{"name":"acphold"}'),
        guest=guest,
    )
    return [encode(add), held]
