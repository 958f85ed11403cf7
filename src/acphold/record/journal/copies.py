"""Copies of conversations: the entries of one session in a new session.

A copy has the conversation but not its cost, which was paid once. For another agent it also leaves
out the settings and commands of the original agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import json
from msgspec.structs import replace

from acp_wire.schema.splice import splice
from acp_wire.schema.updates import kinds_about
from acphold.journal_location import resolve_folder
from acphold.record.history.entries import (
    KINDS,
    PARAMS,
    QUEUE,
    SETTINGS,
    TURN_END,
    UPDATE,
    PastEntry,
    Segment,
    now_ms,
    turn_spans,
)
from acphold.record.history.raw_update import may_be_chunk, members, update_kind
from acphold.record.journal import bounds
from acphold.record.journal.journal import Journal, history
from acphold.record.journal.rows import NewSession, Origin, RowChange, SessionRow
from acphold.record.journal.seams import with_numbers

TITLE: Final = "acphold/title"
"""The `_meta` key that marks a title which no agent gave."""

COSTS: Final = kinds_about("cost")
"""Kinds of update that report what was spent."""

OFFERS: Final = kinds_about("choices", "commands")
"""Kinds of update that report what the agent offers."""


async def copy(journal: Journal, source: SessionRow, new: NewSession, through: int) -> None:
    """Create the session `new` from the entries of `source` up to `through`, and release it.

    It has the title of `new`, one origin more than `source`, and the snapshots of its turns; the
    same agent is started for it in the same way. If this fails, nothing of it is left:
    SessionExistsError, UnknownSessionError, JournalError, RewrittenError.
    """
    origin = Origin(source.session_id, source.agent, through)
    new = replace(new, renamed=source.renamed, origins=(*source.origins, origin))
    lease = await journal.create(new, yields=True)
    try:
        piece: list[PastEntry] = []
        size = 0
        async for segment in history(journal, source.session_id, through=through):
            taken = list(_entries_to_copy(segment, for_another=source.agent != new.agent))
            size += sum(len(entry.raw) for entry in taken)
            piece += taken
            if size > bounds.PIECE_BYTES:
                await journal.take_in(lease, piece)
                piece, size = [], 0
        if new.title is not None:
            # Clients that load the copy get its title from this update.
            titled = {
                "sessionUpdate": "session_info_update",
                "title": new.title,
                "_meta": {TITLE: "copy"},
            }
            piece.append(PastEntry(UPDATE, now_ms(), json.encode(titled)))
        # With the last entries the session appears in the list.
        start = source.start if source.agent == new.agent else None
        change = RowChange(updated_at=now_ms(), prompted=True, start=start, home=source.home)
        await journal.take_in(lease, piece, change)
        await _copy_snapshots(journal, source, new, through)
    except BaseException:
        await journal.delete(lease)
        raise
    await journal.release(lease)


async def _copy_snapshots(
    journal: Journal, source: SessionRow, new: NewSession, through: int
) -> None:
    """Keep the snapshots of the copied turns for the copy, too."""
    rows = await journal.snapshots.of(source.session_id)
    if not rows:
        return
    spans = await turn_spans(history(journal, source.session_id, through=through))
    own = await turn_spans(history(journal, new.session_id))
    folder = resolve_folder(source.cwd)
    cwd = "" if folder == resolve_folder(new.cwd) else folder
    copies = [
        replace(
            it.snapshot,
            turn=own[it.turn - 1].first - 1,
            taken_for=it.snapshot.taken_for or source.session_id,
            cwd=it.snapshot.cwd or cwd,
        )
        for it in with_numbers(rows, spans)
        if it.turn <= len(own)
    ]
    await journal.snapshots.keep(new.session_id, copies)


def _entries_to_copy(segment: Segment, *, for_another: bool) -> Iterable[PastEntry]:
    """The entries of a segment that go into a copy."""
    if segment.kind == QUEUE:
        return  # what waits, waits in one session
    if for_another and (segment.kind not in KINDS or segment.kind == SETTINGS):
        return
    left_out = COSTS | OFFERS if for_another else COSTS
    for entry in segment.entries():
        raw = entry.raw
        if entry.kind == TURN_END:
            raw = splice(raw, {"usage": None, "_meta": None})
        update = b""  # the update that the entry holds, unless it is a chunk of text
        if entry.kind == PARAMS:
            update = members(raw).get("update", b"")
        elif entry.kind == UPDATE and not may_be_chunk(raw):
            update = raw
        if raw and not (update and update_kind(update) in left_out):
            yield PastEntry(entry.kind, entry.at, raw)
