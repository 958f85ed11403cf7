"""Settling the entries of a session, taking in those of an import, and what is computed from them:
the summary, and the sums of usage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from acphold.errors import LeaseLostError
from acphold.history.entries import PastEntry, Segment, in_segments
from acphold.history.fold import SessionState, Summary
from acphold.journal import stored_history
from acphold.journal.index import Grouping, UsageSum, UsageSums
from acphold.journal.journal import Append, Lease, RowChange
from acphold.journal.location import is_same_folder
from acphold.journal.records import lease_records, session_records
from acphold.journal.records.draft import REPORTS, SETTLED, Draft, key
from acphold.journal.records.session_records import KeptSession
from acphold.journal.settlement import PIECE_BYTES, Piece, Settled
from acphold.journal.token_reports import Report
from acphold.journal.usage_groups import add, in_order, session_usage


def append(draft: Draft, append: Append, made: list[Segment]) -> list[Segment] | LeaseLostError:
    """Write segments, and the change of the row with them; return them, or the error if the lease
    is lost. Raises OverflowError, and ValueError for no entries."""
    if not made:
        raise ValueError("nothing to append")
    try:
        kept = lease_records.held(draft, append.lease, whole=True)
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
    if lease_records.error(draft, lease) is not None:
        return None
    kept = session_records.find(draft, lease.session_id)
    found = kept.segments(draft).read(kept.settled, PIECE_BYTES, through)
    return (found, _before(draft, kept, kept.settled)) if found else None


def settle(draft: Draft, lease: Lease, found: Sequence[Segment], piece: Piece) -> bool:
    """Write the settled segments, unless the lease was lost meanwhile; then return False."""
    if lease_records.error(draft, lease) is not None:
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
    kept = lease_records.held(draft, lease, whole=True)
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
    its = [*groups.values()] if by == "session" else in_order(by, groups.values())
    return UsageSums(its, total, frozenset(by_request))
