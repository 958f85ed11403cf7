"""Searching: a store finds entries in its index; those that are not in it are searched here.

A session is unsettled while a turn runs, while it rests for a client that may come back, or if its
process was killed. Such ends are few and short; a search of the newest goes through them with an
index made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.compaction import compact
from acphold.conversation.history.entries import PROMPT, Entry
from acphold.journal import bounds
from acphold.journal.hits import Held, Term, fitting, hit, patterns_of, query, terms
from acphold.journal.rows import ListFilter
from acphold.journal.seams import SearchHit, Sought
from acphold.journal.sql.session_tables import select_rows
from acphold.journal.sql.tables import KeptSegments, Key, Tables
from acphold.journal.stored_history import DamagedRowError

SomeTables = TypeVar("SomeTables", bound=Tables)


Indexed: TypeAlias = tuple[Key, Held, int]
"""An entry in the index: the key of its session, facts about that, and its number."""


Find: TypeAlias = Callable[
    [SomeTables, Sought, Sequence[Term], str, dict[str, Any]], Iterable[Indexed] | None
]
"""Returns the entries in the index of a store that have all terms, the newest or the best first.

Their sessions meet a condition in SQL, which begins with AND and has its values in the dict. None
if nothing at all can match.
"""


def _entry(rows: KeptSegments, seq: int) -> Iterator[Entry]:
    """Yield the entry with this number, if it is there."""
    for segment in rows.read(seq - 1, 1):
        yield from (entry for entry in segment.entries() if entry.seq == seq)


def _before(rows: KeptSegments, entry: Entry) -> Entry | None:
    """The entry before a prompt, which may name its author."""
    if entry.kind == PROMPT:
        with suppress(DamagedRowError):  # the prompt itself can be shown
            return next(_entry(rows, entry.seq - 1), None)
    return None


def search(tables: SomeTables, sought: Sought | str, find: Find[SomeTables]) -> list[SearchHit]:
    """Like `Index.search`."""
    sought = Sought(sought) if isinstance(sought, str) else sought
    if not (found := terms(sought.words)):
        return []
    condition, values = "", dict[str, Any](tenant=sought.tenant, limit=sought.limit)
    if sought.agents:
        condition += f" AND {tables.among('agent', 'agents')}"
        values["agents"] = tables.array(sought.agents)
    if sought.cwd is not None:
        condition += " AND folder = %(folder)s"
        values["folder"] = resolve_folder(sought.cwd)
    if sought.session_id is not None:
        condition += " AND sessions.session_id = %(session)s"
        values["session"] = sought.session_id
    in_index = find(tables, sought, found, condition, values)
    if in_index is None:
        return []
    patterns = patterns_of(found)
    indexed: list[SearchHit] = []
    for key, held, seq in in_index:
        with suppress(DamagedRowError):  # it cannot be shown, but all of the others can
            rows = tables.segments(key)
            indexed += [
                hit(held, entry, _before(rows, entry), patterns, sought.part)
                for entry in _entry(rows, seq)
            ]
    if not sought.unsettled:
        return indexed
    # Archived ones are among them. An agent's own copy of a session that `wrap` keeps in the same
    # journal is never prompted here: its words are found in the other one.
    filter = ListFilter(sought.agents, sought.cwd, archived="include", tenant=sought.tenant)
    if sought.session_id is None:
        newest = tables.page(filter, None, bounds.UNSETTLED_SESSIONS, counted=False)
    else:
        one_row = select_rows(tables, "WHERE session_id = %s", (sought.session_id,), counted=False)
        newest = [row for row in one_row if filter.fits(row)]
    candidates: list[tuple[Held, Entry, Entry | None]] = []
    for row in newest:
        held = Held(row.session_id, row.agent, row.cwd, row.title, row.archived)
        key, settled = tables.find_settled(row.session_id)
        if row.last_seq > settled:
            # One session's damaged end keeps no other from being found.
            with suppress(*() if sought.session_id else (DamagedRowError,)):
                rows = tables.segments(key)
                tail = rows.tail(settled, bounds.UNSETTLED_BYTES)
                entries = [entry for segment in compact(tail) for entry in segment.entries()]
                candidates += [
                    (held, entry, before or _before(rows, entry))
                    for before, entry in pairwise([None, *entries])
                    if entry is not None and entry.at >= sought.since
                ]
    candidates.sort(key=lambda candidate: (-candidate[1].at, -candidate[1].seq))
    fit = fitting([entry for _, entry, _ in candidates], query(found, sought.part))
    fresh = [hit(*candidates[place], patterns, sought.part) for place in fit[: sought.limit]]
    if not fresh:
        return indexed
    if sought.rank:  # entries not in the index yet have no rank, but are the newest
        return [*fresh, *indexed][: sought.limit]
    return sorted([*fresh, *indexed], key=lambda one: -one.at)[: sought.limit]
