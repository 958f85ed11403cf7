"""That something is other in the sessions of this process: a turn, a question, a session that left.

It wakes whoever shows what goes on, in whichever thread that is, and says no more: what goes on is
asked of this process as of any other (`server.neighbours`). However often something stirs, who is
awake already costs it a look at a flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Stirrings:
    """See the module; called when something stirs."""

    def __init__(self) -> None:
        self._heard: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def __call__(self) -> None:
        for event, loop in tuple(self._heard.items()):
            if not event.is_set():
                with suppress(RuntimeError):  # its loop has ended this moment
                    loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """For the block, an event of this loop that is set when something stirs; whoever waits for
        it clears it before looking."""
        event = asyncio.Event()
        self._heard[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._heard[event]
