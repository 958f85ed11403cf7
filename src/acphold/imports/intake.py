"""Imports conversations into the journal: each once, and later what was added to it.

Each piece of a conversation is taken in whole, followed by an entry of kind `imported` that records
the source and how much of it is there by now. So an import may end at any point: the next one
continues after the last such entry. If something else follows that entry, or there is none because
the conversation was held through `wrap`, the new part is found by comparing turns. A conversation
with the id of a session here that does not continue it gets its own session.
"""

# See docs/decisions.md, 28.

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from acp_conversation.history.entries import PROMPT, Entry, PastEntry, now_ms
from acp_wire.schema.splice import json_value
from acphold import errors
from acphold.imports.heads import enlist, give_up, is_held, unread_in
from acphold.imports.pieces import NOTHING, KnownPart, NewsPiece, pieces, turns
from acphold.imports.readers import Reader
from acphold.imports.sources import ExportedState, Facts, Manner, Source, is_text
from acphold.journal.journal import (
    Arrivals,
    Journal,
    Lease,
    history,
    is_forgotten,
    row_of,
    session_of,
    state_of,
)
from acphold.journal.rows import NewSession, RowChange, SessionRow

IMPORTED: Final = "imported"
"""The kind of the entry after imported ones; folds and replays skip it."""


SEARCHABLE_MS: Final = 30 * 24 * 3600 * 1000
"""Age up to which a conversation is indexed at once, in ms.

Older ones are rarely searched for, and indexing years of them would make the first import a third
longer. They are left to the next catch-up.
"""

SEARCHABLE_SECONDS: Final = 10.0
"""Limit for indexing after each conversation; the rest follows after the next one."""

QUIET_MS: Final = 10 * 60 * 1000
"""Longer than a model thinks. Later updates, as from a tool that takes hours, are added."""

LOOKED_FOR_AT_ONCE: Final = 500
"""Sources looked up in the journal by one query."""

ATTEMPTS: Final = 3
"""Attempts at a conversation that another import continues meanwhile.

An import that notices this has taken the lease over, so only a third import can make its second
attempt fail.
"""

Outcome = Literal[
    "new", "apart", "grown", "same", "empty", "elsewhere", "deleted", "busy", "differs"
]
"""The outcome for a source, in order:

taken in whole; taken in as a session beside the one with its id; new entries taken in; nothing new;
nothing said in it; outside the requested folder; deleted here before; in use by somebody; diverged
from the session here, so that nobody knows what is new.
"""

OUTCOMES = {
    "new": "new",
    "apart": "beside another with their id",
    "grown": "grown",
    "same": "unchanged",
    "elsewhere": "in other folders",
    "busy": "in use, left for later",
    "deleted": "deleted here before",
    "differs": "different here, left as they are",
}
"""Each in words, except `empty`."""


class ImportSelection(Struct, frozen=True):
    """The conversations to take, and how much of them.

    With `whole_turns`, an unfinished turn is left for the next time, as long as somebody may be
    working on it: see `is_quiet`. With `redact`, secrets are left out.
    """

    cwd: str | None = None
    whole_turns: bool = False
    redact: bool = False

    def manner(self, source: Source) -> Manner:
        """Return the manner of reading a source."""
        return Manner(self.whole_turns and not is_quiet(source), self.redact)


ALL: Final = ImportSelection()


def is_quiet(source: Source) -> bool:
    """Return True if a source has not changed for so long that its last turn must be over.

    Some transcripts never record the end of a turn, and no agent does when it is killed.
    """
    return now_ms() - source.changed_at // 1_000_000 > QUIET_MS


class TakenSource(Struct, frozen=True):
    """The outcome for a source, and its counts: see `Facts`."""

    outcome: Outcome
    missed: Counter[str] = field(default_factory=Counter)
    missed_bytes: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, outcome: Outcome, facts: Facts) -> TakenSource:
        """Return the outcome with these facts."""
        return cls(outcome, facts.missed, facts.missed_bytes, facts.removed)


PieceReader = Callable[[Source, Reader, KnownPart, Manner], AsyncIterator[NewsPiece]]
"""Yields the pieces of a source: see `imports.pieces`."""

News = Callable[[Source, KnownPart], AsyncIterator[NewsPiece]]
"""The same, with the manner already chosen."""


async def read_here(
    source: Source, reader: Reader, known: KnownPart, manner: Manner
) -> AsyncIterator[NewsPiece]:
    """Yield the pieces, read in this process."""
    for piece in pieces(source, reader, known, manner):
        yield piece


class _OvertakenError(Exception):
    """Another import took in what we were about to: start over."""


