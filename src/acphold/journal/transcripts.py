"""Sessions that an import has only listed: read to their end when somebody needs them.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row has the place of the transcript in a form that only the import knows; only the import gives
a session up. Whoever opened the journal provides the function that reads them, for every store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from acphold.errors import TranscriptError, UnknownSessionError
from acphold.journal.journal import SessionRow

READ_SECONDS: Final = 60.0
"""Whoever needs a session waits this long for its transcript; one of 200 MB takes a third of it.
Entries read by then are kept."""

PATIENCE_SECONDS: Final = 5.0
"""An import of another process may read a transcript for this long without adding anything to the
journal. Normally it adds several pieces a second."""

LOOK_SECONDS: Final = 0.2

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
            reading.add_done_callback(partial(self._over, session_id))
        await asyncio.shield(reading)

    def _over(self, session_id: str, reading: asyncio.Task[None]) -> None:
        del self._reading[session_id]
        if not reading.cancelled():
            reading.exception()  # retrieved, or asyncio complains when nobody waits any more

    async def _read(self, session_id: str) -> None:
        try:
            if self._read_transcript is None:
                raise TranscriptError(f"session {session_id!r} was imported, but not read yet")
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read_transcript(self._location, session_id)
            except TimeoutError:
                raise TranscriptError(
                    f"the transcript of session {session_id!r} is long, and still being read; "
                    "open it again in a moment"
                ) from None
        except TranscriptError:
            # Entries that were read can be shown, though the rest of the transcript is gone.
            if not await self._is_read(session_id) and not await self._read_elsewhere(session_id):
                raise

    async def _is_read(self, session_id: str) -> bool:
        row = await self._find(session_id)
        return row is not None and not row.is_unread

    async def _read_elsewhere(self, session_id: str) -> bool:
        """Wait while an import of another process reads it; True if it was read to its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_SECONDS):
                seen, quiet = -1, 0.0
                while (row := await self._find(session_id)) is not None and row.is_unread:
                    quiet = 0.0 if row.last_seq != seen else quiet + LOOK_SECONDS
                    if quiet > PATIENCE_SECONDS:
                        return False
                    seen = row.last_seq
                    await asyncio.sleep(LOOK_SECONDS)
        return await self._is_read(session_id)

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
