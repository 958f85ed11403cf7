"""Reading of conversations in processes of their own: a transcript may be long.

`each` reads many, in workers that send pieces back; only the parent writes. Frames arrive on a
worker's stdin (four bytes of length, then msgpack): a task, or None for more of it. Each is
answered with the next piece of the task, or with the reason why there is none. A worker ends with
its stdin.

`read_beside` has one process read a listed session into the journal, as a server has other clients
to serve.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec
from msgspec import Struct

from acp_wire.processes.exit_status import describe
from acp_wire.processes.own_python import own_python
from acp_wire.tasks import timeout
from acphold.errors import AcpError, TranscriptError
from acphold.imports.heads import unread_in
from acphold.imports.intake import OUTCOMES, Intake, PieceReader, read_here
from acphold.imports.pieces import NewsPiece, pieces
from acphold.imports.readers import Reader, reader
from acphold.imports.sources import ImportSelection, Source
from acphold.imports.turns import KnownPart
from acphold.journal.journal import Journal
from acphold.journal.stores import open_journal
from acphold.machine.own_program import run_beside, start_beside

LENGTH_BYTES: Final = 4


class Task(Struct):
    """Read the first piece of a source."""

    source: Source
    known: KnownPart
    selection: ImportSelection


class PieceFailure(Struct, tag=True):
    """The reason why there is no next piece: an OSError, or a TranscriptError."""

    message: str
    is_of_system: bool = False
    errno: int | None = None
    filename: str | None = None

    def error(self) -> OSError | TranscriptError:
        """Return it as an exception."""
        if self.is_of_system:
            return OSError(self.errno, self.message, self.filename)
        return TranscriptError(self.message)


Answer = NewsPiece | PieceFailure | None
"""The next piece; None if there are no more."""


def frame(message: Struct | None) -> bytes:
    """Return a message as sent through a pipe."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def answer_tasks() -> None:
    """Answer the parent of this worker until stdin ends."""
    # A Ctrl-C on the terminal is for our parent; we end with our stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    found: Iterator[NewsPiece] = iter(())
    while length := sys.stdin.buffer.read(LENGTH_BYTES):
        body = sys.stdin.buffer.read(int.from_bytes(length, "big"))
        asked = msgspec.msgpack.decode(body, type=Task | None)
        if asked is not None:
            source = asked.source
            found = pieces(source, reader(source.reader), asked.known, asked.selection)
        answer: Answer
        try:
            answer = next(found, None)
        except OSError as error:
            filename = None if error.filename is None else str(error.filename)
            message = error.strerror or str(error)
            answer = PieceFailure(message, is_of_system=True, errno=error.errno, filename=filename)
        except TranscriptError as error:
            answer = PieceFailure(str(error))
        sys.stdout.buffer.write(frame(answer))
        sys.stdout.buffer.flush()


END_SECONDS: Final = 5.0
"""Seconds for a process to end after its stdout is closed, before it is killed."""

WORKERS_AT_MOST: Final = 4
"""With more workers, all would wait for the one journal."""

_WORKER: Final = "from acphold.imports.crew import answer_tasks; answer_tasks()"

WORTH_A_WORKER: Final = 16 << 20
"""Reading this many bytes takes several times as long as starting a process."""


