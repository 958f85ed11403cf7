"""The file of a journal: its place, size, health and copies.

A store without a file has none of this: its `Journal.file` is None.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Large(Struct, frozen=True):
    """A session that takes much room, and the bytes it takes."""

    session_id: str
    title: str | None
    size: int


class Sizes(Struct, frozen=True):
    """Bytes of the file used by conversations, by the search index, and by nothing any more.

    `conversations` and `index` are None where the store cannot tell. `largest` has the sessions
    that take most, the largest first.
    """

    conversations: int | None
    index: int | None
    free: int
    largest: tuple[Large, ...]


class Repaired(Struct, frozen=True):
    """The result of a repair: sessions that had a wrong count, summary or sum of usage; and the
    number of sessions that are gone and had left rows behind."""

    miscounted: tuple[str, ...]
    left_over: int


class InFile(Protocol):
    """The file of a journal. Every method may raise the errors of the journal's own methods."""

    @property
    def path(self) -> str:
        """Its absolute path."""

    @property
    def was_open_to_others(self) -> bool:
        """True if other users could read the file before it was opened now."""

    async def log_cut_at(self) -> int | None:
        """The time at which the log was found without its end (ms since the epoch), so that
        sessions may be missing; None if it never was."""

    async def went_back_at(self) -> int | None:
        """The time at which an earlier copy was found in place of the file (ms since the epoch), so
        that later sessions are missing; None if it never was."""

    async def damage(self) -> list[str]:
        """Read the whole file and return what is damaged, a sentence each; empty if it is whole."""

    async def spoiled(self) -> list[str]:
        """The sessions whose summary, or sums of usage, are not what was written."""

    async def unswept(self) -> int:
        """The number of deleted sessions with remains in the file, because a deletion was cut
        short."""

    async def sizes(self, largest: int) -> Sizes:
        """Read the whole file and return what takes the room, with this many of the largest
        sessions."""

    async def repair(self) -> Repaired:
        """Recompute counts and summaries from the entries and sums of usage from the reports; and
        clear the search index."""

    async def give_back(self) -> int:
        """Return unused space to the disk, even while others read and write; the bytes returned."""

    async def copy_to(self, path: str) -> int:
        """Copy the file as it is at one moment, even while others write; the size in bytes."""
