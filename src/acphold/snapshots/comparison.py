"""Two snapshots of one store compared: which files differ, and how."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from msgspec import Struct

from acphold.processes.program_group import ProgramGroup
from acphold.snapshots.store import SnapshotStore

SECONDS = 60.0
"""Seconds that a comparison, or reading a file, may take."""

NOTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without files."""


class FileChange(Struct, frozen=True):
    """A file that differs: `before` and `after` are the ids of its content, None where it is not
    there. `old_path` is its former name, the same if it has none. `mode` is that after, else
    before."""

    path: str
    old_path: str
    before: str | None
    after: str | None
    mode: str


def changes(store: SnapshotStore, before: str, after: str) -> list[FileChange]:
    """Return what differs between two trees, by path; renames are found.

    Blocks. Raises GitError, TimeoutError and OSError.
    """
    if before == after:
        return []
    deadline = time.monotonic() + SECONDS
    with store.used(deadline), ProgramGroup(deadline) as group:
        said = store.git(group).run(
            "diff-tree", "-r", "-M", "-z", "--raw", "--no-abbrev", before, after
        )
    found = []
    words = iter(said.split(b"\0"))
    for head in words:
        if not head:
            continue
        old_mode, mode, old, new, status = head.removeprefix(b":").decode().split()
        old_path = path = os.fsdecode(next(words))
        if status[:1] in "RC":
            path = os.fsdecode(next(words))
        found.append(
            FileChange(
                path,
                old_path,
                old if status[:1] != "A" else None,
                new if status[:1] != "D" else None,
                mode if status[:1] != "D" else old_mode,
            )
        )
    return found


def patch(store: SnapshotStore, before: str, after: str, paths: Sequence[str] = ()) -> bytes:
    """Return the differences between two trees as a patch for `git apply`: all, or of these files.

    Blocks. Raises GitError, TimeoutError, BufferError and OSError.
    """
    deadline = time.monotonic() + SECONDS
    with store.used(deadline), ProgramGroup(deadline) as group:
        return store.git(group).run(
            *("diff-tree", "-r", "-M", "-p", "--binary", "--full-index", "--no-ext-diff"),
            *("--no-textconv", "--no-color", before, after, "--", *paths),
        )


def content(store: SnapshotStore, blob: str) -> bytes:
    """Return a file of a snapshot by the id of its content. Blocks, and raises as `patch` does."""
    deadline = time.monotonic() + SECONDS
    with store.used(deadline), ProgramGroup(deadline) as group:
        return store.git(group).run("cat-file", "blob", blob)


def is_there(store: SnapshotStore, tree: str) -> bool:
    """Return True if the store has a snapshot. Blocks, and raises as `patch` does."""
    deadline = time.monotonic() + SECONDS
    with store.used(deadline), ProgramGroup(deadline) as group:
        said = store.git(group).run("cat-file", "--batch-check", stdin=f"{tree}\n".encode())
    return said.split()[1:2] == [b"tree"]
