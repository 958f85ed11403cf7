"""Searching: a store finds entries in its index; those that are not in it are searched here.

A session is unsettled while a turn runs, while it rests for a client that may come back, or if its
process was killed. Such ends are few and short; a search of the newest goes through them with an
index made for it.

If no entry has all terms, conversations are searched: their terms may be in different entries, in
the title, the folder, the agent's name and tags. Each term is looked up by itself, in its newest
entries; a term that has more of them is then looked for in the best conversations alone. So the
cost depends on the terms, not on the journal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from itertools import pairwise
from math import log1p
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.compaction import compact
from acphold.conversation.history.entries import PROMPT, Entry
from acphold.conversation.history.words import document
from acphold.journal import bounds
from acphold.journal.hits import (
    Held,
    Term,
    as_beginnings,
    begins_in,
    fitting,
    hit,
    patterns_of,
    query,
    stem,
    terms,
)
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import SearchHit, Sought
from acphold.journal.sql.session_tables import select_rows
from acphold.journal.sql.tables import KeptSegments, Key, Tables, segment_of_row
from acphold.journal.stored_history import DamagedRowError
from acphold.known_agents import short_name

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

_Unsettled: TypeAlias = tuple[Held, Entry, Entry | None]
"""An entry that is not in the index, and the one before it."""


def search(tables: SomeTables, sought: Sought | str, find: Find[SomeTables]) -> list[SearchHit]:
    """Like `Index.search`."""
    sought = Sought(sought) if isinstance(sought, str) else sought
    if not (found := terms(sought.words)):
        return []
    looking = _Search(tables, sought, find)
    hits = looking.entries(found)
    if hits or not sought.widens:
        return hits
    return looking.conversations(as_beginnings(sought.words) or found)


class _Conversation:
    """A conversation that has some of the terms: their numbers by entry, and those of which its row
    has the words."""

    def __init__(self, key: Key | None, held: Held) -> None:
        self.key = key
        self.held = held
        self.entries: defaultdict[int, set[int]] = defaultdict(set)
        self.described: set[int] = set()
        self.unsettled: dict[int, _Unsettled] = {}

    @property
    def terms(self) -> set[int]:
        return self.described.union(*self.entries.values())

    def places(self, weights: Sequence[float]) -> Iterator[int]:
        """Yield few entries that have its terms, the one with the heaviest first."""
        left = set().union(*self.entries.values())
        for _ in range(bounds.HITS_OF_A_CONVERSATION):
            if not left:
                return
            seq = max(
                self.entries,
                key=lambda it: (sum(weights[n] for n in self.entries[it] & left), it),
            )
            left -= self.entries[seq]
            yield seq


class _Search(Generic[SomeTables]):
    """One search, which looks for the terms in one way after the other."""

    def __init__(self, tables: SomeTables, sought: Sought, find: Find[SomeTables]) -> None:
        self._tables = tables
        self._sought = sought
        self._find_in_index = find
        condition, values = "", dict[str, Any](tenant=sought.tenant)
        if sought.agents:
            condition += f" AND {tables.among('agent', 'agents')}"
            values["agents"] = tables.array(sought.agents)
        if sought.cwd is not None:
            condition += " AND folder = %(folder)s"
            values["folder"] = resolve_folder(sought.cwd)
        self._condition = condition
        self._values = values

    def _find(self, terms: Sequence[Term], sought: Sought) -> Iterable[Indexed]:
        condition, values = self._condition, {**self._values, "limit": sought.limit}
        if sought.session_id is not None:
            condition += " AND sessions.session_id = %(session)s"
            values["session"] = sought.session_id
        return self._find_in_index(self._tables, sought, terms, condition, values) or ()

    # -- entries -------------------------------------------------------------------------------

    def entries(self, terms: Sequence[Term]) -> list[SearchHit]:
        """Return the entries that have all terms, as far as there are any terms."""
        sought = self._sought
        if not terms:
            return []
        patterns = patterns_of(terms)
        indexed = [*self._shown([*self._find(terms, sought)], patterns)]
        candidates = self._unsettled
        fit = fitting([entry for _, entry, _ in candidates], query(terms, sought.part))
        fresh = [hit(*candidates[place], patterns, sought.part) for place in fit[: sought.limit]]
        if not fresh:
            return indexed
        if sought.rank:  # entries not in the index yet have no rank, but are the newest
            return [*fresh, *indexed][: sought.limit]
        return sorted([*fresh, *indexed], key=lambda one: -one.at)[: sought.limit]

    def _shown(self, found: Sequence[Indexed], patterns: Sequence[Any]) -> Iterator[SearchHit]:
        """Yield the hits of entries in the index, without those that cannot be shown."""
        before: tuple[int, Entry] | None = None
        with closing(self._tables.rows_with([(key, seq) for key, _, seq in found])) as rows:
            for place, *row in rows:
                _, held, seq = found[place]
                with suppress(DamagedRowError):
                    for entry in segment_of_row(*row).entries():
                        if entry.seq == seq:
                            author = before[1] if before and before[0] == place else None
                            yield hit(held, entry, author, patterns, self._sought.part)
                        before = place, entry

    def _page(self, limit: int) -> list[SessionRow]:
        """The newest of the sessions that are searched."""
        # Archived ones are among them. An agent's own copy of a session that `wrap` keeps in the
        # same journal is never prompted here: its words are found in the other one.
        sought, tables = self._sought, self._tables
        filter = ListFilter(sought.agents, sought.cwd, archived="include", tenant=sought.tenant)
        if sought.session_id is None:
            return tables.page(filter, None, limit, counted=False)
        one_row = select_rows(tables, "WHERE session_id = %s", (sought.session_id,), counted=False)
        return [row for row in one_row if filter.fits(row)]

    @cached_property
    def _unsettled(self) -> list[_Unsettled]:
        """Entries that are not in the index yet, the newest first."""
        sought, tables = self._sought, self._tables
        found: list[_Unsettled] = []
        if not sought.unsettled:
            return found
        page = self._page(bounds.UNSETTLED_SESSIONS)
        rows = tables.execute(
            f"SELECT session_id, {tables.OWN_KEY}, settled_through FROM acphold.sessions"
            f" WHERE {tables.among('session_id', 'ids')}",
            {"ids": tables.array([row.session_id for row in page])},
        )
        ends = {session_id: end for session_id, *end in rows.fetchall()}
        for row in page:
            held = _held(row)
            key, settled = ends[row.session_id]
            if row.last_seq > settled:
                # One session's damaged end keeps no other from being found.
                with suppress(*() if sought.session_id else (DamagedRowError,)):
                    segments = tables.segments(key)
                    tail = segments.tail(settled, bounds.UNSETTLED_BYTES)
                    entries = [entry for segment in compact(tail) for entry in segment.entries()]
                    found += [
                        (held, entry, before or _before(segments, entry))
                        for before, entry in pairwise([None, *entries])
                        if entry is not None and entry.at >= sought.since
                    ]
        found.sort(key=lambda candidate: (-candidate[1].at, -candidate[1].seq))
        return found

    # -- conversations -------------------------------------------------------------------------

    def conversations(self, terms: Sequence[Term]) -> list[SearchHit]:
        """Return the entries that have all terms; if there are none, some of each conversation that
        has all, else of those that have most, the best first. A term weighs the more, the rarer it
        is, and more if its row has it, too."""
        sought = self._sought
        asked = terms
        known, common, terms = self._having(terms)
        patterns = patterns_of(terms)
        counts = [sum(number in it.terms for it in known.values()) for number in range(len(terms))]
        if all(counts) and (hits := self.entries(terms)):
            return hits
        most = max(counts, default=0)
        weights = [log1p(most / count) if count else 0.0 for count in counts]

        def score(one: _Conversation) -> float:
            return sum(weights[number] for number in one.terms)

        def rank(one: _Conversation) -> float:
            return score(one) + bounds.TITLE_SHARE * sum(weights[n] for n in one.described)

        # The order of equal ones stays: the newest come first.
        best = sorted(known.values(), key=rank, reverse=True)[: bounds.WIDE_CONVERSATIONS]
        for one in best:
            for number in common - one.terms:
                in_it = replace(sought, session_id=one.held.session_id, limit=1, rank=False)
                for _, _, seq in self._find([terms[number]], in_it):
                    one.entries[seq].add(number)
        best.sort(key=rank, reverse=True)
        most_found = max(map(score, best), default=0.0)
        has_all = any(len(one.terms) == len(terms) for one in best)
        nowhere = tuple(term.text for term, count in zip(asked, counts, strict=True) if not count)
        hits = []
        for one in best:
            if len(hits) >= sought.limit:
                break
            if score(one) < most_found * (1 if has_all else 0.5):
                continue
            missing = tuple(t.text for n, t in enumerate(asked) if n not in one.terms)
            hits += [
                replace(found, missing=missing, nowhere=nowhere)
                for found in self._hits_in(one, weights, patterns)
            ]
        return hits[: sought.limit]

    def _having(
        self, terms: Sequence[Term]
    ) -> tuple[Mapping[str, _Conversation], set[int], Sequence[Term]]:
        """Return the conversations that have some of the terms, the newest first as far as that is
        known; the numbers of terms that others may have, too; and the terms, of which one that no
        entry has is its stem."""
        sought = self._sought
        known: dict[str, _Conversation] = {}
        common: set[int] = set()
        unsettled = [entry for _, entry, _ in self._unsettled]
        wide = replace(sought, limit=bounds.WIDE_ENTRIES, rank=False)
        used = [*terms]
        for number, term in enumerate(terms):
            fit = fitting(unsettled, query([term], sought.part))
            found = [*self._find([term], wide)]
            if not (fit or found) and (shorter := stem(term)) is not None:
                used[number] = shorter
                fit = fitting(unsettled, query([shorter], sought.part))
                found = [*self._find([shorter], wide)]
            for place in fit:
                held, entry, _ = its = self._unsettled[place]
                one = known.setdefault(held.session_id, _Conversation(None, held))
                one.entries[entry.seq].add(number)
                one.unsettled[entry.seq] = its
            for key, held, seq in found:
                one = known.setdefault(held.session_id, _Conversation(key, held))
                one.key = key
                one.entries[seq].add(number)
            if len(found) == wide.limit:
                common.add(number)
        if sought.part is None:
            patterns = patterns_of(used)
            newest = self._page(bounds.WIDE_ROWS)
            rows = {row.session_id: row for row in newest if row.updated_at >= sought.since}
            for id_, row in rows.items():
                known.setdefault(id_, _Conversation(None, _held(row)))
            for id_, one in [*known.items()]:
                tags = rows[id_].hashtags if id_ in rows else ""
                text = (
                    f"{one.held.title or ''}\n{short_name(one.held.agent)}\n{one.held.cwd}\n{tags}"
                )
                one.described = {
                    number for number, pattern in enumerate(patterns) if begins_in(text, pattern)
                }
                if not one.terms:
                    del known[id_]
        return known, common, used

    def _hits_in(
        self, one: _Conversation, weights: Sequence[float], patterns: Sequence[Any]
    ) -> Iterator[SearchHit]:
        """Yield hits in a conversation: its entries that have most terms, or its first words."""
        for seq in one.places(weights):
            if seq in one.unsettled:
                yield hit(*one.unsettled[seq], patterns, self._sought.part)
            elif one.key is not None:
                yield from self._shown([(one.key, one.held, seq)], patterns)
        if not one.entries:
            key, _ = self._tables.find_settled(one.held.session_id)
            with suppress(DamagedRowError):
                rows = self._tables.segments(key)
                for segment in rows.read(0, bounds.FIRST_PROMPT_BYTES):
                    for entry in segment.entries():
                        if document(entry):
                            yield hit(one.held, entry, None, patterns, self._sought.part)
                            return


def _held(row: SessionRow) -> Held:
    return Held(row.session_id, row.agent, row.cwd, row.title, row.archived)


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
