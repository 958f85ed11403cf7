"""What the journal knows of a session, in whichever process it is live."""

from __future__ import annotations

from typing import Protocol

from acphold.errors import UnknownSessionError
from acphold.history.entries import PROMPT
from acphold.journal import At, Free, Owners, Readable, Silent, Whose


class Seen(Owners, Readable, Protocol):
    """What it asks of a journal."""


class Whereabouts:
    """Looks sessions up in a journal. Each question may raise UnknownSessionError."""

    def __init__(self, journal: Seen) -> None:
        self._journal = journal

    async def last_seq(self, session_id: str) -> int:
        """The last entry of a session, wherever it is live; raises UnknownSessionError."""
        return (await self._journal.session(session_id)).last_seq

    async def owner(self, session_id: str) -> Whose:
        """Who owns a session, as the journal says."""
        return await self._journal.owner(session_id)

    async def owner_if_kept(self, session_id: str) -> Whose:
        """The same; nobody owns what is in no journal."""
        try:
            return await self._journal.owner(session_id)
        except UnknownSessionError:
            return Free(0)

    async def has_moved(self, session_id: str, epoch: int) -> bool:
        """Whether somebody has taken it, or has it anew, since one had it under `epoch`."""
        return (await self._journal.owner(session_id)).epoch != epoch

    async def can_be_followed(self, session_id: str) -> bool:
        """Whether a session that was lost can be opened without taking it from its new owner."""
        match await self._journal.owner(session_id):
            case At(owner) | Silent(owner):
                return bool(owner.addresses)
        return True

    async def has_prompt(self, session_id: str, prompt: bytes, after: int) -> bool:
        """Whether these content blocks were prompted behind an entry; UnknownSessionError."""
        while page := await self._journal.read(session_id, after):
            for segment in page:
                if segment.kind == PROMPT and prompt in segment.raw.split(b"\n"):
                    return True
            after = page[-1].last_seq
        return False
