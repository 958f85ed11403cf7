"""The entries of a conversation without the secrets in them, before any of it is taken in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from acphold.errors import RedactionError, TranscriptError
from acphold.history import Entry, PastEntry
from acphold.redaction.redactor import Redactor


class SecretsOut:
    """Takes the secrets out of one conversation, all of which it is told first.

    Home paths and addresses stay, and so do pictures: the journal is the user's own.
    """

    def __init__(self, told: Iterable[PastEntry]) -> None:
        """Each iteration of `told` tells all of it; the last one may be broken off."""
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
        """How many entries were looked through."""
        return self._redactor.count

    def entry(self, place: int, told: PastEntry) -> PastEntry | None:
        """The entry number `place`, from 0, without secrets; None if that cannot be read."""
        try:
            left = self._redactor.entry(place, _numbered(place, told))
        except Exception as error:
            raise _cannot(error) from error
        return None if left is None else PastEntry(left.kind, left.at, left.raw, told.seq)

    def closing(self, told: PastEntry) -> PastEntry | None:
        """The same for what is made up behind the last one."""
        try:
            left = self._redactor.last_entry(_numbered(self._redactor.count, told))
        except Exception as error:
            raise _cannot(error) from error
        return None if left is None else PastEntry(left.kind, left.at, left.raw, told.seq)

    def text(self, text: str) -> str:
        """A text without secrets; it repeats what an entry says, and is not counted."""
        counted = self._redactor.removed.copy()
        try:
            (left,) = self._redactor.value([text])
        except Exception as error:
            raise _cannot(error) from error
        self._redactor.removed = counted
        return str(left)

    @property
    def removed(self) -> Counter[str]:
        """How many of each kind were taken out so far; UNREADABLE counts what was left out."""
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
