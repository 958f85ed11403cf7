"""Reading the history of a session from its rows: the same in every store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from acphold.errors import RewrittenError
from acphold.history.entries import PROMPT, TURN_END, Entry, Run, Segment, in_one
from acphold.history.fold import Fold, SessionState, Summary, fold
from acphold.history.raw_update import CHUNK_STARTS
from acphold.journal import settlement
from acphold.journal.journal import READ_BYTES, PageBack
from acphold.journal.settlement import CONTEXT_SEGMENTS, PIECE_BYTES, going_on

END: Final = (1 << 32) - 1
"""No entry has a higher number."""

COUNTED_BYTES: Final = 1 << 20
"""Bytes of an unsettled turn whose messages are counted, at most."""

_BACK_AT_ONCE: Final = 16


class StoredSegments(Protocol):
    """The rows of one session's segments."""

    def read(
        self, after: int, limit_bytes: int, through: int = END, *, chunks: bool = True
    ) -> list[Segment]:
        """Return segments that end above `after` and not above `through`, oldest first.

        Returns about `limit_bytes`, but at least one segment if there is one. With `chunks=False`,
        most segments that hold only text are left out.
        """

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        """Return the last `limit` segments that end by `through`, oldest first; of these kinds, if
        any are named."""


def appended(seq: int, runs: Iterable[Run], at: int) -> list[Segment]:
    """The segments of runs that are appended at this time, numbered from `seq` on."""
    made: list[Segment] = []
    for kind, raws in runs:
        made.append(one := in_one(seq, kind, raws, at))
        seq = one.last_seq + 1
    return made


def read_all(rows: StoredSegments, after: int, *, chunks: bool = True) -> Iterator[Segment]:
    """Yield all segments that end above `after`, oldest first, with some in memory at a time."""
    while found := rows.read(after, READ_BYTES, chunks=chunks):
        yield from found
        after = found[-1].last_seq


def backwards(rows: StoredSegments, through: int, kinds: Sequence[str] = ()) -> Iterator[Segment]:
    """Yield the segments that end by `through`, newest first; of these kinds, if any are named."""
    while found := rows.read_back(through, _BACK_AT_ONCE, kinds):
        yield from reversed(found)
        through = found[0].first_seq - 1


def tail(rows: StoredSegments, after: int, limit_bytes: int) -> list[Segment]:
    """Return the last segments that end above `after`, about `limit_bytes`, oldest first."""
    found: list[Segment] = []
    for segment in backwards(rows, END):
        if segment.last_seq <= after or limit_bytes <= 0:
            break
        found.append(segment)
        limit_bytes -= len(segment.raw)
    return found[::-1]


def page(
    rows: StoredSegments, after: int, limit_bytes: int, settled: int, tail_bytes: int
) -> list[Segment]:
    """Like `Journal.read`, for a session settled up to `settled`."""
    if not tail_bytes:
        found = rows.read(after, limit_bytes)
    else:
        # Pages of settled segments; the last one also has the unsettled end, which could change.
        found = rows.read(after, limit_bytes, max(after, settled))
        if not found or found[-1].last_seq >= settled:
            found += rows.read(max(after, settled), tail_bytes)
    if found:
        found[0] = found[0].after(after)
    return found


def page_back(
    rows: StoredSegments,
    session_id: str,
    settled: int,
    before: int | None,
    limit: int,
    limit_bytes: int,
    kinds: Sequence[str] = (),
) -> PageBack:
    """Like `Journal.read_back`, for a session settled up to `settled`."""
    is_settled = before is not None and before <= settled
    through = END if before is None else before - 1
    found: list[Entry] = []
    if before is not None:
        cut = next(iter(rows.read(through, 1)), None)
        if cut is not None and cut.first_seq < before:
            if cut.is_merged:
                raise RewrittenError(
                    f"session {session_id!r} was put in order since that was read, or it is no "
                    "`before` of a page; begin at the end of the session"
                )
            if not kinds or cut.kind in kinds:
                found, limit_bytes = _said_in(cut.up_to(through)), limit_bytes - len(cut.raw)
            through = cut.first_seq - 1
    for segment in backwards(rows, through, kinds):
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
    """The entries of a segment that are not void, newest first."""
    return [entry for entry in reversed(segment.entries()) if entry.raw]


def summary(rows: StoredSegments, kept: Summary, settled: int) -> Summary:
    """Combine the summary kept at `settled` with the entries behind it."""
    folding = Fold(going_on(kept))
    for segment in read_all(rows, settled, chunks=False):
        if all(raw.startswith(CHUNK_STARTS) for raw in segment.raw.split(b"\n")):
            continue  # chunks add to the timeline alone
        for entry in segment.entries():
            folding.add(entry)
    return folding.state().summary()


def context(rows: StoredSegments, kept: Summary, settled: int) -> SessionState:
    """The state at `settled`, with the summary kept there, as far as it matters for what follows: a
    late chunk may belong to a message that is already counted."""
    return going_on(kept, settlement.context(rows.read_back(settled, CONTEXT_SEGMENTS)))


def unsettled_messages(rows: StoredSegments, settled: int) -> int:
    """The number of messages after `settled`: of a running turn, or of one that a crash cut off."""
    before = settlement.context(rows.read_back(settled, CONTEXT_SEGMENTS))
    entries = (entry for one in rows.read(settled, COUNTED_BYTES) for entry in one.entries())
    return settlement.messages(fold(entries, before)) - settlement.messages(before)


def is_exact(rows: StoredSegments, settled: int, after: int) -> bool:
    """True if a client with all entries up to `after` can get the rest without gaps or repeats.

    This holds if nothing above was merged. It also holds if `after` lies between two turns, because
    only entries of one turn are merged.
    """
    position = after
    while after < settled:
        found = rows.read(after, PIECE_BYTES, settled)
        if any(segment.is_merged for segment in found):
            return _is_between_turns(rows, position)
        if not found:
            return True
        after = found[-1].last_seq
    return True


def _is_between_turns(rows: StoredSegments, after: int) -> bool:
    """True if nothing above `after` can have been merged with anything up to it."""
    [behind, *_] = rows.read(after, 1)
    if behind.first_seq <= after:
        return False
    if behind.kind == TURN_END:
        return True
    for segment in backwards(rows, after):
        if segment.kind == TURN_END:
            return True
        if segment.kind == PROMPT or b'"toolCallId"' in segment.raw:
            return False
    return True
