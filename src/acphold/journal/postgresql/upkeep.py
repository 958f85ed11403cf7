"""Work on a journal after turns and between them: settling, taking in, packing.

Slow computation happens outside of the transactions, so that these are short. The functions make
transactions of their own, and may raise psycopg errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from acphold.history.entries import PastEntry, in_segments
from acphold.history.fold import SessionState
from acphold.journal import packing, settlement, token_reports
from acphold.journal.journal import Lease, RowChange
from acphold.journal.postgresql import leases, segments, session_rows, usage
from acphold.journal.postgresql.leases import CHANGED
from acphold.journal.postgresql.migrations import Line
from acphold.journal.settlement import PIECE_BYTES, Piece, Settled
from acphold.journal.usage_slots import (
    FEW_CURRENCIES,
    Slot,
    insert_costs,
    insert_slots,
    slots,
)

_COUNTS: Final = ", ".join(token_reports.COUNTS)


def settled_state(line: Line, session_id: str) -> Settled:
    """The settled state of a session."""
    row = line.execute(
        "SELECT summary FROM acphold.summaries WHERE session_id = %s", (session_id,)
    ).fetchone()
    return Settled() if row is None else settlement.decode_settled(row[0])


# -- settling ---------------------------------------------------------------------------------


def settle_piece(line: Line, lease: Lease, through: int, apart: Collection[int] = ()) -> bool:
    """Settle the next entries up to `through`; True if there may be more, False without a lease.

    No entry in `apart` is merged with later ones.
    """
    settled = _settled_under(line, lease)
    if settled is None or settled >= through:
        return False
    found = segments.Of(line, lease.session_id).read(settled, PIECE_BYTES, through)
    if not found:
        return False
    piece = Piece(found, _before(line, lease, settled), stored=True, apart=apart)
    with line.transaction():
        if _settled_under(line, lease, locked=True) != settled:
            return False
        _write(line, lease.session_id, piece)
    return True


def take_in(
    line: Line,
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
    session_id, rows = lease.session_id, segments.Of(line, lease.session_id)
    last = lease.next_seq - 1
    instead = instead and rows.is_alone(last)
    found = list(in_segments(past, lease.next_seq - instead))
    before = _before(line, lease, last)
    old_before = now(line) - packing.OLD_MS
    piece = Piece(found, before, stored=False, old_before=old_before) if found else None
    through = found[-1].last_seq if found else last
    with line.transaction():
        leases.require(line, lease)
        if found and _last_seq(line, session_id) == through and _settled(line, session_id):
            return through  # written before, and only the answer was lost
        if instead:  # as if it had never been there
            line.execute(
                "DELETE FROM acphold.segments WHERE session_id = %s AND last_seq = %s",
                (session_id, last),
            )
            line.execute(
                "UPDATE acphold.sessions SET settled_through = %s,"
                " indexed_through = least(indexed_through, %s),"
                " packed_through = least(packed_through, %s) WHERE session_id = %s",
                (last - 1, last - 1, last - 1, session_id),
            )
        if piece is not None:
            _write(line, session_id, piece)
        if change is not None:
            session_rows.change_row(line, session_id, change)
        if link is not None:
            session_rows.link(line, *link, session_id)
        if release:
            leases.release(line, lease)
    return through


def now(line: Line) -> int:
    """The time by the clock of the database, in ms since the epoch."""
    row = line.execute(f"SELECT {segments.NOW_MS}").fetchone()
    assert row is not None
    return int(row[0])


def _last_seq(line: Line, session_id: str) -> int:
    row = line.execute(
        "SELECT coalesce(max(last_seq), 0) FROM acphold.segments WHERE session_id = %s",
        (session_id,),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _settled(line: Line, session_id: str) -> bool:
    return session_rows.settled_through(line, session_id) == _last_seq(line, session_id)


def _before(line: Line, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it matters for the entries that follow."""
    rows = segments.Of(line, lease.session_id)
    return settlement.going_on(
        settled_state(line, lease.session_id).summary,
        settlement.context(rows.read_back(settled, settlement.CONTEXT_SEGMENTS)),
    )


def _write(line: Line, session_id: str, piece: Piece) -> None:
    """Write the result of settling a run of segments."""
    rows = segments.Of(line, session_id)
    if piece.gone:
        rows.remove(piece.gone)
    rows.insert(piece.new)
    earlier = settled_state(line, session_id).snapshots
    for kind in earlier.keys() & piece.snapshots.keys():
        rows.empty(earlier[kind])
    settled = Settled(piece.summary, earlier | piece.snapshots)
    line.execute(
        "INSERT INTO acphold.summaries VALUES (%s, %s)"
        " ON CONFLICT (session_id) DO UPDATE SET summary = excluded.summary",
        (session_id, settlement.encode_settled(settled)),
    )
    line.execute(
        "UPDATE acphold.sessions SET settled_through = %(last)s,"
        " message_count = message_count + %(messages)s, packed_through ="
        " CASE WHEN %(packed)s AND packed_through = settled_through THEN %(last)s"
        f" ELSE packed_through END, {CHANGED} WHERE session_id = %(session)s",
        {
            "last": piece.last_seq,
            "messages": piece.messages,
            "packed": piece.is_packed,
            "session": session_id,
        },
    )
    keep_usage(line, session_id, piece.usage)


def _settled_under(line: Line, lease: Lease, *, locked: bool = False) -> int | None:
    """The last settled entry of the session; None if the lease is lost."""
    row = line.execute(
        "SELECT settled_through FROM acphold.leases JOIN acphold.sessions USING (session_id)"
        f" WHERE session_id = %s AND epoch = %s{' FOR SHARE OF leases' if locked else ''}",
        (lease.session_id, lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])


