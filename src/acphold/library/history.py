"""The earlier conversation of a session, read from its journal when an author asks for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from acphold.journal.entries import PROMPT, TURN_END, UPDATE
from acphold.journal.fold import EMPTY, fold
from acphold.library.store import STORE
from acphold.schema.splice import members

if TYPE_CHECKING:
    from acphold.journal import Journal, SessionState
    from acphold.journal.entries import Entry
    from acphold.library.store import Store

PAGE = 4 * 1024 * 1024
"""Bytes that are read at once."""

COMMANDS = b'"available_commands_update"'


class History:
    """One session's entries, folded as far as somebody wanted to know.

    Most turns never ask, and a long one is cheaper to read when it has been compacted.
    """

    def __init__(self, journal: Journal, session_id: str) -> None:
        self._journal = journal
        self._session_id = session_id
        self._state = EMPTY
        self._folded = 0
        self._reading = asyncio.Lock()

    async def read(self) -> SessionState:
        """The conversation up to the prompt that is answered now, or to its end between turns."""
        async with self._reading:
            entries = _before_open_prompt(await self._read_on())
            if entries:
                self._state = fold(entries, self._state)
                self._folded = entries[-1].seq
            return self._state

    async def restore(self, store: Store) -> bytes | None:
        """Put what was kept into `store`; the commands the client was last shown, a JSON array."""
        commands, after = None, 0
        while page := await self._journal.read(self._session_id, after, PAGE):
            for segment in page:
                if segment.kind == STORE:
                    for raw in segment.raw.split(b"\n"):
                        store.restore(raw)
                elif segment.kind == UPDATE and COMMANDS in segment.raw:
                    commands = _commands_in(segment.raw) or commands
            after = page[-1].last_seq
        return commands

    async def _read_on(self) -> list[Entry]:
        entries: list[Entry] = []
        after = self._folded
        while page := await self._journal.read(self._session_id, after, PAGE):
            entries += [entry for segment in page for entry in segment.entries()]
            after = page[-1].last_seq
        return entries


def _before_open_prompt(entries: list[Entry]) -> list[Entry]:
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].kind == TURN_END:
            break
        if entries[place].kind == PROMPT:
            return entries[:place]
    return entries


def _commands_in(raw: bytes) -> bytes | None:
    found = None
    for update in raw.split(b"\n"):
        if COMMANDS in update:
            found = members(update).get("availableCommands", found)
    return found
