"""Records, as a store keeps them, and a draft of the changes that one transaction makes to them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")

TOP: Final = b"\xff" * 9
"""Appended to the beginning of some keys: comes after all of them."""

SESSIONS: Final = b"s"
"""By id: see `session_records.KeptSession`."""

LISTED: Final = b"l"
"""By time and id: the order of the list."""

CHANGES: Final = b"c"
"""By number: the ids of changed sessions."""

GONE: Final = b"g"
"""By id: the number of the deletion."""

ENTRIES: Final = b"e"
"""By number of the session and last number of the segment."""

SETTLED: Final = b"f"
"""By number of the session: its settled state."""

REPORTS: Final = b"u"
"""By number of the session and of the entry: reports on tokens and cost."""

SNAPSHOTS: Final = b"p"
"""By number of the session, turn, edge and root: snapshots of files."""

LINKS: Final = b"i"
"""By agent and its id: our id; "" for a tombstone."""

OWNERS: Final = b"o"
"""By id: see `written_records.KeptOwner`."""

TOKENS: Final = b"t"
"""By time and id."""

DEEDS: Final = b"d"
"""By token and number."""

DEED_COUNTS: Final = b"n"
"""By token: the number of its deeds."""

RULES: Final = b"r"
"""By person and number."""

META: Final = b"m"
"""By name: facts about the journal."""


class Records(Protocol):
    """The records of a journal. A store gives them to the work in `BaseJournal.transact`."""

    def get(self, key: bytes) -> bytes | None:
        """Return a record; None if there is none."""

    def scan(
        self, first: bytes, end: bytes, limit: int, backwards: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` keys, each with its record, from `first` on and below `end`.

        They are in the order of the bytes of the keys, or the reverse if `backwards`.
        """

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Store these records, or remove those that are None: all or nothing."""


def key(table: bytes, *parts: int | str) -> bytes:
    """The key of a record. Keys are in the order of their parts; raises UnicodeEncodeError."""
    return table + b"".join(
        (part + (1 << 63)).to_bytes(8, "big") if isinstance(part, int) else text(part) + b"\0\0"
        for part in parts
    )


def text(part: str) -> bytes:
    """The beginning of the key of each text that begins with `part`."""
    return part.encode().replace(b"\0", b"\0\xff")


class Draft:
    """The records as they will be after one transaction: changes are written at its end."""

    def __init__(self, records: Records, now: Callable[[], int]) -> None:
        """`now` returns the time of the journal, in ms since the epoch."""
        self.now = now
        self._records = records
        self._changes: dict[bytes, bytes | None] = {}
        self._keys: list[bytes] = []
        self._seen: dict[bytes, bytes | None] = {}

    def get(self, key: bytes, kind: type[T]) -> T | None:
        """Return a record; None if there is none."""
        if key in self._changes:
            found = self._changes[key]
        elif key in self._seen:
            found = self._seen[key]
        else:
            found = self._seen[key] = self._records.get(key)
        return None if found is None else msgspec.msgpack.decode(found, type=kind)

    def put(self, key: bytes, value: object) -> None:
        """Store a record."""
        self._change(key, msgspec.msgpack.encode(value))

    def remove(self, key: bytes) -> None:
        """Remove a record, if there is one."""
        self._change(key, None)

    def _change(self, key: bytes, value: bytes | None) -> None:
        if key not in self._changes:
            insort(self._keys, key)
        self._changes[key] = value

    def walk(
        self, first: bytes, end: bytes | None = None, *, backwards: bool = False, at_once: int = 64
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys from `first` on and below `end`, each with its record; without `end`,
        those that begin with `first`."""
        end = first + TOP if end is None else end
        while first < end:
            found = dict(self._records.scan(first, end, at_once, backwards))
            start, stop, last = first, end, next(reversed(found), b"")
            if len(found) < at_once:
                first = end
            elif backwards:
                start = end = last
            else:
                stop = first = last + b"\0"
            changed = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]
            found |= {it: value for it in changed if (value := self._changes[it])}
            for it in sorted(found, reverse=backwards):
                if self._changes.get(it, b"") is not None:
                    yield it, found[it]

    def next_number(self) -> int:
        """Return a number that is higher than all before."""
        place = key(META, "number")
        number = (self.get(place, int) or 0) + 1
        self.put(place, number)
        return number

    def save(self) -> None:
        """Write the changes, if there are any."""
        if self._changes:
            self._records.write(self._changes)
