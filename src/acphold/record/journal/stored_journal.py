"""The methods of a journal that every store shares, and the durations of its appends.

Among them is `complete`, for a session that an import has only listed. It reads the session's
transcript when somebody needs it:

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row has the place of the transcript in a form that only the import knows; only the import gives
a session up. Whoever opened the journal provides the function that reads them, for every store.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from msgspec import Struct, field

from acphold.errors import LeaseLostError, TranscriptError, UnknownSessionError
from acphold.record.history.entries import Run, Segment, now_ms
from acphold.record.journal import bounds
from acphold.record.journal.journal import Append, Journal, Lease
from acphold.record.journal.rows import RowChange, SessionRow
from acphold.record.journal.seams import InFile
from acphold.record.journal.stored_history import new_segments

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
                async with asyncio.timeout(bounds.TRANSCRIPT_SECONDS):
                    await self._read_transcript(self._location, session_id)
            except TimeoutError:
                raise TranscriptError(
                    f"the transcript of session {session_id!r} is long and still being read; "
                    "open the session again in a moment"
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
            async with asyncio.timeout(bounds.TRANSCRIPT_SECONDS):
                seen, quiet = -1, 0.0
                while (row := await self._find(session_id)) is not None and row.is_unread:
                    quiet = 0.0 if row.last_seq != seen else quiet + bounds.IMPORT_LOOK_SECONDS
                    if quiet > bounds.IMPORT_QUIET_SECONDS:
                        return False
                    seen = row.last_seq
                    await asyncio.sleep(bounds.IMPORT_LOOK_SECONDS)
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


Kept = TypeVar("Kept")
T = TypeVar("T")
P = ParamSpec("P")


class Through(Generic[Kept]):
    """Turns functions on tables, or on records, into methods; the method `runner` runs them."""

    def __init__(self, runner: str) -> None:
        self._runner = runner

    def __call__(
        self, work: Callable[Concatenate[Kept, P], T]
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
        runner = self._runner

        async def method(owner: Any, /, *args: P.args, **named: P.kwargs) -> T:
            done: T = await getattr(owner, runner)(lambda kept: work(kept, *args, **named))
            return done

        return method


class StoredJournal(Journal, ABC):
    """A journal without a file; `_transcripts` reads what an import has only listed."""

    file: InFile | None = None
    _transcripts: Transcripts
    _addresses: tuple[str, ...] = ()
    _retired = False

    def now(self) -> int:
        """The time of appends, in ms since the epoch, unless the database gives it."""
        return now_ms()

    @abstractmethod
    async def _append_segments(
        self, appends: Sequence[Append], made: Sequence[list[Segment]]
    ) -> list[list[Segment] | LeaseLostError]:
        """Like `append_all`, given the segments of each; the leases are moved on afterwards."""

    @abstractmethod
    async def _report(self, held: Sequence[Lease]) -> list[LeaseLostError]:
        """Report that this owner lives, if it is one; return the errors of the leases among `held`
        that are lost."""

    async def renew(
        self,
        leases: Iterable[Lease] = (),
        *,
        addresses: Sequence[str] | None = None,
        retiring: bool = False,
    ) -> list[LeaseLostError]:
        if addresses is not None:
            self._addresses = (*addresses,)
        self._retired = self._retired or retiring
        return await self._report([*leases])

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        began, at = perf_counter(), self.now()
        made = [new_segments(it.lease.next_seq, it.runs, at) for it in appends]
        if not all(made):
            raise ValueError("nothing to append")
        done = await self._append_segments(appends, made)
        for append, result in zip(appends, done, strict=True):
            if not isinstance(result, LeaseLostError):
                append.lease.next_seq = result[-1].last_seq + 1
        APPENDS.note(perf_counter() - began)
        return done

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        [done] = await self.append_all([Append(lease, [*runs], change)])
        if isinstance(done, LeaseLostError):
            raise done
        return done

    async def complete(self, session_id: str) -> None:
        await self._transcripts.complete(session_id)
