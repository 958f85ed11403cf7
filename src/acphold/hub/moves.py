"""A session moves to another machine: its conversation, and the files of its last turn.

At each moment at most one machine can continue it. The last entry that both have decides which
one, never a time or a path: entries are only appended, and the last one of a move is its mark.

    giver                                 taker
    ------------------------------------  ----------------------------------------------------
    the session is here                   nothing, or the part up to an earlier move's mark
                                      1   notes that it is taking it, in the move with a new id
    sends files and entries               checks them, appends the entries, lays out the files
                                      2   has all but the mark, and says so
    appends the mark and notes where  3
    the session went: in one commit
    sends the mark                        appends it and forgets that it is taking: in one commit
                                      4   the session is here

Before 3 the giver continues it, after 4 the taker, between them nobody. A connection may break at
any point; the same move, started again from either machine, goes on:

    broken before 3   the taker keeps its part, and is sent the rest; the giver may have gone on
    between 3 and 4   the taker, known by the id of the move, is sent the rest with the mark
    behind 4          the taker says that it has the session, maybe with more entries

A taker whose part is no beginning of the giver's session refuses; nothing is merged. If files or
entries are not well-formed, the move ends before 3.

What does not travel: rules, tokens, users, other sessions, how the agent is started and in which
mode, the agent's own store, ignored files. So the agent there is given the conversation, as if it
had lost it; behind the mark the taker notes that it has no modes and options yet.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from os.path import isdir
from pathlib import PurePath
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from acphold.errors import (
    AcpholdError,
    ConnectionLostError,
    LeaseLostError,
    MoveRefusedError,
    UnknownSessionError,
    WorkspaceError,
)
from acphold.history.entries import (
    ANSWER,
    AUTHOR,
    MOVED,
    PROMPT,
    QUESTION,
    SENT,
    SETTINGS,
    TURN_END,
    Entry,
    PastEntry,
)
from acphold.history.raw_update import members, string
from acphold.hub.kept_files import snapshot_at, stores_of
from acphold.hub.move_frames import (
    VERSION,
    WORK_SECONDS,
    Again,
    AlreadyTaken,
    Ask,
    Done,
    EndOfEntries,
    EntryPiece,
    Have,
    Marked,
    MoveLine,
    PackPiece,
    Ready,
    SentEntry,
    SentFiles,
    SentSession,
    SessionOffer,
)
from acphold.hub.move_places import WantedPlace, known_folders, place_of
from acphold.journal import (
    Journal,
    Lease,
    NewSession,
    RowChange,
    SessionRow,
    history,
)
from acphold.journal.copies import PIECE_BYTES
from acphold.journal.identity import identity
from acphold.journal.location import resolved_folder
from acphold.journal.moves import MoveMark, mark_of, mark_text, refuse_moved
from acphold.journal.owners import is_free, refuse_held
from acphold.journal.snapshots import MOST_LEFT_OUT, TurnSnapshot
from acphold.rpc.transport import Transport
from acphold.snapshots.checkouts import COMMIT, Checkout, checkout_of
from acphold.snapshots.packs import PACK_BOUNDS, has_base, packed, unpack
from acphold.snapshots.projects import ProjectMarks, marks
from acphold.snapshots.store import SnapshotStore
from acphold.snapshots.worktree import lay, made_in, unlay
from acphold.workspace.threads import Threads

if TYPE_CHECKING:
    from hashlib import _Hash

T = TypeVar("T")

NUMBERS: Final = 1 << 31
"""Highest entry number that is accepted."""

ENTRY_BYTES: Final = 2 << 30
"""Most bytes of entries that are accepted in one move."""

NAME_LETTERS: Final = 200
"""Most letters of an id, a kind or the name of an agent that are accepted."""

PACK_PIECE: Final = 256 << 10
"""Bytes of files in one frame."""


STORE_SECONDS: Final = 60.0
"""Seconds that finding the store of a project may take."""

NO_COMMIT: Final = "0" * 40


class MovedSession(Struct, frozen=True):
    """A session that is the taker's now: its place there. `no_files` says why its files are not
    there; `left_out` of them were never kept, the first with `left_out_names`."""

    session_id: str
    done: Done
    no_files: str = ""
    left_out: int = 0
    left_out_names: tuple[str, ...] = ()
    was_done: bool = False


# -- the giver ---------------------------------------------------------------------------------


async def give(
    journal: Journal,
    transport: Transport,
    session_id: str,
    to: str = "",
    *,
    giver: str = "",
    why_no_files: str = "",
) -> MovedSession:
    """Give a session to the taker at the other end, which this machine calls `to`, by default as
    the taker calls itself.

    With `why_no_files` its files stay here, and a taker that wants them is refused for that reason.
    Raises MoveRefusedError, HeldElsewhereError if a process has it open, and ConnectionLostError:
    then the same move can be started again.
    """
    line = MoveLine(transport)
    async with _telling(line):
        row = await journal.session(session_id)
        if mark_of(row).taking:
            refuse_moved(row)
        asked = await line.receive(Ask)
        if asked.version != VERSION:
            raise MoveRefusedError(
                "the two machines have releases of acphold that do not fit; update both"
            )
        if asked.journal is not None and asked.journal == await identity(journal):
            raise MoveRefusedError("both machines use the same journal: resume the session there")
        to = to or asked.name
        if not _is_name(to):
            raise MoveRefusedError("the other machine does not say what it is called")
        lease = await _leased(journal, session_id)
        try:
            return await _give(
                journal, line, lease, to, giver or socket.gethostname(), why_no_files
            )
        finally:
            await journal.release(lease)


async def _give(
    journal: Journal, line: MoveLine, lease: Lease, to: str, giver: str, why_no_files: str
) -> MovedSession:
    await journal.settle(lease, lease.next_seq - 1)
    row = await journal.session(lease.session_id)
    mark = mark_of(row)
    if mark.taking:  # since the lease
        refuse_moved(row)
    if row.queued:
        raise MoveRefusedError(
            "prompts wait in this session; `acphold queue` sends or removes them first"
        )
    if not row.prompted or row.is_unread:
        raise MoveRefusedError("nothing was said in this session yet")
    last = row.last_seq - 1 if mark.id else row.last_seq
    checkout = await _in_thread(partial(checkout_of, row.cwd))
    found, no_files = await _snapshot(journal, row)
    is_withheld = found is not None and bool(why_no_files)
    if is_withheld:
        found, no_files = None, why_no_files
    offer = await _offer(row, last, mark.id, giver, checkout, found, no_files)
    await line.send(msgspec.structs.replace(offer, is_withheld=is_withheld))
    have = await line.receive(Have, AlreadyTaken)
    if isinstance(have, AlreadyTaken):
        if not mark.id or have.digest != await _digest(journal, row.session_id, row.last_seq):
            raise MoveRefusedError("the other machine has another conversation with this id")
        return MovedSession(row.session_id, have.done, was_done=True)
    if mark.id and mark.id != have.taking:
        raise MoveRefusedError(
            f"it went to {mark.to} in another move; `acphold fork` makes a copy to continue here"
        )
    if have.last > last or have.digest != await _digest(journal, row.session_id, have.last):
        if not have.is_new:
            raise MoveRefusedError("the conversation there is a different one; nothing is merged")
        await line.send(Again())
        have = await line.receive(Have)
    if have.wants_files and found is not None:
        store = (await stores_of(journal)).find(found.store)
        if store is None:
            raise MoveRefusedError("the files of this session are not on this machine")
        work = partial(packed, store, found.tree, project=found.root, base=have.base)
        pack = await _in_thread(work)
        for start in range(0, len(pack), PACK_PIECE):
            await line.send(PackPiece(pack[start : start + PACK_PIECE]))
        await line.send(PackPiece(b""))
    digest = sha256()
    async for piece in _pieces(journal, row.session_id, have.last, last):
        await line.send(EntryPiece(piece))
        for entry in piece:
            _add(digest, entry)
    await line.send(EndOfEntries(digest.hexdigest()))
    await line.receive(Ready, seconds=WORK_SECONDS)
    if not mark.id:
        where = MoveMark(to=to, id=have.taking)
        change = RowChange(moved=mark_text(where))
        await journal.append(lease, [(MOVED, [_mark_entry(where, giver)])], change)
        await journal.settle(lease, last + 1)
    async for piece in _pieces(journal, row.session_id, last, last + 1):
        await line.send(Marked(piece[0]))
    try:
        done = await line.receive(Done)
    except MoveRefusedError as error:
        raise ConnectionLostError(f"{error}; the session has left this machine") from error
    left_out = () if found is None else tuple(path for path, _ in found.left_out[:3])
    count = 0 if found is None else found.left_out_count
    return MovedSession(row.session_id, done, no_files, count, left_out)


async def _leased(journal: Journal, session_id: str) -> Lease:
    """Own a session for a while; anybody may take it over, and then it is not marked.

    Raises HeldElsewhereError if a process has it.
    """
    whose = await journal.owner(session_id)
    if not is_free(whose):
        refuse_held(session_id, whose)
    return await journal.acquire(session_id, whose.epoch, yields=True)


async def _snapshot(journal: Journal, row: SessionRow) -> tuple[TurnSnapshot | None, str]:
    """The files at the end of the last turn; None, and why, if they are not here."""
    try:
        found = await snapshot_at(journal, row, None)
    except WorkspaceError as error:
        return None, str(error)
    if (await stores_of(journal)).find(found.store) is None:
        return None, "the files of this session are not on this machine"
    return found, ""


async def _offer(
    row: SessionRow,
    last: int,
    move: str,
    giver: str,
    checkout: Checkout | None,
    found: TurnSnapshot | None,
    no_files: str,
) -> SessionOffer:
    top = found.root if found else checkout.top if checkout else ""
    its_marks = ProjectMarks()
    if checkout is not None:
        its_marks = await _in_thread(partial(marks, checkout))
    below = ""
    if top:
        with suppress(ValueError):
            below = str(PurePath(resolved_folder(row.cwd)).relative_to(top))
    session = SentSession(**{name: getattr(row, name) for name in SentSession.__struct_fields__})
    files = None
    if found is not None:
        facts = {name: getattr(found, name) for name in SentFiles.__struct_fields__}
        files = SentFiles(**facts)
    return SessionOffer(
        session, last, move, giver, os.path.basename(top), below, its_marks, files, no_files
    )


def _mark_entry(where: MoveMark, giver: str) -> bytes:
    """The entry that is the mark of a move."""
    return msgspec.json.encode({"id": where.id, "from": giver, "to": where.to})


async def _pieces(
    journal: Journal, session_id: str, after: int, through: int
) -> AsyncIterator[list[SentEntry]]:
    """Yield the entries above `after` in pieces of PIECE_BYTES."""
    piece: list[SentEntry] = []
    size = 0
    async for segment in history(journal, session_id, after, through):
        for entry in segment.entries():
            if entry.seq > after:
                piece.append(SentEntry(entry.seq, entry.kind, entry.at, entry.raw))
                size += len(entry.raw)
            if size > PIECE_BYTES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _add(digest: _Hash, entry: SentEntry | Entry) -> None:
    digest.update(b"%d %b %d\0%b\0" % (entry.seq, entry.kind.encode(), entry.at, entry.raw))


_FIXED: Final = (PROMPT, AUTHOR, SENT, QUESTION, ANSWER, MOVED)
"""Kinds of entries that never change, however often a session is put in order."""


async def _digest(journal: Journal, session_id: str, through: int) -> str:
    """Return the digest of the beginning of a session, by entries that putting a session in order
    does not change: other ones may become void later."""
    digest = sha256()
    async for segment in history(journal, session_id, 0, through):
        for entry in segment.entries():
            if entry.seq <= through and entry.kind in _FIXED:
                _add(digest, entry)
            elif entry.seq <= through and entry.kind == TURN_END:
                digest.update(b"%d %d\0" % (entry.seq, entry.at))
    return digest.hexdigest()


def _move_of(entry: SentEntry | Entry) -> str:
    """The id of the move that an entry is the mark of; "" for other entries."""
    return string(members(entry.raw).get("id")) or "" if entry.kind == MOVED else ""


# -- the taker ---------------------------------------------------------------------------------


async def take(journal: Journal, transport: Transport, place: WantedPlace) -> MovedSession:
    """Take the session that the giver at the other end offers.

    Raises MoveRefusedError, HeldElsewhereError if a process has it open, and ConnectionLostError:
    then the same move can be started again.
    """
    line = MoveLine(transport)
    async with _telling(line):
        await line.send(Ask(VERSION, await identity(journal), socket.gethostname()))
        offer = await line.receive(SessionOffer)
        _require_fit(offer)
        if offer.is_withheld and place.with_files:
            raise MoveRefusedError(offer.no_files)
        return await _Taking(journal, line, offer, place).take()


class _Taking:
    """One session that is being taken."""

    def __init__(
        self, journal: Journal, line: MoveLine, offer: SessionOffer, place: WantedPlace
    ) -> None:
        self._journal = journal
        self._line = line
        self._offer = offer
        self._place = place
        self._id = offer.session.session_id
        self._done = Done("")
        self._is_laid = False
        self._note = MoveMark()

    async def take(self) -> MovedSession:
        journal, offer = self._journal, self._offer
        row: SessionRow | None = None
        with suppress(UnknownSessionError):
            row = await journal.session(self._id)
        is_begun = row is not None and (row.prompted or row.last_seq > 0)
        if row is not None and is_begun and not row.moved:
            return await self._finished(row)
        mark = mark_of(row) if row is not None else MoveMark()
        self._done = await self._placed(row)
        taking = mark.taking or token_hex(16)
        lease = await (self._created() if row is None else _leased(journal, self._id))
        try:
            now = await journal.session(self._id)
            if row is not None and (now.moved, now.last_seq) != (row.moved, row.last_seq):
                raise MoveRefusedError(
                    "another move of this session was under way; start the same command again"
                )
            self._note = msgspec.structs.replace(mark, taking=taking, source=offer.giver)
            if not mark.to:
                await journal.change(lease, RowChange(moved=mark_text(self._note)))
            wants_files, base = await self._wanted_files()
            while True:
                last = lease.next_seq - 1
                digest = await _digest(journal, self._id, last)
                is_new = last > 0 and not mark.to
                have = Have(last, digest, taking, is_new, wants_files, base)
                await self._line.send(have)
                # Making the pack takes a while.
                first = await self._line.receive(
                    Again, PackPiece, EntryPiece, EndOfEntries, seconds=WORK_SECONDS
                )
                if not isinstance(first, Again) or not is_new:
                    break
                await journal.delete(lease)  # a part that nobody has continued
                lease = await self._created()
                await journal.change(lease, RowChange(moved=mark_text(self._note)))
            pack = bytearray()
            while isinstance(first, PackPiece):
                pack += first.data
                if len(pack) > PACK_BOUNDS.pack:
                    raise MoveRefusedError("the files are too large")
                first = await self._line.receive(Again, PackPiece, EntryPiece, EndOfEntries)
            if mark.to:  # not before: one that is refused can still go on to where it went
                await journal.change(lease, RowChange(moved=mark_text(self._note)))
            await self._append(lease, first, last)
            if wants_files:
                await self._lay(lease, bytes(pack))
            await self._require_nothing_waits()
            await self._line.send(Ready())
            entry = (await self._line.receive(Marked)).entry
            if _move_of(entry) != taking or entry.seq != offer.last + 1:
                raise MoveRefusedError("the other machine sent the mark of another move")
            await self._finish(lease, entry, row)
        finally:
            await journal.release(lease)
        await self._line.send(self._done)
        return self._told()

    async def _finished(self, row: SessionRow) -> MovedSession:
        """Answer a giver whose session is here already; refuse if it is this machine's own."""
        offer = self._offer
        through = offer.last + 1
        if not offer.move or row.last_seq < through:
            raise MoveRefusedError(
                "this session can be continued on both machines, because a journal was copied; "
                "`acphold delete` one of the two first"
            )
        done = Done(row.cwd)
        await self._line.send(AlreadyTaken(await _digest(self._journal, self._id, through), done))
        return MovedSession(self._id, done, was_done=True)

    async def _created(self) -> Lease:
        session = self._offer.session
        new = NewSession(
            session.session_id, session.agent, self._done.cwd, created_at=session.created_at
        )
        return await self._journal.create(new, yields=True)

    def _told(self) -> MovedSession:
        files = self._offer.files
        wanted = "" if self._place.with_files else "they were not asked for"
        if files is None:
            return MovedSession(self._id, self._done, wanted or self._offer.no_files)
        names = tuple(path for path, _ in files.left_out[:3])
        return MovedSession(self._id, self._done, wanted, files.left_out_count, names)

    # -- its place here ----------------------------------------------------------------------

    async def _placed(self, row: SessionRow | None) -> Done:
        """Return the place of the session here; raises MoveRefusedError if none is known."""
        offer, place = self._offer, self._place
        done = None
        if place.with_files and offer.files is not None:
            done = await self._laid_before(row, offer.files.tree)
            self._is_laid = done is not None
        known = await known_folders(self._journal)
        return await _in_thread(partial(place_of, offer, place, known, done))

    async def _laid_before(self, row: SessionRow | None, tree: str) -> Done | None:
        """The place of these files, if a move that was cut off has laid them out."""
        laid = "" if row is None else mark_of(row).laid
        if row is None or not laid or not await _in_thread(partial(isdir, row.cwd)):
            return None
        rows = await self._journal.snapshots.of(row.session_id)
        is_same = any((one.tree, one.root) == (tree, laid) for one in rows)
        return Done(row.cwd, laid) if is_same else None

    async def _wanted_files(self) -> tuple[bool, str]:
        """Return True if the files are to be sent, and the commit whose files are here already."""
        files, done = self._offer.files, self._done
        if files is None or not done.files or self._is_laid:
            return False, ""
        if not done.project or files.commit is None:
            return True, ""
        store = await self._store()
        is_here = await _in_thread(partial(has_base, store, done.project, files.commit))
        return True, files.commit if is_here else ""

    # -- what comes -------------------------------------------------------------------------

    async def _append(
        self, lease: Lease, first: EntryPiece | EndOfEntries | PackPiece | Again, last: int
    ) -> None:
        """Append the entries that come, and compare them with the giver's."""
        after, size = last, 0
        frame = first
        while isinstance(frame, EntryPiece):
            past: list[PastEntry] = []
            for entry in frame.entries:
                size += len(entry.raw)
                if not last < entry.seq <= self._offer.last or size > ENTRY_BYTES:
                    raise MoveRefusedError(
                        "the other machine sent entries out of order, or too large"
                    )
                past.append(_past(entry))
                last = entry.seq
            if past:
                await self._journal.take_in(lease, past)
            frame = await self._line.receive(EntryPiece, EndOfEntries)
        if not isinstance(frame, EndOfEntries):
            raise MoveRefusedError("the other machine sent something unexpected")
        digest = sha256()
        async for piece in _pieces(self._journal, self._id, after, self._offer.last):
            for entry in piece:
                _add(digest, entry)
        if last != self._offer.last or digest.hexdigest() != frame.digest:
            raise MoveRefusedError(
                "the entries did not arrive as they were sent; nothing has moved"
            )

    async def _lay(self, lease: Lease, pack: bytes) -> None:
        """Check the files, lay them out, and note them with the session."""
        files, done = self._offer.files, self._done
        assert files is not None
        store = await self._store()
        try:
            await _in_thread(partial(unpack, store, files.tree, pack))
            work = partial(
                lay, store, files.tree, done.files, project=done.project, commit=files.commit
            )
            laid = await Threads(1).run(lambda checkpoint: work(checkpoint=checkpoint))
            try:
                done = msgspec.structs.replace(done, cwd=made_in(done.files, done.cwd))
            except OSError:
                await _in_thread(partial(unlay, laid, done.project))
                raise
        except WorkspaceError as error:
            raise MoveRefusedError(str(error)) from error
        except OSError as error:
            raise MoveRefusedError(f"{done.cwd!r}: {error.strerror}") from error
        self._done = msgspec.structs.replace(done, why_plain=laid.why_plain)
        snapshot = TurnSnapshot(
            turn=files.turn,
            edge="end",
            root=resolved_folder(done.files),
            at=files.at,
            state="whole",
            store=store.id,
            tree=files.tree,
            commit=files.commit,
            branch=files.branch[:NAME_LETTERS],
            left_out=files.left_out[:MOST_LEFT_OUT],
            left_out_count=files.left_out_count,
        )
        await self._journal.snapshots.keep(self._id, [snapshot])
        note = msgspec.structs.replace(self._note, laid=snapshot.root)
        await self._journal.change(lease, RowChange(cwd=done.cwd, moved=mark_text(note)))
        store.was_named(files.tree)

    async def _store(self) -> SnapshotStore:
        """The store of the files: that of the project, or of a folder of their own."""
        checkout = checkout_of(self._done.project) if self._done.project else None
        name = checkout.common if checkout else self._done.files
        stores = await stores_of(self._journal)
        try:
            return await _in_thread(partial(stores.of, name, time.monotonic() + STORE_SECONDS))
        except (OSError, TimeoutError) as error:
            raise MoveRefusedError(f"the files cannot be kept: {error}") from error

    async def _require_nothing_waits(self) -> None:
        """Raise MoveRefusedError if prompts wait in what was sent: they would go on by themselves
        here."""
        if (await self._journal.summary(self._id)).queue.waiting:
            raise MoveRefusedError("prompts wait in this session")

    async def _finish(self, lease: Lease, entry: SentEntry, row: SessionRow | None) -> None:
        """Append the mark: from then on the session is this machine's."""
        session = self._offer.session
        if row is not None and row.downstream_id is not None:
            # Its agent here knows the part up to an earlier move: it is handed the whole one.
            await self._journal.links.link(lease, session.agent, f"moved-{mark_of(row).id}")
        change = RowChange(
            agent=session.agent,
            cwd=self._done.cwd,
            additional_directories=(),
            title=UNSET if session.renamed else session.title,
            given=session.title if session.renamed else UNSET,
            created_at=session.created_at,
            updated_at=max(session.updated_at, entry.at),
            origins=session.origins,
            archived=session.archived,
            prompted=True,
            start=None,
            moved="",
        )
        # The modes there may allow more than the person allows here.
        own = PastEntry(SETTINGS, entry.at, b'{"anew":true}')
        await self._journal.take_in(lease, [_past(entry), own], change)


