"""Imports conversations into the journal: each turn once, and later those that were added.

The turns of a source are compared with those of its session by their identity (see `turns`): what
is new is taken in, in pieces, each followed by an entry of kind `imported` that records the turns
taken in and what is known of the sources. So an import may end at any point: the next one compares
again. What a source looked like at the last comparison spares reading it again, and decides nothing
else. A conversation with the id of a session here that shares no turn with it gets its own session.

When a newer prompt was put in the place of turns that are here, the session goes back: an entry of
kind `back` tells those who follow it, and the turns left become a session of their own, named after
its first turn.
"""

# See docs/decisions.md, 28.

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from acphold import errors
from acphold.conversation.history.entries import (
    FORGOTTEN,
    FORGOTTEN_TEXT,
    PROMPT,
    TURN_END,
    Entry,
    Origin,
    now_ms,
)
from acphold.imports.heads import enlist, give_up, unread_in
from acphold.imports.interrupts import interruptible
from acphold.imports.joins import Joins, read_beginning
from acphold.imports.left_turns import (
    beside,
    put_aside,
    share_alike,
    take_behind,
    take_out_begun,
    take_out_common,
)
from acphold.imports.pieces import News, NewsPiece, pieces
from acphold.imports.readers import Reader, reader
from acphold.imports.session_writer import (
    Marker,
    SessionWriter,
    forgotten_anywhere,
    marker_of,
    read_known,
)
from acphold.imports.sources import (
    ALL,
    ExportedState,
    Facts,
    Home,
    ImportSelection,
    Source,
    is_text,
)
from acphold.imports.turns import NOTHING, Comparison, KnownPart, ReadTurn
from acphold.journal.journal import (
    Journal,
    Lease,
    history,
    is_forgotten,
    is_live,
    row_of,
    session_of,
    sessions_beside,
    tails_of,
    take_lease,
)
from acphold.journal.list_places import only_one
from acphold.journal.rows import NewSession, SessionRow

SEARCHABLE_MS: Final = 30 * 24 * 3600 * 1000
"""Age up to which a conversation is indexed at once, in ms.

Older ones are rarely searched for, and indexing years of them would make the first import a third
longer. They are left to the next catch-up.
"""

SEARCHABLE_SECONDS: Final = 10.0
"""Limit for indexing after each conversation; the rest follows after the next one."""

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


REST_MS: Final = 60_000
"""Time without a change of its source after which a turn far back that has grown is told anew."""


class TakenSource(Struct, frozen=True):
    """The outcome for a source, and the facts about it, as far as it was read."""

    outcome: Outcome
    facts: Facts = field(default_factory=Facts)
    waits: bool = False
    """True if it has more, which is told when nobody has written to it for REST_MS."""


PieceReader = Callable[[Source, Reader, KnownPart, ImportSelection], AsyncIterator[NewsPiece]]
"""Yields the pieces of a source: see `imports.pieces`."""


async def read_here(
    source: Source, reader: Reader, known: KnownPart, selection: ImportSelection
) -> AsyncIterator[NewsPiece]:
    """Yield the pieces, read in this process."""
    found = pieces(source, reader, known, selection)
    while True:
        with interruptible():
            piece = next(found, None)
        if piece is None:
            return
        yield piece


class _OvertakenError(Exception):
    """Another import took in what we were about to: start over."""


def forecast(source: Source, reader: Reader, selection: ImportSelection = ALL) -> Outcome:
    """Return the outcome for a source unknown to the journal; raises as `Intake.take`."""
    first = next(pieces(source, reader, NOTHING, replace(selection, redact=False)))
    return _refusal(first, selection) or "new"


def _refusal(first: NewsPiece, selection: ImportSelection) -> Outcome | None:
    """Return the reason not to take in a conversation that begins like this, or None."""
    if first.is_last and all(entry.kind != PROMPT for entry in first.entries):
        return "empty"
    return "elsewhere" if selection.cwd not in (None, first.facts.named_folder) else None


