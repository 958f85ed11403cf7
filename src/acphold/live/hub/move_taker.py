"""The taker of a session that moves here, and the place that it gets; see `hub.moves`.

The place is what the person named; or what the settings say stands for its folder there; or a clone
of its project that acphold knows here. A folder is not taken on the other machine's word.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from os.path import isdir, realpath
from pathlib import PurePath
from secrets import token_hex
from typing import Final, TypeAlias, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from acp_wire.rpc import Transport
from acp_wire.surroundings import Surroundings, resolve_folder
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import MOVED, Entry, PastEntry
from acphold.conversation.history.raw_update import members, string
from acphold.errors import MoveRefusedError, WorkspaceError
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Journal, Lease, Sessions, row_of, take_lease
from acphold.journal.lineage import identity
from acphold.journal.moves import MoveMark, mark_of, mark_text
from acphold.journal.rows import ListFilter, NewSession, RowChange, SessionRow
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub import bounds, moves
from acphold.live.hub.kept_files import remove_remains
from acphold.live.hub.kept_stores import stores_of
from acphold.safety.snapshots.bounds import PACK_LIMITS
from acphold.safety.snapshots.checkouts import checkout_of, same_project
from acphold.safety.snapshots.packs import has_base, here, pack_file, unpack, whole
from acphold.safety.snapshots.snapshot import NotTaken, take as take_snapshot
from acphold.safety.snapshots.store import SnapshotStore, Stores
from acphold.safety.snapshots.worktree import beside, lay, make_inside, note_unused, unlay

SHORT_ID: Final = 6
"""Letters of the session's id in the name of a new folder."""


class WantedPlace(Struct, frozen=True):
    """The place wanted for a session on the taker's machine.

    `cwd` is the folder of its project, found if it is None; `files` the new folder for its files,
    beside the project if it is None. `folders` maps folders of other machines to folders here.
    """

    cwd: str | None = None
    files: str | None = None
    with_files: bool = True
    folders: Mapping[str, str] = {}


def place_of(
    offer: moves.SessionOffer, place: WantedPlace, known: Sequence[str], laid: moves.Done | None
) -> moves.Done:
    """Return the place of a session here: `known` are folders in which a clone of its project may
    be, `laid` is that of its files, if they are there already. Blocks; MoveRefusedError."""
    files = offer.files if place.with_files else None
    mapped: str | None = None  # the folder that stands for its own, by the longest entry
    for far in sorted(place.folders, key=len, reverse=True):
        with suppress(ValueError):
            below = PurePath(offer.session.cwd).relative_to(far)
            if ".." not in below.parts:
                mapped = os.path.normpath(os.path.join(place.folders[far], below))
                break
    project = ""
    if place.cwd is not None:
        if not isdir(place.cwd):
            raise MoveRefusedError(f"there is no folder {place.cwd!r} on {socket.gethostname()}")
        found = checkout_of(place.cwd)
        project = found.top if found else ""
    else:
        folders = [*([mapped] if mapped else []), *known]
        project = same_project(folders, offer.marks, files.commit if files else None)
    if laid is not None:
        return replace(laid, project=project)
    if files is not None:
        if place.files is None and not project:
            raise MoveRefusedError(
                f"acphold on {socket.gethostname()} knows no clone of "
                f"{offer.project or 'the project'}: name its folder there with "
                "--cwd, or a new folder for the files with --files, or continue without them with "
                "--no-files"
            )
        letters = (letter for letter in offer.session.session_id if letter.isalnum())
        new = place.files or beside(project, "".join(letters)[:SHORT_ID] or "moved")
        return moves.Done(_below(new, offer.below), new, project=project)
    if place.cwd is not None:
        return moves.Done(place.cwd)
    own = [_below(project, offer.below), project] if project else []
    same = [offer.session.cwd] if offer.session.cwd in known else []
    for folder in (mapped, *own, *same):
        if folder and isdir(folder):
            return moves.Done(os.path.normpath(folder), project=project)
    raise MoveRefusedError(
        f"acphold on {socket.gethostname()} knows neither the folder {offer.session.cwd!r} nor a "
        "clone of its project; name a folder there with --cwd"
    )


