"""A journal that is read in a thread of its own, so that no page keeps the clients waiting.

A journal does what is short in the thread of its loop; a hundred short questions of a small screen
would still be felt in a turn that is shown beside. So this one has its own thread, loop and file.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

from acphold.errors import JournalUnavailableError
from acphold.journal import Journal
from acphold.server.neighbours import Live, live_at_nodes, live_sessions
from acphold.server.service import served_journal
from acphold.web.gate import RefusedError

T = TypeVar("T")

AT_ONCE: Final = 32
"""Questions that are answered or wait; who asks more is told to come later."""

LIVE_SECONDS: Final = 1.0
"""How long is believed what processes told."""

SECONDS: Final = 20.0
"""How long one may take."""


class JournalReader:
    """See the module; an async context manager. Raises JournalError where it is opened."""

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wrap_future(self._ended)

    async def ask(self, question: Callable[[Journal], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question; raises JournalError, and RefusedError when there are too many
        or it takes too long."""
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

    async def live(self) -> Live:
        """The sessions that are in the memory of a process, as of a second ago at most.

        The processes are asked once for all who want to know: nobody has them asked without end.
        """
        now = asyncio.get_running_loop().time()
        if self._live is None or (self._live.done() and now >= self._live_at + LIVE_SECONDS):
            self._live, self._live_at = asyncio.ensure_future(self.run(self._all_live())), now
        return await asyncio.shield(self._live)

    async def _all_live(self) -> Live:
        return {**await live_at_nodes(self._journal), **await live_sessions()}

    async def live_now(self) -> Live:
        """The same, as of now at the earliest: for who comes because of something that they were
        told a moment ago."""
        came = asyncio.get_running_loop().time()
        if self._live is not None:
            await asyncio.wait([self._live])
        if self._live is not None and self._live_at < came:
            self._live = None
        return await self.live()

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """What comes of some work, which is done in the thread."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _answer(self, question: Callable[[Journal], Coroutine[Any, Any, T]]) -> T:
        try:
            await self._journal.changes(None)
        except JournalUnavailableError:  # another one is at its place
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
