"""The records of each session: its lease, links, entries and snapshots, and the list."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from acphold.errors import SessionExistsError, UnknownSessionError
from acphold.history.entries import PROMPT, TURN_END, Entry, Segment
from acphold.history.raw_update import storable
from acphold.journal import bounds, list_places, stored_history
from acphold.journal.access import Share
from acphold.journal.journal import Identity
from acphold.journal.lineage import lineage_of, new_era
from acphold.journal.location import is_same_folder
from acphold.journal.records.draft import (
    CHANGES,
    ENTRIES,
    GONE,
    LINKS,
    LISTED,
    META,
    REPORTS,
    SESSIONS,
    SETTLED,
    SNAPSHOTS,
    TOP,
    Draft,
    key,
    text,
)
from acphold.journal.rows import (
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    RowChanges,
    SessionRow,
)
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stored_history import END, EntryReads, StoredSegments, plain

_decode_segment: Final = msgspec.msgpack.Decoder(tuple[int, int, str, int, bytes]).decode


class SegmentRecords(StoredSegments):
    """The entries of the session with this number."""

    def __init__(self, draft: Draft, number: int) -> None:
        self._draft = draft
        self._number = number

    def read(
        self, after: int, limit_bytes: int, through: int = END, *, chunks: bool = True
    ) -> list[Segment]:
        found: list[Segment] = []
        for _, record in self._draft.walk(self._key(after + 1), self._key(through + 1)):
            found.append(_segment(record))
            limit_bytes -= len(found[-1].raw)
            if limit_bytes <= 0:
                break
        return found

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        found: list[Segment] = []
        walk = self._draft.walk(
            self._key(0), self._key(through + 1), backwards=True, at_once=min(limit, 64)
        )
        for _, record in walk:
            segment = _segment(record)
            if not kinds or segment.kind in kinds:
                found.append(segment)
                if len(found) >= limit:
                    break
        return found[::-1]

    def put(self, segment: Segment) -> None:
        """Write a segment."""
        record = segment.first_seq, segment.last_seq, segment.kind, segment.at, segment.raw
        self._draft.put(self._key(segment.last_seq), record)

    def remove(self, segment: Segment) -> None:
        """Remove a segment."""
        self._draft.remove(self._key(segment.last_seq))

    def empty(self, seq: int) -> None:
        """Remove the content of an entry, keeping its number."""
        [segment] = self.read(seq - 1, 1)
        raws = segment.raw.split(b"\n")
        # A merged entry, which stands for several numbers, is alone in its segment.
        raws[seq - segment.first_seq if len(raws) > 1 else 0] = b""
        self.put(msgspec.structs.replace(segment, raw=b"\n".join(raws)))

    def _key(self, seq: int) -> bytes:
        return key(ENTRIES, self._number, seq)


def _segment(record: bytes) -> Segment:
    first_seq, last_seq, kind, at, raw = _decode_segment(record)
    return Segment(first_seq, last_seq, kind, at, plain(raw))


class KeptSession(Struct):
    """A session. `number` is its key of entries; `change` the number of its last change.

    `row` counts the messages up to `settled`. `links` are the agents and their ids for it, the
    newest last. `owner` is the id of the owner, "" for nobody.
    """

    row: SessionRow
    number: int
    change: int = 0
    settled: int = 0
    epoch: int = 0
    owner: str = ""
    yields: bool = False
    links: list[tuple[str, str]] = []

    def segments(self, draft: Draft) -> SegmentRecords:
        """Its entries."""
        return SegmentRecords(draft, self.number)

    def shown(self, draft: Draft | None = None) -> SessionRow:
        """Its row; with `draft`, unsettled messages are counted."""
        if self.row.last_seq <= self.settled:
            return replace(self.row, followers=0)
        if draft is None or not self.row.prompted:
            return self.row
        more = stored_history.unsettled_messages(self.segments(draft), self.settled)
        return replace(self.row, message_count=self.row.message_count + more)


_decode: Final = msgspec.msgpack.Decoder(KeptSession).decode
_text: Final = msgspec.msgpack.Decoder(str).decode


def look(draft: Draft, session_id: str) -> KeptSession | None:
    """Return a session; None if there is none."""
    return draft.get(key(SESSIONS, session_id), KeptSession)


def find(draft: Draft, session_id: str) -> KeptSession:
    """Return a session; raises UnknownSessionError."""
    if (kept := look(draft, session_id)) is None:
        raise UnknownSessionError(session_id)
    return kept


def session(draft: Draft, session_id: str, *, counted: bool = False) -> SessionRow:
    """Like `Sessions.session`."""
    return find(draft, session_id).shown(draft if counted else None)


def create(draft: Draft, new: NewSession) -> KeptSession:
    """Add a session; raises SessionExistsError."""
    if look(draft, new.session_id) is not None:
        raise SessionExistsError(f"there is a session {new.session_id!r} already")
    era_at = key(META, "era")  # the mark of this journal in the lineages of its sessions
    if (era := draft.get(era_at, str)) is None:
        draft.put(era_at, era := new_era())
    number = draft.next_number()
    created = draft.now() if new.created_at is None else new.created_at
    values = asdict(new) | {"created_at": created, "updated_at": created}
    lineage = lineage_of(era, number)
    row = SessionRow(**values, message_count=0, prompted=False, last_seq=0, lineage=lineage)
    kept = KeptSession(replace(row, title=_title(row.title)), number)
    if (gone := draft.get(key(GONE, new.session_id), int)) is not None:
        draft.remove(key(GONE, new.session_id))
        draft.remove(key(CHANGES, gone))
    keep(draft, kept)
    return kept


def keep(draft: Draft, kept: KeptSession, *, always: bool = False) -> None:
    """Write a session, and note the change if its row in the list differs, or `always`."""
    place = key(SESSIONS, kept.row.session_id)
    was = draft.get(place, KeptSession)
    before = None if was is None else replace(was.row, last_seq=kept.row.last_seq)
    if always or before != kept.row:
        if was is not None:
            draft.remove(key(CHANGES, was.change))
            draft.remove(key(LISTED, was.row.updated_at, was.row.session_id))
        kept.change = draft.next_number()
        draft.put(key(CHANGES, kept.change), kept.row.session_id)
        draft.put(key(LISTED, kept.row.updated_at, kept.row.session_id), kept.row.session_id)
    draft.put(place, kept)


def changed(row: SessionRow, change: RowChange | None) -> SessionRow:
    """Return the row with the values set in `change`; a title only if no person gave one.

    Raises OverflowError for a number beyond 64 bits.
    """
    values: dict[str, Any] = {} if change is None else asdict(change)
    values = {name: value for name, value in values.items() if value is not UNSET}
    for value in values.values():
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise OverflowError(f"{value} is out of range for a time or a count")
    if "given" in values:
        values["title"] = values.pop("given")
        values["renamed"] = values["title"] is not None
    elif row.renamed:
        values.pop("title", None)
    row = replace(row, **values)
    return replace(row, title=_title(row.title))


def _title(title: str | None) -> str | None:
    return None if title is None else storable(title)


def delete(draft: Draft, kept: KeptSession, *, as_if_never: bool) -> None:
    """Remove a session; its links stay as tombstones unless `as_if_never`."""
    row = kept.row
    for agent, downstream_id in kept.links:
        if as_if_never:
            draft.remove(key(LINKS, agent, downstream_id))
        else:
            draft.put(key(LINKS, agent, downstream_id), "")
    for table in (ENTRIES, REPORTS, SETTLED, SNAPSHOTS):
        for place, _ in draft.walk(key(table, kept.number)):
            draft.remove(place)
    draft.remove(key(SESSIONS, row.session_id))
    draft.remove(key(LISTED, row.updated_at, row.session_id))
    draft.remove(key(CHANGES, kept.change))
    number = draft.next_number()
    draft.put(key(CHANGES, number), row.session_id)
    draft.put(key(GONE, row.session_id), number)


def was_there(draft: Draft, session_id: str) -> bool:
    """True if there was a session of this id that is deleted."""
    return draft.get(key(GONE, session_id), int) is not None


# -- the journal ------------------------------------------------------------------------------


def identity(draft: Draft) -> Identity:
    """Like `Sessions.identity`."""
    place = key(META, "cursor_secret")
    if (secret := draft.get(place, bytes)) is None:
        draft.put(place, secret := os.urandom(32))
    return Identity(secret)


# -- entries ----------------------------------------------------------------------------------


def _found(draft: Draft, session_id: str) -> tuple[SegmentRecords, int]:
    kept = find(draft, session_id)
    return kept.segments(draft), kept.settled


reads: Final = EntryReads(_found)


# -- the list ---------------------------------------------------------------------------------


def page(
    draft: Draft, filter: ListFilter, after: ListKey | None = None, limit: int = 50
) -> list[SessionRow]:
    """Like `Journal.page`."""
    (filter.cwd or "").encode()  # raises UnicodeEncodeError
    end = LISTED + TOP if after is None else key(LISTED, after.updated_at, after.session_id)
    found: list[SessionRow] = []
    for kept in newest(draft, end):
        if len(found) == limit:
            break
        if filter.fits(kept.row):
            found.append(kept.shown(draft))
    return found


def newest(draft: Draft, end: bytes = LISTED + TOP) -> Iterator[KeptSession]:
    """Yield all sessions below a key of the list, the newest first."""
    for _, session_id in draft.walk(LISTED, end, backwards=True):
        yield find(draft, _text(session_id))


def count(draft: Draft) -> int:
    """The number of sessions."""
    return sum(1 for _ in draft.walk(LISTED))


def resolve(draft: Draft, prefix: str, cwd: str | None = None) -> SessionRow:
    """Like `Journal.resolve`."""
    matches: list[str] = []
    for _, found in draft.walk(SESSIONS + text(prefix)) if prefix else ():
        row = _decode(found).row
        if cwd is None or is_same_folder(cwd, row.cwd):
            matches.append(row.session_id)
        if len(matches) > bounds.AMBIGUOUS_IDS:
            break
    return find(draft, list_places.only_one(prefix, matches)).shown(draft)


def short_ids(draft: Draft, session_ids: Sequence[str], least: int) -> list[str]:
    """Like `Journal.short_ids`."""

    def neighbours(session_id: str) -> Iterator[str]:
        its = key(SESSIONS, session_id)
        for walk in (
            draft.walk(SESSIONS, its, backwards=True, at_once=1),
            draft.walk(its + b"\0", SESSIONS + TOP, at_once=1),
        ):
            if (found := next(walk, None)) is not None:
                yield _decode(found[1]).row.session_id

    return [list_places.shortest(it, neighbours(it), least) for it in session_ids]


def changes(draft: Draft, after: int | None, limit: int = 500) -> RowChanges:
    """Like `Journal.changes`."""
    if after is None:
        last = next(draft.walk(CHANGES, backwards=True, at_once=1), None)
        return RowChanges((), 0 if last is None else _number(last[0]))
    walk = draft.walk(key(CHANGES, after + 1), CHANGES + TOP)
    found = [(_number(it), _text(value)) for it, value in islice(walk, limit + 1)]
    shown = found[:limit]
    last_one = shown[-1][0] if shown else after
    return RowChanges([it for _, it in shown], last_one, len(found) > limit)


def _number(place: bytes) -> int:
    return int.from_bytes(place[-8:], "big") - (1 << 63)


def outcomes(draft: Draft, session_ids: Sequence[str]) -> dict[str, bytes | None]:
    """Like `Journal.outcomes`."""
    found: dict[str, bytes | None] = {}
    for session_id in session_ids:
        if (kept := look(draft, session_id)) is None:
            continue
        last = kept.segments(draft).read_back(END, 1, (PROMPT, TURN_END))
        if last and last[0].kind == TURN_END:
            found[session_id] = last[0].raw
        elif kept.row.prompted and kept.settled < kept.row.last_seq:
            found[session_id] = None  # unsettled, so not over; a settled turn is over in any case
    return found


# -- links ------------------------------------------------------------------------------------


def link(draft: Draft, agent: str, downstream_id: str, kept: KeptSession | None) -> None:
    """Make `downstream_id` the newest id of a session; None makes a tombstone."""
    its = (agent, downstream_id)
    if former := draft.get(key(LINKS, *its), str):
        holder = kept if kept and kept.row.session_id == former else find(draft, former)
        holder.links = [it for it in holder.links if it != its]
        _keep_linked(draft, holder)
    draft.put(key(LINKS, *its), "" if kept is None else kept.row.session_id)
    if kept is not None:
        kept.links = [*kept.links, its]
        _keep_linked(draft, kept)


def _keep_linked(draft: Draft, kept: KeptSession) -> None:
    kept.row = replace(kept.row, downstream_id=kept.links[-1][1] if kept.links else None)
    keep(draft, kept)


def linked(draft: Draft, agent: str, ids: Collection[str]) -> dict[str, str | None]:
    """Like `Links.linked`."""
    asked = {key(LINKS, agent, it): it for it in ids}
    if len(asked) > bounds.MANY_LINKS:  # one walk instead of many looks
        kept = ((place, _text(it)) for place, it in draft.walk(key(LINKS, agent)))
        found = {place: it for place, it in kept if place in asked}
    else:
        looks = ((place, draft.get(place, str)) for place in asked)
        found = {place: it for place, it in looks if it is not None}
    return {asked[place]: session_id or None for place, session_id in found.items()}


def last_entries(draft: Draft, agent: str, ids: Collection[str]) -> dict[str, Entry | None]:
    """Like `Links.last_entries`."""
    found: dict[str, Entry | None] = {}
    for downstream_id, session_id in linked(draft, agent, ids).items():
        if session_id is not None:
            last = find(draft, session_id).segments(draft).read_back(END, 1)
            found[downstream_id] = last[-1].entries()[-1] if last else None
    return found


def went_on(draft: Draft, agent: str, times: Mapping[str, int]) -> None:
    """Like `Links.went_on`."""
    for downstream_id, session_id in linked(draft, agent, times).items():
        if session_id is not None:
            kept = find(draft, session_id)
            updated_at = max(kept.row.updated_at, times[downstream_id])
            kept.row = replace(kept.row, updated_at=updated_at)
            keep(draft, kept)


def links_of(draft: Draft, session_id: str | None) -> list[tuple[str, str]]:
    """Like `Links.of`."""
    if session_id is not None:
        kept = look(draft, session_id)
        return [] if kept is None else kept.links
    return [_names(place) for place, value in draft.walk(LINKS) if not _text(value)]


def _names(place: bytes) -> tuple[str, str]:
    """The texts in a key of two."""
    one, other, _ = place.removeprefix(LINKS).split(b"\0\0")
    return one.replace(b"\0\xff", b"\0").decode(), other.replace(b"\0\xff", b"\0").decode()


def enlist(draft: Draft, found: Sequence[Listed]) -> None:
    """Like `Links.enlist`; sessions that were deleted are left out, too."""
    for listed in found:
        new, known_as = listed.new, listed.downstream_id
        if look(draft, new.session_id) is None and not linked(draft, new.agent, [known_as]):
            kept = create(draft, new)
            kept.row = replace(
                kept.row, prompted=True, updated_at=listed.updated_at, unread=listed.source
            )
            link(draft, new.agent, known_as, kept)


# -- shares -----------------------------------------------------------------------------------


def shares(draft: Draft) -> list[Share]:
    """Like `Access.shares`."""
    rows = (_decode(found).row for _, found in draft.walk(SESSIONS))
    return [
        Share(row.session_id, tenant, prompts)
        for row in rows
        for tenant, prompts in sorted(row.shared_with.items())
    ]


def keep_share(draft: Draft, share: Share) -> None:
    """Like `Access.keep_share`."""
    kept = find(draft, share.session_id)
    shared = kept.row.shared_with | {share.tenant: share.prompts}
    kept.row = replace(kept.row, shared_with=shared)
    keep(draft, kept, always=True)


def end_share(draft: Draft, session_id: str, tenant: str) -> bool:
    """Like `Access.end_share`."""
    kept = look(draft, session_id)
    if kept is None or tenant not in kept.row.shared_with:
        return False
    shared = {it: may for it, may in kept.row.shared_with.items() if it != tenant}
    kept.row = replace(kept.row, shared_with=shared)
    keep(draft, kept)
    return True


def keep_snapshots(draft: Draft, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.keep`."""
    kept = find(draft, session_id)
    for one in taken:
        draft.put(_place(kept, one), one)
    keep(draft, kept, always=True)


