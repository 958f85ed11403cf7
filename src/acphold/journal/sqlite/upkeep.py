"""The work on a journal after turns and beside them: settling, taking in, checking.

A turn that is over is *settled*: its entries are compacted and counted, and then indexed, which
`search_index` does. All of this runs in the background thread, in pieces. What takes time is
computed outside of the transactions, so that these are short: appends of other sessions wait a few
milliseconds at most. Between two pieces the thread does what else it is asked for, checkpoints
above all.

The functions take the connection of the background thread, and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import RewrittenError, UnknownSessionError
from acphold.history.compaction import compact, snapshots
from acphold.history.entries import PROMPT, TURN_END, Entry, PastEntry, Segment, in_segments
from acphold.history.fold import EMPTY, Fold, SessionState, Summary, fold
from acphold.history.raw_update import CHUNK_STARTS
from acphold.history.times import now_ms
from acphold.journal.journal import Lease, PageBack, RowChange
from acphold.journal.sqlite import leases, packed_rows, segments, session_rows, token_usage
from acphold.journal.sqlite.connection import Connection, reading, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

_BACK_AT_ONCE: Final = 16

PIECE_BYTES: Final = 512 << 10
"""How much history one transaction rewrites, or removes, at most (beyond one segment)."""


class Settled(Struct, frozen=True, array_like=True):
    """What is known of a session at `settled_through`.

    `snapshots` has the numbers of the updates that the next of their kind makes void.
    """

    summary: Summary = Summary()
    snapshots: dict[str, int] = {}


_encode_settled: Final = msgspec.msgpack.encode
_decode_settled: Final = msgspec.msgpack.Decoder(Settled).decode


# -- reading ------------------------------------------------------------------------------------


def read(
    connection: sqlite3.Connection, session_id: str, after: int, limit_bytes: int, tail_bytes: int
) -> list[Segment]:
    """As `Journal.read`."""
    if not tail_bytes:
        number = session_rows.number_of(connection, session_id)
        found = segments.read(connection, number, after, limit_bytes)
    else:
        with reading(connection):
            number, settled = _settled_through(connection, session_id)
            found = segments.read(connection, number, after, limit_bytes, max(after, settled))
            if not found or found[-1].last_seq >= settled:
                found += segments.read(connection, number, max(after, settled), tail_bytes)
    if found:
        found[0] = found[0].after(after)
    return found


def read_back(
    connection: sqlite3.Connection,
    session_id: str,
    before: int | None,
    limit: int,
    limit_bytes: int,
    kinds: Sequence[str] = (),
) -> PageBack:
    """As `Journal.read_back`."""
    number, settled = _settled_through(connection, session_id)
    is_settled = before is not None and before <= settled
    through = SEQ_MASK if before is None else before - 1
    found: list[Entry] = []
    if before is not None:
        cut = next(iter(segments.read(connection, number, through, 1)), None)
        if cut is not None and cut.first_seq < before:
            if cut.is_merged:
                raise RewrittenError(
                    f"session {session_id!r} was put in order since that was read, or it is no "
                    "`before` of a page; begin at the end of the session"
                )
            if not kinds or cut.kind in kinds:
                found, limit_bytes = _said_in(cut.up_to(through)), limit_bytes - len(cut.raw)
            through = cut.first_seq - 1
    with closing(segments.backwards(connection, number, through, kinds)) as rows:
        for segment in rows:
            if len(found) >= limit or (found and limit_bytes <= 0):
                break
            limit_bytes -= len(segment.raw)
            found += _said_in(segment)
            through = segment.first_seq - 1
        else:
            through = 0
    if len(found) > limit:
        return PageBack(found[:limit], found[limit - 1].seq, is_settled)
    return PageBack(found, through + 1 if through else None, is_settled)


def _said_in(segment: Segment) -> list[Entry]:
    """What is not void of it, the newest first."""
    return [entry for entry in reversed(segment.entries()) if entry.raw]


# -- folding ----------------------------------------------------------------------------------


def summary(connection: sqlite3.Connection, session_id: str) -> Summary:
    """What settling kept, and what came behind it; raises UnknownSessionError."""
    number, through = _settled_through(connection, session_id)
    folding = Fold(_context(settled_state(connection, number).summary))
    for segment in segments.read_all(connection, number, through, chunks=False):
        if all(raw.startswith(CHUNK_STARTS) for raw in segment.raw.split(b"\n")):
            continue  # chunks add to the timeline alone
        for entry in segment.entries():
            folding.add(entry)
    return folding.state().summary()


def unsettled_bytes(connection: sqlite3.Connection, session_id: str) -> int:
    """How much came behind what is settled; raises UnknownSessionError."""
    return segments.size(connection, *_settled_through(connection, session_id))


def is_exact(connection: sqlite3.Connection, session_id: str, after: int) -> bool:
    """Whether who has all up to `after` can be told the rest, without a gap and nothing twice.

    So it is if nothing above was merged, and between two turns: only what belongs to one turn is
    merged with each other. Raises UnknownSessionError.
    """
    number, through = _settled_through(connection, session_id)
    position = after
    while after < through:
        found = segments.read(connection, number, after, PIECE_BYTES, through)
        if any(segment.is_merged for segment in found):
            return _is_between_turns(connection, number, position)
        if not found:
            return True
        after = found[-1].last_seq
    return True


def _is_between_turns(connection: sqlite3.Connection, number: int, after: int) -> bool:
    """Whether nothing above `after` can have been merged with anything up to there."""
    [behind, *_] = segments.read(connection, number, after, 1)
    if behind.first_seq <= after:
        return False
    if behind.kind == TURN_END:
        return True
    while found := segments.read_back(connection, number, after, _BACK_AT_ONCE):
        for segment in reversed(found):
            if segment.kind == TURN_END:
                return True
            if segment.kind == PROMPT or b'"toolCallId"' in segment.raw:
                return False
        after = found[0].first_seq - 1
    return True


def _settled_through(connection: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """The number of a session, and how far it is settled; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT number, settled_through FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return row[0], row[1]