def keep_usage(line: Line, session_id: str, found: Sequence[token_reports.Report]) -> None:
    """Write the rows of new reports, and update the sums of their slots.

    `found` is in the order of the session. The row of the session must be locked, so that others
    write its reports before or afterwards.
    """
    if not found:
        return
    found = [replace(report, currency=report.currency.replace("\0", "")) for report in found]
    row = line.execute(
        "SELECT coalesce(max(seq), 0) FROM acphold.usage WHERE session_id = %s", (session_id,)
    ).fetchone()
    last = 0 if row is None else int(row[0])
    with line.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO acphold.usage (session_id, seq, at, by_turn, cost, currency,"
            f" {_COUNTS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [
                (
                    *(
                        session_id,
                        report.seq,
                        report.at,
                        2 if report.so_far else int(report.by_turn),
                    ),
                    *(report.cost, report.currency),
                    *(getattr(report.tokens, name, None) for name in token_reports.COUNTS),
                )
                for report in found
            ],
        )
        written = cursor.rowcount
    currencies = {report.currency for report in found if report.cost is not None}
    if found[0].seq > last and len(currencies) <= FEW_CURRENCIES:
        paid = {
            currency: float(cost)
            for currency in currencies
            for (cost,) in line.execute(_PAID, (session_id, currency, last))
        }
        _add(line, session_id, slots(found, paid))
    elif written:  # older reports were added later, so recompute all sums
        for table in ("usage_slots", "usage_costs"):
            line.execute(f"DELETE FROM acphold.{table} WHERE session_id = %s", (session_id,))
        _add(line, session_id, slots(usage.reports_of(line, session_id), {}))


_PAID: Final = """
    SELECT cost FROM acphold.usage
    WHERE session_id = %s AND currency = %s AND seq <= %s AND cost IS NOT NULL
    ORDER BY seq DESC LIMIT 1
"""


def _add(line: Line, session_id: str, sums: Mapping[int, Slot]) -> None:
    with line.cursor() as cursor:
        cursor.executemany(
            _INSERT_SLOTS, [(session_id, at, *slot.row) for at, slot in sums.items()]
        )
        cursor.executemany(
            _INSERT_COSTS,
            [(session_id, at, *cost) for at, slot in sums.items() for cost in slot.costs.items()],
        )


_INSERT_SLOTS: Final = insert_slots("acphold.usage_slots", "session_id", "%s")
_INSERT_COSTS: Final = insert_costs("acphold.usage_costs", "session_id", "%s")


# -- packing ----------------------------------------------------------------------------------


def pack_piece(line: Line, session_id: str, before: int | None) -> bool:
    """Pack the next settled rows of a session, up to the first from `before` or later (ms).

    False if there were none.
    """
    if (far := _how_far(line, session_id)) is None:
        return False
    rows: list[tuple[int, bytes]] = []
    size = 0
    for seq, at, raw in line.execute(
        "SELECT last_seq, at, raw FROM acphold.segments WHERE session_id = %s"
        " AND last_seq > %s AND last_seq <= %s ORDER BY last_seq LIMIT 512",
        (session_id, *far),
        binary=True,
    ).fetchall():
        if (before is not None and at >= before) or size >= packing.PIECE_BYTES:
            break
        rows.append((seq, raw))
        size += len(raw)
    if not rows:
        return False
    smaller = [(packing.packed(raw), seq, raw) for seq, raw in rows]
    with line.transaction(), line.cursor() as cursor:
        # Another process may have been quicker, or the session was deleted.
        if _how_far(line, session_id, locked=True) == far:
            # The length is compared because a row may have been emptied meanwhile.
            cursor.executemany(
                "UPDATE acphold.segments SET raw = %s"
                " WHERE session_id = %s AND last_seq = %s AND octet_length(raw) = %s",
                [
                    (made, session_id, seq, len(raw))
                    for made, seq, raw in smaller
                    if len(made) < len(raw)
                ],
            )
            cursor.execute(
                "UPDATE acphold.sessions SET packed_through = %s WHERE session_id = %s",
                (rows[-1][0], session_id),
            )
    return True


def newest_unpacked(line: Line) -> str | None:
    """The next session to pack: the newest of those that nobody has continued for a day."""
    row = line.execute(
        f"SELECT session_id {_UNPACKED} ORDER BY updated_at DESC LIMIT 1", (packing.OLD_MS,)
    ).fetchone()
    return None if row is None else str(row[0])


def unpacked_sessions(line: Line) -> int:
    """The number of sessions that nobody has continued for a day, with rows that are not packed."""
    row = line.execute(f"SELECT count(*) {_UNPACKED}", (packing.OLD_MS,)).fetchone()
    return 0 if row is None else int(row[0])


_UNPACKED: Final = (
    "FROM acphold.sessions WHERE packed_through < settled_through"
    f" AND updated_at < {segments.NOW_MS} - %s"
)


def _how_far(line: Line, session_id: str, *, locked: bool = False) -> tuple[int, int] | None:
    """The last packed and the last settled entry of a session; None if nothing is left to pack."""
    row = line.execute(
        "SELECT packed_through, settled_through FROM acphold.sessions"
        f" WHERE session_id = %s AND packed_through < settled_through{' FOR UPDATE' * locked}",
        (session_id,),
    ).fetchone()
    return None if row is None else (row[0], row[1])
