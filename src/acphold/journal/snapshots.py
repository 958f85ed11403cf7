"""The snapshots of files that were taken in turns, as the journal names them.

The files themselves are in stores beside the journal, on one machine (`acphold.snapshots`): what no
row names is removed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from msgspec import Struct

MOST_LEFT_OUT: Final = 100
"""Left-out files that a row names; the others are only counted."""


class TurnSnapshot(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The files below `root` at one end of a turn.

    A state of "late": the agent was at work already, for an end in a later turn, and may have made
    its first changes. "later": the end was taken by the next turn, because the process had ended.
    "refused": not at all.

    `turn` is the last entry before the turn's prompt, `at` the time (ms since the epoch). `tree` is
    the snapshot in the store with the id `store`; both are "" if it was refused, for `reason`.
    `commit` and `branch` were checked out; None is no commit yet, "" no branch. `left_out` has
    pairs of a path and a reason, `left_out_count` their number. `files` and `size` (bytes) had
    changed. `took` is in ms.
    """

    turn: int
    edge: Literal["begin", "end"]
    root: str
    at: int
    state: Literal["whole", "late", "later", "refused"]
    store: str = ""
    tree: str = ""
    reason: str = ""
    commit: str | None = None
    branch: str = ""
    files: int = 0
    size: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    left_out_count: int = 0
    took: int = 0

    @property
    def is_kept(self) -> bool:
        return bool(self.tree)

    @property
    def order(self) -> tuple[int, bool, str]:
        """The place among those of a session: by turn, the beginning first, by root."""
        return self.turn, self.edge == "end", self.root


class Snapshots(Protocol):
    """The snapshots of all sessions. Deleting a session deletes its rows."""

    async def keep(self, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
        """Add snapshots of a session, replacing those of the same turn, edge and root. Its row
        counts as changed.

        Raises UnknownSessionError.
        """

    async def of(self, session_id: str) -> list[TurnSnapshot]:
        """The snapshots of a session, oldest first; an unknown session has none."""

    async def newest(self, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
        """The newest snapshot of each of these sessions; those without any are left out."""

    async def named(self) -> list[tuple[str, TurnSnapshot]]:
        """All snapshots, each with its session; by session, oldest first."""

    async def drop(self, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
        """Remove these snapshots of a session."""
