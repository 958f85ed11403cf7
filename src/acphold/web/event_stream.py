"""A stream of events over HTTP: the answer to one GET, which a client may open again.

Source: HTML standard, server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from json.encoder import encode_basestring_ascii
from typing import Final

HEARTBEAT_SECONDS: Final = 15.0
"""Seconds between two heartbeats on a quiet stream."""

HEARTBEAT: Final = b": keepalive\n\n"

APART_SECONDS: Final = 0.05
"""Seconds that an answer waits behind a replay that was written."""

BARE_SECONDS: Final = 0.05
"""Seconds that a bare position waits for what follows.

Otherwise each prompt would wake its client twice.
"""

AtOnce = Callable[[bytes], bool] | None
"""Sends events in this step, without waking the reader, which would take longer.

Returns False if they would have to wait.
"""


class EventStream:
    """The answer to one GET, event by event; `size` is the bytes not written yet.

    `resized` is called with changes of the bytes that wait for a reader: none while the stream is
    closed, unless it `is_awaited` to be opened.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        resized: Callable[[int], object] = bool,
        *,
        is_awaited: bool = False,
    ) -> None:
        self._changed = changed
        self._resized = resized
        self.is_awaited = is_awaited
        self._counted = 0
        self._events: list[bytes] = []
        self._behind: list[bytes] = []
        self._apart: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._reader = 0
        self._waiting = 0
        self._at_once: AtOnce = None
        self._late: asyncio.TimerHandle | None = None
        self.size = 0

    @property
    def is_open(self) -> bool:
        """True while somebody reads it."""
        return self._reader > 0

    def add(self, event: bytes, *, may_wait: bool = False) -> None:
        """Send an event; one that `may_wait` is sent with what follows in a moment."""
        (self._events if self._apart is None else self._behind).append(event)
        self._resize(self.size + len(event))
        if self._apart is not None:
            return
        if not may_wait:
            self._say()
        elif self._late is None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(BARE_SECONDS, self._say_late)

    def add_apart(self, event: bytes) -> None:
        """Send this event and later ones a moment after the earlier ones.

        The Python SDK may process an answer before updates that came in the same read.
        """
        if self._apart is None:
            loop = asyncio.get_running_loop()
            self._apart = loop.call_later(APART_SECONDS, self._join)
        self.add(event)

    def _join(self) -> None:
        is_written = not self._events and self._waiting == self._reader
        if not is_written and (self.is_open or self.is_awaited):
            loop = asyncio.get_running_loop()
            self._apart = loop.call_later(APART_SECONDS, self._join)
            return
        self._apart = None
        self._events += self._behind
        self._behind = []
        self._say()

    def _say_late(self) -> None:
        self._late = None
        if self._events:
            self._say()

    def _say(self) -> None:
        is_awaited = self.is_open and self._waiting == self._reader
        if is_awaited and self._at_once is not None and self._at_once(b"".join(self._events)):
            self._events = []
            self._resize(sum(map(len, self._behind)))
        else:
            self._news.set()

    def _resize(self, size: int) -> None:
        """Report a new number of unwritten bytes, or that a reader came or went."""
        self.size = size
        counted = size if self.is_open or self.is_awaited else 0
        self._resized(counted - self._counted)
        self._counted = counted

    def open(self, at_once: AtOnce = None) -> AsyncIterator[bytes]:
        """Yield events as they come; ends when somebody else opens the stream.

        It is open from the call on, not only from the first event. Events that arrive while the
        reader waits are offered to `at_once`.
        """
        self._reader = abs(self._reader) + 1
        self._at_once = at_once
        self._resize(self.size)
        self._news.set()  # wake the former reader, which then ends
        return self._events_for(self._reader)

    async def _events_for(self, mine: int) -> AsyncIterator[bytes]:
        try:
            while self._reader == mine:
                if not self._events:
                    self._news.clear()
                    self._waiting = mine
                    try:
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            await self._news.wait()
                    except TimeoutError:
                        yield HEARTBEAT
                    continue
                self._waiting = 0
                events, self._events = self._events, []
                yield b"".join(events)  # returns when it is written
                self._resize(sum(map(len, self._events + self._behind)))
                self._changed()
        finally:
            if self._reader == mine:
                self._reader = -mine
                self._resize(self.size)
                self._changed()

    def forget(self) -> bytes:
        """Drop what was not written, and return it."""
        left = b"".join(self._events + self._behind)
        self._events, self._behind = [], []
        self._resize(0)
        self._changed()
        return left

    def end(self) -> None:
        """End the stream: its reader stops."""
        self._reader = -abs(self._reader) - 1
        if self._apart is not None:
            self._apart.cancel()
        self._resize(self.size)
        self._news.set()


def event(line: bytes, position: int | None = None) -> bytes:
    """Return a line as an event (HTML standard, server-sent events), with its position as id."""
    line = _as_ascii(line).replace(b"\r", b" ")  # a CR would end the line of an event
    return (
        b"data: %b\n\n" % line if position is None else b"id: %d\ndata: %b\n\n" % (position, line)
    )


def _as_ascii(line: bytes) -> bytes:
    """Return JSON in ASCII.

    The Python SDK decodes each network chunk by itself, and breaks on a character that is cut.
    """
    if line.isascii():
        return line
    # Escape as a JSON string, in C; then undo the escapes of quotes and backslashes.
    text = encode_basestring_ascii(line.replace(b"\t", b" ").decode("utf-8", "replace"))
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\").encode("ascii")
