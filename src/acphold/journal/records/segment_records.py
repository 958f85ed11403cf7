"""The records of the entries of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from acphold.history.entries import Segment
from acphold.journal.frames import plain
from acphold.journal.records.draft import ENTRIES, Draft, key
from acphold.journal.stored_history import END, StoredSegments

_decode: Final = msgspec.msgpack.Decoder(tuple[int, int, str, int, bytes]).decode


class SegmentRecords(StoredSegments):
    """The entries of the session with this number."""

    def __init__(self, draft: Draft, number: int) -> None:
        self._draft = draft
        self._number = number

    def read(
        self, after: int, limit_bytes: int, through: int = END, *, chunks: bool = True
    ) -> list[Segment]:
        found: list[Segment] = []
        for _, record in self._draft.walk(self._key(after + 1), self._key(through + 1)):
            found.append(_segment(record))
            limit_bytes -= len(found[-1].raw)
            if limit_bytes <= 0:
                break
        return found

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        found: list[Segment] = []
        walk = self._draft.walk(
            self._key(0), self._key(through + 1), backwards=True, at_once=min(limit, 64)
        )
        for _, record in walk:
            segment = _segment(record)
            if not kinds or segment.kind in kinds:
                found.append(segment)
                if len(found) >= limit:
                    break
        return found[::-1]

    def put(self, segment: Segment) -> None:
        """Write a segment."""
        its = segment.first_seq, segment.last_seq, segment.kind, segment.at, segment.raw
        self._draft.put(self._key(segment.last_seq), its)

    def remove(self, segment: Segment) -> None:
        """Remove a segment."""
        self._draft.remove(self._key(segment.last_seq))

    def empty(self, seq: int) -> None:
        """Remove the content of an entry, keeping its number."""
        [segment] = self.read(seq - 1, 1)
        raws = segment.raw.split(b"\n")
        # A merged entry, which stands for several numbers, is alone in its segment.
        raws[seq - segment.first_seq if len(raws) > 1 else 0] = b""
        self.put(msgspec.structs.replace(segment, raw=b"\n".join(raws)))

    def _key(self, seq: int) -> bytes:
        return key(ENTRIES, self._number, seq)


def _segment(record: bytes) -> Segment:
    first_seq, last_seq, kind, at, raw = _decode(record)
    return Segment(first_seq, last_seq, kind, at, plain(raw))
