"""What the journal knows of a session, in whichever process it is live."""

from __future__ import annotations

from acphold.hub.owners import reachable_at
from acphold.journal import Journal
from acphold.journal.entries import PROMPT


class Whereabouts:
    """Looks sessions up in a journal. Each question may raise UnknownSessionError."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def last_seq(self, session_id: str) -> int:
        """The last entry of a session, wherever it is live; raises UnknownSessionError."""
        return (await self._journal.session(session_id)).last_seq

    async def owner_of(self, session_id: str) -> str:
        """The socket of the process that has a session; "" when none has that can be reached.

        Raises UnknownSessionError.
        """
        holder = await self._journal.holder(session_id)
        return "" if holder.is_released else reachable_at(holder.owner)

    async def can_be_followed(self, session_id: str) -> bool:
        """Whether a session that was lost can be opened without taking it from its new owner."""
        holder = await self._journal.holder(session_id)
        return holder.is_released or bool(reachable_at(holder.owner))

    async def has_prompt(self, session_id: str, prompt: bytes, after: int) -> bool:
        """Whether these content blocks were prompted behind an entry; UnknownSessionError."""
        while page := await self._journal.read(session_id, after):
            for segment in page:
                if segment.kind == PROMPT and prompt in segment.raw.split(b"\n"):
                    return True
            after = page[-1].last_seq
        return False
