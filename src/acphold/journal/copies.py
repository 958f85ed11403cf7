"""Copies: of one conversation, in a new session; and of all sessions, in another journal.

A copy of a conversation does not have its cost, which was paid once. For another agent it also
leaves out the settings and commands of the original agent.

The other journal may use another store. Each session keeps its id and each entry its number, so the
positions of clients hold in the copy. The copy is made while sessions run: of a session that
somebody has open, everything up to the end of its last turn is copied, and the rest with the next
copy. An interrupted copy is continued; a complete one is brought up to date. Sessions that only the
copy has stay there. Afterwards each session is read back and folded on both sides, and compared.

Not copied are tokens and their deeds, which belong to the one journal, and what each journal
computes by itself: the search index and the reports of usage.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from msgspec import UNSET, json
from msgspec.structs import replace

from acp_wire.schema import splice
from acp_wire.surroundings import resolve_folder
from acphold import errors
from acphold.conversation.history.entries import (
    FORGOTTEN,
    FORGOTTEN_TEXT,
    KINDS,
    PARAMS,
    PROMPT,
    QUEUE,
    SETTINGS,
    TURN_END,
    UPDATE,
    Origin,
    PastEntry,
    Segment,
    now_ms,
    turn_spans,
)
from acphold.conversation.history.raw_update import kinds_about, may_be_chunk, members, update_kind
from acphold.journal import bounds
from acphold.journal.access import Share
from acphold.journal.journal import (
    Journal,
    Lease,
    history,
    is_live,
    row_of,
    state_of,
    take_lease,
)
from acphold.journal.rows import (
    TITLE,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    SessionRow,
    WholeSession,
)
from acphold.journal.seams import with_numbers

COSTS: Final = kinds_about("cost")
"""Kinds of update that report what was spent."""

OFFERS: Final = kinds_about("choices", "commands")
"""Kinds of update that report what the agent offers."""


async def copy(journal: Journal, source: SessionRow, new: NewSession, through: int) -> None:
    """Create the session `new` from the entries of `source` up to `through`, and release it.

    It has the title of `new`, one origin more than `source`, and the snapshots of its turns; the
    same agent is started for it in the same way. If this fails, nothing of it is left:
    SessionExistsError, UnknownSessionError, JournalError, RewrittenError.
    """
    origin = Origin(source.session_id, source.agent, through)
    new = replace(new, renamed=source.renamed, origins=(*source.origins, origin))
    lease = await journal.create(new, yields=True)
    try:
        piece = await _take_in_pieces(
            journal,
            lease,
            (
                list(_entries_to_copy(segment, for_another=source.agent != new.agent))
                async for segment in history(journal, source.session_id, through=through)
            ),
        )
        if new.title is not None:
            # Clients that load the copy get its title from this update.
            titled = {
                "sessionUpdate": "session_info_update",
                "title": new.title,
                "_meta": {TITLE: "copy"},
            }
            piece.append(PastEntry(UPDATE, now_ms(), json.encode(titled)))
        # With the last entries the session appears in the list.
        start = source.start if source.agent == new.agent else None
        change = RowChange(updated_at=now_ms(), prompted=True, start=start, home=source.home)
        await journal.take_in(lease, piece, change)
        if rows := await journal.snapshots.of(source.session_id):
            spans = await turn_spans(history(journal, source.session_id, through=through))
            own = await turn_spans(history(journal, new.session_id))
            folder = resolve_folder(source.cwd)
            cwd = "" if folder == resolve_folder(new.cwd) else folder
            copies = [
                replace(
                    it.snapshot,
                    turn=own[it.turn - 1].first - 1,
                    taken_for=it.snapshot.taken_for or source.session_id,
                    cwd=it.snapshot.cwd or cwd,
                )
                for it in with_numbers(rows, spans)
                if it.turn <= len(own)
            ]
            await journal.snapshots.keep(new.session_id, copies)
    except BaseException:
        await journal.delete(lease)
        raise
    await journal.release(lease)


def _entries_to_copy(segment: Segment, *, for_another: bool) -> Iterable[PastEntry]:
    """The entries of a segment that go into a copy."""
    if segment.kind == QUEUE:
        return  # what waits, waits in one session
    if for_another and (segment.kind not in KINDS or segment.kind == SETTINGS):
        return
    left_out = COSTS | OFFERS if for_another else COSTS
    for entry in segment.entries():
        raw = entry.raw
        if entry.kind == TURN_END:
            raw = splice(raw, {"usage": None, "_meta": None})
        update = b""  # the update that the entry holds, unless it is a chunk of text
        if entry.kind == PARAMS:
            update = members(raw).get("update", b"")
        elif entry.kind == UPDATE and not may_be_chunk(raw):
            update = raw
        if raw and not (update and update_kind(update) in left_out):
            yield PastEntry(entry.kind, entry.at, raw)


async def _take_in_pieces(
    journal: Journal, lease: Lease, past: AsyncIterable[list[PastEntry]]
) -> list[PastEntry]:
    """Take entries in, a piece at a time; return those of the last piece, which are left."""
    piece: list[PastEntry] = []
    size = 0
    async for entries in past:
        piece += entries
        size += sum(len(entry.raw) for entry in entries)
        if size > bounds.PIECE_BYTES:
            await journal.take_in(lease, piece)
            piece, size = [], 0
    return piece


# -- of all sessions -----------------------------------------------------------------------------

log = logging.getLogger(__name__)

Became: TypeAlias = Literal["new", "grown", "same", "left", "differs", "damaged"]
"""The outcome for a session. "new": copied. "grown": brought up to date. "same": nothing was new.
"left": somebody has it open, and all or the last turn of it waits for the next copy. "differs": the
copy has another session under this id, or cannot keep its name; it was left alone. "damaged": it
cannot be read to its end and was left out."""


_EVERYTHING: Final = ListFilter(include_unprompted=True, archived="include")


async def copy_all(
    source: Journal,
    target: Journal,
    on_copied: Callable[[str, Became], None],
    expect: Callable[[int], None] = lambda _: None,
) -> Counter[Became]:
    """Copy and compare all sessions; return how many had each outcome.

    `on_copied` is called after each session, `expect` with their number. The copy may be
    interrupted at any point: the next call continues. Raises JournalError if a journal cannot be
    used.
    """
    mark = (await source.changes(None)).last
    expect(await source.count())
    became: dict[str, Became] = {}
    await _carry_marks(source, target)

    async def take(session_ids: Iterable[str]) -> None:
        async for session_id, was_added in _add(source, target, session_ids):
            outcome = await _copy(source, target, session_id)
            if outcome is None:
                continue
            # A second look at a session that changed meanwhile keeps its first outcome.
            if outcome in ("same", "grown"):
                first = "new" if was_added else became.get(session_id)
                outcome = first if first in ("new", "grown") else outcome
            became[session_id] = outcome
            on_copied(session_id, outcome)

    after: ListKey | None = None
    while rows := await source.page(_EVERYTHING, after, bounds.COPIED_ROWS):
        await take(row.session_id for row in rows)
        after = rows[-1].key
    # A session that was continued meanwhile has moved up in the list, maybe past our place.
    is_news = True
    while is_news:
        news = await source.changes(mark)
        await take(news.session_ids)
        mark, is_news = news.last, news.more
    # And tombstones of ids unknown there, so that agents' lists do not bring deleted sessions back.
    gone: dict[str, list[str]] = {}
    for agent, downstream_id in await source.links.of(None):
        gone.setdefault(agent, []).append(downstream_id)
    for agent, ids in gone.items():
        known = await target.links.sessions_of(agent, ids)
        for downstream_id in ids:
            if downstream_id not in known:
                await target.links.link(None, agent, downstream_id)
    return Counter(became.values())


async def _carry_marks(source: Journal, target: Journal) -> None:
    """Remove from the target, too, the texts that a person has removed from the source."""
    # Late: a hub needs none of these, and the rules of redaction take long to load.
    from acphold.journal.forgotten_texts import marks_in
    from acphold.journal.removal import blank_sessions
    from acphold.safety.redaction.forgotten import ForgottenTexts

    if marks := await marks_in(source) - await marks_in(target):
        await blank_sessions(target, ForgottenTexts(marks))
        for mark in marks:  # behind it: an interrupted copy begins with it again
            await target.links.link(None, FORGOTTEN_TEXT, mark)


async def _add(
    source: Journal, target: Journal, session_ids: Iterable[str]
) -> AsyncIterator[tuple[str, bool]]:
    """Add those of these sessions to the target that it lacks, some in each transaction; yield
    each with True if it was added. Large, open and unread ones are left to `_copy`."""
    whole: list[WholeSession] = []
    size = 0
    for session_id in session_ids:
        found = await _whole(source, target, session_id)
        if found is None:
            yield session_id, False
            continue
        whole.append(found)
        size += sum(len(entry.raw) for entry in found.past)
        if size > bounds.PIECE_BYTES:
            for it in await _add_whole(target, whole):
                yield it
            whole, size = [], 0
    for it in await _add_whole(target, whole):
        yield it


async def _add_whole(target: Journal, whole: list[WholeSession]) -> list[tuple[str, bool]]:
    is_added = bool(whole)
    try:
        if whole:
            await target.add_whole(whole)
    except (
        errors.ForgottenTextError,
        errors.IllegibleNameError,
        errors.SessionExistsError,
    ):  # `_copy` finds which one
        is_added = False
    return [(it.new.session_id, is_added) for it in whole]


async def _whole(source: Journal, target: Journal, session_id: str) -> WholeSession | None:
    with suppress(errors.NotAJournalError, errors.RewrittenError, errors.UnknownSessionError):
        row = await source.session(session_id)
        if row.is_unread or await is_live(source, session_id) or await row_of(target, session_id):
            return None
        found = await source.read(session_id, 0, bounds.PIECE_BYTES)
        if (found[-1].last_seq if found else 0) == row.last_seq:
            past = [entry for segment in found for entry in _past(segment)]
            links = await source.links.of(session_id)
            return WholeSession(_new(row), past, _completed(row), links)
    return None


async def _copy(source: Journal, target: Journal, session_id: str) -> Became | None:
    """Copy the new entries of a session, and compare; None if the session is gone."""
    try:
        row = await source.session(session_id)
        through, is_open = row.last_seq, False
        if await is_live(source, session_id):
            # Somebody has it open: entries after the last turn may still be merged with others.
            ends = (await source.read_back(session_id, None, 1, kinds=[TURN_END])).entries
            through = ends[0].seq if ends else 0
            is_open = through < row.last_seq
        if is_open and not through:
            return "left"
        outcome = await _bring_up(source, target, row, through)
        if outcome == "differs":
            return outcome
        if not row.is_unread:
            copied = await state_of(target, session_id)
            if copied != await state_of(source, session_id, through):
                return "differs"
        return "left" if is_open else outcome
    except errors.UnknownSessionError:
        return None
    except errors.IllegibleNameError as error:
        log.warning("the target journal cannot store session %s: %s", session_id, error)
        return "differs"
    except errors.NotAJournalError as error:
        log.warning("session %s cannot be read: %s", session_id, error)
        return "damaged"
    except (
        errors.ForgottenTextError,
        errors.HeldElsewhereError,
        errors.LeaseLostError,
        errors.RewrittenError,
        errors.SessionExistsError,
    ):
        return "left"


async def _bring_up(source: Journal, target: Journal, row: SessionRow, through: int) -> Became:
    """Bring the copy of the session in `target` to the state of `source`, up to an entry."""
    session_id = row.session_id
    if (copy := await row_of(target, session_id)) is None:
        return await _create(source, target, row, through)
    if (copy.agent, copy.created_at) != (row.agent, row.created_at):
        return "differs"
    is_whole = copy.prompted or not row.prompted  # otherwise an earlier copy was interrupted
    if copy.last_seq > through or (is_whole and copy.updated_at > row.updated_at):
        return "differs"  # the copy was continued
    if row.is_unread or _as_copied(row, copy, through) == copy:
        return "same"
    lease = await take_lease(target, session_id, yields=True)
    try:
        end = copy.last_seq
        following = await source.read(session_id, end, 1) if end < through else []
        if following and following[0].first_seq <= end:
            # In the source, the last entries of the copy were merged with later ones: start again.
            same = following[0].first_seq - 1
            if is_whole:
                # Unless somebody continued the copy: then it is not as it was, or prompts follow.
                was = await state_of(source, session_id, same)
                prompts = (await target.read_back(session_id, None, 1, kinds=[PROMPT])).entries
                is_continued = bool(prompts) and prompts[0].seq > same
                if is_continued or await state_of(target, session_id, same) != was:
                    return "differs"
            await target.delete(lease)
            kept = _as_copied(row, copy, through) if is_whole else row
            outcome = await _create(source, target, kept, through)
            return "grown" if is_whole else outcome
        out = (await source.read_back(session_id, None, 1, kinds=[FORGOTTEN])).entries
        if out and out[0].seq > end:
            await _take_out(source, target, lease, end)
        await _fill(source, target, lease, row, end, through)
    finally:
        await target.release(lease)
    return "grown" if is_whole else "new"


async def _take_out(source: Journal, target: Journal, lease: Lease, end: int) -> None:
    """Take out of a copy, up to entry `end`, what was forgotten in its source since."""
    gone: list[tuple[int, int]] = []
    instead: list[tuple[int, bytes]] = []
    async for segment in history(source, lease.session_id, through=end):
        if not segment.raw:
            gone.append((segment.first_seq, segment.last_seq))
        elif segment.kind in (QUEUE, UPDATE, PARAMS):  # prompts that waited, and titles
            is_queue = segment.kind == QUEUE
            its = segment.raws()
            instead += ((n, raw) for n, raw in its if is_queue or b'"session_info_update"' in raw)
    await target.withdraw(lease, gone, instead=instead, overwrites=True)


async def _create(source: Journal, target: Journal, row: SessionRow, through: int) -> Became:
    new = _new(row)
    if row.unread is not None:
        known_as = row.downstream_id or row.session_id
        await target.links.enlist([Listed(new, known_as, row.updated_at, row.unread)])
        # Unknown if it was not listed, because a session of this id was deleted there.
        with suppress(errors.UnknownSessionError):
            await target.change(row.session_id, RowChange(archived=row.archived))
            return "new"
        return "differs"
    lease = await target.create(new, yields=True)
    try:
        await _fill(source, target, lease, row, 0, through)
    except errors.NotAJournalError:
        await target.delete(lease)
        raise
    finally:
        await target.release(lease)
    return "new"


def _new(row: SessionRow) -> NewSession:
    return NewSession(**{name: getattr(row, name) for name in NewSession.__struct_fields__})


async def _fill(
    source: Journal, target: Journal, lease: Lease, row: SessionRow, after: int, through: int
) -> None:
    """Copy the entries of a session above `after`, its agents' ids for it, and its row.

    The row comes last and puts it into the list: without it, the copy was interrupted.
    """
    past = (_past(segment) async for segment in history(source, row.session_id, after, through))
    piece = await _take_in_pieces(target, lease, past)
    for agent, downstream_id in await source.links.of(row.session_id):
        await target.links.link(lease, agent, downstream_id)
    for tenant, prompts in row.shared_with.items():
        await target.access.keep_share(Share(row.session_id, tenant, prompts))
    change = _completed(row)
    if piece:
        await target.take_in(lease, piece, change)
    else:
        await target.change(lease, change)


def _past(segment: Segment) -> list[PastEntry]:
    return [PastEntry(entry.kind, entry.at, entry.raw, entry.seq) for entry in segment.entries()]


def _completed(row: SessionRow) -> RowChange:
    """The change that completes the row of a copy."""
    return RowChange(
        **{name: getattr(row, name) for name in _COPIED},
        title=UNSET if row.renamed else row.title,
        given=row.title if row.renamed else UNSET,
        unread=None,
    )


_COPIED: Final = {*RowChange.__struct_fields__} - {"title", "given", "unread", "followers", "home"}
"""The values of a row that a copy takes as they are."""


def _as_copied(row: SessionRow, copy: SessionRow, through: int) -> SessionRow:
    """Return the row that a copy should have. It keeps values that a journal counts by itself, a
    title that a person gave the copy, and its tenant."""
    kept = copy if copy.renamed and not row.renamed else row
    return replace(
        row,
        title=kept.title,
        renamed=kept.renamed,
        message_count=copy.message_count,
        last_seq=through,
        followers=copy.followers,
        lineage=copy.lineage,
        home=copy.home,
        held=copy.held,
        held_until=copy.held_until,
        tenant=copy.tenant,
        shared_with=copy.shared_with | row.shared_with,
    )
