"""A journal read in its own thread, so that no page keeps the clients waiting.

A journal answers short questions in its loop's thread; a hundred of them from a small screen would
still slow down a turn. So this one has its own thread, loop and file.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from acphold.errors import JournalUnavailableError
from acphold.journal import Journal, SessionRow
from acphold.reading.neighbours import Live, live_anywhere
from acphold.schema import encode
from acphold.schema.splice import splice
from acphold.server.principals import Principal
from acphold.server.service import served_journal
from acphold.web.gate import RefusedError

T = TypeVar("T")

AT_ONCE: Final = 32
"""Most questions running or waiting; beyond that callers are told to come back later."""

LIVE_SECONDS: Final = 1.0
"""Seconds for which the answer of other processes is cached."""

SECONDS: Final = 20.0
"""Longest time for one question, in seconds."""


class JournalReader:
    """A journal in a thread; an async context manager. Entering it raises JournalError."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._journal: Journal
        self._asked = 0
        self._live: asyncio.Future[Live] | None = None
        self._live_at = 0.0

    async def __aenter__(self) -> JournalReader:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        threading.Thread(
            target=self._run, args=(started,), name="acphold reading", daemon=True
        ).start()
        self._loop, self._stop = await asyncio.wrap_future(started)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wrap_future(self._ended)

    async def ask(self, question: Callable[[Journal], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a question.

        Raises JournalError, and RefusedError if there are too many or it takes too long.
        """
        if self._asked >= AT_ONCE:
            raise RefusedError(503, "too much is being read at once; try again")
        self._asked += 1
        try:
            async with asyncio.timeout(SECONDS):
                return await self.run(self._answer(question))
        except TimeoutError:
            raise RefusedError(503, "the journal takes too long to answer; try again") from None
        finally:
            self._asked -= 1

    async def session(
        self,
        principal: Principal,
        session_id: str,
        method: str,
        params: bytes = b"{}",
        *,
        counted: bool = False,
    ) -> SessionRow:
        """Return a session in which a principal may make this request; raises ForbiddenError and
        UnknownSessionError."""
        principal.check(method, splice(params, {"sessionId": encode(session_id)}))
        row = await self.ask(lambda journal: journal.session(session_id, counted=counted))
        principal.check_in(row, method, params)
        return row

    async def live(self) -> Live:
        """Return the sessions held in the memory of a process, at most a second old.

        Callers share one round of asking, so that the processes are not asked over and over.
        """
        now = asyncio.get_running_loop().time()
        if self._live is None or (self._live.done() and now >= self._live_at + LIVE_SECONDS):
            asking = self.run(live_anywhere(self._journal))
            self._live, self._live_at = asyncio.ensure_future(asking), now
        return await asyncio.shield(self._live)

    async def live_now(self) -> Live:
        """Return the same, not cached: for a client reacting to fresh news."""
        came = asyncio.get_running_loop().time()
        if self._live is not None:
            await asyncio.wait([self._live])
        if self._live is not None and self._live_at < came:
            self._live = None
        return await self.live()

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work` in the thread and return its result."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _answer(self, question: Callable[[Journal], Coroutine[Any, Any, T]]) -> T:
        try:
            await self._journal.changes(None)
        except JournalUnavailableError:  # another one has taken its place
            before, self._journal = self._journal, served_journal(self.location)
            await before.aclose()
        return await question(self._journal)

    def _run(self, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        async def read() -> None:
            stop = asyncio.Event()
            self._journal = served_journal(self.location)
            started.set_result((asyncio.get_running_loop(), stop))
            try:
                await stop.wait()
            finally:
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
                await self._journal.aclose()

        try:
            asyncio.run(read())
        except BaseException as exc:
            (self._ended if started.done() else started).set_exception(exc)
        else:
            self._ended.set_result(None)
