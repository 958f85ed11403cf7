"""A store in a dict: a journal as long as its process, for tests or a demonstration.

acphold.stores.register("memory", open_memory)
agent.run(journal="memory://")
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import TypeVar

from acphold.stores import BaseJournal, Journal, ReadTranscript, Records

T = TypeVar("T")


class Shelf:
    """Records in a dict, and their keys in order."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._records.get(key)

    def scan(
        self, first: bytes, end: bytes, limit: int, backwards: bool
    ) -> list[tuple[bytes, bytes]]:
        start, stop = bisect_left(self._keys, first), bisect_left(self._keys, end)
        if backwards:
            keys = self._keys[max(start, stop - limit) : stop][::-1]
        else:
            keys = self._keys[start : min(stop, start + limit)]
        return [(key, self._records[key]) for key in keys]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                if self._records.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._records:
                    insort(self._keys, key)
                self._records[key] = value


class DictJournal(BaseJournal):
    """A journal on a shelf. Journals that share a shelf share their sessions."""

    def __init__(
        self, shelf: Shelf, url: str = "", read_transcript: ReadTranscript | None = None
    ) -> None:
        super().__init__(url, read_transcript=read_transcript)
        self._shelf = shelf

    async def transact(self, work: Callable[[Records], T]) -> T:
        # In the thread of the loop, without an `await`: nobody else comes in between.
        return work(self._shelf)


SHELF = Shelf()


def open_memory(url: str, *, create: bool, read_transcript: ReadTranscript | None) -> Journal:
    """Return the journal of this process."""
    return DictJournal(SHELF, url, read_transcript)
