"""Redaction of a conversation's entries before any of it is taken in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from acphold.errors import RedactionError, TranscriptError
from acphold.history import Entry, PastEntry
from acphold.redaction.redactor import Redactor


class SecretsOut:
    """Redacts one conversation, after reading all of it.

    Home paths and addresses stay, and so do pictures: the journal is the user's own.
    """

    def __init__(self, told: Iterable[PastEntry]) -> None:
        """`told` yields the whole conversation at each iteration; the last may be broken off."""
        self._redactor = Redactor(only_secrets=True)
        try:
            for place, entry in enumerate(told):
                self._redactor.look(_numbered(place, entry))
            while not self._redactor.is_done():
                for place, entry in zip(range(self._redactor.count), told, strict=False):
                    self._redactor.look(_numbered(place, entry))
        except (OSError, TranscriptError):
            raise
        except Exception as error:
            raise _cannot(error) from error

    @property
    def count(self) -> int:
        """Number of entries searched."""
        return self._redactor.count

    def entry(self, place: int, told: PastEntry) -> PastEntry | None:
        """Return entry number `place`, from 0, redacted; None if it cannot be read."""
        try:
            left = self._redactor.entry(place, _numbered(place, told))
        except Exception as error:
            raise _cannot(error) from error
        return None if left is None else PastEntry(left.kind, left.at, left.raw, told.seq)

    def closing(self, told: PastEntry) -> PastEntry | None:
        """Return an added entry after the last one, redacted."""
        try:
            left = self._redactor.last_entry(_numbered(self._redactor.count, told))
        except Exception as error:
            raise _cannot(error) from error
        return None if left is None else PastEntry(left.kind, left.at, left.raw, told.seq)

    def text(self, text: str) -> str:
        """Return a redacted text; it repeats an entry's text, and is not counted."""
        counted = self._redactor.removed.copy()
        try:
            (left,) = self._redactor.value([text])
        except Exception as error:
            raise _cannot(error) from error
        self._redactor.removed = counted
        return str(left)

    @property
    def removed(self) -> Counter[str]:
        """Counts of the removed secrets by kind; UNREADABLE counts entries left out."""
        removed: Counter[str] = Counter()
        for (_, kind), count in self._redactor.removed.items():
            removed[kind] += count
        return removed


def _numbered(place: int, entry: PastEntry) -> Entry:
    return Entry(place, entry.kind, entry.at, entry.raw)


def _cannot(error: Exception) -> TranscriptError:
    if isinstance(error, RedactionError):
        return TranscriptError(f"it was not taken in: {error}")
    return TranscriptError(
        f"it cannot be looked through for secrets, and was not taken in: {type(error).__name__}"
    )
