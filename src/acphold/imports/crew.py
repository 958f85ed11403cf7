"""Reading of many conversations at once, in worker processes; only this process writes."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, suppress
from typing import Final, Self

from acphold.errors import TranscriptError
from acphold.imports.continuation import KnownPart
from acphold.imports.intake import Telling, told_here
from acphold.imports.pieces import NewsPiece
from acphold.imports.readers import Reader
from acphold.imports.sources import Manner, Source
from acphold.imports.worker import (
    LENGTH_BYTES,
    Answer,
    End,
    More,
    ReadingFailed,
    Task,
    ToldPiece,
    Unreadable,
    decode_answer,
    frame,
)
from acphold.processes.exit_status import describe
from acphold.processes.own_program import own_python, start_own

END_SECONDS: Final = 5.0
"""Seconds for a process to end after its stdout is closed, before it is killed."""

WORKERS_AT_MOST: Final = 4
"""With more workers, all would wait for the one journal."""

_WORKER: Final = "from acphold.imports.worker import main; main()"

WORTH_A_WORKER: Final = 16 << 20
"""Reading this many bytes takes several times as long as starting a process."""


async def each(
    sources: Collection[Source], take: Callable[[Source, Telling], Awaitable[None]]
) -> None:
    """Call `take` for the sources in order, several at a time if that pays off."""
    size = sum(source.size for source in sources)
    count = min(WORKERS_AT_MOST, os.cpu_count() or 1, size // WORTH_A_WORKER)
    waiting = iter(sources)

    async def work(telling: Telling) -> None:
        for source in waiting:
            await take(source, telling)

    if not count:
        await work(told_here)
        return
    async with AsyncExitStack() as workers:
        tellings: list[Telling] = [
            (await workers.enter_async_context(_Worker())).telling for _ in range(count)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for telling in tellings:
                    group.create_task(work(telling))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None


class _Worker:
    """A process that reads, started when needed, and again if it ended."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._owes = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            await _ended(self._process)

    async def telling(
        self, source: Source, _: Reader, known: KnownPart, manner: Manner
    ) -> AsyncIterator[NewsPiece]:
        """Yield the pieces; while one is taken in, the next one is read."""
        if self._owes:  # of the source before, which was given up
            await self._answer()
        await self._ask(Task(source, known, manner))
        while True:
            match await self._answer():
                case ToldPiece(piece):
                    if not piece.is_last:
                        await self._ask(More())
                    yield piece
                    if piece.is_last:
                        return
                case Unreadable(errno, message, filename):
                    raise OSError(errno, message, filename)
                case ReadingFailed(message):
                    raise TranscriptError(message)
                case End():
                    return

    async def _ask(self, message: Task | More) -> None:
        if self._process is None:
            # A process that starts while we are cancelled is registered, and ended, too.
            starting = asyncio.ensure_future(
                start_own(own_python("-c", _WORKER), stdin=PIPE, stdout=PIPE)
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
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            status = await _ended(process)
            return ReadingFailed(f"the process that read it ended: {describe(status)}")
        finally:
            self._owes = False
        return decode_answer(body)


async def _ended(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    return await process.wait()
