"""The list of the sessions of an `acphold serve` as it changes, over losses of the connection.

Source: `web.list_feed`. Who comes back says behind which event, and is told what was missed, or all
of the list again.
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
"""Without a word the connection is lost: a server that has nothing to say says so every 15."""

LARGEST: Final = 16 << 20
"""Bytes of an event: a snapshot has some hundred sessions."""

OnAway = Callable[[ConnectionLostError | None], object]
"""Hears why the connection is away, and None when it is back."""


class FarNews(NamedTuple):
    """Sessions that are new or other than before, and the ids of those that are gone; with `is_all`
    the newest of them and all that are live, the newest first."""

    sessions: Sequence[FarSession]
    gone: Sequence[str] = ()
    is_all: bool = False


async def followed_list(server: ServerPages, on_away: OnAway) -> AsyncGenerator[FarNews, None]:
    """The list, then each change of it; goes on until it is closed.

    Raises RemoteRefusalError, and ConnectionLostError where it was not there in the beginning.
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
        # Who is let in and cut off again and again is in no haste.
        pause = FIRST_PAUSE if now() - tried > LONGEST_PAUSE else pause
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, LONGEST_PAUSE)


def _news(server: ServerPages, event: httpx2.ServerSentEvent) -> FarNews | None:
    """What an event says; None for one newer than this release."""
    if event.event == "snapshot":
        return FarNews(server.listed(event.data), is_all=True)
    if event.event != "change":
        return None
    changed = server.changed(event.data)
    if isinstance(changed, str):
        return FarNews((), (changed,))
    return None if changed is None else FarNews((changed,))
