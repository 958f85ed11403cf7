"""The entries of a conversation without the secrets in them, before any of it is taken in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from acphold.errors import TranscriptError
from acphold.journal import Entry, PastEntry
from acphold.redaction.redactor import Redactor

CHUNKS_AT_MOST: Final = 8 << 20
"""Bytes of a piece at which it ends even inside of a message: agents say less at once."""


BATCH_BYTES: Final = 512 << 10
"""How much is looked through at once."""


class SecretsOut:
    """Takes the secrets out of one conversation, all of which it is told first.

    Home paths and addresses stay, and so do pictures: the journal is the user's own.
    """

    def __init__(self, told: Iterable[PastEntry]) -> None:
        self._redactor = Redactor(only_secrets=True)
        try:
            for some in _batches(told):
                self._redactor.learn(_numbered(some))
        except (OSError, TranscriptError):
            raise
        except Exception as error:
            raise _cannot(error) from error

    def entries(self, told: Sequence[PastEntry]) -> list[PastEntry]:
        """Entries without secrets; one that cannot be looked through is left out."""
        try:
            left = self._redactor.entries(_numbered(told))
        except Exception as error:
            raise _cannot(error) from error
        return [PastEntry(entry.kind, entry.at, entry.raw, told[entry.seq].seq) for entry in left]

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


def _batches(told: Iterable[PastEntry]) -> Iterator[list[PastEntry]]:
    """Entries, some of them in memory at a time, none of a message in two parts."""
    batch: list[PastEntry] = []
    size = 0
    for entry in told:
        batch.append(entry)
        size += len(entry.raw)
        if size >= BATCH_BYTES and not may_go_on(entry, size):
            yield batch
            batch, size = [], 0
    yield batch


def may_go_on(entry: PastEntry, size: int) -> bool:
    """Whether so much may not end behind this entry: the message in it may go on."""
    return b'_chunk"' in entry.raw and size < CHUNKS_AT_MOST


def _numbered(told: Iterable[PastEntry]) -> list[Entry]:
    return [Entry(place, entry.kind, entry.at, entry.raw) for place, entry in enumerate(told)]


def _cannot(error: Exception) -> TranscriptError:
    return TranscriptError(
        f"it cannot be looked through for secrets, and was not taken in: {type(error).__name__}"
    )