def forecast(source: Source, reader: Reader, selection: ImportSelection = ALL) -> Outcome:
    """Return the outcome for a source unknown to the journal; raises as `Intake.take`."""
    manner = replace(selection.manner(source), redact=False)
    first = next(pieces(source, reader, NOTHING, manner))
    return _refusal(first, selection) or "new"


def _refusal(first: NewsPiece, selection: ImportSelection) -> Outcome | None:
    """Return the reason not to take in a conversation that begins like this, or None."""
    if first.is_last and all(entry.kind != PROMPT for entry in first.entries):
        return "empty"
    return "elsewhere" if selection.cwd not in (None, first.facts.cwd) else None


class Intake:
    """Takes conversations into one journal."""

    def __init__(self, journal: Journal, selection: ImportSelection = ALL) -> None:
        self._journal = journal
        self._selection = selection
        self._indexes = True

    def leave_index(self) -> None:
        """Leave indexing to another process from now on."""
        self._indexes = False

    async def expect(self, source: Source, reader: Reader) -> Outcome:
        """Return the outcome of `take`, as far as it is known without reading the source."""
        return await self._expect(*await self._find_session(source, reader), reader)

    async def _expect(self, source: Source, row: SessionRow | None, reader: Reader) -> Outcome:
        if row is None:
            agent = source.agent or reader.key
            gone = await is_forgotten(self._journal, agent, source.downstream_id)
            return "deleted" if gone else "new"
        if _is_only_listed(row):
            return "new"
        end = await self._journal.read(row.session_id, max(row.last_seq - 1, 0))
        last = _marker_of(end[-1].entries()[-1] if end else None)
        return "same" if _is_unchanged(last, source) else "grown"

    async def select_changed(self, sources: Iterable[Source], reader: Reader) -> list[Source]:
        """Return the sources, all but those that `expect` would call the same."""
        changed: list[Source] = []
        remaining = iter(sources)
        while batch := [*islice(remaining, LOOKED_FOR_AT_ONCE)]:
            same: set[int] = set()
            for agent in {source.agent or reader.key for source in batch}:
                candidates = [
                    (place, source, replace(source, apart=True))
                    for place, source in enumerate(batch)
                    if (source.agent or reader.key) == agent and is_text(source.downstream_id)
                ]
                plain = [source.downstream_id for _, source, _ in candidates]
                apart = [source.downstream_id for _, _, source in candidates]
                last = await self._journal.links.last_entries(agent, [*plain, *apart])
                for (place, source, other), its_id, other_id in zip(
                    candidates, plain, apart, strict=True
                ):
                    kept, known_as = (other, other_id) if other_id in last else (source, its_id)
                    if _is_unchanged(_marker_of(last.get(known_as)), kept):
                        same.add(place)
            changed += (source for place, source in enumerate(batch) if place not in same)
        return changed

    async def list_first(self, new: Sequence[Source]) -> None:
        """List conversations before they are read, if reading them takes long.

        Not with `whole_turns`: the beginning does not tell if there is a whole turn.
        """
        selection = self._selection
        if not selection.whole_turns:
            await enlist(self._journal, new, selection.cwd, redact=selection.redact)

    async def _find_session(
        self, source: Source, reader: Reader
    ) -> tuple[Source, SessionRow | None]:
        """Return the source, marked if it is apart, and its session in the journal."""
        agent = source.agent or reader.key
        apart = replace(source, apart=True)
        for found in (apart, source):
            if ours := await session_of(self._journal, agent, found.downstream_id):
                row = await self._journal.session(ours)
                if source.given and row.unread is not None and not row.last_seq:
                    # It may be listed by this source, or by another of the same id.
                    listed, _ = unread_in(row.unread)
                    if listed.place != source.place:
                        return apart, None
                return found, row
        if source.kept_as:
            kept = await row_of(self._journal, source.kept_as)
            if kept is not None and kept.agent == agent and kept.last_seq:
                return source, kept
        return source, None

    async def take(
        self, source: Source, reader: Reader, read_pieces: PieceReader = read_here
    ) -> TakenSource:
        """Take in the news of a conversation.

        Raises OSError if it cannot be read, and TranscriptError if its reader fails on it. Then,
        and if it is empty, its session is no longer unread.
        """
        taken = TakenSource("busy")
        for _ in range(ATTEMPTS):
            try:
                taken = await self._take(source, reader, read_pieces)
                break
            except _OvertakenError:
                continue
            except (
                errors.HeldElsewhereError,
                errors.LeaseLostError,
                errors.SessionExistsError,
                errors.UnknownSessionError,
            ):
                break
        if self._indexes and taken.outcome in ("new", "apart", "grown"):
            await self._journal.index.catch_up(SEARCHABLE_SECONDS, since=now_ms() - SEARCHABLE_MS)
        return taken

    async def _take(self, source: Source, reader: Reader, read_pieces: PieceReader) -> TakenSource:
        source, row = await self._find_session(source, reader)
        expected = await self._expect(source, row, reader)

        def news(source: Source, known: KnownPart) -> AsyncIterator[NewsPiece]:
            return read_pieces(source, reader, known, self._selection.manner(source))

        taken = TakenSource(expected)
        try:
            if expected == "new" or (expected == "grown" and row is None):
                taken = await self._take_new(source, news(source, NOTHING))
            elif expected == "grown" and row is not None:
                taken = await self._take_more(source, row, news)
        except (OSError, errors.TranscriptError):
            await self._give_up(row)
            raise
        if taken.outcome in ("empty", "same", "differs"):
            await self._give_up(row)
        return taken

    async def _give_up(self, row: SessionRow | None) -> None:
        if row is not None and row.is_unread:
            await give_up(self._journal, row.session_id)

    async def _take_new(self, source: Source, news_pieces: AsyncIterator[NewsPiece]) -> TakenSource:
        writing: SessionWriter | None = None
        facts = Facts("", "")
        async for piece in news_pieces:
            facts = piece.facts
            if writing is None:
                if refusal := _refusal(piece, self._selection):
                    return TakenSource.of(refusal, facts)
                writing = await self._begin(source, piece.facts)
            await writing.take_in(piece)
        if writing is None:
            return TakenSource("differs")
        return TakenSource.of("apart" if source.apart else "new", facts)

    async def _begin(self, source: Source, facts: Facts) -> SessionWriter:
        """Begin a session under the agent's own id, if no other agent has the same.

        It may exist already, because an import ended, or still is, right after its beginning.
        """
        session_id, is_begun, agent = source.default_id, False, facts.agent
        with suppress(errors.UnknownSessionError):
            row = await self._journal.session(session_id)
            if row.agent == agent and not _is_only_listed(row):
                if await session_of(self._journal, agent, source.downstream_id) is not None:
                    raise _OvertakenError
                is_begun = row.last_seq == 0 and not is_held(await self._journal.owner(session_id))
            else:
                is_begun = row.agent == agent
            if not is_begun:
                session_id = f"{source.reader}-{session_id}"
        if is_begun:
            lease = await self._journal.acquire(session_id, yields=True)
            if lease.next_seq > 1:
                raise _OvertakenError
        else:
            kept = facts.kept or ExportedState(session_id)
            new = NewSession(
                session_id,
                agent,
                facts.folder,
                kept.additional_directories,
                source.list_title(facts.title) if kept.renamed else None,
                facts.created_at,
                kept.renamed,
                kept.origins,
            )
            lease = await self._journal.create(new, yields=True)
        return SessionWriter(self._journal, lease, source, (agent, source.downstream_id))

    async def _take_more(self, source: Source, row: SessionRow, news: News) -> TakenSource:
        """Take in the news of a conversation whose session, or whose id, the journal has."""
        whose = await self._journal.owner(row.session_id)
        if is_held(whose) or row.moved:
            return TakenSource("busy")
        # The newest marker, and whether no prompt came after it.
        marker: Marker | None = None
        is_newest = True
        async for segment in history(self._journal, row.session_id):
            if segment.kind == IMPORTED:
                marker, is_newest = json_value(segment.entries()[-1].raw, Marker), True
            elif segment.kind == PROMPT:
                is_newest = False
        if marker is not None and marker.taken and is_newest:
            news_pieces = news(source, KnownPart(marker.taken, marker.digest))
            if taken := await self._take_news(source, news_pieces, row, whose.epoch, marker):
                return taken
        ours = turns((await state_of(self._journal, row.session_id)).timeline)
        if ours or (marker is None and not source.given):
            known = KnownPart(turns=ours, relation="same" if source.given else "alike")
            news_pieces = news(source, known)
            if taken := await self._take_news(source, news_pieces, row, whose.epoch, marker):
                return taken
        if source.apart:
            return TakenSource("differs")
        apart = replace(source, apart=True)
        if await is_forgotten(self._journal, row.agent, apart.downstream_id):
            return TakenSource("deleted")
        other = NOTHING if source.given else KnownPart(turns=ours, relation="none")
        return await self._take_new(apart, news(apart, other))

    async def _take_news(
        self,
        source: Source,
        news_pieces: AsyncIterator[NewsPiece],
        row: SessionRow,
        epoch: int,
        marker: Marker | None,
    ) -> TakenSource | None:
        """Take in the news; None if the source has nothing in common with the session."""
        writing: SessionWriter | None = None
        outcome: Outcome = "same"
        facts = Facts("", "")
        async for piece in news_pieces:
            facts = piece.facts
            if writing is None:
                lease = await self._journal.acquire(row.session_id, epoch, yields=True)
                if lease.next_seq != row.last_seq + 1:
                    raise _OvertakenError
                writing = SessionWriter(self._journal, lease, source, None, row, marker)
            if await writing.take_in(piece):
                outcome = "grown"
        if writing is None:
            return None
        return TakenSource.of(outcome, facts)