def still_there(
    offer: moves.SessionOffer, cwd: str, stores: Stores, surroundings: Surroundings
) -> TurnSnapshot | None:
    """Return a snapshot of the folder that the session had left, if it still has exactly the files
    that come back; otherwise None. Blocks."""
    files, checkout = offer.files, checkout_of(cwd)
    if files is None or checkout is None or _below(checkout.top, offer.below) != realpath(cwd):
        return None
    deadline = time.monotonic() + bounds.STORE_SEARCH_SECONDS
    taken = take_snapshot(stores, checkout, surroundings, deadline=deadline)
    if isinstance(taken, NotTaken) or (taken.tree, taken.head.commit) != (files.tree, files.commit):
        return None
    return last_snapshot(files, taken.store, checkout.top)


def last_snapshot(sent: TurnSnapshot, store: str, top: str) -> TurnSnapshot:
    """Return the journal's row for the snapshot of the last turn: in this store, with its files in
    `top`."""
    row = earlier_snapshot(sent, store, resolve_folder(top), is_here=True)
    return replace(row, edge="end", state="whole", cwd="", taken_for="")


def earlier_snapshot(sent: TurnSnapshot, store: str, top: str, *, is_here: bool) -> TurnSnapshot:
    """Return the journal's row for a snapshot of an earlier turn: in this store, as one of `top`;
    a refused one if it `is_here` not."""
    row = replace(
        sent,
        root=top,
        cwd=_below(top, sent.cwd),
        branch=sent.branch[: moves.NAME_LETTERS],
        reason=sent.reason[: moves.NAME_LETTERS],
        left_out=sent.left_out[: journal_bounds.LEFT_OUT_NAMED],
    )
    if is_here:
        return replace(row, store=store)
    why = sent.reason or "it was not sent when the session moved here: the files were too large"
    return replace(row, state="refused", tree="", reason=why)


async def recent_folders(journal: Sessions) -> list[str]:
    """The folders of the newest sessions, each once."""
    wanted = ListFilter(archived="include")
    rows = await journal.page(wanted, None, bounds.KNOWN_SESSIONS)
    return [*dict.fromkeys(row.cwd for row in rows)]


def _below(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below)) if below else folder


async def take(
    journal: Journal,
    transport: Transport,
    place: WantedPlace,
    surroundings: Surroundings,
    wanted: str = "",
) -> moves.MovedSession:
    """Take the session that the giver at the other end offers.

    Its id is `wanted` or begins with it; another one is refused before anything is made. Raises
    MoveRefusedError, HeldElsewhereError if a process has it open, and ConnectionLostError: then the
    same move can be started again.
    """
    line = moves.MoveLine(transport)
    async with moves.telling(line):
        await line.send(moves.Ask(moves.VERSION, await identity(journal), socket.gethostname()))
        offer = await line.receive(moves.SessionOffer)
        moves.require_fit(offer)
        moves.require_wanted(offer.session.session_id, wanted)
        if offer.is_withheld and place.with_files:
            raise MoveRefusedError(offer.no_files)
        return await _TakenSession(journal, line, offer, place, surroundings).take()


_Sent: TypeAlias = moves.Again | moves.PackPiece | moves.EntryPiece | moves.EndOfEntries


