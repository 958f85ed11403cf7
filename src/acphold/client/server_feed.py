"""The list of the sessions of an `acphold serve` and its changes, over losses of the connection.

Source: `web.list_feed`. On reconnecting it names the last event, and gets what was missed, or the
whole list again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, NamedTuple

import httpx2

from acphold.client.far_line import FIRST_PAUSE, LONGEST_PAUSE
from acphold.client.server_pages import FarSession, ServerPages
from acphold.errors import ConnectionLostError

SILENCE_SECONDS: Final = 40.0
"""Seconds without data after which the connection is lost: an idle server sends something every
15."""

LARGEST: Final = 16 << 20
"""Most bytes of an event: a snapshot has some hundred sessions."""

OnAway = Callable[[ConnectionLostError | None], object]
"""Called with the error when the connection is lost, and with None when it is back."""


class FarNews(NamedTuple):
    """New or changed sessions, and the ids of removed ones; with `is_all` the newest sessions and
    all live ones, newest first."""

    sessions: Sequence[FarSession]
    gone: Sequence[str] = ()
    is_all: bool = False


async def followed_list(server: ServerPages, on_away: OnAway) -> AsyncGenerator[FarNews, None]:
    """Yield the list, then each change of it; goes on until it is closed.

    Raises RemoteRefusalError, and ConnectionLostError if the first connection fails.
    """
    now = asyncio.get_running_loop().time
    position, pause, is_away, has_begun = "", FIRST_PAUSE, False, False
    while True:
        tried = now()
        try:
            async with server.events("/sessions/feed", position, SILENCE_SECONDS, LARGEST) as found:
                if is_away:
                    on_away(None)
                is_away = False
                async for event in found:
                    position = event.id or position
                    if (news := _news(server, event)) is not None:
                        has_begun = True
                        yield news
            raise ConnectionLostError(f"the connection to {server.origin} is lost")
        except ConnectionLostError as exc:
            if not has_begun:
                raise
            if not is_away:
                on_away(exc)
            is_away = True
        # Slow down if we are let in and cut off again and again.
        pause = FIRST_PAUSE if now() - tried > LONGEST_PAUSE else pause
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, LONGEST_PAUSE)


def _news(server: ServerPages, event: httpx2.ServerSentEvent) -> FarNews | None:
    """Return the content of an event; None for one newer than this release."""
    if event.event == "snapshot":
        return FarNews(server.listed(event.data), is_all=True)
    if event.event != "change":
        return None
    changed = server.changed(event.data)
    if isinstance(changed, str):
        return FarNews((), (changed,))
    return None if changed is None else FarNews((changed,))
