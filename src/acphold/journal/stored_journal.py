"""The base of every store beside its tables: durations of appends, and unread transcripts.

A session that an import has only listed is read when somebody needs it:

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row has the place of the transcript in a form that only the import knows; only the import gives
a session up. Whoever opened the journal provides the function that reads them, for every store.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct, field

from acp_wire.tasks import timeout
from acphold.errors import TranscriptError, UnknownSessionError
from acphold.journal import bounds
from acphold.journal.rows import SessionRow

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
"""The upper bound of each bucket, in seconds."""


class Durations(Struct):
    """A histogram of durations: `counts` has a number for each of BOUNDS, and one for all that took
    longer; `total` is the sum, in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def note(self, seconds: float) -> None:
        """Count one more duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


APPENDS: Final = Durations()
"""Appends to all journals that this process has open, from the call to the commit."""


ReadTranscript = Callable[[str, str], Awaitable[None]]
"""Reads a session of the journal at this location to its end: it raises TranscriptError, and may be
cancelled."""


class Transcripts:
    """The transcripts of unread sessions of the journal at `location`, each read once at a time.

    `row` returns the row of a session; `read_transcript` reads one to its end.
    """

    def __init__(
        self,
        location: str,
        row: Callable[[str], Awaitable[SessionRow]],
        read_transcript: ReadTranscript | None,
    ) -> None:
        self._location = location
        self._row = row
        self._read_transcript = read_transcript
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def complete(self, session_id: str) -> None:
        """Read an unread session to its end, once for all callers; raises TranscriptError."""
        row = await self._find(session_id)
        if row is None or not row.is_unread:
            return
        reading = self._reading.get(session_id)
        if reading is None:
            reading = asyncio.create_task(self._read(session_id), name="read transcript")
            self._reading[session_id] = reading
            reading.add_done_callback(partial(self._forget, session_id))
        await asyncio.shield(reading)

    def _forget(self, session_id: str, reading: asyncio.Task[None]) -> None:
        del self._reading[session_id]
        if not reading.cancelled():
            reading.exception()  # retrieved, or asyncio complains when nobody waits any more

    async def _read(self, session_id: str) -> None:
        try:
            if self._read_transcript is None:
                raise TranscriptError(
                    f"session {session_id!r} was listed by an import, but not read yet"
                )
            try:
                async with timeout(bounds.TRANSCRIPT_SECONDS):
                    await self._read_transcript(self._location, session_id)
            except TimeoutError:
                raise TranscriptError(
                    f"the transcript of session {session_id!r} is long and still being read; "
                    "open the session again in a moment"
                ) from None
        except TranscriptError:
            # Entries that were read can be shown, though the rest of the transcript is gone.
            if not await self._is_read_elsewhere(session_id):
                raise

    async def _is_read_elsewhere(self, session_id: str) -> bool:
        """Wait while an import of another process reads it; True if it was read to its end."""
        with suppress(TimeoutError):
            async with timeout(bounds.TRANSCRIPT_SECONDS):
                seen, quiet = -1, 0.0
                while (row := await self._find(session_id)) is not None and row.is_unread:
                    quiet = 0.0 if row.last_seq != seen else quiet + bounds.IMPORT_LOOK_SECONDS
                    if quiet > bounds.IMPORT_QUIET_SECONDS:
                        return False
                    seen = row.last_seq
                    await asyncio.sleep(bounds.IMPORT_LOOK_SECONDS)
                return row is not None
        return False

    async def _find(self, session_id: str) -> SessionRow | None:
        with suppress(UnknownSessionError):
            return await self._row(session_id)
        return None

    async def aclose(self) -> None:
        """Cancel all reading."""
        for reading in (left := tuple(self._reading.values())):
            reading.cancel()
        if left:
            await asyncio.wait(left)