class _TakenSession(Struct, eq=False):
    """One session that is being taken. Beginning again makes it, and its lease, anew."""

    _journal: Journal
    _line: moves.MoveLine
    _offer: moves.SessionOffer
    _place: WantedPlace
    _surroundings: Surroundings
    _held: Lease | None = None
    _done: moves.Done = moves.Done("")
    _is_laid: bool = False
    _kept: TurnSnapshot | None = None
    _note: MoveMark = MoveMark()
    _wants_files: bool = False
    _wanted: list[str] = []  # of the earlier snapshots

    @property
    def _id(self) -> str:
        return self._offer.session.session_id

    @property
    def _lease(self) -> Lease:
        assert self._held is not None, "taken before anything is written"
        return self._held

    async def take(self) -> moves.MovedSession:
        """Take the taker's steps of `hub.moves`."""
        journal, offer = self._journal, self._offer
        row = await row_of(journal, self._id)
        is_begun = row is not None and (row.prompted or row.last_seq > 0)
        if row is not None and is_begun and not row.moved:
            # It is here already; or it is this machine's own.
            through = offer.last + 1
            if not offer.move or row.last_seq < through:
                raise MoveRefusedError(
                    "both machines can continue this session, because a journal was copied; delete "
                    "one of the two with `acphold session delete` first"
                )
            digest = await moves.digest_of(journal, self._id, through)
            done = moves.Done(row.cwd)
            await self._line.send(moves.AlreadyTaken(digest, done))
            return moves.MovedSession(self._id, done, was_done=True)
        mark = mark_of(row) if row is not None else MoveMark()
        self._done = await self._find_place(row)
        own = await identity(journal) or ""
        if mark.journal != own:  # the move was accepted in another journal, which may go on with it
            mark = replace(mark, taking="", journal=own)
        self._note = replace(mark, taking=mark.taking or token_hex(16), source=offer.giver)
        self._held = await (
            self._create() if row is None else take_lease(journal, self._id, yields=True)
        )
        try:
            now = await journal.session(self._id)
            if row is not None and (now.moved, now.last_seq) != (row.moved, row.last_seq):
                raise MoveRefusedError(
                    "another move of this session was in progress; run the same command again"
                )
            if not mark.to:
                await self._change(moved=mark_text(self._note))
            first, last = await self._first_frame()
            await self._receive(first, last)
            if self._kept is not None:
                await journal.snapshots.keep(self._id, [self._kept])
            await self._keep_earlier(row)
            if (await journal.summary(self._id)).queue.waiting:
                # They would begin by themselves here.
                raise MoveRefusedError("this session has queued prompts")
            await self._line.send(moves.TakerReady())
            entry = (await self._line.receive(moves.Marked)).entry
            move_id = string(members(entry.raw).get("id")) if entry.kind == MOVED else None
            if move_id != self._note.taking or entry.seq != offer.last + 1:
                raise MoveRefusedError("the other machine sent the mark of another move")
            await self._finish(entry, row)
        finally:
            await journal.release(self._lease)
        await self._line.send(self._done)
        why_none = "" if self._place.with_files else "you did not ask for them"
        if offer.files is None:
            why_none = why_none or offer.no_files
        return moves.moved(offer, self._done, why_none)

    async def _first_frame(self) -> tuple[_Sent, int]:
        """Tell the giver what is here, and which files are wanted: those of the end, and the
        earlier snapshots that are not here. Return the first frame of the rest, and the last entry
        here.

        If that part is not of the giver's conversation, the giver asks to begin again. A part that
        somebody may have continued is never dropped.
        """
        trees = [*dict.fromkeys(it.tree for it in self._offer.earlier if it.tree)]
        if trees and self._has_files():
            known = await Threads(1).run(here, await self._store(), trees)
            self._wanted = [tree for tree in trees if tree not in known]
        files, done = self._offer.files, self._done
        base = ""  # the commit whose files are here already
        if files is not None and done.files and not self._is_laid:
            self._wants_files = True
            if done.project and files.commit is not None:
                store = await self._store()
                if await Threads(1).run(has_base, store, done.project, files.commit):
                    base = files.commit
        earlier = tuple(self._wanted)
        while True:
            last = self._lease.next_seq - 1
            digest = await moves.digest_of(self._journal, self._id, last)
            is_new = last > 0 and not self._note.to
            wants, taking = self._wants_files, self._note.taking
            await self._line.send(moves.Have(last, digest, taking, is_new, wants, base, earlier))
            # Making the pack takes a while.
            frame: _Sent = await self._line.receive(
                *get_args(_Sent), seconds=bounds.MOVE_WORK_SECONDS
            )
            if not isinstance(frame, moves.Again) or not is_new:
                return frame, last
            await self._journal.delete(self._lease)
            self._held = await self._create()
            await self._change(moved=mark_text(self._note))

    async def _change(self, *, moved: str, cwd: str | UnsetType = UNSET) -> None:
        await self._journal.change(self._lease, RowChange(cwd=cwd, moved=moved))

    async def _create(self) -> Lease:
        session = self._offer.session
        new = NewSession(
            session.session_id, session.agent, self._done.cwd, created_at=session.created_at
        )
        return await self._journal.create(new, yields=True)

    # -- its place here ----------------------------------------------------------------------

    async def _find_place(self, row: SessionRow | None) -> moves.Done:
        """Return the place of the session here; raises MoveRefusedError if none is known."""
        offer, place = self._offer, self._place
        done = None
        if place.with_files and offer.files is not None and row is not None:
            mark, tree = mark_of(row), offer.files.tree
            is_laid = mark.laid != "" and await Threads(1).run(isdir, row.cwd)
            if is_laid:  # by a move that was cut off: the journal says if it was these files
                rows = await self._journal.snapshots.of(row.session_id)
                if any((it.tree, it.root) == (tree, mark.laid) for it in rows):
                    done = moves.Done(row.cwd, mark.laid)
            is_named = place.cwd is not None or place.files is not None
            if done is None and mark.to and not is_named:
                # The folder that the session had left, if it still has these files.
                stores = await stores_of(self._journal)
                self._kept = await Threads(1).run(
                    still_there, offer, row.cwd, stores, self._surroundings
                )
                if self._kept is not None:
                    done = moves.Done(row.cwd, is_same=True)
            self._is_laid = done is not None
        if place.with_files and offer.files is not None:
            await remove_remains(self._journal)
        known = await recent_folders(self._journal)
        return await Threads(1).run(place_of, offer, place, known, done)

    # -- what comes -------------------------------------------------------------------------

    async def _receive(self, frame: _Sent, last: int) -> None:
        """Keep the files that arrive, append the entries after them, and lay the files out."""
        store = await self._store() if self._wants_files or self._wanted else None
        with ExitStack() as open_files:
            pack = None
            if store is not None:
                try:
                    pack = open_files.enter_context(pack_file(store))
                except OSError as error:
                    raise _not_kept(error) from error
            size = 0
            while isinstance(frame, moves.PackPiece):
                size += len(frame.data)
                if pack is None or size > PACK_LIMITS.pack:
                    raise MoveRefusedError("the files are too large")
                try:
                    pack.write(frame.data)
                except OSError as error:
                    raise _not_kept(error) from error
                frame = await self._line.receive(*get_args(_Sent))
            if self._note.to:  # not before: one that is refused can still go on to where it went
                await self._change(moved=mark_text(self._note))
            await self._append(frame, last)
            if store is None or pack is None or self._offer.files is None:
                return
            try:
                await Threads(1).run(unpack, store, self._offer.files.tree, pack)
            except WorkspaceError as error:
                raise MoveRefusedError(str(error)) from error
            if self._wants_files:
                await self._lay(store, self._offer.files)

    async def _append(self, frame: _Sent, last: int) -> None:
        """Append the entries that arrive, and compare them with the giver's."""
        after, size = last, 0
        while isinstance(frame, moves.EntryPiece):
            past: list[PastEntry] = []
            for entry in frame.entries:
                size += len(entry.raw)
                if not last < entry.seq <= self._offer.last or size > bounds.MOVED_ENTRIES_BYTES:
                    raise MoveRefusedError(
                        "the other machine sent entries out of order, or too large"
                    )
                past.append(moves.past_entry(entry))
                last = entry.seq
            if past:
                await self._journal.take_in(self._lease, past)
            frame = await self._line.receive(moves.EntryPiece, moves.EndOfEntries)
        if not isinstance(frame, moves.EndOfEntries):
            raise MoveRefusedError("the other machine sent something unexpected")
        digest = sha256()
        async for piece in moves.pieces(self._journal, self._id, after, self._offer.last):
            for entry in piece:
                moves.add_to(digest, entry)
        if last != self._offer.last or digest.hexdigest() != frame.digest:
            raise MoveRefusedError("the entries arrived damaged; nothing was moved")

    async def _lay(self, store: SnapshotStore, files: TurnSnapshot) -> None:
        """Lay the files out, and note them with the session."""
        done = self._done
        with ExitStack() as until:
            try:
                work = partial(
                    lay,
                    *(store, files.tree, done.files),
                    project=done.project,
                    commit=files.commit,
                    until=until,
                )
                laid = await Threads(1).run_in_steps(lambda checkpoint: work(checkpoint=checkpoint))
                try:
                    done = replace(done, cwd=make_inside(done.files, done.cwd))
                    note_unused(laid)
                except OSError:
                    await Threads(1).run(unlay, laid, done.project)
                    raise
            except WorkspaceError as error:
                raise MoveRefusedError(str(error)) from error
            except OSError as error:
                raise MoveRefusedError(f"{done.cwd!r}: {error.strerror}") from error
            self._done = replace(done, why_plain=laid.why_plain)
            snapshot = last_snapshot(files, store.id, done.files)
            await self._journal.snapshots.keep(self._id, [snapshot])
            note = replace(self._note, laid=snapshot.root)
            await self._change(cwd=done.cwd, moved=mark_text(note))
        store.was_named(files.tree)

    def _has_files(self) -> bool:
        """True if the last files are here, or will be."""
        return self._offer.files is not None and (self._done.files != "" or self._done.is_same)

    async def _keep_earlier(self, before: SessionRow | None) -> None:
        """Note the earlier snapshots with the session; one that did not arrive says why. Those that
        the session has here stay where they were taken."""
        if not self._has_files():
            return
        top = self._kept.root if self._kept else resolve_folder(self._done.files)
        own = await self._journal.snapshots.of(self._id)
        if before is not None and before.cwd != self._done.cwd:
            former = resolve_folder(before.cwd)
            left = [replace(it, cwd=former) for it in own if not it.cwd and it.root != top]
            await self._journal.snapshots.keep(self._id, left)
        # The last one is in its new place alone.
        now = {(it.turn, it.edge, it.tree) for it in own if it.root == top}
        again = [it for it in own if it.root != top and (it.turn, it.edge, it.tree) in now]
        await self._journal.snapshots.drop(self._id, again)
        if not self._offer.earlier:
            return
        store = await self._store()
        trees = [*dict.fromkeys(it.tree for it in self._offer.earlier if it.tree)]
        arrived = await Threads(1).run(whole, store, trees)
        known = {(it.turn, it.edge) for it in own}
        rows = [
            earlier_snapshot(it, store.id, top, is_here=it.tree in arrived)
            for it in self._offer.earlier
            if (it.turn, it.edge) not in known
        ]
        await self._journal.snapshots.keep(self._id, rows)
        for tree in arrived:
            store.was_named(tree)

    async def _store(self) -> SnapshotStore:
        """The store of the files: that of the project, or of a folder of their own."""
        if self._kept is not None:
            found = (await stores_of(self._journal)).find(self._kept.store)
            if found is not None:
                return found
        checkout = checkout_of(self._done.project) if self._done.project else None
        name = checkout.common if checkout else self._done.files
        stores = await stores_of(self._journal)
        try:
            return await Threads(1).run(
                stores.of, name, time.monotonic() + bounds.STORE_SEARCH_SECONDS
            )
        except (OSError, TimeoutError) as error:
            raise _not_kept(error) from error

    async def _finish(self, entry: Entry, row: SessionRow | None) -> None:
        """Append the mark: from then on the session is this machine's."""
        session = self._offer.session
        title = session.title and session.title[: moves.NAME_LETTERS]
        if row is not None and row.downstream_id is not None:
            # Its agent here knows the part up to an earlier move: it is handed the whole one.
            await self._journal.links.link(self._lease, session.agent, f"moved-{mark_of(row).id}")
        change = RowChange(
            agent=session.agent,
            cwd=self._done.cwd,
            additional_directories=(),
            title=UNSET if session.renamed else title,
            given=title if session.renamed else UNSET,
            created_at=session.created_at,
            updated_at=max(session.updated_at, entry.at),
            origins=session.origins,
            archived=session.archived,
            prompted=True,
            start=None,
            moved="",
        )
        await self._journal.take_in(self._lease, [moves.past_entry(entry)], change)


def _not_kept(error: OSError) -> MoveRefusedError:
    return MoveRefusedError(f"cannot store the files: {error.strerror or error}")
