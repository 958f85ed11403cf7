"""Searching the unsettled ends of the newest sessions, which are not in the index.

A session is unsettled while a turn runs, while it rests for a client that may come back, or if its
process was killed. Such ends are few and short; a search goes through them with an index made for
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from acphold.history.compaction import compact
from acphold.journal import bounds
from acphold.journal.hits import Held, Term, hit, patterns_of, searched
from acphold.journal.seams import SearchHit, Sought
from acphold.journal.sql.entry_rows import settled_through
from acphold.journal.sql.session_tables import selected
from acphold.journal.sql.tables import Tables
from acphold.journal.stored_history import tail
from acphold.journal.words_in_memory import fitting, query


def with_unsettled(
    tables: Tables, sought: Sought, found: Sequence[Term], indexed: list[SearchHit]
) -> list[SearchHit]:
    """Add hits in unsettled entries to those that the index has found."""
    filter = searched(sought, settled=False)
    if sought.session_id is None:
        rows = tables.page(filter, None, bounds.UNSETTLED_SESSIONS, counted=False)
    else:
        one_row = selected(tables, "WHERE session_id = %s", (sought.session_id,), counted=False)
        rows = [row for row in one_row if filter.fits(row)]
    candidates = [
        (Held(row.session_id, row.agent, row.cwd, row.title, row.archived), entry)
        for row in rows
        for key, settled in [settled_through(tables, row.session_id)]
        if row.last_seq > settled
        for segment in compact(tail(tables.segments(key), settled, bounds.UNSETTLED_BYTES))
        for entry in segment.entries()
        if entry.at >= sought.since
    ]
    candidates.sort(key=lambda candidate: (-candidate[1].at, -candidate[1].seq))
    fit = fitting([entry for _, entry in candidates], query(found, sought.part))
    patterns = patterns_of(found)
    fresh = [hit(*candidates[place], patterns, sought.part) for place in fit[: sought.limit]]
    if not fresh:
        return indexed
    if sought.rank:  # entries not in the index yet have no rank, but are the newest
        return [*fresh, *indexed][: sought.limit]
    return sorted([*fresh, *indexed], key=lambda one: -one.at)[: sought.limit]