def snapshots_of(draft: Draft, session_id: str) -> list[TurnSnapshot]:
    """Like `Snapshots.of`."""
    kept = look(draft, session_id)
    return [] if kept is None else [*_its(draft, kept)]


def newest_snapshots(draft: Draft, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
    """Like `Snapshots.newest`."""
    found = {}
    for session_id in session_ids:
        if (kept := look(draft, session_id)) is not None:
            for one in _its(draft, kept, backwards=True):
                found[session_id] = one
                break
    return found


def named_snapshots(draft: Draft) -> list[tuple[str, TurnSnapshot]]:
    """Like `Snapshots.named`."""
    sessions = (_decode(found) for _, found in draft.walk(SESSIONS))
    return [(kept.row.session_id, one) for kept in sessions for one in _its(draft, kept)]


def drop_snapshots(draft: Draft, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.drop`."""
    if (kept := look(draft, session_id)) is not None:
        for one in taken:
            draft.remove(_place(kept, one))


def _place(kept: KeptSession, one: TurnSnapshot) -> bytes:
    return key(SNAPSHOTS, kept.number, one.turn, int(one.edge == "end"), one.root)


def _its(draft: Draft, kept: KeptSession, *, backwards: bool = False) -> Iterator[TurnSnapshot]:
    for _, row in draft.walk(key(SNAPSHOTS, kept.number), backwards=backwards):
        yield msgspec.msgpack.decode(row, type=TurnSnapshot)
