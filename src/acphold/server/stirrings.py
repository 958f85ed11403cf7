"""A signal that something changed in this process: a turn, a question, a session that left.

It wakes whoever shows the activity, in any thread, and says no more: the state is requested from
this process as from any other (`reading.neighbours`). If the listener is awake already, a change
costs one look at a flag.
"""

# See docs/decisions.md, 22.

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Stirrings:
    """See the module; called when something changes."""

    def __init__(self) -> None:
        self._heard: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def __call__(self) -> None:
        for event, loop in tuple(self._heard.items()):
            if not event.is_set():
                with suppress(RuntimeError):  # its loop has ended this moment
                    loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """Yield an event of this loop that is set when something changes; clear it before
        looking."""
        event = asyncio.Event()
        self._heard[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._heard[event]
