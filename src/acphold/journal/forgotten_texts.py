"""Texts that a person has removed everywhere stay out of what is taken into the journal.

See `journal.removal`, and `safety.redaction.forgotten`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UnsetType
from msgspec.structs import replace

from acphold.conversation.history.entries import FORGOTTEN_TEXT, PastEntry
from acphold.journal.rows import RowChange, WholeSession

if TYPE_CHECKING:
    from acphold.journal.journal import Journal
    from acphold.safety.redaction.forgotten import Blanking


class ArrivalBlanking:
    """Takes the texts with these marks out of what is taken into the journal."""

    def __init__(self, marks: frozenset[str]) -> None:
        self.marks = marks
        self._blanking: Blanking | None = None
        if marks:
            # Late: the rules of redaction take longer to load than a start may.
            from acphold.safety.redaction.forgotten import Blanking, ForgottenTexts

            self._blanking = Blanking(ForgottenTexts(marks))

    def entries(self, past: Sequence[PastEntry]) -> Sequence[PastEntry]:
        """Return entries without the texts, also where one stands in several that are one text."""
        if self._blanking is None:
            return past
        from acphold.conversation.history.message_chunks import Messages  # late, too

        blanking = type(self._blanking)(self._blanking.texts, Messages)
        for entry in past:
            blanking.look(entry)
        blanking.is_done()
        return [
            replace(it, raw=blanking.redact(n, it) or b"{}") if n in blanking.places else it
            for n, it in enumerate(past)
        ]

    def entry(self, entry: PastEntry) -> PastEntry:
        """Return an entry without the texts."""
        if self._blanking is None or (raw := self._blanking.blank_record(entry)) is None:
            return entry
        return replace(entry, raw=raw)

    def text(self, text: str) -> str:
        """Return a text without them."""
        return text if self._blanking is None else self._blanking.blank(text)

    def change(self, change: RowChange) -> RowChange:
        """Return a change of a row without the texts."""
        if self._blanking is None:
            return change
        return replace(change, title=self._title(change.title), given=self._title(change.given))

    def session(self, whole: WholeSession) -> WholeSession:
        """Return a session of another journal without the texts."""
        if self._blanking is None:
            return whole
        new = replace(whole.new, title=whole.new.title and self.text(whole.new.title))
        return replace(
            whole, new=new, past=self.entries(whole.past), change=self.change(whole.change)
        )

    def _title(self, title: str | UnsetType | None) -> str | UnsetType | None:
        return self.text(title) if isinstance(title, str) else title


async def marks_in(journal: Journal) -> frozenset[str]:
    """Return the marks that a journal has."""
    return frozenset(mark for kind, mark in await journal.links.of(None) if kind == FORGOTTEN_TEXT)
