"""Copy all sessions of a journal into another one, which may use another store.

Each session keeps its id and each entry its number, so the positions of clients hold in the copy.
The copy is made while sessions run: of a session that somebody has open, everything up to the end
of its last turn is copied, and the rest with the next copy. An interrupted copy is continued; a
complete one is brought up to date. Sessions that only the copy has stay there.

Afterwards each session is read back and folded on both sides, and compared.

Not copied are tokens and their deeds, which belong to the one journal, and what each journal
computes by itself: the search index and the sums of usage.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from acphold import errors
from acphold.record.history.entries import PROMPT, TURN_END, PastEntry
from acphold.record.journal import bounds
from acphold.record.journal.access import Share
from acphold.record.journal.journal import Journal, Lease, history, state_of
from acphold.record.journal.owners import At, Free, seems_gone
from acphold.record.journal.rows import (
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    SessionRow,
)

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

    async def take(session_id: str) -> None:
        outcome = await _copy(source, target, session_id)
        if outcome is None:
            return
        # A second look at a session that changed meanwhile keeps its first outcome.
        if outcome in ("same", "grown") and became.get(session_id) in ("new", "grown"):
            outcome = became[session_id]
        became[session_id] = outcome
        on_copied(session_id, outcome)

    after: ListKey | None = None
    while rows := await source.page(_EVERYTHING, after, bounds.COPIED_ROWS):
        for row in rows:
            await take(row.session_id)
        after = rows[-1].key
    # A session that was continued meanwhile has moved up in the list, maybe past our place.
    until = time.monotonic() + bounds.LATE_CHANGES_SECONDS
    is_news = True
    while is_news:
        news = await source.changes(mark)
        for session_id in news.session_ids:
            await take(session_id)
        mark, is_news = news.last, news.more
        if news.late and not news.more:
            if is_news := time.monotonic() < until:
                await asyncio.sleep(bounds.LATE_CHANGES_LOOK_SECONDS)
            else:
                log.warning(
                    "another process keeps writing; the next copy will have its latest changes"
                )
    await _copy_tombstones(source, target)
    return Counter(became.values())


async def _copy(source: Journal, target: Journal, session_id: str) -> Became | None:
    """Copy the new entries of a session, and compare; None if the session is gone."""
    try:
        row = await source.session(session_id)
        through, is_open = row.last_seq, False
        owner = await source.owner(session_id)
        if not (isinstance(owner, Free) or seems_gone(owner)):
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
        errors.HeldElsewhereError,
        errors.LeaseLostError,
        errors.RewrittenError,
        errors.SessionExistsError,
    ):
        return "left"


async def _bring_up(source: Journal, target: Journal, row: SessionRow, through: int) -> Became:
    """Bring the copy of the session in `target` to the state of `source`, up to an entry."""
    session_id = row.session_id
    try:
        copy = await target.session(session_id)
    except errors.UnknownSessionError:
        return await _create(source, target, row, through)
    if (copy.agent, copy.created_at) != (row.agent, row.created_at):
        return "differs"
    is_whole = copy.prompted or not row.prompted  # otherwise an earlier copy was interrupted
    if copy.last_seq > through or (is_whole and copy.updated_at > row.updated_at):
        return "differs"  # the copy was continued
    if row.is_unread or _as_copied(row, copy, through) == copy:
        return "same"
    owner = await target.owner(session_id)
    # A killed copy leaves a lease that yields, of an owner that is gone or soon will be.
    if isinstance(owner, At) and not (owner.yields or seems_gone(owner)):
        raise errors.HeldElsewhereError(session_id, str(owner.owner), owner.epoch)
    lease = await target.acquire(session_id, owner.epoch, yields=True)
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
        await _fill(source, target, lease, row, end, through)
    finally:
        await target.release(lease)
    return "grown" if is_whole else "new"


async def _create(source: Journal, target: Journal, row: SessionRow, through: int) -> Became:
    new = NewSession(**{name: getattr(row, name) for name in NewSession.__struct_fields__})
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


async def _fill(
    source: Journal, target: Journal, lease: Lease, row: SessionRow, after: int, through: int
) -> None:
    """Copy the entries of a session above `after`, its agents' ids for it, and its row.

    The row comes last and puts it into the list: without it, the copy was interrupted.
    """
    piece: list[PastEntry] = []
    size = 0
    async for segment in history(source, row.session_id, after, through):
        entries = segment.entries()
        piece += [PastEntry(entry.kind, entry.at, entry.raw, entry.seq) for entry in entries]
        size += len(segment.raw)
        if size > bounds.PIECE_BYTES:
            await target.take_in(lease, piece)
            piece, size = [], 0
    if piece:
        await target.take_in(lease, piece)
    for agent, downstream_id in await source.links.of(row.session_id):
        await target.links.link(lease, agent, downstream_id)
    for tenant, prompts in row.shared_with.items():
        await target.access.keep_share(Share(row.session_id, tenant, prompts))
    change = RowChange(
        **{name: getattr(row, name) for name in _COPIED},
        title=UNSET if row.renamed else row.title,
        given=row.title if row.renamed else UNSET,
        unread=None,
    )
    await target.change(lease, change)


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


async def _copy_tombstones(source: Journal, target: Journal) -> None:
    """Copy tombstones of ids unknown there, so that agents' lists do not bring deleted sessions
    back."""
    gone: dict[str, list[str]] = {}
    for agent, downstream_id in await source.links.of(None):
        gone.setdefault(agent, []).append(downstream_id)
    for agent, ids in gone.items():
        known = await target.links.sessions_of(agent, ids)
        for downstream_id in ids:
            if downstream_id not in known:
                await target.links.link(None, agent, downstream_id)
