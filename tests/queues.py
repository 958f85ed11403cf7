"""The queue of a session, as a client is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

QUEUE = "_acphold/queue"


def told_queues(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """The states of the queue in the notifications that a client got."""
    return [it["params"]["queue"] for it in messages if it.get("method") == QUEUE]
