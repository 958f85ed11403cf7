"""The giver of a session that moves to another machine; see `hub.moves`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from acp_wire.rpc import Transport
from acp_wire.surroundings import resolve_folder
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import MOVED
from acphold.errors import ConnectionLostError, LeaseLostError, MoveRefusedError, WorkspaceError
from acphold.journal.journal import Journal, Lease, take_lease
from acphold.journal.lineage import identity
from acphold.journal.moves import MoveMark, mark_of, mark_text, refuse_moved
from acphold.journal.rows import RowChange, SessionRow
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub import bounds, moves
from acphold.live.hub.kept_files import folder_at, has_folder, snapshot_at
from acphold.live.hub.kept_stores import store_of
from acphold.safety.snapshots.checkouts import ProjectMarks, checkout_of, marks
from acphold.safety.snapshots.packs import here, make_pack


async def give(
    journal: Journal,
    transport: Transport,
    session_id: str,
    to: str = "",
    *,
    giver: str = "",
    why_no_files: str = "",
    has_gone: Callable[[], None] = lambda: None,
) -> moves.MovedSession:
    """Give a session to the taker at the other end, which this machine calls `to`, by default as
    the taker calls itself.

    With `why_no_files` its files stay here, and a taker that wants them is refused for that reason.
    `has_gone` is called when the session is no longer this machine's, once in all of its tries.
    Raises MoveRefusedError, HeldElsewhereError if a process has it open, and ConnectionLostError:
    then the same move can be started again.
    """
    line = moves.MoveLine(transport)
    async with moves.telling(line):
        row = await journal.session(session_id)
        if mark_of(row).taking:
            refuse_moved(row)
        ask = await line.receive(moves.Ask)
        if ask.version != moves.VERSION:
            raise MoveRefusedError(
                "the two machines have incompatible releases of acphold; update both"
            )
        if ask.journal is not None and ask.journal == await identity(journal):
            raise MoveRefusedError("both machines use the same journal: resume the session there")
        to = to or ask.name
        if not moves.is_name(to):
            raise MoveRefusedError("the other machine did not send its name")
        lease = await take_lease(journal, session_id, yields=True)
        giving = _GivenSession(journal, line, to, giver or socket.gethostname(), why_no_files)
        try:
            return await giving.give(lease, has_gone)
        except LeaseLostError:
            if (mark := mark_of(await journal.session(session_id))).to:
                raise _refusal(mark) from None
            raise
        finally:
            await journal.release(lease)


def _refusal(mark: MoveMark) -> MoveRefusedError:
    return MoveRefusedError(
        f"another move took it to {mark.to}; `acphold continue ID --from last` continues a copy "
        "here"
    )


class _GivenSession(NamedTuple):
    """One session that is being given to the machine `to`; this machine is `giver`."""

    journal: Journal
    line: moves.MoveLine
    to: str
    giver: str
    why_no_files: str

    async def give(self, lease: Lease, has_gone: Callable[[], None]) -> moves.MovedSession:
        """Take the giver's steps of `hub.moves`: offer, send, mark, and send the mark."""
        journal, line = self.journal, self.line
        await journal.settle(lease, lease.next_seq - 1)
        row = await journal.session(lease.session_id)
        mark = mark_of(row)
        if mark.taking:  # since the lease
            refuse_moved(row)
        if row.queued:
            raise MoveRefusedError(
                "this session has queued prompts; send or remove them with `acphold queue` first"
            )
        if not row.prompted or row.is_unread:
            raise MoveRefusedError("this session has no messages yet")
        last = row.last_seq - 1 if mark.id else row.last_seq
        offer, snapshot = await self._offer(row, last, mark.id)
        await line.send(offer)
        have: moves.Have | moves.AlreadyTaken = await line.receive(moves.Have, moves.AlreadyTaken)
        if isinstance(have, moves.AlreadyTaken):
            if not mark.id or have.digest != await moves.digest_of(
                journal, row.session_id, row.last_seq
            ):
                raise MoveRefusedError(
                    "the other machine has a different conversation with this id"
                )
            return moves.MovedSession(row.session_id, have.done, was_done=True)
        if not moves.is_name(have.taking):
            raise MoveRefusedError("the other machine did not send the id of its move")
        if mark.id and mark.id != have.taking:
            raise _refusal(mark)
        ours = await moves.digest_of(journal, row.session_id, min(have.last, last))
        if have.last > last or have.digest != ours:  # no beginning of our session
            if not have.is_new:
                raise MoveRefusedError(
                    "the other machine has a different conversation; acphold merges none"
                )
            await line.send(moves.Again())
            have = await line.receive(moves.Have)
        if snapshot is not None and (have.wants_files or have.earlier):
            await self._send_files(snapshot, have, [it.tree for it in offer.earlier if it.tree])
        digest = sha256()
        async for piece in moves.pieces(journal, row.session_id, have.last, last):
            await line.send(moves.EntryPiece(piece))
            for entry in piece:
                moves.add_to(digest, entry)
        await line.send(moves.EndOfEntries(digest.hexdigest()))
        await line.receive(moves.TakerReady, seconds=bounds.MOVE_WORK_SECONDS)
        if not mark.id:
            mark = MoveMark(to=self.to, id=have.taking)
            raw = msgspec.json.encode({"id": mark.id, "from": self.giver, "to": mark.to})
            await journal.append(lease, [(MOVED, [raw])], RowChange(moved=mark_text(mark)))
            await journal.settle(lease, last + 1)
            has_gone()
        async for piece in moves.pieces(journal, row.session_id, last, last + 1):
            await line.send(moves.Marked(piece[0]))
        try:
            done = await line.receive(moves.Done)
        except MoveRefusedError as error:
            raise ConnectionLostError(
                f"{error}; the session has already left this machine"
            ) from error
        return moves.moved(offer, done, offer.no_files)

    async def _send_files(
        self, snapshot: TurnSnapshot, have: moves.Have, offered: list[str]
    ) -> None:
        """Send the files that the taker wants, of the earlier ones as many as fit, the newest."""
        earlier = [tree for tree in dict.fromkeys(offered) if tree in have.earlier]
        known = [tree for tree in dict.fromkeys(offered) if tree not in have.earlier]
        own = [snapshot.tree] if have.wants_files else []
        pack: BinaryIO | None = None
        while pack is None:
            try:
                store = await store_of(self.journal, snapshot)
                work = partial(make_pack, store, *own, *earlier, known=known)
                pack = await Threads(1).run(work, project=snapshot.root, base=have.base)
            except WorkspaceError as error:
                if not earlier:
                    raise MoveRefusedError(str(error)) from error
                earlier = earlier[(len(earlier) + 1) // 2 :]
        with pack:
            while data := pack.read(bounds.PACK_PIECE_BYTES):
                await self.line.send(moves.PackPiece(data))
        await self.line.send(moves.PackPiece(b""))

    async def _earlier(self, row: SessionRow, last: TurnSnapshot) -> tuple[TurnSnapshot, ...]:
        """Return the snapshots before the last one that can be sent, as they are offered."""
        rows = [
            it
            for it in await self.journal.snapshots.of(row.session_id)
            if it.order < last.order
            and (not it.is_kept or (it.store == last.store and has_folder(it, row)))
        ][-bounds.EARLIER_SNAPSHOTS :]
        store = await store_of(self.journal, last)
        trees = [*dict.fromkeys(it.tree for it in rows if it.is_kept)]
        kept = await Threads(1).run(here, store, trees)
        return tuple(
            replace(
                it,
                root="",
                store="",
                cwd=str(PurePath(folder_at(it, row)).relative_to(it.root)) if it.tree else "",
            )
            for it in rows
            if it.tree in kept or not it.is_kept
        )

    async def _offer(
        self, row: SessionRow, last: int, move: str
    ) -> tuple[moves.SessionOffer, TurnSnapshot | None]:
        """Return what is offered, and the files of it: those at the end of the last turn, if they
        are here."""
        checkout = await Threads(1).run(checkout_of, row.cwd)
        snapshot, no_files = None, ""
        try:
            newest = await snapshot_at(self.journal, row, None)
            await store_of(self.journal, newest)
            snapshot = newest
        except WorkspaceError as error:
            no_files = str(error)
        is_withheld = snapshot is not None and self.why_no_files != ""
        if is_withheld:
            snapshot, no_files = None, self.why_no_files
        top = snapshot.root if snapshot else checkout.top if checkout else ""
        project_marks = await Threads(1).run(marks, checkout) if checkout else ProjectMarks()
        below = ""
        if top:
            with suppress(ValueError):
                folder = folder_at(snapshot, row) if snapshot else resolve_folder(row.cwd)
                below = str(PurePath(folder).relative_to(top))
        files, earlier = None, tuple[TurnSnapshot, ...]()
        if snapshot is not None:
            files = replace(snapshot, root="", store="", cwd="")
            earlier = await self._earlier(row, snapshot)
        offer = moves.SessionOffer(
            msgspec.convert(row, moves.SentSession, from_attributes=True),
            last,
            move,
            self.giver,
            os.path.basename(top),
            below,
            project_marks,
            files,
            no_files,
            is_withheld,
            earlier,
        )
        return offer, snapshot
