"""The entries of sessions in rows: settling, reading, packing and indexing them.

A finished turn is *settled*: its entries are compacted and counted, and then indexed. This is done
in pieces. Slow computation happens outside of the transactions, so that these are short.

The functions raise UnknownSessionError. Each takes several statements, so run it on one moment.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from acphold.conversation.history.entries import (
    BACK,
    PROMPT,
    TURN_END,
    UPDATE,
    Entry,
    PastEntry,
    Segment,
    in_segments,
)
from acphold.conversation.history.fold import Fold, SessionState, Summary
from acphold.conversation.history.prompt_queue import NO_QUEUE
from acphold.conversation.history.titles import cut_first_line, last_words, title_of_prompt
from acphold.errors import ForgottenTextError, RewrittenError
from acphold.journal import bounds
from acphold.journal.intentions import queue_change, summary_for
from acphold.journal.journal import Lease, PageBack
from acphold.journal.rows import NO_CHANGE, RowChange, WholeSession, merge_changes
from acphold.journal.sql import session_tables, usage_rows
from acphold.journal.sql.tables import KeptSegments, Key, Tables
from acphold.journal.stored_history import (
    END,
    DamagedRowError,
    Piece,
    Settled,
    going_on,
    messages,
    pack,
    plain,
)

Unindex = Callable[[Key, Sequence[Segment]], None]
"""Takes segments of a session out of the index."""


def settle_piece(tables: Tables, lease: Lease, through: int, apart: Collection[int] = ()) -> bool:
    """Settle the next entries up to `through`; True if there may be more, False without a lease.

    No entry in `apart` is merged with later ones.
    """
    settled = _last_settled(tables, lease)
    if settled is None or settled >= through:
        return False
    found = tables.segments(tables.key(lease)).read(settled, bounds.PIECE_BYTES, through)
    if not found:
        return False
    piece = Piece(found, _before(tables, lease, settled), stored=True, apart=apart)
    with tables.writing():
        if _last_settled(tables, lease, tables.LOCKING_LEASE) != settled:
            return False
        _write(tables, tables.key(lease), piece)
    return found[-1].last_seq < through


def take_in(
    tables: Tables,
    lease: Lease,
    past: Sequence[PastEntry],
    change: RowChange | None = None,
    link: tuple[str, str] | None = None,
    *,
    instead: bool = False,
    release: bool = False,
    withdrawn: Sequence[tuple[int, int]] = (),
    unindex: Unindex,
) -> int:
    """Like `Arrivals.take_in`; return the number of the last entry.

    With `instead`, they replace the last entry only if that has a row to itself.
    """
    while settle_piece(tables, lease, lease.next_seq - 1):
        pass
    change = change or NO_CHANGE
    if marks := session_tables.forgotten_texts(tables):
        from acphold.journal.forgotten_texts import ArrivalBlanking  # late: few journals have any

        blanking = ArrivalBlanking(marks)
        past, change = blanking.entries(past), blanking.change(change)
    key, last = tables.key(lease), lease.next_seq - 1
    rows = tables.segments(key)
    instead = instead and rows.is_alone(last)
    found = list(in_segments(past, lease.next_seq - instead))
    withdrawal: _Withdrawal | None = None
    if withdrawn:
        withdrawal = _Withdrawal(tables, lease, withdrawn, {}, overwrites=False)
    before = withdrawal.before if withdrawal else _before(tables, lease, last)
    old_before = tables.now() - bounds.OLD_MS
    piece = Piece(found, before, stored=False, old_before=old_before) if found else None
    through = found[-1].last_seq if found else last
    with tables.writing():
        if _last_settled(tables, lease, tables.LOCKING_LEASE) is None:
            raise session_tables.loss(tables, lease)
        _require_same(tables, marks)
        # Read once the lease is locked: whoever held it may have settled them.
        settled = _last_settled(tables, lease)
        # The entries may be stored already, if only the answer to the first attempt was lost. Then
        # the first of them may share a row with others, so that `instead` found nothing to replace.
        if settled is not None and settled > last:
            through, is_new = settled, False
        else:
            is_new = through != last or rows.read(last - 1, 1) != found
        if withdrawal is not None and is_new:
            withdrawal.write(unindex)
        if instead and is_new:  # as if it had never been there
            rows.remove(rows.read(last - 1, 1))
            parts = [
                f"{name} = CASE WHEN {name} > %s THEN %s ELSE {name} END"
                for name in ("settled_through", "indexed_through", "packed_through")
            ]
            tables.update(key, [*parts, "ended = ''"], [last - 1] * 2 * len(parts))
        if piece is not None and is_new:
            _write(tables, key, piece)
        queue = before.queue if piece is None else piece.summary.queue
        told = NO_CHANGE if queue == before.queue else queue_change(queue)
        # Its history was made elsewhere, unless the change says where.
        told = merge_changes(replace(told, home=""), change)
        session_tables.change_row(tables, key, told)
        usage_rows.keep_time(tables, key)
        if link is not None:
            tables.link(*link, key)
        if release:
            session_tables.release_lease(tables, lease)
    lease.next_seq = through + 1
    return through


def _require_same(tables: Tables, marks: frozenset[str]) -> None:
    if session_tables.forgotten_texts(tables) != marks:
        raise ForgottenTextError("a text was removed from the journal meanwhile")


def add_whole(tables: Tables, sessions: Sequence[WholeSession]) -> None:
    """Like `Arrivals.add_whole`."""
    if marks := session_tables.forgotten_texts(tables):
        from acphold.journal.forgotten_texts import ArrivalBlanking  # late: few journals have any

        blanking = ArrivalBlanking(marks)
        sessions = [blanking.session(it) for it in sessions]
    old_before = tables.now() - bounds.OLD_MS
    nothing = going_on(Summary())
    pieces = [
        Piece(found, nothing, stored=False, old_before=old_before) if found else None
        for found in (list(in_segments(it.past, 1)) for it in sessions)
    ]
    with tables.writing():
        _require_same(tables, marks)
        for it, piece in zip(sessions, pieces, strict=True):
            key = tables.create(it.new)
            if piece is not None:
                _write(tables, key, piece)
            session_tables.change_row(tables, key, it.change)
            usage_rows.keep_time(tables, key)
            for link in it.links:
                tables.link(*link, key)


def withdraw(
    tables: Tables,
    lease: Lease,
    spans: Sequence[tuple[int, int]],
    instead: Mapping[int, bytes],
    unindex: Unindex,
    *,
    overwrites: bool,
) -> bool:
    """Like `Arrivals.withdraw`; `unindex` takes the segments of a session out of the index."""
    withdrawal = _Withdrawal(tables, lease, spans, instead, overwrites=overwrites)
    with tables.writing():
        if _last_settled(tables, lease, tables.LOCKING_LEASE) is None:
            raise session_tables.loss(tables, lease)
        withdrawal.write(unindex)
    return True


class _Withdrawal:
    """Entries that are made void: `before` is the state of the session without them."""

    def __init__(
        self,
        tables: Tables,
        lease: Lease,
        spans: Sequence[tuple[int, int]],
        instead: Mapping[int, bytes],
        *,
        overwrites: bool,
    ) -> None:
        self._tables = tables
        self._spans = sorted([*spans, *((seq, seq) for seq in instead)])
        edges = sorted({edge for first, last in self._spans for edge in (first - 1, last)})
        firsts = [first for first, _ in self._spans]
        ends = [*accumulate((last for _, last in self._spans), max)]
        while settle_piece(tables, lease, lease.next_seq - 1):
            pass
        self._key = tables.key(lease)
        self._cut: list[Segment] = []
        self._gone: list[Segment] = []
        new: list[Segment] = []
        folding = Fold()  # a message with an id may go on anywhere, so all are counted anew
        for segment in tables.segments(self._key).read_all(0):
            parts = _parts(segment, edges)
            for n, part in enumerate(parts):
                begun = bisect(firsts, part.last_seq)
                if begun and part.last_seq <= ends[begun - 1]:
                    self._gone.append(part)
                    left = Segment(part.first_seq, part.last_seq, UPDATE, part.at, b"")
                    if raw := instead.get(part.last_seq):
                        left = replace(part, raw=raw)
                    parts[n] = left
                for entry in parts[n].entries():
                    folding.add(entry)
            if self._gone and self._gone[-1].last_seq >= segment.first_seq:
                self._cut.append(segment)
                new += parts
        self._new = [replace(it, raw=pack(it.raw)) for it in new]
        # The kept state repeats words of the conversation: it gets those of what is left.
        state, settled = folding.state(), settled_state(tables, self._key)
        its, attributes = state.attributes, settled.summary.attributes
        attributes = replace(
            attributes,
            commands=its.commands if overwrites else attributes.commands,
            plan=its.plan,
            title=its.title,
            meta=its.meta,
        )
        self._summary = replace(settled.summary, attributes=attributes, queue=state.queue)
        self.before = going_on(self._summary, state)

    def write(self, unindex: Unindex) -> None:
        """Write it, in a transaction that has found the lease to stand."""
        tables, key = self._tables, self._key
        rows = tables.segments(key)
        unindex(key, self._gone)
        rows.remove(self._cut)
        rows.insert(self._new)
        usage_rows.drop(tables, key, self._spans)
        settled = settled_state(tables, key)
        tables.keep_settled_state(key, replace(settled, summary=self._summary))
        tables.update(key, ["message_count = %s", "ended = ''"], [messages(self.before)])


def _parts(segment: Segment, edges: Sequence[int]) -> list[Segment]:
    """Cut a segment behind these numbers, which are sorted; a merged one cannot be cut."""
    if segment.is_merged:
        return [segment]
    parts: list[Segment] = []
    inside = bisect_left(edges, segment.first_seq), bisect_left(edges, segment.last_seq)
    for edge in edges[slice(*inside)]:
        parts.append(segment.up_to(edge))
        segment = segment.after(edge)
    return [*parts, segment]


def settled_state(tables: Tables, key: Key) -> Settled:
    """The settled state of a session."""
    row = tables.execute(
        f"SELECT summary FROM acphold.summaries WHERE {tables.KEY} = %s", (key,)
    ).fetchone()
    return Settled() if row is None else msgspec.msgpack.decode(row[0], type=Settled)


def _last_settled(tables: Tables, lease: Lease, locking: str = "") -> int | None:
    """The last settled entry of the session; None if the lease is lost."""
    row = tables.execute(
        "SELECT settled_through FROM acphold.sessions"
        f" JOIN acphold.leases ON leases.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" WHERE leases.{tables.KEY} = %s AND epoch = %s{locking}",
        (tables.key(lease), lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])


def _before(tables: Tables, lease: Lease, settled: int) -> SessionState:
    """The state at `settled`, as far as it matters for the entries that follow."""
    key = tables.key(lease)
    # A late chunk may belong to a message that is already counted.
    conversation = tables.segments(key).late_context(settled)
    return going_on(settled_state(tables, key).summary, conversation)


def _write(tables: Tables, key: Key, piece: Piece) -> None:
    """Write the result of settling a run of segments."""
    rows = tables.segments(key)
    rows.remove(piece.gone)
    rows.insert(piece.new)
    before = settled_state(tables, key)
    earlier = before.snapshots
    for kind in earlier.keys() & piece.snapshots.keys():
        # The update is void now: its content goes, its number stays.
        last_seq, first_seq, raw = rows.row_with(seq := earlier[kind])
        raws = plain(raw).split(b"\n")
        # A merged entry, which stands for several numbers, is alone in its row.
        raws[seq - first_seq if len(raws) > 1 else 0] = b""
        rows.rewrite([(b"\n".join(raws), last_seq, len(raw))])
    now = Settled(piece.summary, earlier | piece.snapshots)
    if before.ahead_through > piece.last_seq:
        now = replace(now, ahead_through=before.ahead_through, ahead=before.ahead)
    tables.keep_settled_state(key, now)
    parts = [
        "settled_through = %s",
        "message_count = message_count + %s",
        "packed_through = CASE WHEN %s AND packed_through = settled_through THEN %s"
        " ELSE packed_through END",
    ]
    values: list[int | str] = [piece.last_seq, piece.messages, piece.is_packed, piece.last_seq]
    if piece.ended is not None:
        parts.append("ended = %s")
        values.append(piece.ended)
    tables.update(key, parts, values)
    usage_rows.keep(tables, key, piece.usage)
    usage_rows.add_up(tables, key, has_news=bool(piece.usage))


def read(
    tables: Tables,
    session_id: str,
    after: int,
    limit_bytes: int = bounds.READ_BYTES,
    *,
    tail_bytes: int = 0,
    brief: bool = False,
) -> list[Segment]:
    """Like `Entries.read`."""
    rows, settled = _find_segments(tables, session_id)
    cut = settled if brief else None
    if not tail_bytes:
        found = rows.read(after, limit_bytes, brief=cut)
    else:
        # Pages of settled segments; the last one also has the unsettled end: it could change.
        found = rows.read(after, limit_bytes, max(after, settled), brief=cut)
        if not found or found[-1].last_seq >= settled:
            found += rows.read(max(after, settled), tail_bytes, brief=cut)
    if found:
        found[0] = found[0].after(after)
    return found


def read_back(
    tables: Tables,
    session_id: str,
    before: int | None,
    limit: int,
    limit_bytes: int = bounds.READ_BYTES,
    *,
    kinds: Sequence[str] = (),
    brief: bool = False,
) -> PageBack:
    """Like `Entries.read_back`."""
    rows, settled = _find_segments(tables, session_id)
    begun = settled if brief else None
    through = END if before is None else before - 1
    entries: list[Entry] = []
    if before is not None:
        # The page may begin inside a segment, whose entries below `before` are part of it.
        cut = next(iter(rows.read(through, 1, brief=begun)), None)
        if cut is not None and cut.first_seq < before:
            if cut.is_merged:
                raise RewrittenError(
                    f"session {session_id!r} was compacted since that page was read, or "
                    "`before` is not from a page; start again at the end of the session"
                )
            if not kinds or cut.kind in kinds:
                entries = _newest_first(cut.up_to(through))
                limit_bytes -= len(cut.raw)
            through = cut.first_seq - 1
    for segment in rows.backwards(through, kinds, brief=begun):
        if len(entries) >= limit or (entries and limit_bytes <= 0):
            break
        limit_bytes -= len(segment.raw)
        entries += _newest_first(segment)
        through = segment.first_seq - 1
    else:
        through = 0  # the session begins here
    if len(entries) > limit:
        return PageBack(entries[:limit], entries[limit - 1].seq)
    return PageBack(entries, through + 1 if through else None)


def is_exact(tables: Tables, session_id: str, after: int) -> bool:
    """Like `Entries.is_exact`.

    This holds if nothing above `after` was merged. It also holds if `after` lies between two
    turns, because only entries of one turn are merged. It does not where the person went back since
    in the agent's own program: turns up to `after` may stand elsewhere. With 0, nothing was shown.
    """
    rows, settled = _find_segments(tables, session_id)
    if after and rows.have(BACK, after):
        return False
    position = after
    while after < settled and (found := rows.read(after, bounds.PIECE_BYTES, settled)):
        if any(segment.is_merged for segment in found):
            break
        after = found[-1].last_seq
    else:
        return True
    # Can any of it have been merged with anything up to the position?
    [behind, *_] = rows.read(position, 1)
    if behind.first_seq <= position:
        return False
    if behind.kind == TURN_END:
        return True
    for segment in rows.backwards(position):
        if segment.kind == TURN_END:
            return True
        if segment.kind == PROMPT or b'"toolCallId"' in segment.raw:
            return False
    return True


def _newest_first(segment: Segment) -> list[Entry]:
    """The entries of a segment, newest first, without void ones."""
    return [entry for entry in reversed(segment.entries()) if entry.raw]


def _find_segments(tables: Tables, session_id: str) -> tuple[KeptSegments, int]:
    """The rows of a session, and the number up to which it is settled."""
    key, settled = tables.find_settled(session_id)
    return tables.segments(key), settled


def summary(tables: Tables, session_id: str) -> Summary:
    """Combine the newest summary that is kept with the entries after it."""
    found = summary_within(tables, session_id, inf)
    assert found is not None
    return found


def summary_within(tables: Tables, session_id: str, limit_bytes: float) -> Summary | None:
    """The same; None if it has to read `limit_bytes`."""
    key, settled = tables.find_settled(session_id)
    found = tables.segments(key).summary(*settled_state(tables, key).newest(settled), limit_bytes)
    if found is None or found.queue == NO_QUEUE:
        return found
    (home,) = tables.execute(
        "SELECT home FROM acphold.sessions WHERE session_id = %s", (session_id,)
    ).fetchone()
    return summary_for(found, home, tables.identity().mark)


def sum_up(tables: Tables, lease: Lease) -> None:
    """Keep a summary of all entries of a session, ahead of the settled one; unless that would spare
    a reader little, the session is settled meanwhile, or it is another process's."""
    key = tables.key(lease)
    with tables.reading():
        if (settled := _last_settled(tables, lease)) is None:
            return
        rows, state = tables.segments(key), settled_state(tables, key)
        kept, through = state.newest(settled)
        last_seq = max((one.last_seq for one in rows.read_back(END, 1)), default=0)
        if last_seq - through < bounds.AHEAD_ENTRIES // 2:
            return
        ahead = rows.summary(kept, through, inf)
    with tables.writing():
        # Nobody may settle it between these two.
        is_held = _last_settled(tables, lease, tables.LOCKING_LEASE_ALONE) is not None
        if is_held and settled_state(tables, key) == state:
            tables.keep_settled_state(key, replace(state, ahead_through=last_seq, ahead=ahead))


