"""Taking conversations into the journal: each once, and later what came to it.

Each piece of a conversation is taken in whole, with an entry of kind `imported` behind it that
says from where, and how much of it is there by now. So an import may end at any point: the next
one goes on behind the last such entry. Where something else came behind that, or where there is
none because the conversation was held through `wrap`, what is new is told by its prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Literal

from msgspec import Struct, field

from acphold.errors import (
    HeldElsewhereError,
    LeaseLostError,
    SessionExistsError,
    TranscriptError,
    UnknownSessionError,
)
from acphold.imports.heads import enlist
from acphold.imports.pieces import NOTHING, Known, Piece, pieces, squeezed
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
    Holder,
    Journal,
    Message,
    NewSession,
    SessionRow,
    history,
)
from acphold.journal.entries import PROMPT
from acphold.journal.session_rows import now_ms

OWNER: Final = "import"
"""Who holds the lease of a session while it is taken in."""

SEARCHABLE_MS: Final = 30 * 24 * 3600 * 1000
"""How new a conversation is that is made searchable at once: others are looked for less, and the
first import of years would take a third longer. They are left to whoever catches up."""

SEARCHABLE_SECONDS: Final = 10.0
"""A bound for that, after each conversation; what it leaves over is gone on with after the next."""

ATTEMPTS: Final = 3
"""How often a conversation is begun with that another import goes on with meanwhile: who finds
that has taken it over from the other by then, so a second attempt succeeds but for a third one."""

Outcome = Literal["new", "grown", "same", "empty", "elsewhere", "deleted", "busy", "differs"]
"""What became of a source: taken in whole, or what was new of it; nothing new; nothing said in it;
outside the folder asked for; deleted here before; in use by somebody; nothing in common."""


class Selection(Struct, frozen=True):
    """Which conversations are taken, and how much of them.

    With `whole_turns`, the turn that is not over is left for the next time; with `redact`, secrets
    are left out.
    """

    cwd: str | None = None
    whole_turns: bool = False
    redact: bool = False

    @property
    def manner(self) -> Manner:
        """How a conversation is told."""
        return Manner(self.whole_turns, self.redact)


ALL: Final = Selection()


class Taken(Struct, frozen=True):
    """What became of a source, and of what was told of it: see `Facts`."""

    outcome: Outcome
    missed: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


Telling = Callable[[Source, Reader, Known, Manner], AsyncIterator[Piece]]
"""Who tells the pieces of a source: see `imports.pieces`."""


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
    first = next(pieces(source, reader, NOTHING, whole_turns=selection.whole_turns))
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
        row = await self._ours(source, reader)
        if row is None:
            agent = source.agent or reader.key
            gone = await self._journal.is_forgotten(agent, source.session_id)
            return "deleted" if gone else "new"
        if _is_only_listed(row):
            return "new"
        return "same" if is_as_it_was(await self._last_marker(row), source) else "grown"

    async def list_first(self, new: Sequence[Source]) -> None:
        """Have conversations in the list before they are read, where it takes long to read them.

        Not with `whole_turns`: whether there is one, the beginning does not tell.
        """
        selection = self._selection
        if not selection.whole_turns:
            await enlist(self._journal, new, selection.cwd, redact=selection.redact)

    async def _ours(self, source: Source, reader: Reader) -> SessionRow | None:
        """The session that the journal has of this conversation."""
        agent = source.agent or reader.key
        ours = await self._journal.session_of(agent, source.session_id)
        if ours is not None:
            return await self._journal.session(ours)
        if not source.kept_as:
            return None
        try:
            row = await self._journal.session(source.kept_as)
        except UnknownSessionError:
            return None
        return row if row.agent == agent and row.last_seq else None

    async def take(self, source: Source, reader: Reader, telling: Telling = told_here) -> Taken:
        """Take in what is new of a conversation.

        Raises OSError when it cannot be read, and TranscriptError when its reader fails on it.
        Then, and when there is nothing in it, a session of it is unread no longer.
        """
        try:
            taken = await self._tried(source, reader, telling)
        except (OSError, TranscriptError):
            await self._give_up(source, reader)
            raise
        if taken.outcome in ("empty", "same", "differs"):
            await self._give_up(source, reader)
        if self._indexes:
            await self._journal.catch_up(SEARCHABLE_SECONDS, now_ms() - SEARCHABLE_MS)
        return taken

    async def _tried(self, source: Source, reader: Reader, telling: Telling) -> Taken:
        for _ in range(ATTEMPTS):
            try:
                return await self._take(source, reader, telling)
            except _OvertakenError:
                continue
            except (HeldElsewhereError, LeaseLostError, SessionExistsError, UnknownSessionError):
                break
        return Taken("busy")

    async def _give_up(self, source: Source, reader: Reader) -> None:
        row = await self._ours(source, reader)
        if row is not None and row.is_unread:
            await self._journal.give_up(row.session_id)

    async def _take(self, source: Source, reader: Reader, telling: Telling) -> Taken:
        expected = await self.expect(source, reader)

        def news(known: Known) -> AsyncIterator[Piece]:
            return telling(source, reader, known, self._selection.manner)

        if expected == "new":
            return await self._take_new(source, news(NOTHING))
        if expected == "grown":
            return await self._take_rest(source, reader, news)
        return Taken(expected)

    async def _take_new(self, source: Source, told: AsyncIterator[Piece]) -> Taken:
        writing: SessionWriter | None = None
        missed: Counter[str] = Counter()
        removed: Counter[str] = Counter()
        async for piece in told:
            missed, removed = piece.facts.missed, piece.facts.removed
            if writing is None:
                if refusal := _refusal(piece, self._selection):
                    return Taken(refusal, missed)
                writing = await self._begin(source, piece.facts)
            await writing.take_in(piece)
        return Taken("new", missed, removed)

    async def _begin(self, source: Source, facts: Facts) -> SessionWriter:
        session_id, is_begun = await self._id_for(source, facts)
        if is_begun:
            lease = await self._journal.acquire(session_id, OWNER)
            if lease.next_seq > 1:
                raise _OvertakenError
        else:
            kept = facts.kept or Kept(session_id)
            new = NewSession(
                session_id,
                facts.agent,
                facts.folder,
                kept.additional_directories,
                facts.title if kept.renamed else None,
                facts.created_at,
                kept.renamed,
                kept.origins,
            )
            lease = await self._journal.create(new, OWNER)
        return SessionWriter(self._journal, lease, source, (facts.agent, facts.session_id))

    async def _id_for(self, source: Source, facts: Facts) -> tuple[str, bool]:
        """The agent's own id, where no other agent has the same; and whether it is there already,
        because an import ended, or is, right behind its beginning."""
        wanted = source.kept_as or facts.session_id
        try:
            row = await self._journal.session(wanted)
        except UnknownSessionError:
            return wanted, False
        if row.agent == facts.agent:
            if _is_only_listed(row):
                return wanted, True
            if await self._journal.session_of(facts.agent, facts.session_id) is not None:
                raise _OvertakenError
            if row.last_seq == 0 and (await self._journal.holder(wanted)).owner == OWNER:
                return wanted, True
        return f"{source.reader}-{wanted}", False

    async def _take_rest(
        self, source: Source, reader: Reader, news: Callable[[Known], AsyncIterator[Piece]]
    ) -> Taken:
        row = await self._ours(source, reader)
        assert row is not None
        holder = await self._journal.holder(row.session_id)
        if holder.expires_at > now_ms() and holder.owner != OWNER:
            return Taken("busy")
        marker, is_newest = await self._newest_marker(row)
        if marker is not None and is_newest:
            told = news(Known(marker.taken, marker.digest))
            if taken := await self._take_news(source, told, row, holder, marker):
                return taken
        prompts = await self._prompts(row)
        if prompts or marker is None:
            told = news(Known(prompts=prompts))
            if taken := await self._take_news(source, told, row, holder, marker):
                return taken
        return Taken("differs")

    async def _take_news(
        self,
        source: Source,
        told: AsyncIterator[Piece],
        row: SessionRow,
        holder: Holder,
        marker: Marker | None,
    ) -> Taken | None:
        """Take in what is told; None when the source has nothing in common with the session."""
        writing: SessionWriter | None = None
        outcome: Outcome = "same"
        missed: Counter[str] = Counter()
        removed: Counter[str] = Counter()
        async for piece in told:
            missed, removed = piece.facts.missed, piece.facts.removed
            if writing is None:
                lease = await self._journal.acquire(row.session_id, OWNER, holder.epoch)
                if lease.next_seq != row.last_seq + 1:
                    raise _OvertakenError
                writing = SessionWriter(self._journal, lease, source, None, row, marker)
            if await writing.take_in(piece):
                outcome = "grown"
        if writing is None:
            return None
        return Taken(outcome, missed, removed)

    # -- what the journal has --------------------------------------------------------------

    async def _last_marker(self, row: SessionRow) -> Marker | None:
        """The marker at the very end of a session."""
        segments = await self._journal.read(row.session_id, max(row.last_seq - 1, 0))
        last = segments[-1].entries()[-1] if segments else None
        return marker_in(last.raw) if last and last.kind == IMPORTED else None

    async def _newest_marker(self, row: SessionRow) -> tuple[Marker | None, bool]:
        """The newest marker, and whether nobody said anything since."""
        found: Marker | None = None
        is_newest = True
        async for segment in history(self._journal, row.session_id):
            if segment.kind == IMPORTED:
                found, is_newest = marker_in(segment.entries()[-1].raw), True
            elif segment.kind == PROMPT:
                is_newest = False
        return found, is_newest

    async def _prompts(self, row: SessionRow) -> list[str]:
        state = await self._journal.state(row.session_id)
        users = [item for item in state.timeline if isinstance(item, Message)]
        return [squeezed(user.text) for user in users if user.role == "user"]


def _is_only_listed(row: SessionRow) -> bool:
    """Whether nothing of the session was taken in yet."""
    return row.is_unread and not row.last_seq
