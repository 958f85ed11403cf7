"""The giver of a session that moves to another machine; see `hub.moves`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import PurePath

import msgspec

from acphold import errors
from acphold.history.entries import MOVED
from acphold.hub import bounds
from acphold.hub.kept_files import snapshot_at, stores_of
from acphold.hub.moves import (
    VERSION,
    Again,
    AlreadyTaken,
    Ask,
    Done,
    EndOfEntries,
    EntryPiece,
    Have,
    Marked,
    MovedSession,
    MoveLine,
    PackPiece,
    SentFiles,
    SentSession,
    SessionOffer,
    TakerReady,
    add_to,
    digest_of,
    in_thread,
    is_name,
    leased,
    pieces,
    telling,
)
from acphold.journal import (
    Journal,
    Lease,
    RowChange,
    SessionRow,
)
from acphold.journal.lineage import identity
from acphold.journal.location import resolved_folder
from acphold.journal.moves import MoveMark, mark_of, mark_text, refuse_moved
from acphold.journal.seams import TurnSnapshot
from acphold.rpc.transport import Transport
from acphold.snapshots.checkouts import ProjectMarks, checkout_of, marks
from acphold.snapshots.packs import packed


async def give(
    journal: Journal,
    transport: Transport,
    session_id: str,
    to: str = "",
    *,
    giver: str = "",
    why_no_files: str = "",
    has_gone: Callable[[], None] = lambda: None,
) -> MovedSession:
    """Give a session to the taker at the other end, which this machine calls `to`, by default as
    the taker calls itself.

    With `why_no_files` its files stay here, and a taker that wants them is refused for that reason.
    `has_gone` is called when the session is no longer this machine's, once in all of its tries.
    Raises MoveRefusedError, HeldElsewhereError if a process has it open, and ConnectionLostError:
    then the same move can be started again.
    """
    line = MoveLine(transport)
    async with telling(line):
        row = await journal.session(session_id)
        if mark_of(row).taking:
            refuse_moved(row)
        asked = await line.receive(Ask)
        if asked.version != VERSION:
            raise errors.MoveRefusedError(
                "the two machines have incompatible releases of acphold; update both"
            )
        if asked.journal is not None and asked.journal == await identity(journal):
            raise errors.MoveRefusedError(
                "both machines use the same journal: resume the session there"
            )
        to = to or asked.name
        if not is_name(to):
            raise errors.MoveRefusedError("the other machine did not send its name")
        lease = await leased(journal, session_id)
        try:
            return await _give(
                *(journal, line, lease, to, giver or socket.gethostname()),
                *(why_no_files, has_gone),
            )
        except errors.LeaseLostError:
            if (mark := mark_of(await journal.session(session_id))).to:
                raise _gone(mark) from None
            raise
        finally:
            await journal.release(lease)


def _gone(mark: MoveMark) -> errors.MoveRefusedError:
    return errors.MoveRefusedError(
        f"another move took it to {mark.to}; `acphold fork` makes a copy to continue here"
    )


async def _give(
    journal: Journal,
    line: MoveLine,
    lease: Lease,
    to: str,
    giver: str,
    why_no_files: str,
    has_gone: Callable[[], None],
) -> MovedSession:
    await journal.settle(lease, lease.next_seq - 1)
    row = await journal.session(lease.session_id)
    mark = mark_of(row)
    if mark.taking:  # since the lease
        refuse_moved(row)
    if row.queued:
        raise errors.MoveRefusedError(
            "this session has queued prompts; send or remove them with `acphold queue` first"
        )
    if not row.prompted or row.is_unread:
        raise errors.MoveRefusedError("this session has no messages yet")
    last = row.last_seq - 1 if mark.id else row.last_seq
    offer, found = await _offer(journal, row, last, mark.id, giver, why_no_files)
    await line.send(offer)
    have = await line.receive(Have, AlreadyTaken)
    if isinstance(have, AlreadyTaken):
        if not mark.id or have.digest != await digest_of(journal, row.session_id, row.last_seq):
            raise errors.MoveRefusedError(
                "the other machine has a different conversation with this id"
            )
        return MovedSession(row.session_id, have.done, was_done=True)
    if not is_name(have.taking):
        raise errors.MoveRefusedError("the other machine did not send the id of its move")
    if mark.id and mark.id != have.taking:
        raise _gone(mark)
    if have.last > last or have.digest != await digest_of(journal, row.session_id, have.last):
        if not have.is_new:
            raise errors.MoveRefusedError(
                "the other machine has a different conversation; acphold merges none"
            )
        await line.send(Again())
        have = await line.receive(Have)
    if have.wants_files and found is not None:
        store = (await stores_of(journal)).find(found.store)
        if store is None:
            raise errors.MoveRefusedError("the files of this session are not on this machine")
        work = partial(packed, store, found.tree, project=found.root, base=have.base)
        with await in_thread(work) as pack:
            while data := pack.read(bounds.PACK_PIECE_BYTES):
                await line.send(PackPiece(data))
        await line.send(PackPiece(b""))
    digest = sha256()
    async for piece in pieces(journal, row.session_id, have.last, last):
        await line.send(EntryPiece(piece))
        for entry in piece:
            add_to(digest, entry)
    await line.send(EndOfEntries(digest.hexdigest()))
    await line.receive(TakerReady, seconds=bounds.MOVE_WORK_SECONDS)
    if not mark.id:
        where = MoveMark(to=to, id=have.taking)
        change = RowChange(moved=mark_text(where))
        mark_entry = msgspec.json.encode({"id": where.id, "from": giver, "to": where.to})
        await journal.append(lease, [(MOVED, [mark_entry])], change)
        await journal.settle(lease, last + 1)
        has_gone()
    async for piece in pieces(journal, row.session_id, last, last + 1):
        await line.send(Marked(piece[0]))
    try:
        done = await line.receive(Done)
    except errors.MoveRefusedError as error:
        raise errors.ConnectionLostError(
            f"{error}; the session has already left this machine"
        ) from error
    left_out = () if found is None else tuple(path for path, _ in found.left_out[:3])
    count = 0 if found is None else found.left_out_count
    return MovedSession(row.session_id, done, offer.no_files, count, left_out)


async def _offer(
    journal: Journal, row: SessionRow, last: int, move: str, giver: str, why_no_files: str
) -> tuple[SessionOffer, TurnSnapshot | None]:
    """Return what is offered, and the files of it: those at the end of the last turn, if they are
    here."""
    checkout = await in_thread(partial(checkout_of, row.cwd))
    found, no_files = None, ""
    try:
        found = await snapshot_at(journal, row, None)
    except errors.WorkspaceError as error:
        no_files = str(error)
    else:
        if (await stores_of(journal)).find(found.store) is None:
            found, no_files = None, "the files of this session are not on this machine"
    is_withheld = found is not None and why_no_files != ""
    if is_withheld:
        found, no_files = None, why_no_files
    top = found.root if found else checkout.top if checkout else ""
    its_marks = ProjectMarks()
    if checkout is not None:
        its_marks = await in_thread(partial(marks, checkout))
    below = ""
    if top:
        with suppress(ValueError):
            below = str(PurePath(resolved_folder(row.cwd)).relative_to(top))
    session = SentSession(**{name: getattr(row, name) for name in SentSession.__struct_fields__})
    files = None
    if found is not None:
        facts = {name: getattr(found, name) for name in SentFiles.__struct_fields__}
        files = SentFiles(**facts)
    project = os.path.basename(top)
    offer = SessionOffer(
        session, last, move, giver, project, below, its_marks, files, no_files, is_withheld
    )
    return offer, found
