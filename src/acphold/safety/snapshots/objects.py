"""Objects of a store that are read and written here, without git: of a few changed files, their
contents and the trees above them.

An object is a file, named by the SHA-1 of its kind, its length and its content, and compressed. A
tree lists MODE NAME<NUL>ID of what is in a folder, in the order of the names, to which folders add
a slash. Source: git, Documentation/gitformat-pack.txt and `base_name_compare` in tree.c.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha1
from typing import NamedTuple, TypeAlias

from acphold.safety.snapshots.git import Git, GitError

FOLDER = b"40000"
LINK = b"120000"


class TreeEntry(NamedTuple):
    """A name in a tree: its mode in digits, and its id in bytes."""

    mode: bytes
    id: bytes


Tree: TypeAlias = dict[bytes, TreeEntry]


def content_of(path: str, most: int) -> tuple[os.stat_result, bytes, bytes]:
    """Return the status, the mode in a tree, and the content of a file, or of a link as it is.

    Raises OSError; and BufferError if it is something else, or has more than `most` bytes.
    """
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return status, LINK, os.readlink(os.fsencode(path))
    if not stat.S_ISREG(status.st_mode):
        raise BufferError("not a file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise BufferError("not a small file")
        data = b""
        while piece := os.read(descriptor, most + 1 - len(data)):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise BufferError("not a small file")
    return status, b"100755" if status.st_mode & 0o100 else b"100644", data


class StoreObjects:
    """The objects of the store at `path`; `git` reads those that are packed."""

    def __init__(self, git: Git, path: str) -> None:
        self._git = git
        self._objects = os.path.join(path, "objects")

    def write(self, kind: str, content: bytes) -> str:
        """Write an object, durably, and return its id. Raises OSError."""
        data = b"%s %d\0%s" % (kind.encode(), len(content), content)
        object_id = sha1(data, usedforsecurity=False).hexdigest()
        path = self._path(object_id)
        if os.path.exists(path):
            return object_id
        beside = f"{path[:-38]}tmp_obj_{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(beside, flags, 0o444)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            descriptor = os.open(beside, flags, 0o444)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                file.write(zlib.compress(data, 1))
                os.fsync(descriptor)
            os.rename(beside, path)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)
            raise
        return object_id

    def edit(
        self, tree: str, changes: Mapping[str, TreeEntry | None]
    ) -> tuple[str, Collection[str]]:
        """Write a tree with these files changed, or gone; return its id, and the files whose
        entries are others now.

        Raises OSError and the errors of `Git.run`.
        """
        edited = []
        trees = self._trees(tree, changes) if changes else {}
        by_folder: dict[bytes, dict[bytes, TreeEntry | None]] = {b"": {}}
        for name, entry in changes.items():
            folder, _, base = os.fsencode(name).rpartition(b"/")
            if trees[folder].get(base) == entry:
                continue
            edited.append(name)
            by_folder.setdefault(folder, {})[base] = entry
            while folder:
                folder = folder.rpartition(b"/")[0]
                by_folder.setdefault(folder, {})
        if not edited:
            return tree, edited
        # The deepest first: what is in a folder is written before it.
        for folder in sorted(by_folder, key=lambda it: it.count(b"/") + bool(it), reverse=True):
            found = trees[folder]
            is_new = False
            for base, entry in by_folder[folder].items():
                if entry is None:
                    found.pop(base, None)
                else:
                    is_new |= base not in found or found[base].mode != entry.mode
                    found[base] = entry
            if not folder:
                return self.write("tree", _raw(found, is_sorted=not is_new)), edited
            above, _, base = folder.rpartition(b"/")
            written = self.write("tree", _raw(found, is_sorted=not is_new)) if found else ""
            if written or by_folder[above].get(base) is None:  # else a file is there now
                by_folder[above][base] = (
                    TreeEntry(FOLDER, bytes.fromhex(written)) if written else None
                )
        raise AssertionError("the last one is the tree itself")

    def _trees(self, tree: str, names: Iterable[str]) -> dict[bytes, Tree]:
        """Return the content of the folders of these files in a tree, and of those above them."""
        folders = {b""}
        for folder in {os.fsencode(name).rpartition(b"/")[0] for name in names}:
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition(b"/")[0]
        found: dict[bytes, Tree] = {}
        packed: list[bytes] = []
        for folder in sorted(folders):
            above, _, base = folder.rpartition(b"/")
            object_id = tree
            if folder:
                if above not in found:
                    packed.append(folder)
                    continue
                entry = found[above].get(base)
                if entry is None or entry.mode != FOLDER:
                    found[folder] = {}
                    continue
                object_id = entry.id.hex()
            try:
                with open(self._path(object_id), "rb") as file:
                    data = zlib.decompress(file.read())
            except (OSError, zlib.error):
                packed.append(folder)  # it has no file of its own
            else:
                found[folder] = _entries(data.partition(b"\0")[2])
        if packed:
            lines = b"".join(b"%s:%s\n" % (tree.encode(), folder) for folder in packed)
            output = self._git.run("cat-file", "--batch", stdin=lines, reads=True)
            at = 0
            for folder in packed:
                end = output.index(b"\n", at)
                words = output[at:end].split(b" ")
                at = end + 1
                if words[-1] == b"missing":
                    if not folder:
                        raise GitError("the last snapshot is not in the store")
                    found[folder] = {}
                    continue
                size = int(words[-1])
                is_tree = words[-2] == b"tree"
                found[folder] = _entries(output[at : at + size]) if is_tree else {}
                at += size + 1
        return found

    def _path(self, object_id: str) -> str:
        return f"{self._objects}/{object_id[:2]}/{object_id[2:]}"


def _entries(raw: bytes) -> Tree:
    found: Tree = {}
    at = 0
    while at < len(raw):
        space = raw.index(b" ", at)
        end = raw.index(b"\0", space)
        found[raw[space + 1 : end]] = TreeEntry(raw[at:space], raw[end + 1 : end + 21])
        at = end + 21
    return found


def _raw(entries: Tree, *, is_sorted: bool) -> bytes:
    names: Iterable[bytes] = entries
    if not is_sorted:
        names = sorted(entries, key=lambda it: it + b"/" * (entries[it].mode == FOLDER))
    return b"".join(b"%s %s\0%s" % (entries[it].mode, it, entries[it].id) for it in names)
