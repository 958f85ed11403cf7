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

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from acphold.errors import (
    AcpholdError,
    ConnectionLostError,
    LeaseLostError,
    MoveRefusedError,
)
from acphold.history.entries import (
    ANSWER,
    AUTHOR,
    MOVED,
    PROMPT,
    QUESTION,
    SENT,
    TURN_END,
    Entry,
)
from acphold.hub.move_frames import NAME_LETTERS, Done, MoveLine, SentEntry
from acphold.journal import Journal, Lease, history
from acphold.journal.copies import PIECE_BYTES
from acphold.journal.owners import is_free, refuse_held
from acphold.workspace.threads import Threads

if TYPE_CHECKING:
    from hashlib import _Hash

T = TypeVar("T")


class MovedSession(Struct, frozen=True):
    """A session that is the taker's now: its place there. `no_files` says why its files are not
    there; `left_out` of them were never kept, the first with `left_out_names`."""

    session_id: str
    done: Done
    no_files: str = ""
    left_out: int = 0
    left_out_names: tuple[str, ...] = ()
    was_done: bool = False


async def leased(journal: Journal, session_id: str) -> Lease:
    """Own a session for a while; anybody may take it over, and then it is not marked.

    Raises HeldElsewhereError if a process has it.
    """
    whose = await journal.owner(session_id)
    if not is_free(whose):
        refuse_held(session_id, whose)
    return await journal.acquire(session_id, whose.epoch, yields=True)


async def pieces(
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


def add_to(digest: _Hash, entry: SentEntry | Entry) -> None:
    digest.update(b"%d %b %d\0%b\0" % (entry.seq, entry.kind.encode(), entry.at, entry.raw))


_FIXED: Final = (PROMPT, AUTHOR, SENT, QUESTION, ANSWER, MOVED)
"""Kinds of entries that never change, however often a session is put in order."""


async def digest_of(journal: Journal, session_id: str, through: int) -> str:
    """Return the digest of the beginning of a session, by entries that putting a session in order
    does not change: other ones may become void later."""
    digest = sha256()
    async for segment in history(journal, session_id, 0, through):
        for entry in segment.entries():
            if entry.seq <= through and entry.kind in _FIXED:
                add_to(digest, entry)
            elif entry.seq <= through and entry.kind == TURN_END:
                digest.update(b"%d %d\0" % (entry.seq, entry.at))
    return digest.hexdigest()


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LETTERS and text.isprintable()


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of work that blocks; a cancelled move does not wait for it."""
    return await Threads(1).run(lambda _: work())


@asynccontextmanager
async def telling(line: MoveLine) -> AsyncIterator[None]:
    """Tell the other side of an error of this one that ends the move."""
    try:
        yield
    except ConnectionLostError:
        raise
    except LeaseLostError as error:
        why = "somebody has opened the session meanwhile, or moves it; this move took nothing"
        await line.refuse(why)
        raise MoveRefusedError(why) from error
    except AcpholdError as error:
        await line.refuse(str(error))
        raise