def find_conversation(prefix: str, home: Home, names: Iterable[str]) -> list[Source]:
    """Return the sources of the one conversation on disk whose id begins with `prefix`, the newest
    first; raises UnknownSessionError and AmbiguousIdError."""
    found: dict[str, list[Source]] = {}
    for reading in map(reader, names):
        for source in reading.find(home):
            for its_id in {source.default_id, source.session_id}:
                if its_id.startswith(prefix):
                    found.setdefault(its_id, []).append(source)
    one = only_one(prefix, lambda start: sorted(it for it in found if it.startswith(start)))
    return sorted(found[one], key=lambda source: -source.changed_at)


class Intake:
    """Takes conversations into one journal."""

    def __init__(
        self, journal: Journal, selection: ImportSelection = ALL, *, at_once: bool = False
    ) -> None:
        """`at_once` also tells what could wait: see TakenSource."""
        self._at_once = at_once
        self._journal = journal
        self._selection = selection
        self._joins = Joins(journal)
        self._forgotten: frozenset[str] | None = None
        """The turns that a person had taken out of any session, when this was last asked; the texts
        that were removed everywhere are in the selection."""

    async def expect(self, source: Source, reader: Reader) -> Outcome:
        """Return the outcome of `take`, as far as it is known without reading the source."""
        return await self._expect(*await self.find_session(source, reader), reader)

    async def forecast(self, source: Source, reader: Reader) -> Outcome:
        """Return the outcome of `take` as `expect` does, but read a source that is new, or whose
        session was continued here or lacks forgotten turns; raises as `take`."""
        await self._ask_forgotten()
        source, row = await self.find_session(source, reader)
        outcome = await self._expect(source, row, reader)
        if outcome == "new":
            return forecast(source, reader, self._selection)
        if outcome == "grown" and row is not None and not row.moved:
            session = await read_known(self._journal, row.session_id)
            if session.forgotten or any(turn.is_here for turn in session.turns):
                part = session.part(source)
                selection = replace(self._selection, redact=False)
                for piece in pieces(source, reader, part, selection):
                    compared = piece.compared or Comparison()
                    is_same = compared.verdict == "related" and not (compared.void or compared.left)
                    return "same" if is_same and not piece.entries else outcome
        return outcome

    async def _expect(self, source: Source, row: SessionRow | None, reader: Reader) -> Outcome:
        if row is None:
            agent = source.agent or reader.key
            gone = [
                await is_forgotten(self._journal, agent, name)
                for name in {source.downstream_id, source.default_id, source.branch_of} - {""}
            ]
            return "deleted" if any(gone) else "new"
        if _is_only_listed(row):
            return "new"
        last = await self._last_marker(row)
        return (last and last.outcome(source)) or "grown"

    async def _last_marker(self, row: SessionRow) -> Marker | None:
        """Return the marker that a session ends with, if it does."""
        end = await self._journal.read(row.session_id, max(row.last_seq - 1, 0))
        return marker_of(end[-1].entries()[-1] if end else None)

    async def select_changed(
        self, sources: Iterable[Source], reader: Reader
    ) -> tuple[list[Source], Counter[Outcome]]:
        """Return the sources, all but those of which `expect` would say that they are the same, or
        still differ; and how many these are."""
        changed: list[Source] = []
        outcomes = Counter[Outcome]()
        remaining = iter(sources)
        while batch := [*islice(remaining, LOOKED_FOR_AT_ONCE)]:
            known: dict[tuple[str, str], Entry | None] = {}
            for agent in {source.agent or reader.key for source in batch}:
                names = [
                    name.downstream_id
                    for source in batch
                    if (source.agent or reader.key) == agent and is_text(source.downstream_id)
                    for name in (source, replace(source, apart=True))
                ]
                last = await self._journal.links.last_entries(agent, names)
                known |= {(agent, name): entry for name, entry in last.items()}
            for source in batch:
                agent, apart = source.agent or reader.key, replace(source, apart=True)
                its = apart if (agent, apart.downstream_id) in known else source
                marker = marker_of(known.get((agent, its.downstream_id)))
                if marker is not None and (outcome := marker.outcome(its)):
                    outcomes[outcome] += 1
                else:
                    changed.append(source)
        return changed, outcomes

    async def list_first(self, new: Sequence[Source]) -> None:
        """List conversations before they are read, if reading them takes long."""
        await self._ask_forgotten()
        await enlist(self._journal, new, self._selection)

    async def find_session(
        self, source: Source, reader: Reader
    ) -> tuple[Source, SessionRow | None]:
        """Return the source, marked if it is apart, and its session in the journal."""
        agent = source.agent or reader.key
        apart = replace(source, apart=True)
        its = await session_of(self._journal, agent, source.downstream_id)
        for found in (apart, source):
            ours = await session_of(self._journal, agent, found.downstream_id)
            if ours and not (found.apart and ours == its):  # it was apart once
                row = await self._journal.session(ours)
                if source.given and row.unread is not None and not row.last_seq:
                    # It may be listed by this source, or by another of the same id.
                    listed, _ = unread_in(row.unread)
                    if listed.place != source.place:
                        return apart, None
                return found, row
        for found in (apart, source) if source.kept_as else ():
            kept = await row_of(self._journal, found.default_id)
            if kept is not None and kept.agent == agent and kept.last_seq:
                return found, kept
        return source, None

    async def take(
        self,
        source: Source,
        reader: Reader,
        read_pieces: PieceReader = read_here,
        *,
        deleted: bool = False,
        rejoin: bool = False,
    ) -> TakenSource:
        """Take in the news of a conversation; with `deleted`, also of one that was deleted here;
        with `rejoin`, look if what earlier releases made a session of is part of another one.

        Raises OSError if it cannot be read, and TranscriptError if its reader fails on it. Then,
        and if it is empty, its session is no longer unread.
        """
        taken = TakenSource("busy")
        for _ in range(ATTEMPTS):
            try:
                taken = await self._take(source, reader, read_pieces, deleted, rejoin)
                break
            except _OvertakenError:
                continue
            except errors.ForgottenTextError:
                self._forgotten = None
                continue
            except errors.HeldElsewhereError as error:
                if error.epoch:
                    break
                # Nobody had it since our own first write upgraded the journal.
            except (errors.LeaseLostError, errors.SessionExistsError, errors.UnknownSessionError):
                break
        if taken.outcome in ("new", "apart", "grown"):
            await self._journal.index.catch_up(SEARCHABLE_SECONDS, since=now_ms() - SEARCHABLE_MS)
        return taken

    async def _take(
        self,
        source: Source,
        reader: Reader,
        read_pieces: PieceReader,
        deleted: bool,
        rejoin: bool,
    ) -> TakenSource:
        source, row = await self.find_session(source, reader)
        expected = await self._expect(source, row, reader)
        if deleted and expected == "deleted":
            expected = "new"
        if rejoin and source.apart and expected == "same":
            expected = "grown"
        joined, is_new = None, row is None or _is_only_listed(row)
        if expected != "deleted" and (rejoin or is_new) and await self._joins.are_possible():
            joined = await self._joins.find(source, *read_beginning(source, reader))
        if joined is not None and not await self._is_only_told(row):
            joined = None

        await self._ask_forgotten()

        def news(source: Source, known: KnownPart) -> AsyncIterator[NewsPiece]:
            return self._without_forgotten(source, reader, read_pieces, known)

        taken = TakenSource(expected)
        try:
            if joined is not None:
                taken = await self._take_more(source, joined, news, joins=True)
            if joined is not None and taken.outcome != "differs":
                row = joined
            elif expected == "new":
                taken = await self._take_new(source, news(source, NOTHING))
            elif expected == "grown" and row is not None:
                if not source.apart:
                    taken = await self._take_more(source, row, news)
                else:
                    its, its_row = await self._reunite(source, row, news)
                    taken = await self._take_more(its, its_row, news)
                    if taken.outcome == "apart" or its_row.session_id != row.session_id:
                        await self._note_taken(source, row.session_id)
        except (OSError, errors.TranscriptError):
            await self._give_up(row)
            raise
        if taken.outcome in ("empty", "same", "differs"):
            await self._give_up(row)
        elif begun_as := taken.facts.begun_as:
            source, row = await self.find_session(source, reader)
            if row is not None:
                await take_out_begun(self._journal, source, row, begun_as)
        return taken

    async def _ask_forgotten(self) -> None:
        if self._forgotten is None:
            self._forgotten = await forgotten_anywhere(self._journal)
            marks = await forgotten_anywhere(self._journal, FORGOTTEN_TEXT)
            self._selection = replace(self._selection, marks=marks)

    async def _is_only_told(self, row: SessionRow | None) -> bool:
        """Return True if nothing was said here in the session of a source, and nobody has it."""
        if row is None:
            return True
        if row.moved or await is_live(self._journal, row.session_id):
            return False
        turns = (await read_known(self._journal, row.session_id)).turns
        return not any(turn.is_here or turn.was_here for turn in turns)

    async def _without_forgotten(
        self, source: Source, reader: Reader, read_pieces: PieceReader, known: KnownPart
    ) -> AsyncIterator[NewsPiece]:
        """Yield the pieces of a source without the turns that a person had taken out; what it calls
        those that were said here is kept, as it is in its forks."""
        anywhere = self._forgotten or frozenset()
        known = replace(known, forgotten=known.forgotten | anywhere)
        is_asked = not anywhere
        pieces = read_pieces(source, reader, known, self._selection)
        while (piece := await anext(pieces, None)) is not None:
            if not is_asked and (origin := piece.facts.begun_as):
                is_asked = True
                agent = source.agent or reader.key
                if its := await session_of(self._journal, agent, origin):
                    out = (await read_known(self._journal, its)).forgotten
                else:
                    out = await forgotten_anywhere(self._journal, f"{FORGOTTEN} {agent}")
                if not out <= known.forgotten:
                    known = replace(known, forgotten=known.forgotten | out)
                    pieces = read_pieces(source, reader, known, self._selection)
                    continue
            is_asked = True
            if piece.compared is not None:
                names = {name for its in piece.compared.taken_out.values() for name in its}
                for name in names - anywhere:
                    await self._journal.links.link(None, FORGOTTEN, name)
            yield piece

    async def _give_up(self, row: SessionRow | None) -> None:
        if row is not None and row.is_unread:
            await give_up(self._journal, row.session_id)

    async def _take_new(self, source: Source, news_pieces: AsyncIterator[NewsPiece]) -> TakenSource:
        first = await anext(news_pieces)
        if refusal := _refusal(first, self._selection):
            return TakenSource(refusal, first.facts)
        writing = await self._begin(source, first.facts)
        writing.ends_later = source.apart
        _, facts = await writing.take_all(first, news_pieces)
        if source.apart:
            await take_out_common(self._journal, source, writing.lease.session_id)
        await writing.end()
        return TakenSource("apart" if source.apart else "new", facts)

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
                is_begun = row.last_seq == 0 and not await is_live(self._journal, session_id)
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
            whole: SessionRow | None = None
            if origin := source.branch_of:
                begun_as = await session_of(self._journal, agent, origin) or origin
                if whole := await row_of(self._journal, begun_as):
                    session_id = f"{begun_as}~{source.item}"
                before = whole.origins if whole else ()
                kept = replace(kept, origins=(*before, Origin(begun_as, agent, 0)))
            new = NewSession(
                session_id,
                agent,
                facts.folder,
                kept.additional_directories,
                source.list_title(facts.title) if kept.renamed else None,
                facts.created_at,
                kept.renamed,
                kept.origins,
                by_program=facts.by_program,
            )
            lease = await self._journal.create(new, yields=True)
            if whole is not None:
                await share_alike(self._journal, whole, session_id)
        return SessionWriter(self._journal, lease, source, (agent, source.downstream_id))

    async def _take_more(
        self,
        source: Source,
        row: SessionRow,
        news: News,
        since: int | None = None,
        *,
        joins: bool = False,
    ) -> TakenSource:
        """Take in the news of a conversation whose session, or whose id, the journal has, or which
        `joins` that session; or, with `since`, all from this turn of ours on."""
        again = since is not None
        if row.moved or await is_live(self._journal, row.session_id):
            return TakenSource("busy")
        if not again and (taken := await self._read_on(source, row, news)):
            return taken
        session = await read_known(self._journal, row.session_id)
        if (await self._journal.session(row.session_id)).last_seq != row.last_seq:
            raise _OvertakenError  # what was read is of two moments
        before, out = session.marker, KnownPart(forgotten=self._forgotten or frozenset())
        anew = [session.turns[n] for n in out.taken_out(session.turns)]
        known = session.part(source, is_part=joins)
        turns = [turn for turn in known.turns if turn not in anew]
        known = replace(known, turns=turns)
        here = (n + 1 for n, turn in enumerate(turns) if turn.is_here or turn.was_here)
        kept = max(here, default=0)
        if since is not None:
            if before is not None:
                before = replace(before, seen={}, losses=0, skipped=0, damaged={})
            known = replace(known, anew=max(kept, since), given=False)
        pieces = news(source, known)
        compared = (first := await anext(pieces)).compared or Comparison()
        is_mended = before is not None and before.is_mended(source, compared)
        is_mended |= bool(session.before and 0 in compared.news)
        fuller, waits = 0 if is_mended else compared.fuller, False
        can_wait = compared.can_wait and compared.has_all and not (again or is_mended)
        if can_wait and not self._at_once:
            waits = abs(now_ms() - source.changed_at // 1_000_000) < REST_MS
        if compared.has_all and fuller >= 0 and known.is_end and not (again or waits):
            return await self._take_more(source, row, news, fuller, joins=joins)
        is_strange = compared.verdict == "strange"
        is_strange |= compared.is_anew and _is_another(row, compared.folders)
        if joins and (is_strange or compared.verdict == "differs"):
            return TakenSource("differs", first.facts)  # equal words, and nothing else
        if is_strange and not again:
            return await self._take_apart(source, row, news)
        lease = await self._acquire(row)
        is_unlinked = source.kept_as and row.downstream_id == source.default_id
        link = (row.agent, source.downstream_id) if is_unlinked or joins else None
        writing = SessionWriter(self._journal, lease, source, link, row, before)
        if joins or compared.is_handed:
            writing.part = source.downstream_id
        if is_strange or compared.verdict == "differs":
            await writing.note(differs=True)
            return TakenSource("differs", first.facts)
        if left := [turns[n] for n in compared.left]:
            await put_aside(self._journal, source, row, left, row.session_id)
        is_part = bool(writing.part)
        others = await beside(self._journal, source, row.session_id, of_part=is_part)
        writing.ends_later = bool(compared.behind or others)
        if again and session.before and not kept and 0 in compared.news:
            anew = [ReadTurn(spans=session.before), *anew]
        await writing.make_room(first, turns, anew)
        writing.waits = waits
        is_news, facts = await writing.take_all(first, pieces)
        if behind := compared.behind:
            await take_behind(self._journal, source, row, behind, news, session)
        if writing.ends_later or compared.left or compared.behind:
            its_lease = writing.lease if writing.part else None
            await take_out_common(self._journal, source, row.session_id, its_lease)
        for tail in await tails_of(self._journal, row.session_id) if compared.behind else ():
            if await row_of(self._journal, tail) is not None:  # else another one had all of it
                await take_out_common(self._journal, source, tail)
        await writing.end()
        return TakenSource("grown" if is_news else "same", facts, waits)

    async def _acquire(self, row: SessionRow) -> Lease:
        lease = await take_lease(self._journal, row.session_id, yields=True)
        if lease.next_seq != row.last_seq + 1:
            raise _OvertakenError
        return lease

    async def _read_on(self, source: Source, row: SessionRow, news: News) -> TakenSource | None:
        """Take in what follows the last turn that was taken in, without reading what precedes it;
        None if it is not sure that nothing else has changed."""
        marker = await self._last_marker(row)
        if marker is None or marker.last is None or marker.moving or source.given:
            return None
        if not marker.is_only_longer(source):
            return None
        identity, count, digest = marker.last
        ended = b""
        async for segment in history(self._journal, row.session_id, max(row.last_seq - 3, 0)):
            for entry in segment.entries():
                ended = entry.raw if entry.kind == TURN_END else ended
        turn = ReadTurn(identity, count=count, digest=digest, end=ended)
        known = KnownPart([turn], hidden_title=marker.hidden_title)
        pieces = news(replace(source, begin=marker.offset), known)
        first = await anext(pieces, None)
        compared = first.compared if first else None
        if first is None or compared is None or compared.known != {0: 0} or compared.void:
            return None
        writing = SessionWriter(self._journal, await self._acquire(row), source, None, row, marker)
        others = await beside(self._journal, source, row.session_id, of_part=False)
        writing.ends_later = bool(others)
        is_news, facts = await writing.take_all(first, pieces)
        if writing.ends_later:
            await take_out_common(self._journal, source, row.session_id)
            await writing.end()
        return TakenSource("grown" if is_news else "same", facts)

    async def _take_apart(self, source: Source, row: SessionRow, news: News) -> TakenSource:
        """Take in a conversation that only has the id of one here, as a session of its own, or as
        part of one that is apart, too; its place may have had another one."""
        apart, number = replace(source, apart=True), 1
        if not source.apart:
            its, its_row = await self._reunite(apart, row, news)
            if its_row.session_id != row.session_id:
                taken = await self._take_more(its, its_row, news)
                await self._note_taken(source, row.session_id)
                return taken
        while source.apart and await session_of(self._journal, row.agent, apart.downstream_id):
            number += 1
            apart = replace(source, session_id=f"{source.session_id}~{number}", kept_as="")
        if await is_forgotten(self._journal, row.agent, apart.downstream_id):
            return TakenSource("deleted")
        return await self._take_new(apart, news(replace(source, apart=True), NOTHING))

    async def _note_taken(self, source: Source, session_id: str) -> None:
        """Note in the session that a source had, if it is still there, that another one has all of
        it: that is looked at first."""
        with suppress(errors.UnknownSessionError, errors.HeldElsewhereError):
            lease = await take_lease(self._journal, session_id, yields=True)
            row = await self._journal.session(session_id)
            before = (await read_known(self._journal, session_id)).marker
            await SessionWriter(self._journal, lease, source, None, row, before).note()

    # -- sessions that turn out to be parts of one conversation --------------------------------

    async def _reunite(
        self, source: Source, row: SessionRow, news: News
    ) -> tuple[Source, SessionRow]:
        """Return a source that got a session of its own, with that; or, if it shares a turn with
        the session of its id by now, or with another one apart, with the latter."""
        whole = replace(source, apart=False)
        ours = await session_of(self._journal, row.agent, whole.downstream_id)
        if ours is None:
            return source, row
        beside = await sessions_beside(self._journal, ours)
        others = (it.session_id for it in beside if not it.tail_of and it.agent == row.agent)
        for session_id in dict.fromkeys((ours, row.session_id, *others)):
            session = await read_known(self._journal, session_id)
            compared = (await anext(news(whole, session.part(source)))).compared
            if compared is not None and compared.sure:
                found = whole if session_id == ours else source
                return found, await self._journal.session(session_id)
        return source, row


def _is_another(row: SessionRow, folders: Collection[str]) -> bool:
    """Return True if a text in the place of a session's, without a turn of it, is not to have its
    id: it is of other folders, or others would see it."""
    return bool(row.shared_with) or (bool(folders) and row.cwd not in folders)


def _is_only_listed(row: SessionRow) -> bool:
    """Return True if nothing of the session was taken in yet."""
    return row.is_unread and not row.last_seq
