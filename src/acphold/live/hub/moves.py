"""A session moves to another machine: its conversation, and the files that were kept with it. Those
of the last turn are laid out there.

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
    after 4           the taker says that it has the session, maybe with more entries

A taker whose part is no beginning of the giver's session refuses; nothing is merged. If files or
entries are not well-formed, the move ends before 3.

What does not travel: rules, tokens, users, other sessions, how the agent is started and in which
mode, the agent's own store, ignored files. So the agent there is given the conversation, as if it
had lost it; after the mark the taker notes that it has no modes and options yet.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from acp_wire.rpc import Transport
from acp_wire.rpc.framing import LineBuffer, Oversize
from acp_wire.schema.splice import UNREADABLE
from acp_wire.tasks import timeout
from acphold import errors
from acphold.conversation.history import entries
from acphold.conversation.history.entries import Entry, Origin, PastEntry
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Journal, history
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub import bounds
from acphold.safety.snapshots.checkouts import COMMIT, ProjectMarks
from acphold.safety.snapshots.packs import OBJECT

if TYPE_CHECKING:
    from hashlib import _Hash


VERSION: Final = 1
"""The version of these frames."""


NAME_LETTERS: Final = 200
"""Most letters of an id, a kind or the name of an agent that are accepted."""


NUMBERS: Final = 1 << 31
"""Highest entry number that is accepted."""


class SentSession(Struct, frozen=True):
    """The facts of a session that travel: neither tokens nor rules, nor how its agent starts."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    created_at: int
    updated_at: int
    renamed: bool
    archived: bool
    origins: tuple[Origin, ...] = ()


class Ask(Struct, frozen=True, tag="ask"):
    """The taker begins: the identity of its journal, so that it is not the same one, and the name
    of its machine."""

    version: int
    journal: str | None
    name: str = ""


class SessionOffer(Struct, frozen=True, tag="offer"):
    """The giver's session, whose last entry is `last`; with `move`, the next one is the mark of
    that move. `below` is the session's folder within its repository, which `marks` identify.
    `files` is the snapshot of the last turn, `no_files` the reason for having none; `is_withheld`
    if this taker may not have them. `earlier` are those of the same project before it, oldest
    first. Their `cwd` is within the repository, and `root` is "": the other machine has places of
    its own."""

    session: SentSession
    last: int
    move: str
    giver: str
    project: str
    below: str
    marks: ProjectMarks
    files: TurnSnapshot | None
    no_files: str
    is_withheld: bool = False
    earlier: tuple[TurnSnapshot, ...] = ()


class Have(Struct, frozen=True, tag="have"):
    """The taker has the entries up to `last`, with this digest, for the move `taking`. It wants the
    files, without those of the commit `base`, and those of the `earlier` snapshots with these ids:
    it has all others. With `is_new` it can begin again."""

    last: Annotated[int, Meta(ge=0)]
    digest: str
    taking: str
    is_new: bool
    wants_files: bool = False
    base: str = ""
    earlier: tuple[str, ...] = ()


class AlreadyTaken(Struct, frozen=True, tag="finished"):
    """The taker has it all, and has continued it since; the digest is that of the giver's part."""

    digest: str
    done: Done


class Again(Struct, frozen=True, tag="again"):
    """The taker is to begin again."""


class PackPiece(Struct, frozen=True, tag="pack"):
    """A piece of the files; an empty one ends them."""

    data: bytes


class EntryPiece(Struct, frozen=True, tag="entries"):
    """Some entries."""

    entries: list[Entry]


class EndOfEntries(Struct, frozen=True, tag="end"):
    """All entries were sent; the digest is of all their bytes."""

    digest: str


class TakerReady(Struct, frozen=True, tag="ready"):
    """The taker has all of it but the mark."""


class Marked(Struct, frozen=True, tag="marked"):
    """The giver has marked its session: with this entry it is the taker's."""

    entry: Entry


