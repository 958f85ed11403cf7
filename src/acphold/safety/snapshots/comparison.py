"""Snapshots of one store compared: which files differ, and how."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.git import Git, lines
from acphold.safety.snapshots.store import SnapshotStore

_AS_PATCH = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")


class FileChange(Struct, frozen=True):
    """A file that differs: `before` and `after` are the ids of its content, None where it is not
    there. `patch` is empty unless it was asked for."""

    path: str
    before: str | None
    after: str | None
    patch: bytes = b""


class SnapshotReader:
    """Reads snapshots of one store; made by `reading`. All of it blocks, and raises GitError,
    TimeoutError, BufferError and OSError."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def changes(self, before: str, after: str, *, patches: bool = False) -> list[FileChange]:
        """Return what differs between two trees, by path; with `patches`, how it differs. A file
        that was moved is one that is gone, and a new one."""
        if before == after:
            return []
        words = ("diff-tree", "-r", "--no-renames", "-z", "--raw", "--no-abbrev")
        output = self._git.run(*words, *_AS_PATCH * patches, before, after)
        names, _, text = output.partition(b"\0\0")
        pieces: list[list[bytes]] = []
        heads: list[bytes] = []
        for line in text.split(b"\n")[:-1]:  # a "\r" ends no line
            if line.startswith(b"diff --git "):  # no line inside of a patch begins so
                if heads[-1:] == [line]:  # of another kind now: gone, and made anew
                    pieces[-1].append(line)
                    continue
                heads.append(line)
                pieces.append([])
            pieces[-1].append(line)
        changed_files: list[FileChange] = []
        parts = iter(names.split(b"\0"))
        for facts in parts:
            if not facts:
                continue
            *_, old, new, status = facts.decode().split()
            changed_files.append(
                FileChange(
                    os.fsdecode(next(parts)),
                    old if status[:1] != "A" else None,
                    new if status[:1] != "D" else None,
                    b"\n".join([*pieces[len(changed_files)], b""]) if patches else b"",
                )
            )
        return changed_files

    def sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those of these contents that are there, by their ids."""
        if not (wanted := dict.fromkeys(blobs)):
            return {}
        found = self._git.objects(wanted).items()
        return {blob: size for blob, (kind, size) in found if kind == "blob"}

    def contents(self, blobs: Iterable[str], most: int = bounds.TEXT_BYTES) -> dict[str, bytes]:
        """Return files by the ids of their contents; without those that have more than `most`
        bytes, or are not there."""
        kept = [blob for blob, size in self.sizes(blobs).items() if size <= most]
        if not kept:
            return {}
        found: dict[str, bytes] = {}
        rest = memoryview(self._git.run("cat-file", "--batch", stdin=lines(kept)))
        for _ in kept:
            end = bytes(rest[:200]).index(b"\n")
            blob, _, size = bytes(rest[:end]).decode().split()
            found[blob] = bytes(rest[end + 1 : end + 1 + int(size)])
            rest = rest[end + int(size) + 2 :]
        return found


@contextmanager
def reading(
    store: SnapshotStore, seconds: float = bounds.COMPARISON_SECONDS
) -> Iterator[SnapshotReader]:
    """Read snapshots of a store for a block, which may last so many seconds."""
    deadline = time.monotonic() + seconds
    with store.used(deadline), ProgramGroup(deadline) as group:
        yield SnapshotReader(store.git(group))


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] + 1 == number:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


@contextmanager
def bare_folder(kind: str, prefix: str, at: str) -> Iterator[str]:
    """Make a temporary bare git folder for the block, private and without a person's configuration;
    `kind` is its kind of ids, `at` the folder to make it in."""
    config = (
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
        f"[extensions]\n\tobjectFormat = {kind}\n"
    )
    with tempfile.TemporaryDirectory(prefix=prefix, dir=at) as folder:
        for name in ("objects/info", "objects/pack", "refs/heads"):
            os.makedirs(os.path.join(folder, name))
        for name, text in (("config", config), ("HEAD", "ref: refs/heads/none\n")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        yield folder
