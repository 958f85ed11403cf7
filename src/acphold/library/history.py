"""A session's conversation, read from its journal."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic

from acphold.conversation.history.entries import PROMPT, TURN_END, Entry
from acphold.conversation.history.fold import EMPTY, Fold, SessionState
from acphold.errors import DeclarationError
from acphold.journal.journal import Journal, history
from acphold.library import bounds
from acphold.library.store import STORE, Store


class _Pace:
    """Lets other tasks run now and then, during long work."""

    def __init__(self) -> None:
        self._until = monotonic() + bounds.SLICE_SECONDS

    async def step(self) -> None:
        """Let other tasks run if the work has taken long enough."""
        if monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + bounds.SLICE_SECONDS


class History:
    """One session's entries, read and folded on request.

    Most turns never need them, and a long history is cheaper to read after it was compacted. A
    short conversation stays in memory for the next read, a long one does not.
    """

    def __init__(self, journal: Journal, session_id: str) -> None:
        self._journal = journal
        self._session_id = session_id
        self._state = EMPTY
        self._folded = 0
        self._bytes = 0
        self._reading = asyncio.Lock()

    async def read(self, last: int | None = None) -> SessionState:
        """Return the conversation up to the prompt being answered, or to its end between turns.

        With `last`, only that many of the newest turns; DeclarationError for less than one.
        """
        if last is not None:
            if last < 1:
                raise DeclarationError(f"the number of last turns must be at least 1, not {last}")
            pace, folding = _Pace(), Fold()
            turns: deque[list[Entry]] = deque([[]], maxlen=last)
            async for entry in self._past_entries(0, pace):
                if entry.kind == PROMPT:
                    turns.append([])
                turns[-1].append(entry)
                await pace.step()
            for turn in turns:
                for entry in turn:
                    folding.add(entry)
                    await pace.step()
            return folding.state()
        async with self._reading:
            pace, folding = _Pace(), Fold(self._state)
            folded, size = self._folded, self._bytes
            async for entry in self._past_entries(folded, pace):
                folding.add(entry)
                folded, size = entry.seq, size + len(entry.raw)
                await pace.step()
            state = folding.state()
            if size <= bounds.KEPT_BYTES:
                self._state, self._folded, self._bytes = state, folded, size
            else:
                self._state, self._folded, self._bytes = EMPTY, 0, 0
            return state

    async def _past_entries(self, after: int, pace: _Pace) -> AsyncIterator[Entry]:
        """Yield the entries above `after`, up to the prompt that is being answered now.

        A turn's entries are held back until its end, or the next prompt, shows that it is over.
        """
        held: list[Entry] | None = None
        async for segment in history(self._journal, self._session_id, after):
            for entry in segment.entries():
                if entry.kind == PROMPT:
                    for earlier in held or ():
                        yield earlier
                    held = []
                if held is None:
                    yield entry
                    continue
                held.append(entry)
                await pace.step()
                if entry.kind == TURN_END:
                    for earlier in held:
                        yield earlier
                    held = None

    async def restore(self, store: Store) -> bytes | None:
        """Restore `store`; returns the commands last shown to the client, a JSON array."""
        pace = _Pace()
        async for segment in history(self._journal, self._session_id):
            if segment.kind == STORE:
                for raw in segment.raw.split(b"\n"):
                    store.restore(raw)
            await pace.step()
        return (await self._journal.summary(self._session_id)).attributes.commands
