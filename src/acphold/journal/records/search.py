"""Searching without an index: the entries of all sessions in question get one for a moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from acphold.history.compaction import compact
from acphold.history.entries import Entry, Segment
from acphold.journal.hits import Held, hit, patterns_of, searched, terms
from acphold.journal.records.draft import Draft
from acphold.journal.records.session_records import KeptSession, newest
from acphold.journal.seams import SearchHit, Sought
from acphold.journal.stored_history import read_all
from acphold.journal.words_in_memory import fitting, query


class SoughtEntry(NamedTuple):
    """An entry, and its place in the order of hits.

    That is its time, but in a session none comes before an earlier entry. Of those of one moment,
    the session that was changed last comes first.
    """

    at: int
    change: int
    seq: int
    held: Held
    entry: Entry


def search(draft: Draft, sought: Sought | str) -> list[SearchHit]:
    """Like `Index.search`."""
    sought = Sought(sought) if isinstance(sought, str) else sought
    (sought.cwd or "").encode()  # raises UnicodeEncodeError
    if not (found := terms(sought.words)):
        return []
    wanted = searched(sought, settled=True)
    wanted_ends = searched(sought, settled=False)
    indexed: list[SoughtEntry] = []
    fresh: list[SoughtEntry] = []
    for kept in newest(draft):
        if sought.session_id not in (None, kept.row.session_id) or not wanted.fits(kept.row):
            continue
        settled: list[Segment] = []
        rest: list[Segment] = []
        for segment in read_all(kept.segments(draft), 0):
            (settled if segment.last_seq <= kept.settled else rest).append(segment)
        indexed += _candidates(kept, settled, sought.since)
        if sought.unsettled and wanted_ends.fits(kept.row):
            fresh += _candidates(kept, compact(rest), sought.since)
    asked = query(found, sought.part)

    def matching(candidates: list[SoughtEntry], *, rank: bool = False) -> list[SoughtEntry]:
        candidates.sort(key=lambda it: it[:3], reverse=True)
        places = fitting([it.entry for it in candidates], asked, rank=rank)
        return [candidates[place] for place in places[: sought.limit]]

    # Unsettled entries have no rank, but are the newest.
    both = [*matching(fresh), *matching(indexed, rank=sought.rank)]
    if not sought.rank:
        both.sort(key=lambda it: it[:3], reverse=True)
    patterns = patterns_of(found)
    return [hit(it.held, it.entry, patterns, sought.part) for it in both[: sought.limit]]


def _candidates(
    kept: KeptSession, segments: Iterable[Segment], since: int
) -> Iterator[SoughtEntry]:
    row = kept.row
    held = Held(row.session_id, row.agent, row.cwd, row.title, row.archived)
    entries = [entry for segment in segments for entry in segment.entries()]
    times = accumulate((entry.at for entry in entries), max)
    for at, entry in zip(times, entries, strict=True):
        if at >= since:
            yield SoughtEntry(at, kept.change, entry.seq, held, entry)
