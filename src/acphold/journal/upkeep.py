"""The work on a journal after turns and beside them: settling, deleting, checking.

A turn that is over is *settled*: its entries are compacted and counted, and then indexed, which
`search_index` does. All of this runs in the background thread, in pieces. What takes time is
computed outside of the transactions, so that these are short: appends of other sessions wait a few
milliseconds at most. Between two pieces the thread does what else it is asked for, checkpoints
above all.

The functions take the connection of the background thread, and the lock that each connection of
this process holds while it writes; they may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import UnknownSessionError
from acphold.journal import leases, packed_rows, search_index, segments, session_rows, token_usage
from acphold.journal.compaction import compact, snapshots
from acphold.journal.entries import PROMPT, TURN_END, PastEntry, Segment, in_segments
from acphold.journal.file import writing
from acphold.journal.fold import EMPTY, Fold, SessionState, Summary, fold
from acphold.journal.journal import Lease, RowChange
from acphold.journal.migrations import SEQ_BITS
from acphold.journal.raw_update import CHUNK_STARTS

_BACK_AT_ONCE: Final = 16

PIECE_BYTES: Final = 512 << 10
"""How much history one transaction rewrites, or removes, at most (beyond one segment)."""

EMPTYING_TRIES: Final = 10
EMPTYING_WAIT_MS: Final = 50
"""How often, and how long each time, a deletion waits for those who read in the log: readers of
ours are done within milliseconds. What is left then goes when the next turn settles."""

_GAPS: Final = """
    SELECT session_id, before, first_seq FROM (
        SELECT key >> 32 AS number, first_seq,
            lag(key & 4294967295, 1, 0) OVER (PARTITION BY key >> 32 ORDER BY key) AS before
        FROM segments
    ) JOIN sessions USING (number) WHERE first_seq != before + 1
"""


_IDLE: Final = """
    SELECT number FROM sessions LEFT JOIN leases ON leases.session = number
    WHERE session_id = ? AND updated_at <= ? AND coalesce(expires_at, 0) <= ?
"""


class Settled(Struct, frozen=True, array_like=True):
    """What is known of a session at `settled_through`.

    `snapshots` has the numbers of the updates that the next of their kind makes void.
    """

    summary: Summary = Summary()
    snapshots: dict[str, int] = {}


_encode_settled: Final = msgspec.msgpack.encode
_decode_settled: Final = msgspec.msgpack.Decoder(Settled).decode


# -- folding ----------------------------------------------------------------------------------


def state(connection: sqlite3.Connection, session_id: str, through: int | None) -> SessionState:
    """The entries of a session up to `through`, folded; raises UnknownSessionError."""
    # One transaction: a turn that is compacted meanwhile is seen as it was or as it is.
    connection.execute("BEGIN")
    try:
        return _folded(
            connection, session_rows.number_of(connection, session_id), 0, EMPTY, through
        )
    finally:
        connection.execute("COMMIT")


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


def followers(connection: sqlite3.Connection, session_id: str) -> int:
    """As `Journal.followers`."""
    number, through = _settled_through(connection, session_id)
    (noted,) = connection.execute(
        "SELECT followers FROM sessions WHERE number = ?", (number,)
    ).fetchone()
    return int(noted) if noted and segments.read(connection, number, through, 1) else 0


def is_exact(connection: sqlite3.Connection, session_id: str, after: int) -> bool:
    """Whether who has all up to `after` can be told the rest, without a gap and nothing twice.

    So it is if nothing above was merged, and between two turns: only what belongs to one turn is
    merged with each other. Raises UnknownSessionError.
    """
    number, through = _settled_through(connection, session_id)
    place = after
    while after < through:
        found = segments.read(connection, number, after, PIECE_BYTES, through)
        if any(segment.is_merged for segment in found):
            return _is_between_turns(connection, number, place)
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


def _folded(
    connection: sqlite3.Connection,
    number: int,
    after: int,
    state: SessionState,
    through: int | None = None,
) -> SessionState:
    folding = Fold(state)
    for segment in segments.read_all(connection, number, after):
        for entry in segment.entries():
            if through is not None and entry.seq > through:
                return folding.state()
            folding.add(entry)
    return folding.state()


def settled_state(connection: sqlite3.Connection, number: int) -> Settled:
    """What is kept of a session, by its number."""
    row = connection.execute(
        "SELECT summary FROM summaries WHERE session = ?", (number,)
    ).fetchone()
    return Settled() if row is None else _decode_settled(row[0])


def keep_settled_state(connection: sqlite3.Connection, number: int, settled: Settled) -> None:
    """Keep what is known of a session, in place of what was."""
    connection.execute(
        "INSERT OR REPLACE INTO summaries VALUES (?, ?)", (number, _encode_settled(settled))
    )


def _context(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """A state to fold on from: `summary`, and as much of the conversation as `state` has."""
    return replace(
        state,
        standing=summary.standing,
        turn=summary.turn,
        open_tools=summary.open_tools,
        open_questions=summary.open_questions,
    )


# -- settling ---------------------------------------------------------------------------------


def settle_piece(
    connection: sqlite3.Connection, lease: Lease, through: int, alone: threading.Lock
) -> bool:
    """Settle the next entries up to `through`; whether there may be more, False without a lease."""
    settled = _settled_under(connection, lease)
    if settled is None or settled >= through:
        return False
    found = segments.read(connection, lease.number, settled, PIECE_BYTES, through)
    if not found:
        return False
    piece = _Piece(found, _before(connection, lease, settled), stored=True)
    with alone, writing(connection):
        if _settled_under(connection, lease) != settled:
            return False
        piece.write(connection, lease.number)
    return True


def take_in(
    connection: sqlite3.Connection,
    lease: Lease,
    past: Sequence[PastEntry],
    change: RowChange | None,
    link: tuple[str, str] | None,
    alone: threading.Lock,
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
    old_before = session_rows.now_ms() - packed_rows.OLD_MS
    piece = _Piece(found, before, stored=False, old_before=old_before) if found else None
    with alone, writing(connection):
        leases.require(connection, lease)
        if instead:
            _take_back(connection, lease.number, last)
        if piece is not None:
            piece.write(connection, lease.number)
        if change is not None:
            session_rows.change_row(connection, lease.number, change)
        if link is not None:
            session_rows.link(connection, *link, lease.number)
        if release:
            leases.expire(connection, lease, 0)
    return found[-1].last_seq if found else lease.next_seq - 1


def _take_back(connection: sqlite3.Connection, number: int, last: int) -> None:
    """Remove the last entry of a session, as if it had never been there."""
    connection.execute("DELETE FROM segments WHERE key = ?", (number << SEQ_BITS | last,))
    connection.execute(
        "UPDATE sessions SET settled_through = ?1, indexed_through = min(indexed_through, ?1),"
        " packed_through = min(packed_through, ?1) WHERE number = ?2",
        (last - 1, number),
    )


def _before(connection: sqlite3.Connection, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it counts for what comes behind it."""
    return _context(
        settled_state(connection, lease.number).summary,
        session_rows.context(connection, lease.number, settled),
    )


