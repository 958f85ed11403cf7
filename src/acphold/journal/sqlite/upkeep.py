"""Work on a journal after turns and between them: settling, taking in, checking.

A finished turn is *settled*: its entries are compacted and counted, and then indexed by
`search_index`. All of this runs in the background thread, in pieces. Slow computation happens
outside of the transactions, so that these are short: appends of other sessions wait a few
milliseconds at most. Between two pieces the thread serves other requests, above all checkpoints.

The functions take the connection of the background thread, and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from zlib import crc32

from acphold.errors import UnknownSessionError
from acphold.history.entries import PastEntry, Segment, in_segments
from acphold.history.fold import SessionState, Summary
from acphold.history.times import now_ms
from acphold.journal import packing, stored_history
from acphold.journal.journal import Lease, PageBack, RowChange
from acphold.journal.settlement import (
    PIECE_BYTES,
    Piece,
    Settled,
    decode_settled,
    encode_settled,
    going_on,
)
from acphold.journal.sqlite import (
    leases,
    packed_rows,
    segments,
    session_rows,
    token_usage,
)
from acphold.journal.sqlite.connection import Connection, reading, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

# -- reading ------------------------------------------------------------------------------------


def read(
    connection: sqlite3.Connection, session_id: str, after: int, limit_bytes: int, tail_bytes: int
) -> list[Segment]:
    """Like `Journal.read`."""
    if not tail_bytes:
        rows = segments.Of(connection, session_rows.number_of(connection, session_id))
        return stored_history.page(rows, after, limit_bytes, 0, 0)
    with reading(connection):
        number, settled = _settled_through(connection, session_id)
        rows = segments.Of(connection, number)
        return stored_history.page(rows, after, limit_bytes, settled, tail_bytes)


def read_back(
    connection: sqlite3.Connection,
    session_id: str,
    before: int | None,
    limit: int,
    limit_bytes: int,
    kinds: Sequence[str] = (),
) -> PageBack:
    """Like `Journal.read_back`."""
    number, settled = _settled_through(connection, session_id)
    rows = segments.Of(connection, number)
    return stored_history.page_back(rows, session_id, settled, before, limit, limit_bytes, kinds)


def summary(connection: sqlite3.Connection, session_id: str) -> Summary:
    """Combine the settled summary with the entries behind it; raises UnknownSessionError."""
    number, settled = _settled_through(connection, session_id)
    kept = settled_state(connection, number).summary
    return stored_history.summary(segments.Of(connection, number), kept, settled)


def unsettled_bytes(connection: sqlite3.Connection, session_id: str) -> int:
    """The bytes of unsettled entries; raises UnknownSessionError."""
    return segments.size(connection, *_settled_through(connection, session_id))


def is_exact(connection: sqlite3.Connection, session_id: str, after: int) -> bool:
    """Like `Journal.is_exact`."""
    number, settled = _settled_through(connection, session_id)
    return stored_history.is_exact(segments.Of(connection, number), settled, after)


def _settled_through(connection: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """The number of a session, and its last settled entry; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT number, settled_through FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return row[0], row[1]


def settled_state(connection: sqlite3.Connection, number: int) -> Settled:
    """The settled state of a session, by its number."""
    row = connection.execute(
        "SELECT summary FROM summaries WHERE session = ?", (number,)
    ).fetchone()
    return Settled() if row is None else decode_settled(row[0])


def keep_settled_state(connection: sqlite3.Connection, number: int, settled: Settled) -> None:
    """Store the settled state of a session, replacing the former one."""
    summary = encode_settled(settled)
    connection.execute(
        "INSERT OR REPLACE INTO summaries (session, summary, checksum) VALUES (?, ?, ?)",
        (number, summary, crc32(summary)),
    )


def spoiled_summaries(connection: sqlite3.Connection, number: int | None = None) -> list[str]:
    """The sessions, all or one, whose stored summary is not what was written."""
    rows = connection.execute(
        "SELECT session_id, summary, checksum FROM summaries JOIN sessions ON number = session"
        f"{'' if number is None else ' WHERE session = ?'}",
        () if number is None else (number,),
    )
    return [session_id for session_id, summary, checksum in rows if crc32(summary) != checksum]


def spoiled(connection: sqlite3.Connection) -> list[str]:
    """The sessions whose summary, or sums of usage, are not what was written."""
    found = spoiled_summaries(connection)
    for number, name in connection.execute("SELECT number, session_id FROM sessions").fetchall():
        with reading(connection):
            if not token_usage.has_right_sums(connection, number) and name not in found:
                found.append(name)
    return found


# -- settling ---------------------------------------------------------------------------------


