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
from acphold.journal.rows import Marks, NewSession, RowChange, SessionRow


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


async def beside(
    journal: Journal, source: Source, session_id: str, *, of_part: bool
) -> list[SessionRow]:
    """Return the tails of a session, and those of its agent that have the id of its source: of a
    part of it also the session that was made of that alone."""
    names = {session_id, its := replace(source, apart=False).default_id}
    agent = (await journal.session(session_id)).agent
    found = {it.session_id: it for name in names for it in await sessions_beside(journal, name)}
    if of_part and (double := await row_of(journal, its)) is not None:
        found[its] = double
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


async def _pass_on(journal: Journal, double: SessionRow, session_id: str) -> bool:
    """Pass what people gave to a double on to its session; False if one may not go into the other:
    others can see it, or prompts wait in it."""
    row = await journal.session(session_id)
    is_shared = not double.shared_with.items() <= row.shared_with.items()
    if double.queued or is_shared or double.tenant not in ("", row.tenant):
        return False
    await journal.mark(session_id, Marks(added=double.tags))
    for person in double.pins:
        await journal.mark(session_id, Marks(person=person, pinned=True))
    if double.renamed and not row.renamed:
        await journal.change(session_id, RowChange(given=double.title))
    return True


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


async def take_out_common(
    journal: Journal, source: Source, session_id: str, lease: Lease | None = None
) -> None:
    """Take the turns of a session out of the tails, and the sessions of sources apart, that
    have its id, and those of one of these out of the tails behind it.

    They are compared again at the next import, or deleted if nothing is left. One that a person
    has named, tagged, pinned or shared, or in which prompts wait, stays as it is; and so does one
    of `--branches`, which is told from its beginning. With the lease of a session that the source
    is a part of, one that has nothing else becomes one with it, under both ids.
    """
    if not (others := await beside(journal, source, session_id, of_part=lease is not None)):
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
        is_whole = len(common) == len(session.turns)
        is_double = lease is not None and is_whole and not it.tail_of
        if not (common or due or is_double) or (_is_kept(it) and not is_double):
            continue
        if is_double and not await _pass_on(journal, it, session_id):
            continue
        if (its_lease := await _own_unchanged(journal, it)) is None:
            continue
        if is_whole:
            if is_double:  # the agent's own id comes last: by that one it knows the session
                for name in (it.session_id, replace(source, apart=False).downstream_id):
                    await journal.links.link(lease, it.agent, name)
            await journal.delete(its_lease)
            continue
        before = session.marker and replace(session.marker, seen={})
        writing = SessionWriter(journal, its_lease, source, None, it, before)
        facts = Facts(it.agent, updated_at=it.updated_at)
        piece = NewsPiece([], None, facts, None, is_last=True)
        piece.entries = [PastEntry(MOVED, 0, b"%d" % n) for n in due]
        piece.compared = Comparison(void=common, news=[-1 - n for n in due])
        await writing.make_room(piece, session.turns)
        await writing.take_in(piece)
        await writing.end()