def _past(entry: SentEntry) -> PastEntry:
    """Return an entry as the journal takes it in; raises MoveRefusedError unless it is one."""
    kind, raw = entry.kind, entry.raw
    is_json = not raw
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        raw.decode()
        is_json = is_json or (b"\n" not in raw and msgspec.json.decode(raw, type=Raw) is not None)
    if not is_json or not _is_name(kind) or not 0 <= entry.at < 1 << 53:
        raise MoveRefusedError("the other machine sent an invalid entry")
    return PastEntry(kind, entry.at, raw, entry.seq)


def _require_fit(offer: SessionOffer) -> None:
    """Raise MoveRefusedError for an offer that no giver makes."""
    session, files = offer.session, offer.files
    names = [session.session_id, session.agent, *([offer.move] if offer.move else [])]
    times = (session.created_at, session.updated_at)
    below = PurePath(offer.below)
    if (
        not all(map(_is_name, names))
        or not 0 < offer.last < NUMBERS
        or not all(0 <= time < 1 << 53 for time in times)
        or below.is_absolute()
        or ".." in below.parts
        or "\0" in offer.below + session.cwd
        or (files is not None and not 0 <= files.turn <= offer.last)
        or (files is not None and not COMMIT.fullmatch(files.commit or NO_COMMIT))
    ):
        raise MoveRefusedError("the other machine offers an invalid session")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LETTERS and text.isprintable()


# -- both ------------------------------------------------------------------------------------


async def _in_thread(work: Callable[[], T]) -> T:
    """Return the result of work that blocks; a cancelled move does not wait for it."""
    return await Threads(1).run(lambda _: work())


@asynccontextmanager
async def _telling(line: MoveLine) -> AsyncIterator[None]:
    """Tell the other side of an error of this one that ends the move."""
    try:
        yield
    except ConnectionLostError:
        raise
    except LeaseLostError as error:
        why = "somebody has opened the session meanwhile; nothing has moved"
        await line.refuse(why)
        raise MoveRefusedError(why) from error
    except AcpholdError as error:
        await line.refuse(str(error))
        raise
