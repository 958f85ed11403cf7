"""The journal's knowledge of a session, in whichever process it is live."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Protocol

from acphold.errors import UnknownSessionError
from acphold.history.decisions import closed_question
from acphold.history.entries import ANSWER, PROMPT, SENT, TURN_END, Entry
from acphold.history.entries import sent_id as id_in
from acphold.journal import Free, Owners, Readable, SessionRow, Whose
from acphold.journal.owners import other_owner


class Seen(Owners, Readable, Protocol):
    """The seams of a journal that these queries need."""


class Whereabouts:
    """Looks sessions up in a journal. Each query may raise UnknownSessionError."""

    def __init__(self, journal: Seen) -> None:
        self._journal = journal

    async def last_seq(self, session_id: str) -> int:
        """Return the last entry of a session, wherever it is live; raises UnknownSessionError."""
        return (await self._journal.session(session_id)).last_seq

    async def row(self, session_id: str) -> SessionRow:
        """Return the row of a session in the list."""
        return await self._journal.session(session_id)

    async def owner(self, session_id: str) -> Whose:
        """Return the owner of a session, as the journal says."""
        return await self._journal.owner(session_id)

    async def owner_if_kept(self, session_id: str) -> Whose:
        """Return the same; a session in no journal has no owner."""
        try:
            return await self._journal.owner(session_id)
        except UnknownSessionError:
            return Free(0)

    async def has_moved(self, session_id: str, epoch: int) -> bool:
        """Return True if a process has acquired it since one had it under `epoch`."""
        return (await self._journal.owner(session_id)).epoch != epoch

    async def can_be_followed(self, session_id: str) -> bool:
        """Return True if a session that was lost can be opened without taking it from its new
        owner."""
        owner = other_owner(await self._journal.owner(session_id))
        return owner is None or bool(owner.addresses)

    async def end_of_sent(self, session_id: str, sent_id: str, after: int) -> Entry | None:
        """Return the `turn_end` of the prompt that its client sent under this id.

        If it has no end, the entry that has the id; None if that is not behind `after`.
        """
        found: Entry | None = None
        while page := await self._journal.read(session_id, after):
            for entry in chain.from_iterable(segment.entries() for segment in page):
                if found is not None and entry.kind == TURN_END:
                    return entry
                if entry.kind == SENT and id_in(entry.raw) == sent_id:
                    found = entry
            after = page[-1].last_seq
        return found

    async def answered(self, session_id: str, sent_ids: AbstractSet[str], after: int) -> list[str]:
        """Return those of a client's own ids whose answers were accepted behind entry `after`."""
        found: list[str] = []
        while page := await self._journal.read(session_id, after):
            for segment in page:
                if segment.kind == ANSWER:
                    answers = [closed_question(entry.raw) for entry in segment.entries()]
                    found += [it.sent_id for it in answers if it.sent_id in sent_ids]
            after = page[-1].last_seq
        return found

    async def has_prompt(self, session_id: str, prompt: bytes, after: int) -> bool:
        """Return True if these content blocks were prompted behind entry `after`;
        UnknownSessionError."""
        while page := await self._journal.read(session_id, after):
            for segment in page:
                if segment.kind == PROMPT and prompt in segment.raw.split(b"\n"):
                    return True
            after = page[-1].last_seq
        return False