class _Piece:
    """A run of segments and what becomes of them."""

    def __init__(
        self, found: list[Segment], before: SessionState, *, stored: bool, old_before: int = 0
    ) -> None:
        compacted = compact(found)
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


# -- deleting ---------------------------------------------------------------------------------


def delete(connection: sqlite3.Connection, session_id: str, alone: threading.Lock) -> bool:
    """Delete a session, whoever holds it; False when there is none.

    It is gone at once, its rows and its words soon after: they go in pieces, and what a crash
    leaves over is remembered, and goes with the next sweep.
    """
    with alone, writing(connection):
        row = connection.execute(
            "SELECT number FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchone()
        if row is not None:
            session_rows.forget_session(connection, row[0])
            remove_rows(connection, row[0])
    sweep(connection, alone)
    return row is not None


def prune(
    connection: sqlite3.Connection,
    session_ids: Iterable[str],
    idle_since: int,
    alone: threading.Lock,
) -> list[str]:
    """Delete those sessions that nobody holds, and that did not go on after `idle_since`.

    That is ms since the epoch. Told are the ids of the sessions that are gone now.
    """
    gone = []
    for session_id in session_ids:
        with alone, writing(connection):
            row = connection.execute(_IDLE, (session_id, idle_since, session_rows.now_ms()))
            if (found := row.fetchone()) is not None:
                session_rows.forget_session(connection, found[0])
                remove_rows(connection, found[0])
                gone.append(session_id)
    sweep(connection, alone)
    return gone


def abandon(connection: sqlite3.Connection, lease: Lease, alone: threading.Lock) -> bool:
    """Delete a session under our own lease, without a tombstone; False when it has a link.

    Raises LeaseLostError.
    """
    with alone, writing(connection):
        leases.require(connection, lease)
        if session_rows.has_link(connection, lease.number):
            return False
        remove_rows(connection, lease.number)
    sweep(connection, alone)
    return True


def remove_rows(connection: sqlite3.Connection, number: int) -> None:
    """Delete all that is kept of a session beside its entries, which the next sweep removes."""
    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
    connection.execute("DELETE FROM leases WHERE session = ?", (number,))
    connection.execute("DELETE FROM summaries WHERE session = ?", (number,))
    connection.execute("DELETE FROM usage WHERE session = ?", (number,))
    connection.execute("INSERT OR IGNORE INTO deleted VALUES (?)", (number,))


def sweep(connection: sqlite3.Connection, alone: threading.Lock) -> None:
    """Remove what is left of deleted sessions, from the log too.

    When a reader keeps the log from being emptied, the next sweep tries again.
    """
    deleted = connection.execute("SELECT session FROM deleted").fetchall()
    for (number,) in deleted:
        while found := segments.read(connection, number, 0, PIECE_BYTES):
            documents = search_index.documents(found)
            with alone, writing(connection):
                search_index.unindex(connection, number, documents)
                segments.remove(connection, number, found)
    if not deleted:
        return
    while _purged(connection, alone):
        pass
    if _emptied_log(connection, alone):
        with alone, writing(connection):
            connection.executemany("DELETE FROM deleted WHERE session = ?", deleted)


def _purged(connection: sqlite3.Connection, alone: threading.Lock) -> bool:
    with alone, writing(connection):
        return search_index.purge(connection)


def _emptied_log(connection: sqlite3.Connection, alone: threading.Lock) -> bool:
    """Copy the log into the file and leave nothing of it; False when somebody reads on in it."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    # Writers of this process wait meanwhile: better to try again than to wait long.
    connection.execute(f"PRAGMA busy_timeout = {EMPTYING_WAIT_MS}")
    try:
        for _ in range(EMPTYING_TRIES):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with alone:
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return True
            time.sleep(EMPTYING_WAIT_MS / 1000)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return False


# -- checking ---------------------------------------------------------------------------------


def damage(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the journal, a sentence each; empty when it is whole.

    Reads all of it: about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        rows = connection.execute(_GAPS).fetchall()
        unreadable = packed_rows.damaged_rows(connection)
    except sqlite3.DatabaseError as error:
        return [str(error)]
    gaps = [
        f"session {session_id!r}: entry {first_seq} follows {before}"
        for session_id, before, first_seq in rows
    ]
    return gaps + unreadable
