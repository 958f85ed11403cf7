"""The records of snapshots; see `journal.snapshots`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from acphold.journal.records import session_records
from acphold.journal.records.draft import SESSIONS, SNAPSHOTS, Draft, key
from acphold.journal.records.session_records import KeptSession, look
from acphold.journal.snapshots import TurnSnapshot


def keep(draft: Draft, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.keep`."""
    kept = session_records.find(draft, session_id)
    for one in taken:
        draft.put(_place(kept, one), one)
    session_records.keep(draft, kept, always=True)


def of(draft: Draft, session_id: str) -> list[TurnSnapshot]:
    """Like `Snapshots.of`."""
    kept = look(draft, session_id)
    return [] if kept is None else [*_its(draft, kept)]


def newest(draft: Draft, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
    """Like `Snapshots.newest`."""
    found = {}
    for session_id in session_ids:
        if (kept := look(draft, session_id)) is not None:
            for one in _its(draft, kept, backwards=True):
                found[session_id] = one
                break
    return found


def named(draft: Draft) -> list[tuple[str, TurnSnapshot]]:
    """Like `Snapshots.named`."""
    rows = (msgspec.msgpack.decode(row, type=KeptSession) for _, row in draft.walk(SESSIONS))
    return [(kept.row.session_id, one) for kept in rows for one in _its(draft, kept)]


def drop(draft: Draft, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.drop`."""
    if (kept := look(draft, session_id)) is not None:
        for one in taken:
            draft.remove(_place(kept, one))


def _place(kept: KeptSession, one: TurnSnapshot) -> bytes:
    return key(SNAPSHOTS, kept.number, one.turn, int(one.edge == "end"), one.root)


def _its(draft: Draft, kept: KeptSession, *, backwards: bool = False) -> Iterator[TurnSnapshot]:
    for _, row in draft.walk(key(SNAPSHOTS, kept.number), backwards=backwards):
        yield msgspec.msgpack.decode(row, type=TurnSnapshot)