def settle_piece(
    connection: Connection,
    lease: Lease,
    through: int,
    apart: Collection[int] = (),
) -> bool:
    """Settle the next entries up to `through`; True if there may be more, False without a lease.

    No entry in `apart` is merged with later ones.
    """
    settled = _settled_under(connection, lease)
    if settled is None or settled >= through:
        return False
    found = segments.read(connection, lease.number, settled, PIECE_BYTES, through)
    if not found:
        return False
    piece = Piece(found, _before(connection, lease, settled), stored=True, apart=apart)
    with writing(connection):
        if _settled_under(connection, lease) != settled:
            return False
        _write(connection, lease.number, piece)
    return found[-1].last_seq < through


def take_in(
    connection: Connection,
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
    last = lease.next_seq - 1
    instead = instead and segments.is_alone(connection, lease.number, last)
    found = list(in_segments(past, lease.next_seq - instead))
    before = _before(connection, lease, lease.next_seq - 1)
    old_before = now_ms() - packing.OLD_MS
    piece = Piece(found, before, stored=False, old_before=old_before) if found else None
    with writing(connection):
        leases.require(connection, lease)
        if instead:  # as if it had never been there
            connection.execute(
                "DELETE FROM segments WHERE key = ?", (lease.number << SEQ_BITS | last,)
            )
            connection.execute(
                "UPDATE sessions SET settled_through = ?1,"
                " indexed_through = min(indexed_through, ?1),"
                " packed_through = min(packed_through, ?1) WHERE number = ?2",
                (last - 1, lease.number),
            )
        if piece is not None:
            _write(connection, lease.number, piece)
        if change is not None:
            session_rows.change_row(connection, lease.number, change)
        if link is not None:
            session_rows.link(connection, *link, lease.number)
        if release:
            leases.release(connection, lease)
    return found[-1].last_seq if found else lease.next_seq - 1


def _before(connection: sqlite3.Connection, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it matters for the entries that follow."""
    return going_on(
        settled_state(connection, lease.number).summary,
        session_rows.context(connection, lease.number, settled),
    )


def _write(connection: sqlite3.Connection, number: int, piece: Piece) -> None:
    """Write the result of settling a run of segments."""
    segments.remove(connection, number, piece.gone)
    segments.insert(connection, number, piece.new)
    token_usage.keep(connection, number, piece.usage)
    earlier = settled_state(connection, number).snapshots
    for kind in earlier.keys() & piece.snapshots.keys():
        segments.empty(connection, number, earlier[kind])
    settled = Settled(piece.summary, earlier | piece.snapshots)
    keep_settled_state(connection, number, settled)
    connection.execute(
        "UPDATE sessions SET settled_through = ?1, message_count = message_count + ?2,"
        " packed_through = iif(?3 AND packed_through = settled_through, ?1, packed_through)"
        " WHERE number = ?4",
        (piece.last_seq, piece.messages, piece.is_packed, number),
    )


def _settled_under(connection: sqlite3.Connection, lease: Lease) -> int | None:
    """The last settled entry of the session; None if the lease is lost."""
    row = connection.execute(
        "SELECT settled_through FROM sessions JOIN leases ON leases.session = sessions.number"
        " WHERE number = ? AND epoch = ?",
        (lease.number, lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])


# -- checking ---------------------------------------------------------------------------------


def log_cut_at(connection: sqlite3.Connection) -> int | None:
    """The time at which a log was found without its end, in ms since the epoch; None if none
    was."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'log_cut_at'").fetchone()
    return None if row is None else int(row[0])


def went_back_at(connection: Connection) -> int | None:
    """The time at which the file was found to be an earlier copy, in ms since the epoch; None if
    never."""
    if leases.went_back(connection):
        return now_ms()
    row = connection.execute("SELECT value FROM meta WHERE name = 'went_back_at'").fetchone()
    return None if row is None else int(row[0])


def damage(connection: sqlite3.Connection) -> list[str]:
    """Read the whole journal and return what is damaged, a sentence each; empty if it is whole.

    Takes about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        return [*_gaps(connection), *packed_rows.damaged_rows(connection)]
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _gaps(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each entry that does not follow the one before, or belongs to no
    session."""
    last = (0, 0)
    # A deleted session has entries until it is swept.
    known = {
        number
        for (number,) in connection.execute(
            "SELECT number FROM sessions UNION ALL SELECT session FROM deleted"
        )
    }
    # Row by row: for a comparison with the row before, SQLite would keep all rows in memory.
    for key, first_seq in connection.execute("SELECT key, first_seq FROM segments ORDER BY key"):
        number, seq = key >> SEQ_BITS, key & SEQ_MASK
        before = last[1] if number == last[0] else 0
        if number != last[0] and number not in known:
            yield f"entries from {first_seq} on are of session number {number}, which there is not"
        last = number, seq
        if first_seq != before + 1:
            # Sessions that are deleted but not swept yet are not reported.
            for (name,) in connection.execute(
                "SELECT session_id FROM sessions WHERE number = ?", (number,)
            ):
                yield f"session {name!r}: entry {first_seq} follows {before}"
