"""Writing to a session in records: leases, and entries appended, settled and taken in.

An owner lives as long as it reports, by the clock of the journal. One that is late is *gone*, and
may come back; one that has been silent for long is replaced for somebody who wants its sessions.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import HeldElsewhereError, LeaseLostError
from acphold.history.entries import PastEntry, Segment, in_segments
from acphold.history.fold import SessionState, Summary
from acphold.journal import bounds, owners as journal_owners, stored_history
from acphold.journal.journal import Append, Lease
from acphold.journal.lineage import why_lost
from acphold.journal.location import is_same_folder
from acphold.journal.owners import Free, Owner, Whose
from acphold.journal.records import session_records
from acphold.journal.records.draft import OWNERS, REPORTS, SETTLED, Draft, key
from acphold.journal.records.session_records import KeptSession
from acphold.journal.rows import RowChange
from acphold.journal.seams import Grouping, UsageSum, UsageSums
from acphold.journal.stored_history import Piece, Settled
from acphold.journal.token_reports import Report
from acphold.journal.usage_groups import add, in_order, session_usage


class KeptOwner(Struct):
    """An owner; `renewed_at` (ms) is the time of its last report."""

    id: str
    addresses: tuple[str, ...]
    renewed_at: int
    retired: bool = False
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)

    def owner(self) -> Owner:
        return Owner(self.id, self.host, self.pid, self.addresses)


def register(draft: Draft, owner: KeptOwner) -> None:
    """Note that an owner lives, and forget those that have not reported for long."""
    for it, record in draft.walk(OWNERS):
        known = msgspec.msgpack.decode(record, type=KeptOwner)
        if owner.renewed_at - known.renewed_at > bounds.FORGOTTEN_SECONDS * 1000:
            draft.remove(it)
    draft.put(key(OWNERS, owner.id), owner)


def unregister(draft: Draft, owner_id: str) -> None:
    """Remove an owner that ends; its sessions are free."""
    draft.remove(key(OWNERS, owner_id))


def grant(draft: Draft, kept: KeptSession, owner: KeptOwner, *, yields: bool) -> Lease:
    """Give a session to an owner, whoever had it."""
    if draft.get(key(OWNERS, owner.id), KeptOwner) is None:
        register(draft, owner)
    kept.owner, kept.epoch, kept.yields = owner.id, draft.next_number(), yields
    row = kept.row
    for last in kept.segments(draft).read_back(row.last_seq, 1):
        # The last owner may have died before it updated the row.
        kept.row = msgspec.structs.replace(row, updated_at=max(row.updated_at, last.at))
    session_records.keep(draft, kept)
    return Lease(row.session_id, kept.number, kept.epoch, row.last_seq + 1, row.lineage)


def acquire(
    draft: Draft, session_id: str, owner: KeptOwner, seen: int | None, *, yields: bool
) -> Lease:
    """Like `Journal.acquire`."""
    kept = session_records.find(draft, session_id)
    if seen is not None and kept.epoch != seen:
        raise HeldElsewhereError(session_id, "another acphold process", kept.epoch)
    return grant(draft, kept, owner, yields=yields)


def held(draft: Draft, lease: Lease, *, whole: bool = False) -> KeptSession:
    """Return the session of a lease; raises LeaseLostError. With `whole`, it has all entries that
    were written under the lease, and no others."""
    kept = session_records.look(draft, lease.session_id)
    if kept is None:
        was_deleted = session_records.was_there(draft, lease.session_id)
        raise why_lost(lease, None, None, 0, was_deleted=was_deleted)
    last_seq = kept.row.last_seq
    if (kept.number, kept.epoch) != (lease.number, lease.epoch) or (
        whole and last_seq != lease.next_seq - 1
    ):
        raise why_lost(lease, kept.number, kept.epoch, last_seq, was_deleted=False)
    return kept


def release(draft: Draft, lease: Lease) -> None:
    """Release the session, unless the lease is lost."""
    if error(draft, lease) is None:
        kept = session_records.find(draft, lease.session_id)
        kept.owner = ""
        session_records.keep(draft, kept)


def change(draft: Draft, session: Lease | str, change: RowChange) -> None:
    """Like `Sessions.change`."""
    if isinstance(session, str):
        kept = session_records.find(draft, session)
    else:
        kept = held(draft, session)
    kept.row = session_records.changed(kept.row, change)
    session_records.keep(draft, kept)


def link(draft: Draft, lease: Lease | None, agent: str, downstream_id: str) -> None:
    """Like `Links.link`."""
    kept = None if lease is None else held(draft, lease)
    session_records.link(draft, agent, downstream_id, kept)


def error(draft: Draft, lease: Lease) -> LeaseLostError | None:
    """The error if the lease is lost."""
    try:
        held(draft, lease)
    except LeaseLostError as lost:
        return lost
    return None


def whose(draft: Draft, session_id: str, own_id: str) -> Whose:
    """The owner of a session, as seen by the owner `own_id`; raises UnknownSessionError."""
    kept = session_records.find(draft, session_id)
    known = draft.get(key(OWNERS, kept.owner), KeptOwner)
    if known is None:
        return Free(kept.epoch)
    silent = (draft.now() - known.renewed_at) / 1000
    yields = kept.yields or known.retired
    return journal_owners.whose(
        known.owner(), kept.epoch, silent, own_id, yields=yields, is_proved=False
    )


def owners(draft: Draft) -> list[Owner]:
    """Like `Journal.owners`."""
    oldest = draft.now() - bounds.SILENT_SECONDS * 1000
    found = (msgspec.msgpack.decode(record, type=KeptOwner) for _, record in draft.walk(OWNERS))
    return [it.owner() for it in found if it.addresses and it.renewed_at >= oldest]


def append_all(
    draft: Draft, appends: Sequence[Append], made: Sequence[list[Segment]]
) -> list[list[Segment] | LeaseLostError]:
    """Like `Journal.append_all`, given the segments of each."""
    return [_append(draft, *both) for both in zip(appends, made, strict=True)]


def _append(draft: Draft, append: Append, made: list[Segment]) -> list[Segment] | LeaseLostError:
    """Write segments, and the change of the row with them; return them, or the error if the lease
    is lost. Raises OverflowError."""
    try:
        kept = held(draft, append.lease, whole=True)
    except LeaseLostError as error:
        return error
    for segment in made:
        kept.segments(draft).put(segment)
    kept.row = session_records.changed(replace(kept.row, last_seq=made[-1].last_seq), append.change)
    session_records.keep(draft, kept)
    return made


def next_piece(
    draft: Draft, lease: Lease, through: int
) -> tuple[list[Segment], SessionState] | None:
    """The next segments to settle up to `through`, and the state before them; None if there are
    none, or the lease is lost."""
    if error(draft, lease) is not None:
        return None
    kept = session_records.find(draft, lease.session_id)
    found = kept.segments(draft).read(kept.settled, bounds.PIECE_BYTES, through)
    return (found, _before(draft, kept, kept.settled)) if found else None


def settle(draft: Draft, lease: Lease, found: Sequence[Segment], piece: Piece) -> bool:
    """Write the settled segments, unless the lease was lost meanwhile; then return False."""
    if error(draft, lease) is not None:
        return False
    kept = session_records.find(draft, lease.session_id)
    if kept.settled >= found[0].first_seq:
        return False
    _write(draft, kept, piece)
    session_records.keep(draft, kept)
    return True


def take_in(
    draft: Draft,
    lease: Lease,
    past: Sequence[PastEntry],
    change: RowChange | None,
    link: tuple[str, str] | None,
    *,
    instead: bool,
    release: bool,
) -> int:
    """Append entries, already settled, to a session that is settled to its end; return the last
    number. See `Journal.take_in`."""
    kept = held(draft, lease, whole=True)
    segments, last = kept.segments(draft), kept.row.last_seq
    for alone in segments.read_back(last, 1) if instead else ():
        if alone.first_seq == alone.last_seq:  # as if it had never been there
            segments.remove(alone)
            last = kept.settled = last - 1
    if found := list(in_segments(past, last + 1)):
        _write(draft, kept, Piece(found, _before(draft, kept, last), stored=False))
        last = found[-1].last_seq
    kept.row = session_records.changed(replace(kept.row, last_seq=last), change)
    if release:
        kept.owner = ""
    session_records.keep(draft, kept)
    if link is not None:
        session_records.link(draft, *link, kept)
    return last


def _write(draft: Draft, kept: KeptSession, piece: Piece) -> None:
    segments = kept.segments(draft)
    for gone in piece.gone:
        segments.remove(gone)
    for new in piece.new:
        segments.put(new)
    earlier = _settled(draft, kept).snapshots
    for kind in earlier.keys() & piece.snapshots.keys():
        segments.empty(earlier[kind])
    settled = Settled(piece.summary, earlier | piece.snapshots)
    draft.put(key(SETTLED, kept.number), settled)
    for report in piece.usage:
        draft.put(key(REPORTS, kept.number, report.seq), report)
    kept.settled = piece.last_seq
    kept.row = replace(kept.row, message_count=kept.row.message_count + piece.messages)


def _settled(draft: Draft, kept: KeptSession) -> Settled:
    return draft.get(key(SETTLED, kept.number), Settled) or Settled()


def _before(draft: Draft, kept: KeptSession, settled: int) -> SessionState:
    summary = _settled(draft, kept).summary
    return stored_history.context(kept.segments(draft), summary, settled)


def summary(draft: Draft, session_id: str) -> Summary:
    """Like `Journal.summary`."""
    kept = session_records.find(draft, session_id)
    return stored_history.summary(kept.segments(draft), _settled(draft, kept).summary, kept.settled)


def usage(
    draft: Draft,
    by: Grouping,
    *,
    agents: tuple[str, ...] = (),
    cwd: str | None = None,
    since: int = 0,
) -> UsageSums:
    """Like `Index.usage`."""
    groups: dict[str, UsageSum] = {}
    total, by_request = UsageSum(""), set[str]()
    for kept in session_records.newest(draft):
        row = kept.row
        if row.updated_at < since:
            break
        if not row.prompted or row.is_unread or not (cwd is None or is_same_folder(cwd, row.cwd)):
            continue
        found = [
            msgspec.msgpack.decode(record, type=Report)
            for _, record in draft.walk(key(REPORTS, kept.number))
        ]
        origins = msgspec.json.encode(row.origins).decode()
        facts = row.session_id, row.agent, row.cwd, row.title, row.updated_at, origins
        used = session_usage(
            facts, found, kept.segments(draft), kept.settled, since, has_models=by == "model"
        )
        by_request |= add(used, by, agents, groups, total)
    sums = [*groups.values()] if by == "session" else in_order(by, groups.values())
    return UsageSums(sums, total, frozenset(by_request))
