"""The lines between two machines that move a session: JSON, one frame a line, bounded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Struct

from acphold.errors import ConnectionLostError, MoveRefusedError
from acphold.journal import Origin
from acphold.rpc.framing import LineBuffer, Oversize
from acphold.rpc.transport import Transport
from acphold.snapshots.projects import ProjectMarks

VERSION: Final = 1
"""The version of these frames."""

LINE_BYTES: Final = 256 << 20
"""Longest line: one entry may be a large picture, and base64 adds a third."""

NAME_LETTERS: Final = 200
"""Most letters of an id, a kind or the name of an agent that are accepted."""

PATIENCE_SECONDS: Final = 120.0
"""Seconds without a frame after which the other side is given up."""

WORK_SECONDS: Final = 1500.0
"""The same while it reads or lays out files."""


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


class SentFiles(Struct, frozen=True):
    """A snapshot that can be sent: as in `TurnSnapshot`."""

    tree: str
    commit: str | None
    branch: str
    turn: int
    at: int
    left_out: tuple[tuple[str, str], ...]
    left_out_count: int


class SentEntry(Struct, frozen=True, array_like=True):
    """An entry of the journal."""

    seq: int
    kind: str
    at: int
    raw: bytes


class Ask(Struct, frozen=True, tag="ask"):
    """The taker begins: the identity of its journal, so that it is not the same one, and the name
    of its machine."""

    version: int
    journal: str | None
    name: str = ""


class SessionOffer(Struct, frozen=True, tag="offer"):
    """The giver's session, whose last entry is `last`; with `move`, the next one is the mark of
    that move. `below` is the session's folder within its repository, which `marks` identify.
    `no_files` is the reason for having no files; `is_withheld` if this taker may not have them."""

    session: SentSession
    last: int
    move: str
    giver: str
    project: str
    below: str
    marks: ProjectMarks
    files: SentFiles | None
    no_files: str
    is_withheld: bool = False


class Have(Struct, frozen=True, tag="have"):
    """The taker has the entries up to `last`, with this digest, for the move `taking`. It wants the
    files, without those of the commit `base`. With `is_new` it can begin again."""

    last: int
    digest: str
    taking: str
    is_new: bool
    wants_files: bool = False
    base: str = ""


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

    entries: list[SentEntry]


class EndOfEntries(Struct, frozen=True, tag="end"):
    """All entries were sent; the digest is of all their bytes."""

    digest: str


class TakerReady(Struct, frozen=True, tag="ready"):
    """The taker has all of it but the mark."""


class Marked(Struct, frozen=True, tag="marked"):
    """The giver has marked its session: with this entry it is the taker's."""

    entry: SentEntry


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
G = TypeVar("G", bound=Struct)
H = TypeVar("H", bound=Struct)
K = TypeVar("K", bound=Struct)

_decode: Final = msgspec.json.Decoder(Frame).decode


class MoveLine:
    """Sends and receives frames over a connection."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lines = LineBuffer(LINE_BYTES)
        self._arrived: list[bytes | Oversize] = []

    async def send(self, frame: Frame) -> None:
        """Send a frame; raises ConnectionLostError."""
        self._transport.send(msgspec.json.encode(frame) + b"\n")
        try:
            async with asyncio.timeout(WORK_SECONDS):
                await self._transport.drain()
        except TimeoutError:
            raise ConnectionLostError("the other machine no longer reads") from None

    @overload
    async def receive(self, kind: type[F], /, *, seconds: float = ...) -> F: ...

    @overload
    async def receive(self, kind: type[F], other: type[G], /, *, seconds: float = ...) -> F | G: ...

    @overload
    async def receive(
        self,
        kind: type[F],
        other: type[G],
        third: type[H],
        fourth: type[K],
        /,
        *,
        seconds: float = ...,
    ) -> F | G | H | K: ...

    async def receive(self, *kinds: type[Struct], seconds: float = PATIENCE_SECONDS) -> Struct:
        """Return the next frame, which has to be of these kinds.

        Raises ConnectionLostError, and MoveRefusedError with the reason of the other side.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self._arrived:
                    if not (data := await self._transport.receive()):
                        raise ConnectionLostError("the connection to the other machine broke")
                    self._arrived = self._lines.feed(data)
        except TimeoutError:
            raise ConnectionLostError("the other machine does not answer") from None
        line = self._arrived.pop(0)
        if isinstance(line, Oversize):
            raise MoveRefusedError("the other machine sent a line that is too long")
        try:
            frame = _decode(line)
        except msgspec.MsgspecError:
            raise MoveRefusedError("the other machine sent something unexpected") from None
        if isinstance(frame, kinds):
            return frame
        if isinstance(frame, MoveRefused):
            raise MoveRefusedError(frame.why)
        raise MoveRefusedError("the other machine sent something unexpected")

    async def refuse(self, why: str) -> None:
        """Tell the other side why this one stops; it may be gone."""
        with suppress(ConnectionLostError):  # it learns of that by itself
            await self.send(MoveRefused(why))
