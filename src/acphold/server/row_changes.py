"""Telling the owner of a session that somebody has changed its row.

The owner notices by itself within seconds; told so, it tells its clients at once. Every process
that serves sessions takes our own method `_acphold/changed` on its socket, also before
`initialize`, which would start an agent.
"""

from __future__ import annotations

import asyncio

from acphold.errors import AcpholdError, MethodNotFoundError
from acphold.hub.owners import reachable_at
from acphold.journal import Journal
from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.request import Request
from acphold.schema import encode
from acphold.transports.unix import connect

CHANGED = "_acphold/changed"

ANSWER_SECONDS = 2.0
"""What an owner has to answer: who is stopped, or busy, finds out by itself."""


async def tell_owner(journal: Journal, session_id: str) -> bool:
    """Tell the process that has a session live, if there is one; whether it has been told."""
    holder = await journal.holder(session_id)
    path = "" if holder.is_released else reachable_at(holder.owner)
    return bool(path) and await tell_process(path, session_id)


async def tell_process(path: str, session_id: str) -> bool:
    """Tell the process at the socket `path`; whether it has been told."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            peer = Peer(await connect(path, ANSWER_SECONDS), _Nobody(), name="owner")
            async with connected(peer):
                await peer.call_raw(CHANGED, encode({"sessionId": session_id}))
    except (AcpholdError, TimeoutError):
        return False  # gone, stopped, or of another release
    return True


class _Nobody:
    """We only tell."""

    async def on_request(self, request: Request) -> bytes:
        raise MethodNotFoundError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None
