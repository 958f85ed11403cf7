"""The notes about a work tree, beside our index of it: knowledge from the last snapshot for the
next one, and a reason for which none is taken.

A note that is damaged, or of other circumstances, is none.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

import msgspec
from msgspec import Struct

from acp_wire.workspace.regular_files import contents
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.checkouts import Checkout
from acphold.safety.snapshots.objects import TreeEntry
from acphold.safety.snapshots.status import mark
from acphold.safety.snapshots.store import BASE, GIVEN_UP, write_whole


class Ahead(Struct, array_like=True):
    """A file whose content in the last snapshot is not the one in our index: its mode and id there,
    and its marks when it was read, if they show later changes; "" if it was gone."""

    mode: str = ""
    id: str = ""
    marks: tuple[int, ...] = ()

    @property
    def entry(self) -> TreeEntry | None:
        return TreeEntry(self.mode.encode(), bytes.fromhex(self.id)) if self.id else None

    def differs(self, other: Ahead | None) -> bool:
        """True if this is another content; the marks do not matter."""
        return other is None or (self.mode, self.id) != (other.mode, other.id)


class KnownTree(Struct):
    """Remembered from the last snapshot of a work tree: the marks of the files that say what is
    ignored, of the project's index and of ours, the repositories inside, the commit that was
    checked out, our commit with what was staged, and names in the project's index without a file:
    `git ls-files` does not list such a file when it comes back, if its name is ignored. `rules` is
    the number of the rules by which names are left out. `personal` is the file of names that the
    person ignores, with the marks of the files that say so. `untracked` are names that are not in
    the project's index, where they were looked for. The store had `measured` bytes, and has `grown`
    by so many since, at most. `tree` is that of the last snapshot, in which the files that are
    `ahead` of our index have another content. Our index is `fresh` if git wrote it after reading
    files: those of the same second it reads again each time."""

    excludes: list[tuple[str, tuple[int, ...]]] = []
    project_index: tuple[int, ...] = ()
    commit: str | None = None
    staged: str = ""
    index: tuple[int, ...] = ()
    inside: list[str] = []
    absent: list[str] = []
    rules: int = 0
    personal: tuple[str, list[tuple[str, tuple[int, ...]]]] | None = None
    untracked: list[str] = []
    measured: int = 0
    grown: int = 0
    tree: str = ""
    ahead: dict[str, Ahead] = {}
    fresh: bool = False


class SnapshotRefusal(Struct):
    """A reason for no snapshot of a folder, how many times in a row, and when (s). It holds
    while the files with these marks do not change."""

    reason: str
    times: int
    at: float
    marks: list[tuple[int, ...]]


class TreeNotes:
    """The notes in `root`, the folder for a work tree in its store; used under its lock."""

    def __init__(self, root: str) -> None:
        self._root = root

    def known(self) -> KnownTree:
        """Return what is known of the last snapshot, the defaults if that is nothing."""
        with suppress(OSError, ValueError, msgspec.MsgspecError):
            raw = contents(os.path.join(self._root, "known"), 16 << 20)
            return msgspec.convert(json.loads(raw), KnownTree)
        return KnownTree()

    def note(self, tree: str, known: KnownTree) -> None:
        """Note the tree last: what is known then stands for it, or for nothing."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, "tree"))
        base = () if known.ahead else ((BASE, tree),)
        # In the JSON of the standard library names may have bytes that are no text.
        noted = json.dumps(msgspec.to_builtins(known))
        for name, text in (*base, ("known", noted), ("tree", tree)):
            write_whole(os.path.join(self._root, name), text.encode(), is_lasting=False)

    def refusal(self, checkout: Checkout) -> SnapshotRefusal | None:
        """Return the last refusal of this folder, if it still holds."""
        with suppress(OSError, msgspec.MsgspecError):
            raw = contents(os.path.join(self._root, GIVEN_UP), 1 << 16)
            found = msgspec.json.decode(raw, type=SnapshotRefusal)
            is_recent = 0 <= time.time() - found.at < bounds.GIVEN_UP_SECONDS
            if is_recent and found.marks == _marks(checkout):
                return found
        return None

    def refuse(
        self,
        checkout: Checkout,
        reason: str,
        before: SnapshotRefusal | None,
        *,
        at_once: bool = False,
    ) -> int:
        """Note on the disk that no snapshot can be taken because of this folder; return how many
        times in a row, after those `before`: as many as count, if it is given up `at_once`."""
        times = bounds.REFUSALS if at_once else 1 if before is None else before.times + 1
        refusal = SnapshotRefusal(reason, times, time.time(), _marks(checkout))
        write_whole(os.path.join(self._root, GIVEN_UP), msgspec.json.encode(refusal))
        return times

    def forget_refusal(self) -> None:
        """Remove the note of a refusal, if there is one: a snapshot was taken."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, GIVEN_UP))


def _marks(checkout: Checkout) -> list[tuple[int, ...]]:
    exclude = os.path.join(checkout.common, "info", "exclude")
    ignored = os.path.join(checkout.top, ".gitignore")
    return [mark(path) for path in (checkout.top, ignored, exclude, checkout.index)]