class Done(Struct, frozen=True, tag="done"):
    """The taker has the session, in the folder `cwd`. `files` is the folder of its files, "" for
    none: a work tree of the clone `project`, or a plain folder for the reason `why_plain`. With
    `is_same` the folder that the session had left still had these files."""

    cwd: str
    files: str = ""
    why_plain: str = ""
    project: str = ""
    is_same: bool = False


class MoveRefused(Struct, frozen=True, tag="refused"):
    """One of them stops, and says why."""

    why: str


Frame: TypeAlias = (
    Ask
    | SessionOffer
    | Have
    | AlreadyTaken
    | Again
    | PackPiece
    | EntryPiece
    | EndOfEntries
    | TakerReady
    | Marked
    | Done
    | MoveRefused
)

F = TypeVar("F", bound=Struct)

_decode: Final = msgspec.json.Decoder(Frame).decode


class MoveLine:
    """Sends and receives frames over a connection."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lines = LineBuffer(bounds.MOVE_LINE_BYTES)
        self._arrived: list[bytes | Oversize] = []

    async def send(self, frame: Frame) -> None:
        """Send a frame; raises ConnectionLostError."""
        self._transport.send(msgspec.json.encode(frame) + b"\n")
        try:
            async with timeout(bounds.MOVE_WORK_SECONDS):
                await self._transport.drain()
        except TimeoutError:
            raise errors.ConnectionLostError("the other machine has stopped reading") from None

    async def receive(self, *kinds: type[F], seconds: float = bounds.MOVE_SILENCE_SECONDS) -> F:
        """Return the next frame, which has to be of these kinds.

        Raises ConnectionLostError, and MoveRefusedError with the reason of the other side.
        """
        try:
            async with timeout(seconds):
                while not self._arrived:
                    if not (data := await self._transport.receive()):
                        raise errors.ConnectionLostError("lost the connection to the other machine")
                    self._arrived = self._lines.feed(data)
        except TimeoutError:
            raise errors.ConnectionLostError("the other machine does not answer") from None
        line = self._arrived.pop(0)
        if isinstance(line, Oversize):
            raise errors.MoveRefusedError("the other machine sent a line that is too long")
        frame: Frame | None = None
        with suppress(*UNREADABLE):
            frame = _decode(line)
        if isinstance(frame, kinds):
            return frame
        if isinstance(frame, MoveRefused):
            raise errors.MoveRefusedError(frame.why)
        raise errors.MoveRefusedError("the other machine sent something unexpected")

    async def refuse(self, why: str) -> None:
        """Tell the other side why this one stops; it may be gone."""
        with suppress(errors.ConnectionLostError):  # it learns of that by itself
            await self.send(MoveRefused(why))


class MovedSession(Struct, frozen=True):
    """A session that is the taker's now: its place there. `no_files` says why its files are not
    there; `left_out` of them were never kept, the first with `left_out_names`."""

    session_id: str
    done: Done
    no_files: str = ""
    left_out: int = 0
    left_out_names: tuple[str, ...] = ()
    was_done: bool = False


def moved(offer: SessionOffer, done: Done, no_files: str) -> MovedSession:
    """Return what there is to say of an offered session that has moved."""
    if (files := offer.files) is None:
        return MovedSession(offer.session.session_id, done, no_files)
    names = tuple(path for path, _ in files.left_out[:3])
    return MovedSession(offer.session.session_id, done, no_files, files.left_out_count, names)


async def pieces(
    journal: Journal, session_id: str, after: int, through: int
) -> AsyncIterator[list[Entry]]:
    """Yield the entries above `after` in pieces of `journal.bounds.PIECE_BYTES`."""
    piece: list[Entry] = []
    size = 0
    async for segment in history(journal, session_id, after, through):
        for entry in segment.entries():
            if entry.seq > after:
                piece.append(entry)
                size += len(entry.raw)
            if size > journal_bounds.PIECE_BYTES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def add_to(digest: _Hash, entry: Entry) -> None:
    digest.update(b"%d %b %d\0%b\0" % (entry.seq, entry.kind.encode(), entry.at, entry.raw))


_FIXED: Final = (
    entries.PROMPT,
    entries.AUTHOR,
    entries.SENT,
    entries.QUESTION,
    entries.ANSWER,
    entries.MOVED,
)
"""Kinds of entries that never change, however often a session is put in order."""


async def digest_of(journal: Journal, session_id: str, through: int) -> str:
    """Return the digest of the beginning of a session, by entries that putting a session in order
    does not change: other ones may become void later."""
    digest = sha256()
    async for segment in history(journal, session_id, 0, through):
        for entry in segment.entries():
            if entry.seq <= through and entry.kind in _FIXED:
                add_to(digest, entry)
            elif entry.seq <= through and entry.kind == entries.TURN_END:
                digest.update(b"%d %d\0" % (entry.seq, entry.at))
    return digest.hexdigest()


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LETTERS and text.isprintable()


@asynccontextmanager
async def telling(line: MoveLine) -> AsyncIterator[None]:
    """Tell the other side of an error of this one that ends the move."""
    try:
        yield
    except errors.ConnectionLostError:
        raise
    except errors.LeaseLostError as error:
        why = "the session was opened or moved in the meantime; this move took nothing"
        await line.refuse(why)
        raise errors.MoveRefusedError(why) from error
    except errors.AcpError as error:
        await line.refuse(str(error))
        raise


# -- checks of what the other machine says -------------------------------------------------------


def past_entry(entry: Entry) -> PastEntry:
    """Return an entry as the journal takes it in; raises MoveRefusedError unless it is one."""
    kind, raw = entry.kind, entry.raw
    is_json = not raw
    with suppress(*UNREADABLE):
        raw.decode()
        is_line = b"\n" not in raw and b"\r" not in raw
        is_json = is_json or (is_line and msgspec.json.decode(raw, type=Raw) is not None)
    if not is_json or not is_name(kind) or not 0 <= entry.at < 1 << 53:
        raise errors.MoveRefusedError("the other machine sent an invalid entry")
    return PastEntry(kind, entry.at, raw, entry.seq)


def require_wanted(session_id: str, wanted: str) -> None:
    """Raise MoveRefusedError unless an id that another machine names begins with the one asked
    for."""
    if not session_id.startswith(wanted):
        raise errors.MoveRefusedError(
            f"you asked for session {wanted!r}, but the other machine offers {session_id!r}"
        )


def require_fit(offer: SessionOffer) -> None:
    """Raise MoveRefusedError for an offer that no giver makes."""
    session, files = offer.session, offer.files
    names = [session.session_id, session.agent, offer.giver]
    names += [name for it in session.origins for name in (it.session_id, it.agent)]
    names += [offer.move] if offer.move else []
    times = (session.created_at, session.updated_at)
    below = PurePath(offer.below)
    if (
        not all(map(is_name, names))
        or not 0 < offer.last < NUMBERS
        or not all(0 <= time < 1 << 53 for time in times)
        or below.is_absolute()
        or ".." in below.parts
        or "\0" in offer.below + session.cwd
        or (files is not None and not (files.is_kept and _is_fit(files, offer.last)))
        or (offer.earlier and (files is None or len(offer.earlier) > bounds.EARLIER_SNAPSHOTS))
        or not all(_is_fit(it, offer.last) for it in offer.earlier)
    ):
        raise errors.MoveRefusedError("the other machine offers an invalid session")


def _is_fit(snapshot: TurnSnapshot, last: int) -> bool:
    """True if a giver can offer this snapshot."""
    counts = (snapshot.at, snapshot.left_out_count, snapshot.files, snapshot.size)
    below = PurePath(snapshot.cwd)
    return (
        0 <= snapshot.turn <= last
        and all(0 <= count < 1 << 53 for count in counts)
        and (OBJECT.fullmatch(snapshot.tree) is not None or not snapshot.tree)
        and (snapshot.state == "refused") == (not snapshot.tree)
        and (snapshot.commit is None or COMMIT.fullmatch(snapshot.commit) is not None)
        and not (below.is_absolute() or ".." in below.parts or "\0" in snapshot.cwd)
        and (is_name(snapshot.taken_for) or not snapshot.taken_for)
    )