def endings(tables: Tables, session_ids: Sequence[str]) -> dict[str, str]:
    """Like `Journal.endings`."""
    keys = tables.execute(
        f"SELECT session_id, {tables.OWN_KEY} FROM acphold.sessions"
        f" WHERE {tables.among('session_id', 'ids')}",
        {"ids": tables.array(session_ids)},
    ).fetchall()
    said: dict[str, str] = {}
    for session_id, key in keys:
        with suppress(DamagedRowError):  # its reader will be told
            found = tables.segments(key).read_back(
                END, bounds.SEGMENTS_OF_LAST_WORDS, (PROMPT, UPDATE)
            )
            words = last_words(entry for segment in found[::-1] for entry in _newest_first(segment))
            if words:
                said[session_id] = words
    return said


def renew_titles(tables: Tables) -> None:
    """Give sessions the title that the rule makes, where they have what earlier releases made: the
    first line of the first prompt, cut. One that the agent has told stays, though it is the same.
    In an upgrade, of the newest sessions."""
    rows = tables.execute(
        f"SELECT {tables.OWN_KEY}, title FROM acphold.sessions WHERE title IS NOT NULL"
        " AND NOT renamed AND prompted ORDER BY updated_at DESC LIMIT %s",
        (bounds.RENEWED_TITLES,),
    ).fetchall()
    for key, title in rows:
        with suppress(DamagedRowError):
            entries = (
                entry
                for segment in tables.segments(key).read(0, bounds.FIRST_PROMPT_BYTES)
                for entry in segment.entries()
            )
            prompt = next((entry.raw for entry in entries if entry.kind == PROMPT), b"[]")
            if title != cut_first_line(prompt) or not (made := title_of_prompt(prompt)):
                continue
            if settled_state(tables, key).summary.attributes.title != title:
                session_tables.change_row(tables, key, RowChange(title=made))


