"""Turns that a conversation has left: they become a session of their own, a tail of it.

A turn is in one session only: in that of its conversation, in one of its tails, or in that of a
source that is apart.
"""

# See docs/decisions.md, 28.

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from acphold.conversation.history.entries import PROMPT, Origin, PastEntry
from acphold.conversation.history.titles import title_of_prompt
from acphold.imports.pieces import MOVED, PIECE_BYTES, News, NewsPiece
from acphold.imports.session_writer import Known, SessionWriter, entries_of, read_known
from acphold.imports.sources import Facts, Source
from acphold.imports.turns import Comparison, KnownPart, ReadTurn
from acphold.journal.access import Share
from acphold.journal.journal import (
    Journal,
    Lease,
    is_forgotten,
    is_live,
    row_of,
    session_of,
    sessions_beside,
    take_lease,
)
from acphold.journal.rows import NewSession, SessionRow


async def put_aside(
    journal: Journal, source: Source, row: SessionRow, left: Sequence[ReadTurn], session_id: str
) -> None:
    """Copy turns of a session, or of a tail of it, that were left into one of their own."""
    first, last = left[0], left[-1]
    if (opened := await _open_tail(journal, source, row, first)) is None:
        return
    writing, known = opened
    has = {turn.key for turn in known}
    left = [turn for turn in left if turn.key not in has]
    facts = Facts(row.agent, "", row.cwd, created_at=first.at, updated_at=last.at)
    piece, size = NewsPiece([], None, facts, None), 0
    async for _, entry in entries_of(journal, session_id, left):
        if entry.kind == PROMPT and piece.first_prompt is None:
            piece.first_prompt = title_of_prompt(entry.raw)
        piece.entries.append(entry)
        size += len(entry.raw)
        if size >= PIECE_BYTES:
            await writing.take_in(piece)
            piece, size = replace(piece, entries=[]), 0
    await writing.take_in(replace(piece, is_last=True))


async def take_behind(
    journal: Journal,
    source: Source,
    row: SessionRow,
    behind: Sequence[str],
    news: News,
    session: Known,
) -> None:
    """Take in turns of a source that a newer prompt here was put in the place of."""
    if (opened := await _open_tail(journal, source, row, ReadTurn(behind[0]))) is None:
        return
    writing, known = opened
    asked = KnownPart(known, forgotten=session.forgotten, only=frozenset(behind))
    pieces = news(source, asked)
    compared = (first := await anext(pieces)).compared or Comparison()
    if left := [known[n] for n in compared.left]:
        await put_aside(journal, source, row, left, writing.lease.session_id)
    await writing.make_room(first, known)
    await writing.take_all(first, pieces)
    await writing.end()
    if compared.behind:
        await take_behind(journal, source, row, compared.behind, news, session)


async def _open_tail(
    journal: Journal, source: Source, row: SessionRow, first: ReadTurn, name: str = ""
) -> tuple[SessionWriter, list[ReadTurn]] | None:
    """Own the session of turns that were left, known by the first of them, or by this name; return
    its writer, and the turns that it has. None if somebody deleted it."""
    name = name or first.name
    tail = replace(source, session_id=f"{source.session_id}~{name}", kept_as="")
    link = row.agent, tail.downstream_id
    if await is_forgotten(journal, *link):
        return None
    if (ours := await session_of(journal, *link)) is not None:
        its_row = await journal.session(ours)
        lease = await take_lease(journal, ours, yields=True)
        session = await read_known(journal, ours)
        same = {turn.key for turn in session.turns if turn.name == name}
        if same and first.key not in same:  # another one whose prompt has the same id
            await journal.release(lease)
            return await _open_tail(journal, source, row, first, first.key)
        writing = SessionWriter(journal, lease, tail, None, its_row, session.marker)
        return writing, session.turns
    seq = first.spans[0][0] - 1 if first.spans else 0
    new = NewSession(
        f"{row.session_id}~{name}",
        row.agent,
        row.cwd,
        row.additional_directories,
        created_at=first.at or None,
        origins=(*row.origins, Origin(row.session_id, row.agent, seq)),
    )
    begun = await row_of(journal, new.session_id)
    if begun is not None and not begun.last_seq:  # by an import that was killed
        lease = await take_lease(journal, new.session_id, yields=True)
    else:
        lease = await journal.create(new, yields=True)
    await share_alike(journal, row, new.session_id)
    return SessionWriter(journal, lease, tail, link), []


async def share_alike(journal: Journal, row: SessionRow, session_id: str) -> None:
    """Share a tail, or a branch, with those that its conversation is shared with."""
    for tenant, prompts in row.shared_with.items():
        await journal.access.keep_share(Share(session_id, tenant, prompts))


