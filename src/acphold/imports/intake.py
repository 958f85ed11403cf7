"""Taking conversations into the journal: each once, and later what came to it.

Each piece of a conversation is taken in whole, with an entry of kind `imported` behind it that
says from where, and how much of it is there by now. So an import may end at any point: the next
one goes on behind the last such entry. Where something else came behind that, or where there is
none because the conversation was held through `wrap`, what is new is told by its turns. What has
the id of a session here, and is no continuation of it, gets a session of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from acphold.errors import (
    HeldElsewhereError,
    LeaseLostError,
    SessionExistsError,
    TranscriptError,
    UnknownSessionError,
)
from acphold.history.entries import PROMPT, Entry
from acphold.history.times import now_ms
from acphold.imports.continuation import NOTHING, Known, turns
from acphold.imports.heads import enlist, give_up, is_held, unread_in
from acphold.imports.pieces import Piece, pieces
from acphold.imports.readers import Reader
from acphold.imports.session_writer import (
    IMPORTED,
    Marker,
    SessionWriter,
    is_as_it_was,
    marker_in,
)
from acphold.imports.sources import Facts, Kept, Manner, Source
from acphold.journal import (
    Journal,
    NewSession,
    SessionRow,
    history,
    is_forgotten,
    session_of,
    state_of,
)

SEARCHABLE_MS: Final = 30 * 24 * 3600 * 1000
"""How new a conversation is that is made searchable at once: others are looked for less, and the
first import of years would take a third longer. They are left to whoever catches up."""

SEARCHABLE_SECONDS: Final = 10.0
"""A bound for that, after each conversation; what it leaves over is gone on with after the next."""

QUIET_MS: Final = 10 * 60 * 1000
"""Longer than a model thinks. What comes later, as from a tool that takes hours, is added."""

LOOKED_FOR_AT_ONCE: Final = 500
"""Sources that the journal is asked for in one question."""

ATTEMPTS: Final = 3
"""How often a conversation is begun with that another import goes on with meanwhile: who finds
that has taken it over from the other by then, so a second attempt succeeds but for a third one."""

Outcome = Literal[
    "new", "apart", "grown", "same", "empty", "elsewhere", "deleted", "busy", "differs"
]
"""What became of a source: taken in whole, or so beside the session that has its id; what was new
of it; nothing new; nothing said in it; outside the folder asked for; deleted here before; in use by
somebody; it went another way than here, and nobody can tell what is new."""

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
"""Each in words, but `empty`."""


class Selection(Struct, frozen=True):
    """Which conversations are taken, and how much of them.

    With `whole_turns`, the turn that is not over is left for the next time, as long as somebody
    may be at work on it: see `is_quiet`. With `redact`, secrets are left out.
    """

    cwd: str | None = None
    whole_turns: bool = False
    redact: bool = False

    def manner(self, source: Source) -> Manner:
        """How a conversation is told."""
        return Manner(self.whole_turns and not is_quiet(source), self.redact)


ALL: Final = Selection()


def is_quiet(source: Source) -> bool:
    """Whether nothing came to it for so long that its last turn is over, however it ended.

    Some transcripts never say that one is over, and no agent says it when it is killed.
    """
    return now_ms() - source.changed_at // 1_000_000 > QUIET_MS


class Taken(Struct, frozen=True):
    """What became of a source, and of what was told of it: see `Facts`."""

    outcome: Outcome
    missed: Counter[str] = field(default_factory=Counter)
    missed_bytes: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, outcome: Outcome, facts: Facts) -> Taken:
        """What became of a source of which these are the facts."""
        return cls(outcome, facts.missed, facts.missed_bytes, facts.removed)


Telling = Callable[[Source, Reader, Known, Manner], AsyncIterator[Piece]]
"""Who tells the pieces of a source: see `imports.pieces`."""

News = Callable[[Source, Known], AsyncIterator[Piece]]
"""The same, in the manner asked for."""


async def told_here(
    source: Source, reader: Reader, known: Known, manner: Manner
) -> AsyncIterator[Piece]:
    """The pieces, read in this process."""
    told = pieces(source, reader, known, whole_turns=manner.whole_turns, redact=manner.redact)
    for piece in told:
        yield piece


class _OvertakenError(Exception):
    """Another import took in what we were about to: what there is to do is another thing now."""


def forecast(source: Source, reader: Reader, selection: Selection = ALL) -> Outcome:
    """What would become of a source that the journal does not know; raises as `Intake.take`."""
    whole_turns = selection.manner(source).whole_turns
    first = next(pieces(source, reader, NOTHING, whole_turns=whole_turns))
    return _refusal(first, selection) or "new"


def _refusal(first: Piece, selection: Selection) -> Outcome | None:
    """Why a conversation that begins like this is not taken in; None when it is."""
    if first.is_last and all(entry.kind != PROMPT for entry in first.entries):
        return "empty"
    return "elsewhere" if selection.cwd not in (None, first.facts.cwd) else None


class Intake:
    """Puts conversations into one journal."""

    def __init__(self, journal: Journal, selection: Selection = ALL) -> None:
        self._journal = journal
        self._selection = selection
        self._indexes = True

    def leave_index(self) -> None:
        """From now on another process makes searchable what is taken in."""
        self._indexes = False

    async def expect(self, source: Source, reader: Reader) -> Outcome:
        """What `take` would do, as far as that can be told without reading the source."""
        return await self._outlook(*await self._found(source, reader), reader)

    async def _outlook(self, source: Source, row: SessionRow | None, reader: Reader) -> Outcome:
        if row is None:
            agent = source.agent or reader.key
            gone = await is_forgotten(self._journal, agent, source.known_as)
            return "deleted" if gone else "new"
        if _is_only_listed(row):
            return "new"
        end = await self._journal.read(row.session_id, max(row.last_seq - 1, 0))
        last = _marker_of(end[-1].entries()[-1] if end else None)
        return "same" if is_as_it_was(last, source) else "grown"

    async def changed(self, sources: Iterable[Source], reader: Reader) -> list[Source]:
        """Of many sources at once, all but those that `expect` would tell to be the same."""
        found: list[Source] = []
        remaining = iter(sources)
        while some := [*islice(remaining, LOOKED_FOR_AT_ONCE)]:
            same: set[int] = set()
            for agent in {source.agent or reader.key for source in some}:
                own = [
                    (place, source, replace(source, apart=True))
                    for place, source in enumerate(some)
                    if (source.agent or reader.key) == agent and _is_legible(source)
                ]
                plain = [source.known_as for _, source, _ in own]
                apart = [source.known_as for _, _, source in own]
                last = await self._journal.last_entries(agent, [*plain, *apart])
                for (place, source, other), its_id, other_id in zip(own, plain, apart, strict=True):
                    kept, known_as = (other, other_id) if other_id in last else (source, its_id)
                    if is_as_it_was(_marker_of(last.get(known_as)), kept):
                        same.add(place)
            found += (source for place, source in enumerate(some) if place not in same)
        return found

    async def list_first(self, new: Sequence[Source]) -> None:
        """Have conversations in the list before they are read, where it takes long to read them.

        Not with `whole_turns`: whether there is one, the beginning does not tell.
        """
        selection = self._selection
        if not selection.whole_turns:
            await enlist(self._journal, new, selection.cwd, redact=selection.redact)

    async def _found(self, source: Source, reader: Reader) -> tuple[Source, SessionRow | None]:
        """The session that the journal has of this conversation, and whether it stands apart."""
        agent = source.agent or reader.key
        apart = replace(source, apart=True)
        for found in (apart, source):
            if ours := await session_of(self._journal, agent, found.known_as):
                row = await self._journal.session(ours)
                if source.given and row.unread is not None and not row.last_seq:
                    # Whether it was listed by this source, or by another of the same id.
                    listed, _ = unread_in(row.unread)
                    if listed.place != source.place:
                        return apart, None
                return found, row
        if source.kept_as:
            with suppress(UnknownSessionError):
                row = await self._journal.session(source.kept_as)
                if row.agent == agent and row.last_seq:
                    return source, row
        return source, None

    async def take(self, source: Source, reader: Reader, telling: Telling = told_here) -> Taken:
        """Take in what is new of a conversation.

        Raises OSError when it cannot be read, and TranscriptError when its reader fails on it.
        Then, and when there is nothing in it, a session of it is unread no longer.
        """
        taken = Taken("busy")
        for _ in range(ATTEMPTS):
            try:
                taken = await self._take(source, reader, telling)
                break
            except _OvertakenError:
                continue
            except (HeldElsewhereError, LeaseLostError, SessionExistsError, UnknownSessionError):
                break
        if self._indexes and taken.outcome in ("new", "apart", "grown"):
            await self._journal.catch_up(SEARCHABLE_SECONDS, since=now_ms() - SEARCHABLE_MS)
        return taken

    async def _take(self, source: Source, reader: Reader, telling: Telling) -> Taken:
        source, row = await self._found(source, reader)
        expected = await self._outlook(source, row, reader)

        def news(source: Source, known: Known) -> AsyncIterator[Piece]:
            return telling(source, reader, known, self._selection.manner(source))

        taken = Taken(expected)
        try:
            if expected == "new" or (expected == "grown" and row is None):
                taken = await self._take_new(source, news(source, NOTHING))
            elif expected == "grown" and row is not None:
                taken = await self._take_rest(source, row, news)
        except (OSError, TranscriptError):
            await self._give_up(row)
            raise
        if taken.outcome in ("empty", "same", "differs"):
            await self._give_up(row)
        return taken

    async def _give_up(self, row: SessionRow | None) -> None:
        if row is not None and row.is_unread:
            await give_up(self._journal, row.session_id)

    async def _take_new(self, source: Source, told: AsyncIterator[Piece]) -> Taken:
        writing: SessionWriter | None = None
        facts = Facts("", "")
        async for piece in told:
            facts = piece.facts
            if writing is None:
                if refusal := _refusal(piece, self._selection):
                    return Taken.of(refusal, facts)
                writing = await self._begin(source, piece.facts)
            await writing.take_in(piece)
        if writing is None:
            return Taken("differs")
        return Taken.of("apart" if source.apart else "new", facts)

    async def _begin(self, source: Source, facts: Facts) -> SessionWriter:
        """Under the agent's own id, where no other agent has the same.

        It may be there already, because an import ended, or is, right behind its beginning.
        """
        session_id, is_begun, agent = source.wanted, False, facts.agent
        with suppress(UnknownSessionError):
            row = await self._journal.session(session_id)
            if row.agent == agent and not _is_only_listed(row):
                if await session_of(self._journal, agent, source.known_as) is not None:
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
            kept = facts.kept or Kept(session_id)
            new = NewSession(
                session_id,
                agent,
                facts.folder,
                kept.additional_directories,
                source.titled(facts.title) if kept.renamed else None,
                facts.created_at,
                kept.renamed,
                kept.origins,
            )
            lease = await self._journal.create(new, yields=True)
        return SessionWriter(self._journal, lease, source, (agent, source.known_as))

    async def _take_rest(self, source: Source, row: SessionRow, news: News) -> Taken:
        """What is new of a conversation that the journal has, or has another one with the id of."""
        whose = await self._journal.owner(row.session_id)
        if is_held(whose):
            return Taken("busy")
        # The newest marker, and whether nobody said anything since.
        marker: Marker | None = None
        is_newest = True
        async for segment in history(self._journal, row.session_id):
            if segment.kind == IMPORTED:
                marker, is_newest = marker_in(segment.entries()[-1].raw), True
            elif segment.kind == PROMPT:
                is_newest = False
        if marker is not None and marker.taken and is_newest:
            told = news(source, Known(marker.taken, marker.digest))
            if taken := await self._take_news(source, told, row, whose.epoch, marker):
                return taken
        ours = turns((await state_of(self._journal, row.session_id)).timeline)
        if ours:
            known = Known(turns=ours, relation="same" if source.given else "alike")
            told = news(source, known)
            if taken := await self._take_news(source, told, row, whose.epoch, marker):
                return taken
        elif marker is None and not source.given:
            told = news(source, NOTHING)
            if taken := await self._take_news(source, told, row, whose.epoch, marker):
                return taken
        if source.apart:
            return Taken("differs")
        apart = replace(source, apart=True)
        if await is_forgotten(self._journal, row.agent, apart.known_as):
            return Taken("deleted")
        other = NOTHING if source.given else Known(turns=ours, relation="none")
        return await self._take_new(apart, news(apart, other))

    async def _take_news(
        self,
        source: Source,
        told: AsyncIterator[Piece],
        row: SessionRow,
        epoch: int,
        marker: Marker | None,
    ) -> Taken | None:
        """Take in what is told; None when the source has nothing in common with the session."""
        writing: SessionWriter | None = None
        outcome: Outcome = "same"
        facts = Facts("", "")
        async for piece in told:
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
        return Taken.of(outcome, facts)


def _is_legible(source: Source) -> bool:
    """Whether a journal can be asked for its id; one that is no text is told of by itself."""
    try:
        source.known_as.encode()
    except UnicodeEncodeError:
        return False
    return True


def _marker_of(last: Entry | None) -> Marker | None:
    """The marker that the last entry of a session is."""
    return marker_in(last.raw) if last and last.kind == IMPORTED else None


def _is_only_listed(row: SessionRow) -> bool:
    """Whether nothing of the session was taken in yet."""
    return row.is_unread and not row.last_seq