async def each(
    sources: Collection[Source], take: Callable[[Source, PieceReader], Awaitable[None]]
) -> None:
    """Call `take` for the sources in order, several at a time if that pays off; copies of one
    conversation by turns: while one is taken, its session is in use."""
    size = sum(source.size for source in sources)
    count = min(WORKERS_AT_MOST, os.cpu_count() or 1, size // WORTH_A_WORKER)
    waiting = iter(sources)
    turns = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def work(read_pieces: PieceReader) -> None:
        for source in waiting:
            async with turns[source.downstream_id]:
                await take(source, read_pieces)

    if not count:
        await work(read_here)
        return
    async with AsyncExitStack() as workers:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    worker = _Worker()
                    workers.push_async_callback(worker.aclose)
                    group.create_task(work(worker.pieces))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None


class _Worker:
    """A process that reads, started when needed, and again if it ended."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._owes = False

    async def aclose(self) -> None:
        """End the process."""
        if self._process is not None:
            await _end(self._process)

    async def pieces(
        self, source: Source, _: Reader, known: KnownPart, selection: ImportSelection
    ) -> AsyncIterator[NewsPiece]:
        """Yield the pieces; while one is taken in, the next one is read."""
        if self._owes:  # of the source before, which was given up
            await self._answer()
        await self._ask(Task(source, known, selection))
        while (answer := await self._answer()) is not None:
            if isinstance(answer, PieceFailure):
                raise answer.error()
            if not answer.is_last:
                await self._ask(None)
            yield answer
            if answer.is_last:
                return

    async def _ask(self, message: Task | None) -> None:
        if self._process is None:
            # A process that starts while we are cancelled is registered, and ended, too.
            starting = asyncio.ensure_future(
                start_beside(own_python("-c", _WORKER), stdin=PIPE, stdout=PIPE)
            )
            try:
                await asyncio.shield(starting)
            finally:
                self._process = await starting
        assert self._process.stdin is not None
        self._process.stdin.write(frame(message))
        self._owes = True

    async def _answer(self) -> Answer:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        try:
            length = await process.stdout.readexactly(LENGTH_BYTES)
            body = await process.stdout.readexactly(int.from_bytes(length, "big"))
        except asyncio.IncompleteReadError:
            self._process = None
            # Not killed at once: that would collect the status of an ended process, which asyncio
            # then misses.
            with suppress(TimeoutError):
                async with timeout(END_SECONDS):
                    await process.wait()
            status = await _end(process)
            return PieceFailure(f"the process reading it ended: {describe(status)}")
        finally:
            self._owes = False
        # msgspec does not support Counter.
        return msgspec.msgpack.decode(
            body, type=NewsPiece | PieceFailure | None, dec_hook=lambda _, value: Counter(value)
        )


async def _end(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    # What it has written and nobody reads would keep its pipe, and so its end, from being seen.
    await process.communicate()
    return await process.wait()


_READ_LISTED: Final = "from acphold.imports.crew import read_named; read_named()"


async def read_beside(path: str, session_id: str) -> None:
    """Read a session of the journal at `path` in a process; raises TranscriptError.

    Cancelling ends the process; the part it has read is kept.
    """
    code, _, complaints = await run_beside(own_python("-c", _READ_LISTED, path, session_id))
    if code:
        why = complaints.decode(errors="replace").strip()
        raise TranscriptError(why or f"the transcript of session {session_id!r} cannot be read")


async def read_listed(journal: Journal, session_id: str, *, redact: bool = False) -> None:
    """Read it here; does nothing if it is read already. Raises TranscriptError."""
    if (listed := (await journal.session(session_id)).unread) is None:
        return
    source, redact = unread_in(listed, redact=redact)
    try:
        taken = await Intake(journal, ImportSelection(redact=redact)).take(
            source, reader(source.reader)
        )
    except OSError as error:
        where, why = error.filename or source.paths[0], error.strerror or error
        raise TranscriptError(f"session {session_id!r} cannot be read: {where}: {why}") from error
    if taken.outcome not in ("new", "apart", "grown", "same"):
        why = OUTCOMES.get(taken.outcome, "it has no messages")
        raise TranscriptError(f"session {session_id!r} cannot be read: {why}")


def read_named() -> None:
    """Read the session named by the arguments; errors go to stderr."""

    async def read(path: str, session_id: str) -> None:
        journal = open_journal(path, create=False)
        try:
            await read_listed(journal, session_id)
        finally:
            await journal.aclose()

    try:
        asyncio.run(read(*sys.argv[1:]))
    except AcpError as error:
        sys.exit(str(error))