async def beside(journal: Journal, source: Source, session_id: str) -> list[SessionRow]:
    """Return the tails of a session, and those of its agent that have the id of its source."""
    names = {session_id, replace(source, apart=False).default_id}
    agent = (await journal.session(session_id)).agent
    found = {it.session_id: it for name in names for it in await sessions_beside(journal, name)}
    return [it for it in found.values() if it.session_id != session_id and it.agent == agent]


async def _own_unchanged(journal: Journal, row: SessionRow) -> Lease | None:
    """Own a session that has been read since its row; None if somebody wrote to it meanwhile."""
    lease = await take_lease(journal, row.session_id, yields=True)
    if lease.next_seq == row.last_seq + 1:
        return lease
    await journal.release(lease)
    return None


def _is_kept(row: SessionRow) -> bool:
    """Return True if a person has named, tagged, pinned or shared it, or prompts wait in it."""
    return bool(row.renamed or row.tags or row.pins or row.shared_with or row.queued)


async def take_out_begun(journal: Journal, source: Source, row: SessionRow, begun_as: str) -> None:
    """Delete the session that a file was told in while it was gone on with as another conversation,
    if nothing else was told or said there: the file's session has all of it. Not of the one that
    the file is named after."""
    if source.path.stem == begun_as:
        return
    ours = {turn.key for turn in (await read_known(journal, row.session_id)).turns}
    before = replace(source, session_id=begun_as, kept_as="")
    for name in (replace(before, apart=False), replace(before, apart=True)):
        its = await session_of(journal, row.agent, name.downstream_id)
        its_row = await row_of(journal, its) if its and its != row.session_id else None
        if its is None or its_row is None or _is_kept(its_row) or await is_live(journal, its):
            continue
        session = await read_known(journal, its)
        is_of_it = session.marker is not None and {*session.marker.seen} == {source.place}
        is_told = is_of_it and ours.issuperset(turn.key for turn in session.turns)
        if is_told and (lease := await _own_unchanged(journal, its_row)) is not None:
            await journal.delete(lease)


async def take_out_common(journal: Journal, source: Source, session_id: str) -> None:
    """Take the turns of a session out of the tails, and the sessions of sources apart, that
    have its id, and those of one of these out of the tails behind it.

    They are compared again at the next import, or deleted if nothing is left. One that a person
    has named, tagged, pinned or shared, or in which prompts wait, stays as it is; and so does one
    of `--branches`, which is told from its beginning.
    """
    if not (others := await beside(journal, source, session_id)):
        return
    ours = await read_known(journal, session_id)
    # One that was taken in before turns had identities is known by its moment.
    keys = {name for turn in ours.turns for name in (turn.identity, turn.moment)}
    left = set[str]()
    for it in sorted(others, key=lambda row: (not _is_kept(row), row.tail_of != "", -row.last_seq)):
        if await is_live(journal, it.session_id):
            continue
        session = await read_known(journal, it.session_id)
        place = session.marker.place if session.marker else ""
        is_branch = place.endswith(f"#{it.session_id.rpartition('~')[2]}")
        moving = session.marker.moving if session.marker else []  # by an import that was killed
        last = {turn.key: n for n, turn in enumerate(session.turns)} if moving else {}
        common = [
            n
            for n, turn in enumerate(session.turns)
            if turn.key in keys
            or (turn.key in left and it.tail_of)
            or last.get(turn.identity, n) > n
        ]
        due = [n for n, turn in enumerate(session.turns) if turn.prompt in moving]
        due = [n for n in due if n not in common]
        if is_branch and len(common) < len(session.turns):
            continue
        # An import that was killed may have put a turn aside twice: by itself and behind another,
        # or apart, where it had not noted that it knew the source.
        left.update(turn.key for turn in session.turns)
        if _is_kept(it) or not (common or due):
            continue
        if (lease := await _own_unchanged(journal, it)) is None:
            continue
        if len(common) == len(session.turns):
            await journal.delete(lease)
            continue
        before = session.marker and replace(session.marker, seen={})
        writing = SessionWriter(journal, lease, source, None, it, before)
        facts = Facts(it.agent, updated_at=it.updated_at)
        piece = NewsPiece([], None, facts, None, is_last=True)
        piece.entries = [PastEntry(MOVED, 0, b"%d" % n) for n in due]
        piece.compared = Comparison(void=common, news=[-1 - n for n in due])
        await writing.make_room(piece, session.turns)
        await writing.take_in(piece)
        await writing.end()
