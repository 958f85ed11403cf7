"""The part of a session that imports wrote: the markers behind it, its turns, and its growth.

A marker is an entry of kind `imported`. It names the turns that were taken in with it, and what the
sources of the conversation looked like when they were last compared.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from acp_wire.schema.splice import json_value
from acphold.conversation.history.entries import (
    BACK,
    FORGOTTEN,
    HANDED_OVER,
    Entry,
    Origin,
    PastEntry,
)
from acphold.conversation.history.handovers import handed_over_in
from acphold.conversation.history.timeline import left_by
from acphold.conversation.history.titles import UNTITLED
from acphold.errors import ForgottenTextError
from acphold.imports.pieces import MOVED, NewsPiece, losses_in
from acphold.imports.sources import Facts, Source, folder_here, stamp
from acphold.imports.turns import Comparison, KnownPart, ReadTurn, ReadTurns
from acphold.imports.values import digest_of
from acphold.journal.journal import HasLinks, Journal, Lease, Readable, history, session_of
from acphold.journal.rows import RowChange, SessionRow

IMPORTED: Final = "imported"
"""The kind of the entry after imported ones; folds and replays skip it."""

FORM: Final = 2
"""The form of markers. Those of another form are void: their sources are compared again."""

CHECKED_BYTES: Final = 64 << 10
"""Bytes before a place in a file that are compared before it is read on from there."""

WORTH_CHECKING: Final = 1 << 20
"""Size from which a file is read on from its last turn; a smaller one is read in 10 ms."""

MOST_TORN: Final = 50
"""Damaged lines that are compared as well; a file with more is read whole each time."""

MOST_PLACES: Final = 100
"""Sources of one conversation that a marker remembers."""


class Marker(Struct, rename="camel"):
    """The content of an `imported` entry.

    `place` is the source that the last turns came from. `seen` has the size and the time of change
    of each source, by its place, when all of it had been taken in. `turns` are the turns taken in
    since the last marker, behind as many `recognized` ones: the number of the prompt, and the
    identity. `last` is the last turn: its identity, the number of its entries in the source and
    their digest; it begins at byte `offset`, unless that is 0, behind bytes that have the digest
    `check` with the lines at `torn`, which are damaged. `differing` are those of `seen` that
    go on otherwise than the session. `skipped` counts what was left out of the source that the
    turns are of, `losses` what was damaged; `damaged` are the sizes and times of files that have
    been found not to have it either. Turns with prompts in `moving` are told again at the end.
    `hidden_title` is a digest of the title that is not told. `parts` are the agent's ids of further
    parts of the session (see `joins`); the turns are of `part`, if it is one of these.
    """

    reader: str
    place: str
    form: int = 0
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    turns: list[tuple[int, str]] = field(default_factory=list)
    recognized: int = 0
    last: tuple[str, int, str] | None = None
    offset: int = 0
    check: str = ""
    torn: list[tuple[int, int]] = field(default_factory=list)
    title: str | None = None
    differing: list[str] = field(default_factory=list)
    losses: int = 0
    skipped: int = 0
    damaged: dict[str, tuple[int, int]] = field(default_factory=dict)
    moving: list[int] = field(default_factory=list)
    hidden_title: str = ""
    part: str = ""
    parts: list[str] = field(default_factory=list)

    def may_be_mended(self, source: Source) -> bool:
        """Return True if something was lost, and this source may have it."""
        if not self.losses or (source.given and source.place not in self.damaged):
            return False
        return self.damaged.get(source.place) != _files_mark(source)

    def is_mended(self, source: Source, compared: Comparison) -> bool:
        """Return True if less was left out of a source than of the session's turns: it is mended,
        or told by a newer reader."""
        if self.may_be_mended(source) and losses_in(compared.missed) < self.losses:
            return True
        return source.place == self.place and compared.missed.total() < self.skipped

    def is_only_longer(self, source: Source) -> bool:
        """Return True if the source goes on behind the beginning of the last turn, as far as the
        bytes before that are compared."""
        if self.form != FORM or not 0 < self.offset < source.size or source.place not in self.seen:
            return False
        beside = [path for path in source.paths[1:] if path.endswith(source.path.suffix)]
        if any(stamp(path)[1] > self.seen[source.place][1] for path in beside):
            return False  # a subagent's: its call may be in an earlier turn
        return self.check == check_before(source, self.offset, self.torn)

    def outcome(self, source: Source) -> Literal["same", "differs"] | None:
        """Return the outcome of the last comparison with a source; None if it has changed since."""
        if self.may_be_mended(source):
            return None
        now = source.size, source.changed_at
        if self.form != FORM or self.seen.get(source.place) != now:
            return None
        if source.place in self.differing:
            return "differs"
        title = source.list_title(source.title or "")
        if source.downstream_id in self.parts:
            return "same"
        has_title = title in ("", self.title) or digest_of(title or "") == self.hidden_title
        return "same" if has_title else None


def _files_mark(source: Source) -> tuple[int, int]:
    """Return the size of a source's files, and the time of the newest; not only of what is its."""
    stamps = [stamp(path) for path in source.paths]
    return sum(size for size, _, _ in stamps), max(at for _, at, _ in stamps)


