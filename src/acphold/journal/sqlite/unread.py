"""Sessions that an import has listed, and whose transcripts it has not read to their end yet.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row says where the transcript is, in words of the import's that the journal does not look into.
Whoever needs such a session has it read first, by what whoever opened the journal gave it for that.

The functions with a connection may raise sqlite3 errors; those with a Connection make a transaction
of their own.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from acphold.errors import SessionExistsError, TranscriptError, UnknownSessionError
from acphold.journal.journal import Listed, SessionRow
from acphold.journal.sqlite import session_rows
from acphold.journal.sqlite.connection import Connection, writing

READ_SECONDS: Final = 60.0
"""How long whoever needs a session waits for its transcript: one of 200 MB takes a third of that.
What was read by then is kept."""

PATIENCE_SECONDS: Final = 5.0
"""How long an import of another process may read a transcript without anything new in the journal:
it does so piece by piece, several in a second."""

LOOK_SECONDS: Final = 0.2

ReadTranscript = Callable[[str, str], Awaitable[None]]
"""Reads a session of the journal at this path to its end: it raises TranscriptError, and may be
cancelled."""

log = logging.getLogger(__name__)


def enlist(connection: Connection, found: Sequence[Listed]) -> None:
    """Make the rows of sessions, but of those that are known, or were deleted."""
    with writing(connection):
        for listed in found:
            agent, downstream_id = listed.new.agent, listed.downstream_id
            if session_rows.linked(connection, agent, [downstream_id]):
                continue
            try:
                number = session_rows.create(connection, listed.new)
            except SessionExistsError:
                continue
            connection.execute(
                "UPDATE sessions SET prompted = 1, updated_at = ?, unread = ? WHERE number = ?",
                (listed.updated_at, listed.source, number),
            )
            session_rows.link(connection, agent, downstream_id, number)


def sources(connection: sqlite3.Connection, session_id: str | None) -> dict[str, bytes]:
    """Where the transcripts of unread sessions are, by the sessions' ids; of one, or of all."""
    rows = connection.execute(
        "SELECT session_id, unread FROM sessions WHERE unread IS NOT NULL"
        + ("" if session_id is None else " AND session_id = ?"),
        () if session_id is None else (session_id,),
    )
    return {found: bytes(where) for found, where in rows.fetchall()}


def give_up(connection: Connection, session_id: str) -> None:
    """Nothing more of this session can be read: what there is of it is all; without any it goes."""
    with writing(connection):
        row = connection.execute(
            f"{session_rows.SELECT_ROW} WHERE session_id = ? AND unread IS NOT NULL", (session_id,)
        ).fetchone()
        if row is None:
            return
        number, last_seq = row[10], row[9]
        if last_seq:
            connection.execute("UPDATE sessions SET unread = NULL WHERE number = ?", (number,))
            return
        for table, column in (("links", "session"), ("leases", "session"), ("sessions", "number")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))


class Transcripts:
    """The transcripts of unread sessions of the journal at `path`, each read once at a time.

    `row` finds the row of a session; `read_transcript` reads one to its end.
    """

    def __init__(
        self,
        path: str,
        row: Callable[[str], Awaitable[SessionRow]],
        read_transcript: ReadTranscript | None,
    ) -> None:
        self._path = path
        self._row = row
        self._read_transcript = read_transcript
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def read(self, session_id: str) -> None:
        """Have an unread session read to its end, for all who wait; raises TranscriptError."""
        reading = self._reading.get(session_id)
        if reading is None:
            reading = asyncio.create_task(self._read(session_id), name="read transcript")
            self._reading[session_id] = reading
            reading.add_done_callback(partial(self._over, session_id))
        await asyncio.shield(reading)

    def _over(self, session_id: str, reading: asyncio.Task[None]) -> None:
        del self._reading[session_id]
        if not reading.cancelled():
            reading.exception()  # seen, also when nobody waits any more

    async def _read(self, session_id: str) -> None:
        try:
            if self._read_transcript is None:
                raise TranscriptError(f"session {session_id!r} was imported, but not read yet")
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read_transcript(self._path, session_id)
            except TimeoutError:
                raise TranscriptError(
                    f"the transcript of session {session_id!r} is long, and still being read; "
                    "open it again in a moment"
                ) from None
        except TranscriptError:
            # What is there can be shown, though the rest has gone.
            if not await self._is_read(session_id) and not await self._read_elsewhere(session_id):
                raise

    async def _is_read(self, session_id: str) -> bool:
        row = await self._find(session_id)
        return row is not None and not row.is_unread

    async def _read_elsewhere(self, session_id: str) -> bool:
        """Wait while an import of another process reads it; whether that came to its end."""
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
        """End what is being read."""
        for reading in (left := tuple(self._reading.values())):
            reading.cancel()
        if left:
            await asyncio.wait(left)
