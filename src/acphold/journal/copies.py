"""Copies of conversations: entries of a session in a session of their own.

A copy has what was said and done. It has not what it cost, which was paid once; and, for another
agent, none of the settings and commands of the agent that the conversation was held with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import json
from msgspec.structs import replace

from acphold.history.entries import KINDS, PARAMS, SETTINGS, TURN_END, UPDATE, PastEntry, Segment
from acphold.history.raw_update import may_be_chunk, members, update_kind
from acphold.history.times import now_ms
from acphold.journal.journal import (
    Journal,
    Lease,
    NewSession,
    Origin,
    RowChange,
    SessionRow,
    history,
)
from acphold.schema.splice import splice
from acphold.schema.update_kinds import kinds_about

PIECE_BYTES: Final = 512 << 10
"""How much is taken in at once: others cannot write meanwhile."""

TITLE: Final = "acphold/title"
"""The `_meta` key that says who made a title: nobody's agent."""

COSTS: Final = kinds_about("cost")
"""Updates that say what was spent."""

OFFERS: Final = kinds_about("choices", "commands")
"""Updates that say what one agent offers."""


async def copy(journal: Journal, source: SessionRow, new: NewSession, through: int) -> None:
    """Make the session `new` of the entries of `source` up to `through`, and let go of it.

    It has the title of `new`, and one origin more than `source`. Nothing is left of it when that
    fails: SessionExistsError, UnknownSessionError, JournalError, RewrittenError.
    """
    origin = Origin(source.session_id, source.agent, through)
    new = replace(new, renamed=source.renamed, origins=(*source.origins, origin))
    lease = await journal.create(new, yields=True)
    try:
        await _fill(journal, lease, source, new, through)
    except BaseException:
        await journal.delete(lease)
        raise
    await journal.release(lease)


async def _fill(
    journal: Journal, lease: Lease, source: SessionRow, new: NewSession, through: int
) -> None:
    """Take the entries in; with the last of them the session comes into the list."""
    piece: list[PastEntry] = []
    size = 0
    async for segment in history(journal, source.session_id, through=through):
        taken = list(_copied(segment, for_another=source.agent != new.agent))
        size += sum(len(entry.raw) for entry in taken)
        piece += taken
        if size > PIECE_BYTES:
            await journal.take_in(lease, piece)
            piece, size = [], 0
    if new.title is not None:
        # The update that tells whoever loads the copy what it is called.
        titled = {
            "sessionUpdate": "session_info_update",
            "title": new.title,
            "_meta": {TITLE: "copy"},
        }
        piece.append(PastEntry(UPDATE, now_ms(), json.encode(titled)))
    await journal.take_in(lease, piece, RowChange(updated_at=now_ms(), prompted=True))


def _copied(segment: Segment, *, for_another: bool) -> Iterable[PastEntry]:
    """What of a segment goes into a copy."""
    if for_another and (segment.kind not in KINDS or segment.kind == SETTINGS):
        return
    left_out = COSTS | OFFERS if for_another else COSTS
    for entry in segment.entries():
        raw = entry.raw
        if entry.kind == TURN_END:
            raw = splice(raw, {"usage": None, "_meta": None})
        update = b""  # which may say nothing but that
        if entry.kind == PARAMS:
            update = members(raw).get("update", b"")
        elif entry.kind == UPDATE and not may_be_chunk(raw):
            update = raw
        if raw and not (update and update_kind(update) in left_out):
            yield PastEntry(entry.kind, entry.at, raw)
