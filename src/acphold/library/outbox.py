"""Updates on their way from an author's code to the journal and the clients.

Each is committed before anybody sees it; those that are said in a row are committed together. An
author who says a thousand small things pays for a few commits, and nobody waits for more than the
end of the step of the event loop that said them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from acphold.errors import AcpholdError

if TYPE_CHECKING:
    from acphold.agents.interface import Listener

BATCH_BYTES = 64 * 1024
"""Bytes that are held back at most, for the next ones to be committed with them."""

BATCH_UPDATES = 512
"""Updates that are held back at most: then an author who never waits lets the others run."""

UPDATE = "update"


class Outbox:
    """The updates of one session, in order; it begins closed, and nothing leaves it before `open`.

    Commits run in a task of their own, so that what was said before a cancellation is delivered,
    whoever is cancelled.
    """

    def __init__(self, session_id: str, listener: Listener) -> None:
        self._session_id = session_id
        self._listener = listener
        self._updates: list[bytes] = []
        self._runs: list[tuple[str, list[bytes]]] = [(UPDATE, self._updates)]
        self._bytes = 0
        self._is_open = False
        self._due: asyncio.Handle | None = None
        self._committing: asyncio.Task[Any] | None = None
        self._failure: AcpholdError | None = None

    def open(self) -> None:
        """The client knows the session: what is held back may leave."""
        self._is_open = True
        self._wait_for_more()

    def add(self, raw: bytes) -> bool:
        """Say `raw`, an update object; True when it is time to `breathe`."""
        updates = self._updates
        updates.append(raw)
        self._bytes += len(raw)
        if self._due is None:
            self._wait_for_more()
        return self._bytes >= BATCH_BYTES or len(updates) >= BATCH_UPDATES

    async def put(self, *raws: bytes) -> None:
        """Say these update objects together; raises what an earlier commit failed with."""
        full = False
        for raw in raws:
            full = self.add(raw)
        if full:
            await self.breathe()
        self._raise()

    def keep(self, kind: str, raw: bytes) -> None:
        """Journal something that no client is shown, behind what was said before."""
        if self._updates:
            self._updates = []
            self._runs += [(kind, [raw]), (UPDATE, self._updates)]
        else:
            self._runs.insert(-1, (kind, [raw]))
        if self._due is None:
            self._wait_for_more()

    async def breathe(self) -> None:
        """Wait until there is room, and let others run; raises what a commit failed with."""
        await self.flush()
        await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until all that was said is committed and delivered; raises what that failed with.

        Cancelling this cancels no commit.
        """
        self._begin()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        self._raise()

    async def finish(self) -> None:
        """`flush` for a caller whom nobody cancels: spares the switch to another task."""
        if self._committing is None and self._is_open:
            self._stop_waiting()
            if self._holds_any:
                self._committing = asyncio.current_task()
                await self._commit()
        if self._committing is not None or self._holds_any:
            await self.flush()
        else:
            self._raise()

    def _wait_for_more(self) -> None:
        """Commit at the end of this step of the event loop, unless somebody does before."""
        if self._is_open and self._committing is None and self._holds_any:
            self._due = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._stop_waiting()
        if self._is_open and self._committing is None and self._holds_any:
            self._committing = asyncio.create_task(self._commit(), name="commit updates")

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def _commit(self) -> None:
        try:
            while self._holds_any:
                for kind, raws in self._take():
                    await self._listener.on_updates(self._session_id, kind, raws)
        except AcpholdError as exc:
            self._failure = exc
        finally:
            self._committing = None

    @property
    def _holds_any(self) -> bool:
        return bool(self._updates) or len(self._runs) > 1

    def _take(self) -> list[tuple[str, list[bytes]]]:
        runs, self._updates, self._bytes = self._runs, [], 0
        self._runs = [(UPDATE, self._updates)]
        return [run for run in runs if run[1]]

    def _raise(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