class Marker(Struct, rename="camel"):
    """The content of an `imported` entry; size and time are 0 if more is to come."""

    reader: str
    place: str
    size: int
    changed_at: int
    taken: int
    digest: str
    title: str | None = None


class SessionWriter:
    """A session that pieces are taken into.

    `link` is the agent's id for it, if the journal does not know that yet; `row` and `before` are
    its earlier row and newest marker.
    """

    def __init__(
        self,
        journal: Arrivals,
        lease: Lease,
        source: Source,
        link: tuple[str, str] | None,
        row: SessionRow | None = None,
        before: Marker | None = None,
    ) -> None:
        self.lease = lease
        self._journal = journal
        self._source = source
        self._link = link
        self._row = row
        self._before = before
        self._has_marked = False

    async def take_in(self, piece: NewsPiece) -> bool:
        """Take a piece in; False if its only news is that it is the last one."""
        source, facts, before = self._source, piece.facts, self._before
        title = source.list_title(facts.title)
        is_news = bool(piece.entries) or (
            piece.is_last and before is not None and title not in (None, before.title)
        )
        if facts.kept is None or source.apart:
            title = title or source.list_title(piece.first_prompt)
        else:
            title = facts.title
        marker = Marker(
            source.reader,
            source.place,
            source.size if piece.is_all else 0,
            source.changed_at if piece.is_all else 0,
            piece.taken,
            piece.digest,
            title,
        )
        # Entries without a time get that of the one before, or of the beginning.
        at = facts.created_at or source.changed_at // 1_000_000
        timed: list[PastEntry] = []
        for entry in (*piece.entries, *piece.closing) if is_news else ():
            at = entry.at or at
            timed.append(entry if entry.at else PastEntry(entry.kind, at, entry.raw, entry.seq))
        timed.append(PastEntry(IMPORTED, at, msgspec.json.encode(marker)))
        # In one transaction: others write at the same time, and each has to wait for the lock. Of
        # the markers so far only the last one matters.
        change = self._row_change(piece, title)
        if not is_news and self._row is not None:
            change = replace(change, home=self._row.home)  # nothing of it was made elsewhere
        await self._journal.take_in(
            self.lease,
            timed,
            change,
            self._link,
            instead=self._has_marked,
            release=piece.is_last,
        )
        self._link, self._has_marked = None, True
        return is_news

    def _row_change(self, piece: NewsPiece, title: str | None) -> RowChange:
        """Return how a piece changes the row of the session."""
        facts, row, before = piece.facts, self._row, self._before
        changed = self._source.changed_at // 1_000_000
        if row is not None and row.title not in (None, before and before.title):
            title = row.title  # a person has renamed it
        # A continued session leaves the archive. A new one is not archived either, unless a person
        # did that once it was listed.
        archived: bool | UnsetType = UNSET
        if piece.entries and row is not None:
            archived = False
        elif piece.entries and facts.kept is not None:
            archived = facts.kept.archived
        # If it was listed before it was read, its beginning may have given other facts.
        is_first = row is None and not self._has_marked
        return RowChange(
            title=title,
            updated_at=max(facts.updated_at or changed, row.updated_at if row else 0),
            prompted=True,
            archived=archived,
            cwd=facts.folder if is_first else UNSET,
            created_at=(facts.created_at or UNSET) if is_first else UNSET,
            unread=None if piece.is_last else UNSET,
        )


def _is_unchanged(marker: Marker | None, source: Source) -> bool:
    if marker is None or source.list_title(source.title or "") not in ("", marker.title):
        return False
    before = marker.place, marker.size, marker.changed_at
    return before == (source.place, source.size, source.changed_at)


def _marker_of(last: Entry | None) -> Marker | None:
    """Return the marker in a session's last entry, if it is one."""
    return json_value(last.raw, Marker) if last and last.kind == IMPORTED else None


def _is_only_listed(row: SessionRow) -> bool:
    """Return True if nothing of the session was taken in yet."""
    return row.is_unread and not row.last_seq
