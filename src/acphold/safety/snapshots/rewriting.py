"""Snapshots with other contents in their files: of a text that a person has removed everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator

from acphold.safety.snapshots.git import Git, lines
from acphold.safety.snapshots.objects import StoreObjects, TreeEntry
from acphold.safety.snapshots.store import SnapshotStore

SEARCHED_AT_ONCE = 32 << 20
"""Bytes of files that are read together; a larger one is read alone."""

SEARCHED_BYTES = 128 << 20
"""A larger file is not searched."""


def rewrite(
    store: SnapshotStore,
    snapshots: Collection[str],
    change: Callable[[bytes], bytes | None],
    seconds: float,
) -> tuple[dict[str, str], int]:
    """Return for each of these snapshots that has a file which `change` gives another content one
    with that, "" if it cannot be made; and the number of files that are too large to be searched.

    Raises WorkspaceError.
    """
    with store.working(seconds, "searching the kept files") as group:
        git = store.git(group)
        objects = StoreObjects(git, store.path)
        sizes, too_large = _files(git)
        instead: dict[bytes, bytes] = {}
        for name, content in _contents(git, sizes):
            if (changed := change(content)) is not None:
                instead[name.encode()] = objects.write("blob", changed).encode()
        if not instead:
            return {}, too_large
        found: dict[str, str] = {}
        for name, (kind, _) in git.objects(snapshots).items():
            if kind == "commit":  # what was staged is in it, too
                reachable = git.run("rev-list", "--objects", "--no-object-names", name, reads=True)
                if not instead.keys().isdisjoint(reachable.split()):
                    found[name] = ""
                continue
            changes: dict[str, TreeEntry | None] = {}
            for line in git.run("ls-tree", "-r", "-z", name, reads=True).split(b"\0"):
                about, _, path = line.partition(b"\t")
                mode, _, blob = (*about.split(b" "), b"", b"")[:3]
                if blob in instead:
                    id_ = bytes.fromhex(instead[blob].decode())
                    changes[os.fsdecode(path)] = TreeEntry(mode, id_)
            if changes:
                found[name], _ = objects.edit(name, changes)
                store.note_fresh(found[name])
        return found, too_large


def _files(git: Git) -> tuple[dict[str, int], int]:
    """Return the sizes of all contents in a store, by their ids; and the number of larger ones."""
    output = git.run("cat-file", "--batch-all-objects", "--batch-check", reads=True)
    found = (line.split() for line in output.decode().splitlines())
    sizes = {its[0]: int(its[2]) for its in found if its[1:2] == ["blob"]}
    small = {name: size for name, size in sizes.items() if size <= SEARCHED_BYTES}
    return small, len(sizes) - len(small)


def _contents(git: Git, sizes: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield these contents with their ids."""
    waiting = [*sizes]
    while waiting:
        names, size = [waiting.pop()], 0
        size = sizes[names[0]]
        while waiting and size + sizes[waiting[-1]] <= SEARCHED_AT_ONCE:
            names.append(waiting.pop())
            size += sizes[names[-1]]
        rest = memoryview(git.run("cat-file", "--batch", stdin=lines(names), reads=True))
        for name in names:
            at = len(name) + len(f" blob {sizes[name]}\n")
            yield name, bytes(rest[at : at + sizes[name]])
            rest = rest[at + sizes[name] + 1 :]