def _newest(places: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return dict([*places.items()][-MOST_PLACES:])


def check_before(source: Source, offset: int, torn: Sequence[tuple[int, int]]) -> str:
    """Return a digest of the bytes before an offset in a source, CHECKED_BYTES of them at most, and
    of its damaged lines, which may be mended in place."""
    digest = blake2b(digest_size=16)
    begin = max(offset - CHECKED_BYTES, 0)
    try:
        with open(source.path, "rb") as file:
            for at, size in (*torn, (begin, offset - begin)):
                file.seek(at)
                digest.update(file.read(size))
    except OSError:
        return ""
    return digest.hexdigest()


def marker_of(last: Entry | None) -> Marker | None:
    """Return the marker in a session's last entry, if it is one."""
    return json_value(last.raw, Marker) if last and last.kind == IMPORTED else None


class Known(Struct):
    """A conversation as a journal has it: its turns, the numbers of entries before them, the newest
    valid marker, the turns that a person had taken out, and the digests of what was handed over."""

    turns: list[ReadTurn]
    before: list[tuple[int, int]] = []
    marker: Marker | None = None
    forgotten: frozenset[str] = frozenset()
    handed: frozenset[str] = frozenset()

    def part(self, source: Source, *, is_part: bool = False) -> KnownPart:
        """Return what a source is compared with: a part of the session with its own turns, and
        those that no source is known to have."""
        before = self.marker or Marker(source.reader, source.place)
        part = source.downstream_id
        is_part |= part in before.parts
        turns = [it for it in self.turns if it.part == (part if is_part else "") or it.is_here]
        return KnownPart(
            turns,
            source.given,
            source.place == before.place,
            source.place in before.seen and source.place not in before.differing,
            source.reader == before.reader,
            before.losses,
            frozenset(before.moving),
            self.forgotten,
            hidden_title=before.hidden_title,
            handed=self.handed,
            is_part=is_part,
            is_end=turns[-1:] == self.turns[-1:],
        )


async def read_known(journal: Readable, session_id: str) -> Known:
    """Return what the journal has of a session."""
    turns, forgotten, handed = ReadTurns(), set[str](), set[str]()
    parts: dict[int, str] = {}
    marker: Marker | None = None
    identities: dict[int, str] = {}
    recognized, told = set[int](), set[int]()
    voids: list[tuple[ReadTurn, int, int, int]] = []
    left: list[tuple[int, int]] = []
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            first = segment.first_seq if segment.is_merged else entry.seq
            if not entry.raw:
                voids += ((it, it.spans[-1][1], first, entry.seq) for it in turns.found[-1:])
                continue
            if entry.kind == IMPORTED:
                met = json_value(entry.raw, Marker)
                if met is not None and met.form == FORM:
                    marker = met
                    identities.update(met.turns)
                    parts.update((prompt, met.part) for prompt, _ in met.turns)
                    recognized.update(prompt for prompt, _ in met.turns[: met.recognized])
                    told.update(prompt for prompt, _ in met.turns[met.recognized :])
            elif entry.kind == FORGOTTEN:
                out = json_value(entry.raw, Forgotten)
                forgotten.update(out.turns if out else ())
            elif entry.kind == HANDED_OVER:
                handed.update([it.digest] if (it := handed_over_in(entry.raw)) else ())
            elif entry.kind == BACK:
                left += left_by(entry.raw)
            else:
                turns.add(entry.seq, entry.kind, entry.at, entry.raw, first)
    begun = sorted(begin for begin, _ in left)
    for turn, end, begin, last_void in voids:  # of its updates; not of turns that were left since
        following = begun[bisect(begun, end) :][:1] or [last_void + 1]
        turn.size += max(min(following[0], last_void + 1) - begin, 0)
    last = marker.last if marker else None
    for turn in (found := turns.close()):
        turn.identity, turn.count = identities.get(turn.prompt, ""), 0
        turn.part = parts.get(turn.prompt, "")
        turn.is_here = not turn.identity
        turn.was_here = turn.prompt in recognized and turn.prompt not in told
        if turn.prompt in recognized:
            turn.size = sys.maxsize  # said here: not comparable
    if last and found and found[-1].identity == last[0]:
        _, found[-1].count, found[-1].digest = last
    elif marker is not None:
        marker.last = None  # what was said here stands behind it
    if moving := {*(marker.moving if marker else ())}:
        newest = {turn.key: turn.prompt for turn in found}
        moving &= {*newest.values()}  # the others are told again already
        found.sort(key=lambda turn: turn.prompt in moving)
    gone = frozenset(forgotten)
    return Known(found, turns.before, marker, gone, frozenset(handed))


class Forgotten(Struct):
    """The content of an entry of kind FORGOTTEN."""

    turns: list[str]


async def forgotten_anywhere(journal: HasLinks, of: str = FORGOTTEN) -> frozenset[str]:
    """Return the turns, by identity or moment, that a person had taken out of any session; `of` an
    agent, behind that word, as they were said here."""
    tombstones = await journal.links.of(None)
    return frozenset(name for kind, name in tombstones if kind == of)


async def entries_of(
    journal: Readable, session_id: str, turns: Sequence[ReadTurn]
) -> AsyncIterator[tuple[int, PastEntry]]:
    """Yield the entries of turns, each with the number of its turn among these, in one reading:
    one page of a session may have hundreds of turns."""
    spans = deque(sorted((*span, n) for n, turn in enumerate(turns) for span in turn.spans))
    if not spans:
        return
    async for segment in history(journal, session_id, spans[0][0] - 1, spans[-1][1]):
        for entry in segment.entries():
            while len(spans) > 1 and spans[0][1] < entry.seq:
                spans.popleft()
            first, _, n = spans[0]
            if entry.raw and first <= entry.seq:
                identity = turns[n].identity if entry.seq == turns[n].prompt else ""
                yield n, PastEntry(entry.kind, entry.at, entry.raw, turn=identity)


def _spans(turns: Sequence[ReadTurn]) -> list[tuple[int, int]]:
    return sorted(span for turn in turns for span in turn.spans)


def _back(left: Sequence[tuple[int, int]], at: int) -> PastEntry:
    return PastEntry(BACK, at, msgspec.json.encode({"left": left}))


def _is_moved(row: SessionRow, facts: Facts) -> bool:
    """Return True if a conversation has left the folder that its session has, or had none."""
    if row.cwd == Facts().folder:
        return bool(facts.named_folder)
    is_left = row.cwd in map(folder_here, facts.folders) or not os.path.isdir(row.cwd)
    return is_left and os.path.isdir(facts.named_folder)


class SessionWriter:
    """A session that pieces are taken into.

    `link` is the agent's id for it, if the journal does not know that yet; `row` and `before` are
    its earlier row and newest marker.
    """

    def __init__(
        self,
        journal: Journal,
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
        self._has_marked = self._differs = False
        self.part = name if before and (name := source.downstream_id) in before.parts else ""
        """The id of a part that the source is: its title is none of the session."""
        self.waits = False
        """True if the source has more, for which it is compared again."""
        self._turns: list[tuple[int, str]] = []
        self._gone: list[tuple[int, int]] = []
        self._moving: list[tuple[int, int]] = []
        self._due: list[int] = []
        self._end: PastEntry | None = None
        self.ends_later = False
        """True if the last piece does not end it, but `end`: only then the source is noted, so
        that it is compared again if this process ends before."""
        self._met: dict[int, str] = {}
        """The identities of turns that were recognized, by their prompts."""
        self._moved: dict[int, list[PastEntry]] = {}
        """The entries of turns that move, by their numbers."""

    def go_back(self, gone: Sequence[ReadTurn], moving: Sequence[ReadTurn] = ()) -> None:
        """Take turns out of the session, together with the next piece. Those that move go at the
        end: until then nobody else may have them."""
        self._gone, self._moving = _spans(gone), _spans(moving)
        self._due = [turn.prompt for turn in moving]
        self.ends_later |= bool(moving)

    async def make_room(
        self, piece: NewsPiece, turns: Sequence[ReadTurn], anew: Sequence[ReadTurn] = ()
    ) -> None:
        """Take out what goes of these turns, as they were compared, and `anew`; keep what moves."""
        compared = piece.compared or Comparison()
        if self._before is not None:
            self._before.moving = []  # turns that a killed import had moved are in order again
        moving = [-1 - number for number in compared.news if number < 0]
        its = [turns[n] for n in moving]
        self._moved = {n: [] for n in moving}
        async for n, entry in entries_of(self._journal, self.lease.session_id, its):
            self._moved[moving[n]].append(entry)
        void = [n for n in compared.void if n not in moving]
        # What is told anew in several pieces goes at the end: its source may vanish meanwhile.
        news = {*compared.news} if not piece.is_last else set[int]()
        again = {turns[n].identity for n, there in compared.known.items() if there in news}
        due = [
            n for n in void if compared.known.get(n) in news or turns[n].identity in again - {""}
        ]
        gone = [turns[n] for n in (*void, *compared.left) if n not in due]
        self.go_back([*gone, *anew], [*its, *(turns[n] for n in due)])
        met = ((turns[n], identity) for n, identity in compared.met.items())
        self._met = {turn.prompt: name for turn, name in met if name != turn.identity}

    async def take_all(
        self, first: NewsPiece, more: AsyncIterator[NewsPiece]
    ) -> tuple[bool, Facts]:
        """Take pieces in; return True if there was any news, and the facts in the end."""
        is_news, facts = await self.take_in(first), first.facts
        async for piece in more:
            is_news, facts = await self.take_in(piece) or is_news, piece.facts
        return is_news, facts

    async def note(self, *, differs: bool = False) -> None:
        """Note that the session has all of the source, or `differs`: until one of both changes,
        nobody has to read it again."""
        assert self._row is not None
        self._differs = differs
        facts = Facts(self._row.agent, updated_at=self._row.updated_at)
        await self.take_in(NewsPiece([], None, facts, None, is_last=True, is_all=True))

    async def take_in(self, piece: NewsPiece) -> bool:
        """Take a piece in; False if its only news is that it is the last one."""
        source, facts, before = self._source, piece.facts, self._before
        title = None if self.part else source.list_title(facts.title)
        is_news = not self._differs and (
            bool(piece.entries or self._gone or piece.ends_anew)
            # What closes it may be all that is left behind the entries of the pieces before.
            or (piece.is_last and self._has_marked)
            or (piece.is_last and before is not None and title not in (None, before.title))
        )
        if facts.kept is None or source.apart:
            title = title or source.list_title(piece.first_prompt)
        else:
            title = facts.title
        if self.part:
            title = None
        title = title or (before.title if before is not None else None)
        # Entries without a time get that of the one before, or of the beginning.
        at = facts.created_at or source.changed_at // 1_000_000
        timed: list[PastEntry] = []
        seq = self.lease.next_seq - self._has_marked
        if self._gone:
            timed.append(_back(self._gone, facts.updated_at or at))
            seq += 1
        for entry in self._entries(piece) if is_news else ():
            at = entry.at or at
            timed.append(entry if entry.at else replace(entry, at=at))
            seq = max(seq, entry.seq)
            if entry.turn:
                self._turns.append((seq, entry.turn))
            seq += 1
        marker = self._marker(piece, title)
        # The piece may only go on with a turn.
        going_on = piece.last.identity if piece.last else ""
        end = PastEntry(IMPORTED, at, msgspec.json.encode(marker), turn=going_on)
        if piece.is_last and self.ends_later:
            self._end = replace(end, raw=msgspec.json.encode(replace(marker, moving=[])))
            end = replace(end, raw=msgspec.json.encode(replace(marker, seen={})))
        timed.append(end)
        if names := [] if self._has_marked else facts.goes_on_as:
            known = await self._journal.links.sessions_of(facts.agent, names)
            for name in names:
                if name not in known:
                    await self._journal.links.link(self.lease, facts.agent, name)
        # In one transaction: others write at the same time, and each has to wait for the lock. Of
        # the markers so far only the last one matters.
        change = self._row_change(piece, title)
        if not is_news and self._row is not None:
            change = replace(change, home=self._row.home)  # nothing of it was made elsewhere
        if facts.begun_as and (piece.is_last or not self._has_marked):
            change = replace(change, origins=await self._origins(facts))
        try:
            await self._journal.take_in(
                *(self.lease, timed, change, self._link),
                instead=self._has_marked,
                release=piece.is_last and not self.ends_later,
                withdrawn=self._gone,
            )
        except ForgottenTextError:
            await self._journal.release(self.lease)
            raise
        self._link, self._has_marked, self._gone = None, True, []
        return is_news

    async def end(self) -> None:
        """Take out what has moved, and note the source, if the last piece did not."""
        if self._end is None:
            return
        past = [self._end]
        if self._moving:
            past.insert(0, _back(self._moving, self._end.at))
        row = await self._journal.session(self.lease.session_id)
        await self._journal.take_in(
            *(self.lease, past, RowChange(home=row.home)),
            instead=True,
            release=True,
            withdrawn=self._moving,
        )

    def _entries(self, piece: NewsPiece) -> Iterator[PastEntry]:
        for entry in piece.entries:
            if entry.kind == MOVED:
                yield from self._moved[int(entry.raw)]
            else:
                yield entry
        for entry in piece.closing:
            if not (self.part and b'"session_info_update"' in entry.raw):
                yield entry

    def _marker(self, piece: NewsPiece, title: str | None) -> Marker:
        source, facts = self._source, piece.facts
        before = self._before or Marker(source.reader, source.place)
        marker = Marker(
            source.reader,
            before.place,
            FORM,
            {place: mark for place, mark in before.seen.items() if place != source.place},
            [*self._met.items(), *self._turns],
            len(self._met),
            title=title,
            differing=[place for place in before.differing if place != source.place],
            losses=before.losses,
            skipped=before.skipped,
            moving=self._due or before.moving,
            hidden_title=facts.hidden_title or before.hidden_title,
            part=self.part,
            parts=[*dict.fromkeys([*before.parts, *filter(None, [self.part])])],
        )
        if piece.is_all and not self.waits:
            marker.seen[source.place] = source.size, source.changed_at
            marker.differing += [source.place] if self._differs else []
        if piece.last is not None and piece.last.identity:
            marker.last = piece.last.identity, piece.last.count, piece.last.digest
        elif not (piece.entries or self._gone or self._has_marked):
            marker.last = before.last
        if piece.is_last and marker.last is not None and source.size >= WORTH_CHECKING:
            if piece.last is None:
                marker.offset, marker.check = before.offset, before.check
                marker.torn = before.torn if before.offset else []
            else:
                before_it = {*(before.torn if source.begin else ()), *facts.missed.torn}
                torn = sorted(it for it in before_it if it[0] < piece.last.offset)
                if (offset := piece.last.offset) and len(torn) <= MOST_TORN:
                    marker.offset, marker.torn = offset, torn
                    marker.check = check_before(source, offset, torn)
        if (self._before is None or piece.entries) and not self._differs:
            marker.place = source.place
            marker.losses = max(before.losses, losses_in(facts.missed.counts))
            marker.skipped = max(before.skipped, facts.missed.counts.total())
        if marker.losses:
            marker.damaged = _newest(before.damaged | {source.place: _files_mark(source)})
        marker.seen = _newest(marker.seen)
        return marker

    async def _origins(self, facts: Facts) -> tuple[Origin, ...] | UnsetType:
        """Return the session's origins with the one that its conversation began as: it may have
        been listed, or taken in, before the file said so."""
        begun_as = await session_of(self._journal, facts.agent, facts.begun_as) or facts.begun_as
        row = await self._journal.session(self.lease.session_id)
        known = {row.session_id, *(origin.session_id for origin in row.origins)}
        if not known.isdisjoint((begun_as, facts.begun_as)):
            return UNSET
        return Origin(begun_as, facts.agent, 0), *row.origins

    def _row_change(self, piece: NewsPiece, title: str | None) -> RowChange:
        """Return how a piece changes the row of the session."""
        facts, row, before = piece.facts, self._row, self._before
        changed = self._source.changed_at // 1_000_000
        if row is not None and row.title == UNTITLED:
            # The program's may be of a turn that was taken out.
            title = piece.first_prompt or UNTITLED
        elif row is not None and (self.part or row.title not in (None, before and before.title)):
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
        is_placed = piece.is_last and (row is None or _is_moved(row, facts))
        return RowChange(
            title=title,
            updated_at=max(facts.updated_at or changed, row.updated_at if row else 0),
            prompted=True,
            archived=archived,
            cwd=facts.folder if is_first or is_placed else UNSET,
            created_at=(facts.created_at or UNSET) if is_first else UNSET,
            unread=None if piece.is_last else UNSET,
        )