_UNPACKED = "FROM acphold.sessions WHERE packed_through < settled_through AND updated_at < %s"


def newest_unpacked(tables: Tables, before: int) -> Key | None:
    """The next session to pack: the newest of those last active before `before` (ms since the
    epoch)."""
    row = tables.execute(
        f"SELECT {tables.OWN_KEY} {_UNPACKED} ORDER BY updated_at DESC LIMIT 1", (before,)
    ).fetchone()
    return None if row is None else row[0]


def count_unpacked(tables: Tables, before: int) -> int:
    """The number of sessions last active before `before` with rows that are not packed."""
    (count,) = tables.execute(f"SELECT count(*) {_UNPACKED}", (before,)).fetchone()
    return int(count)


def pack_piece(tables: Tables, key: Key, before: int | None = None) -> bool:
    """Pack the next settled rows of a session, up to the first from `before` or later (ms).

    False if there were none.
    """
    if (far := _how_far(tables, key)) is None:
        return False
    rows: list[tuple[int, bytes]] = []
    size = 0
    for seq, at, raw in tables.segments(key).rows(*far):
        if (before is not None and at >= before) or size >= bounds.PIECE_BYTES:
            break
        rows.append((seq, raw))
        size += len(raw)
    if not rows:
        return False
    changed = [
        (smaller, seq, len(raw)) for seq, raw in rows if len(smaller := pack(raw)) < len(raw)
    ]
    with tables.writing():
        # Another process may have been quicker, or the session was deleted.
        if _how_far(tables, key, tables.LOCKING_ROW) == far:
            # The length is compared because a row may have been emptied meanwhile.
            tables.segments(key).rewrite(changed)
            tables.execute(
                f"UPDATE acphold.sessions SET packed_through = %s WHERE {tables.OWN_KEY} = %s",
                (rows[-1][0], key),
            )
    return True


