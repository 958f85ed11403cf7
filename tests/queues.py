"""The queue of a session, as a client is told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import convert

from acp_wire.schema import encode
from acphold.client.session_feed import QueueReport
from acphold.record.history.prompt_queue import NO_QUEUE, PromptQueue, apply_delta

QUEUE = "_acphold/queue"


def told_queues(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """The states of the queue after each notification in the messages that a client got."""
    told, queue = [], NO_QUEUE
    for message in messages:
        answer = message.get("result")
        if isinstance(answer, dict) and "queue" in answer:
            queue = convert(answer["queue"], PromptQueue)
        elif message.get("method") == QUEUE:
            news = convert(message["params"], QueueReport)
            queue = news.queue or queue
            if news.delta is not None:
                queue = apply_delta(queue, news.delta)
            told.append(json.loads(encode(queue)))
    return told
