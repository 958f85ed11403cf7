"""Settling the entries of a session, and taking in those of an import.

A finished turn is *settled*: its entries are compacted and counted, and then indexed. This is done
in pieces. Slow computation happens outside of the transactions, so that these are short.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from acphold.history.entries import PastEntry, in_segments
from acphold.history.fold import SessionState
from acphold.journal import frames, stored_history
from acphold.journal.journal import Lease, RowChange
from acphold.journal.settlement import PIECE_BYTES, Piece, Settled, decode_settled
from acphold.journal.sql import lease_rows, session_columns, usage_rows
from acphold.journal.sql.tables import KeptSegments, Key, Tables


def settle_piece(tables: Tables, lease: Lease, through: int, apart: Collection[int] = ()) -> bool:
    """Settle the next entries up to `through`; True if there may be more, False without a lease.

    No entry in `apart` is merged with later ones.
    """
    settled = _settled_under(tables, lease)
    if settled is None or settled >= through:
        return False
    found = tables.segments(tables.key(lease)).read(settled, PIECE_BYTES, through)
    if not found:
        return False
    piece = Piece(found, _before(tables, lease, settled), stored=True, apart=apart)
    with tables.writing():
        if _settled_under(tables, lease, locked=True) != settled:
            return False
        _write(tables, tables.key(lease), piece)
    return found[-1].last_seq < through


def take_in(
    tables: Tables,
    lease: Lease,
    past: Sequence[PastEntry],
    change: RowChange | None,
    link: tuple[str, str] | None,
    *,
    instead: bool = False,
    release: bool = False,
) -> int:
    """Append entries, already settled, to a session that is settled to its end; return the last
    number.

    With `instead`, they replace its last entry if that has a row to itself; with `release`, the
    lease is released. Raises LeaseLostError.
    """
    key, last = tables.key(lease), lease.next_seq - 1
    rows = tables.segments(key)
    instead = instead and rows.is_alone(last)
    found = list(in_segments(past, lease.next_seq - instead))
    before = _before(tables, lease, last)
    old_before = tables.now() - frames.OLD_MS
    piece = Piece(found, before, stored=False, old_before=old_before) if found else None
    through = found[-1].last_seq if found else last
    with tables.writing():
        if _settled_under(tables, lease, locked=True) is None:
            raise lease_rows.lost(tables, lease)
        # Read once the lease is locked: whoever held it may have settled them.
        settled = _settled_under(tables, lease)
        # They may be there already, when only the answer was lost. Then the first of them may stand
        # in one row with others, so that `instead` found nothing to replace.
        if settled is not None and settled > last:
            through, is_new = settled, False
        else:
            is_new = through != last or rows.read(last - 1, 1) != found
        if instead and is_new:  # as if it had never been there
            rows.remove(rows.read(last - 1, 1))
            parts = [
                f"{name} = CASE WHEN {name} > %s THEN %s ELSE {name} END"
                for name in ("settled_through", "indexed_through", "packed_through")
            ]
            tables.update(key, parts, [last - 1] * 2 * len(parts))
        if piece is not None and is_new:
            _write(tables, key, piece)
        if change is not None:
            tables.update(key, *session_columns.assignments(change, "%s"))
        if link is not None:
            tables.link(*link, key)
        if release:
            lease_rows.release(tables, lease)
    return through


def settled_state(tables: Tables, key: Key) -> Settled:
    """The settled state of a session."""
    row = tables.execute(
        f"SELECT summary FROM acphold.summaries WHERE {tables.KEY} = %s", (key,)
    ).fetchone()
    return Settled() if row is None else decode_settled(row[0])


def _settled_under(tables: Tables, lease: Lease, *, locked: bool = False) -> int | None:
    """The last settled entry of the session; None if the lease is lost."""
    row = tables.execute(
        "SELECT settled_through FROM acphold.sessions"
        f" JOIN acphold.leases ON leases.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" WHERE leases.{tables.KEY} = %s AND epoch = %s{tables.LOCKING_LEASE * locked}",
        (tables.key(lease), lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])


def _before(tables: Tables, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it matters for the entries that follow."""
    key = tables.key(lease)
    return stored_history.context(tables.segments(key), settled_state(tables, key).summary, settled)


def _write(tables: Tables, key: Key, piece: Piece) -> None:
    """Write the result of settling a run of segments."""
    rows = tables.segments(key)
    rows.remove(piece.gone)
    rows.insert(piece.new)
    earlier = settled_state(tables, key).snapshots
    for kind in earlier.keys() & piece.snapshots.keys():
        _empty(rows, earlier[kind])
    tables.keep_settled_state(key, Settled(piece.summary, earlier | piece.snapshots))
    parts = [
        "settled_through = %s",
        "message_count = message_count + %s",
        "packed_through = CASE WHEN %s AND packed_through = settled_through THEN %s"
        " ELSE packed_through END",
    ]
    tables.update(key, parts, [piece.last_seq, piece.messages, piece.is_packed, piece.last_seq])
    usage_rows.keep(tables, key, piece.usage)


def _empty(rows: KeptSegments, seq: int) -> None:
    """Remove the content of an entry, keeping its number."""
    last_seq, first_seq, raw = rows.row_with(seq)
    raws = frames.plain(raw).split(b"\n")
    # A merged entry, which stands for several numbers, is alone in its row.
    raws[seq - first_seq if len(raws) > 1 else 0] = b""
    rows.rewrite([(b"\n".join(raws), last_seq, len(raw))])