def _how_far(tables: Tables, key: Key, locking: str = "") -> tuple[int, int] | None:
    """The last packed and the last settled entry of a session; None if nothing is left to pack."""
    row = tables.execute(
        "SELECT packed_through, settled_through FROM acphold.sessions"
        f" WHERE {tables.OWN_KEY} = %s AND packed_through < settled_through{locking}",
        (key,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def index_lags(
    tables: Tables, key: Key | None, since: int, limit: int
) -> list[tuple[Any, int, int]]:
    """The keys of sessions that are not fully indexed, of one or of all that were active since
    `since`, the newest first; and how far each is indexed and settled."""
    of_one = "" if key is None else f" AND {tables.OWN_KEY} = %s"
    return tables.execute(
        f"SELECT {tables.OWN_KEY}, indexed_through, settled_through FROM acphold.sessions"
        f" WHERE indexed_through < settled_through AND updated_at >= %s{of_one}"
        " ORDER BY updated_at DESC LIMIT %s",
        (since, *(() if key is None else (key,)), limit),
    ).fetchall()


def not_indexed(
    tables: Tables, key: Key, after: int, settled: int, limit_bytes: int
) -> tuple[list[Segment], int]:
    """The next settled segments of a session that are missing in the index, about `limit_bytes`,
    and the number of their last entry. One that cannot be read is passed over, alone."""
    rows = tables.segments(key)
    try:
        found = rows.read(after, limit_bytes, settled)
    except DamagedRowError:
        return [], next((last for last, *_ in rows.rows(after, settled)), settled)
    return found, found[-1].last_seq if found else settled


def note_indexed(tables: Tables, key: Key, after: int, through: int) -> str | None:
    """Note that the entries of a session after `after` are indexed up to `through`; return its
    tenant.

    None if another process was quicker, or the session was deleted.
    """
    row = tables.execute(
        "UPDATE acphold.sessions SET indexed_through = %s"
        f" WHERE {tables.OWN_KEY} = %s AND indexed_through = %s RETURNING tenant",
        (through, key, after),
    ).fetchone()
    return None if row is None else str(row[0])