def settled_state(connection: sqlite3.Connection, number: int) -> Settled:
    """What is kept of a session, by its number."""
    row = connection.execute(
        "SELECT summary FROM summaries WHERE session = ?", (number,)
    ).fetchone()
    return Settled() if row is None else _decode_settled(row[0])


def keep_settled_state(connection: sqlite3.Connection, number: int, settled: Settled) -> None:
    """Keep what is known of a session, in place of what was."""
    summary = _encode_settled(settled)
    connection.execute(
        "INSERT OR REPLACE INTO summaries (session, summary, checksum) VALUES (?, ?, ?)",
        (number, summary, crc32(summary)),
    )


def spoiled_summaries(connection: sqlite3.Connection, number: int | None = None) -> list[str]:
    """The sessions, of all or of one, of which something else is kept than was written."""
    rows = connection.execute(
        "SELECT session_id, summary, checksum FROM summaries JOIN sessions ON number = session"
        f"{'' if number is None else ' WHERE session = ?'}",
        () if number is None else (number,),
    )
    return [session_id for session_id, summary, checksum in rows if crc32(summary) != checksum]


def _context(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """A state to fold on from: `summary`, and as much of the conversation as `state` has."""
    return replace(state, **{name: getattr(summary, name) for name in Summary.__struct_fields__})


# -- settling ---------------------------------------------------------------------------------


def settle_piece(
    connection: Connection,
    lease: Lease,
    through: int,
    apart: Collection[int] = (),
) -> bool:
    """Settle the next entries up to `through`; whether there may be more, False without a lease.

    None of those in `apart` is put together with what is behind it.
    """
    settled = _settled_under(connection, lease)
    if settled is None or settled >= through:
        return False
    found = segments.read(connection, lease.number, settled, PIECE_BYTES, through)
    if not found:
        return False
    piece = _Piece(found, _before(connection, lease, settled), stored=True, apart=apart)
    with writing(connection):
        if _settled_under(connection, lease) != settled:
            return False
        piece.write(connection, lease.number)
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
    """Append entries to a session that is settled to its end, settled; the number of the last.

    With `instead` they take the place of its last entry, if that is alone in its row; with
    `release` the lease is given back. Raises LeaseLostError.
    """
    last = lease.next_seq - 1
    instead = instead and segments.is_alone(connection, lease.number, last)
    found = list(in_segments(past, lease.next_seq - instead))
    before = _before(connection, lease, lease.next_seq - 1)
    old_before = now_ms() - packed_rows.OLD_MS
    piece = _Piece(found, before, stored=False, old_before=old_before) if found else None
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
            piece.write(connection, lease.number)
        if change is not None:
            session_rows.change_row(connection, lease.number, change)
        if link is not None:
            session_rows.link(connection, *link, lease.number)
        if release:
            leases.release(connection, lease)
    return found[-1].last_seq if found else lease.next_seq - 1


def _before(connection: sqlite3.Connection, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it counts for what comes behind it."""
    return _context(
        settled_state(connection, lease.number).summary,
        session_rows.context(connection, lease.number, settled),
    )


class _Piece:
    """A run of segments and what becomes of them."""

    def __init__(
        self,
        found: list[Segment],
        before: SessionState,
        *,
        stored: bool,
        old_before: int = 0,
        apart: Collection[int] = (),
    ) -> None:
        compacted = compact(found, apart)
        kept = {*found} & {*compacted} if stored else set()
        self._gone = [segment for segment in found if segment not in kept] if stored else []
        self._new = [segment for segment in compacted if segment not in kept]
        state = fold((entry for segment in compacted for entry in segment.entries()), before)
        self._messages = session_rows.messages(state) - session_rows.messages(before)
        self._summary = state.summary()
        self._snapshots = snapshots(compacted)
        # Before compaction makes some of them void.
        self._usage = token_usage.reports(found)
        self._last_seq = found[-1].last_seq
        # What happened long ago is packed at once.
        self._new = [packed_rows.as_kept(segment, old_before) for segment in self._new]
        self._is_packed = all(segment.at < old_before for segment in found)

    def write(self, connection: sqlite3.Connection, number: int) -> None:
        segments.remove(connection, number, self._gone)
        segments.insert(connection, number, self._new)
        token_usage.keep(connection, number, self._usage)
        earlier = settled_state(connection, number).snapshots
        for kind in earlier.keys() & self._snapshots.keys():
            segments.empty(connection, number, earlier[kind])
        settled = Settled(self._summary, earlier | self._snapshots)
        keep_settled_state(connection, number, settled)
        connection.execute(
            "UPDATE sessions SET settled_through = ?1, message_count = message_count + ?2,"
            " packed_through = iif(?3 AND packed_through = settled_through, ?1, packed_through)"
            " WHERE number = ?4",
            (self._last_seq, self._messages, self._is_packed, number),
        )


def _settled_under(connection: sqlite3.Connection, lease: Lease) -> int | None:
    """How far the session is settled; None when the lease is lost."""
    row = connection.execute(
        "SELECT settled_through FROM sessions JOIN leases ON leases.session = sessions.number"
        " WHERE number = ? AND epoch = ?",
        (lease.number, lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])


# -- checking ---------------------------------------------------------------------------------


def log_cut_at(connection: sqlite3.Connection) -> int | None:
    """When a log was found without its end, in ms since the epoch; None if none was."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'log_cut_at'").fetchone()
    return None if row is None else int(row[0])


def damage(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the journal, a sentence each; empty when it is whole.

    Reads all of it: about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        return [*_gaps(connection), *packed_rows.damaged_rows(connection)]
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _gaps(connection: sqlite3.Connection) -> Iterator[str]:
    """A sentence for each entry that does not follow the one before it."""
    last = (0, 0)
    # Row by row: SQLite would keep all of them in memory to look at the one before.
    for key, first_seq in connection.execute("SELECT key, first_seq FROM segments ORDER BY key"):
        number, seq = key >> SEQ_BITS, key & SEQ_MASK
        before = last[1] if number == last[0] else 0
        last = number, seq
        if first_seq != before + 1:
            # Not of one that is deleted, and not swept yet.
            for (name,) in connection.execute(
                "SELECT session_id FROM sessions WHERE number = ?", (number,)
            ):
                yield f"session {name!r}: entry {first_seq} follows {before}"
