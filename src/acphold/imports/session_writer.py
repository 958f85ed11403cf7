"""Writing of a conversation, piece by piece, each followed by a marker.

The marker is an entry that records the source of the piece and how much of it is there by now.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acphold.history import PastEntry
from acphold.imports.pieces import NewsPiece
from acphold.imports.sources import Source
from acphold.journal import Arrivals, Lease, RowChange, SessionRow

IMPORTED: Final = "imported"
"""The kind of the entry after imported ones; folds and replays skip it."""


class Marker(Struct, rename="camel"):
    """The content of an `imported` entry; size and time are 0 if more is to come."""

    reader: str
    place: str
    size: int
    changed_at: int
    taken: int
    digest: str
    title: str | None = None


class SessionWriter:
    """A session that pieces are taken into.

    `link` is the agent's id for it, if the journal does not know that yet; `row` and `before` are
    its earlier row and newest marker.
    """

    def __init__(
        self,
        journal: Arrivals,
        lease: Lease,
        source: Source,
        link: tuple[str, str] | None,
        row: SessionRow | None = None,
        before: Marker | None = None,
    ) -> None:
        self.lease = lease
        self._journal = journal
        self._source = source
        self._link = link
        self._row = row
        self._before = before
        self._has_marked = False

    async def take_in(self, piece: NewsPiece) -> bool:
        """Take a piece in; False if its only news is that it is the last one."""
        source, facts, row, before = self._source, piece.facts, self._row, self._before
        title = source.titled(facts.title)
        is_news = bool(piece.entries) or (
            piece.is_last and before is not None and title not in (None, before.title)
        )
        if facts.kept is None or source.apart:
            title = title or source.titled(piece.first_prompt)
        else:
            title = facts.title
        marker = Marker(
            source.reader,
            source.place,
            source.size if piece.is_all else 0,
            source.changed_at if piece.is_all else 0,
            piece.taken,
            piece.digest,
            title,
        )
        # If it was listed before it was read, its beginning may have given other facts.
        is_first = row is None and not self._has_marked
        if row is not None and row.title not in (None, before and before.title):
            title = row.title  # a person has renamed it
        archived: bool | UnsetType = UNSET
        if piece.entries:
            # A continued session leaves the archive. A new one is not archived either, unless a
            # person did that once it was listed.
            if row is not None:
                archived = False
            elif facts.kept is not None:
                archived = facts.kept.archived
        changed = source.changed_at // 1_000_000
        change = RowChange(
            title=title,
            updated_at=max(facts.updated_at or changed, row.updated_at if row else 0),
            prompted=True,
            archived=archived,
            cwd=facts.folder if is_first else UNSET,
            created_at=(facts.created_at or UNSET) if is_first else UNSET,
            unread=None if piece.is_last else UNSET,
        )
        # Entries without a time get that of the one before, or of the beginning.
        at = facts.created_at or changed
        timed: list[PastEntry] = []
        for entry in (*piece.entries, *piece.closing) if is_news else ():
            at = entry.at or at
            timed.append(entry if entry.at else PastEntry(entry.kind, at, entry.raw, entry.seq))
        timed.append(PastEntry(IMPORTED, at, msgspec.json.encode(marker)))
        # In one transaction: others write at the same time, and each has to wait for the lock. Of
        # the markers so far only the last one matters.
        await self._journal.take_in(
            self.lease,
            timed,
            change,
            self._link,
            instead=self._has_marked,
            release=piece.is_last,
        )
        self._link, self._has_marked = None, True
        return is_news


def is_as_it_was(marker: Marker | None, source: Source) -> bool:
    if marker is None or source.titled(source.title or "") not in ("", marker.title):
        return False
    before = marker.place, marker.size, marker.changed_at
    return before == (source.place, source.size, source.changed_at)


def marker_in(raw: bytes) -> Marker | None:
    try:
        return msgspec.json.decode(raw, type=Marker)
    except msgspec.MsgspecError:
        return None
