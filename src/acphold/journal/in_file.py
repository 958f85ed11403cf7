"""What is peculiar to a journal in a file: where it is, how large, if it is whole; its copies.

A store that is in no file has none of this, and says so: `Journal.file` is None.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Large(Struct, frozen=True):
    """A session that takes much room: so many bytes are kept of it."""

    session_id: str
    title: str | None
    size: int


class Sizes(Struct, frozen=True):
    """Bytes of the file that conversations take, the search index, and nothing any more.

    `conversations` and `index` are None where the store cannot tell. `largest` has the sessions
    that take most, the largest first.
    """

    conversations: int | None
    index: int | None
    free: int
    largest: tuple[Large, ...]


class Repaired(Struct, frozen=True):
    """What was put right: sessions with a wrong count, summary or sum of usage; and rows of those
    that are no more, by how many sessions they were of."""

    miscounted: tuple[str, ...]
    left_over: int


class InFile(Protocol):
    """The file of a journal. Every method may raise what those of the journal raise."""

    @property
    def path(self) -> str:
        """Its absolute path."""

    @property
    def was_open_to_others(self) -> bool:
        """Whether others could read it until it was opened now."""

    async def log_cut_at(self) -> int | None:
        """When a log was found without its end (ms since the epoch); sessions may be missing."""

    async def went_back_at(self) -> int | None:
        """When an earlier copy was found in its place (ms since the epoch): later sessions are
        missing."""

    async def damage(self) -> list[str]:
        """What is wrong with it, a sentence each; empty when it is whole. Reads all of it."""

    async def spoiled(self) -> list[str]:
        """The sessions whose summary, or sums of usage, are not what was written."""

    async def unswept(self) -> int:
        """How many deleted sessions have left something in it, as a deletion was cut short."""

    async def sizes(self, largest: int) -> Sizes:
        """What takes the room, with so many of the largest sessions; reads all of it."""

    async def repair(self) -> Repaired:
        """Make anew counts and summaries from the entries, and sums of usage from the reports; and
        forget the search index."""

    async def give_back(self) -> int | None:
        """Give the disk all room in it that nothing takes, beside whoever reads and writes.

        Returns how many bytes; None for one that has to be rewritten for that: see
        `stores.rewrite`.
        """

    async def copy_to(self, path: str) -> int:
        """Copy it, whole and of one moment, whoever writes meanwhile; the size in bytes."""
