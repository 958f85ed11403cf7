"""A snapshot as a pack of git, for another machine; and a stranger's pack, checked.

The pack has the objects of the tree. Those of the commit that was checked out are left out if the
other machine has it: it reads them from its own clone into its store, before it reads the pack,
which has only the differences from what is there.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import BinaryIO

from acp_wire.errors import WorkspaceError
from acphold.safety.snapshots.bounds import PACK_LIMITS, PACK_SECONDS, SNAPSHOT_LIMITS
from acphold.safety.snapshots.git import Git, GitError, lines
from acphold.safety.snapshots.store import SNAPSHOT_KINDS, SnapshotStore

OBJECT = re.compile(r"[0-9a-f]{40}")

TOO_LARGE = "the files are too large to be sent"

_LOOKING = ("looking for the earlier files", "the earlier files cannot be read: ")


def pack_file(store: SnapshotStore) -> BinaryIO:
    """Return an empty file for a pack, on the disk of a store; it is gone once it is closed."""
    return tempfile.TemporaryFile(dir=store.path)


def make_pack(
    store: SnapshotStore,
    *trees: str,
    project: str = "",
    base: str = "",
    known: Sequence[str] = (),
) -> BinaryIO:
    """Return the pack of snapshots, in a `pack_file`; blocks.

    With `base`, a commit of the repository in `project`, the pack leaves out that commit's objects,
    and those of the `known` snapshots. Raises WorkspaceError if one is gone, or they are too large.
    """
    with store.working(PACK_SECONDS, "packing the files", "the files cannot be packed: ") as group:
        git = store.git(group)
        there = {*_objects(git, *known)} if known else set[str]()
        bases = [*known[-1:]]
        with suppress(GitError):  # without the commit here, the pack is a whole one
            if base:
                of_commit = _of_commit(Git.reading(group, project, store.path), base)
                there.update(of_commit)
                bases.append(of_commit[0])
        wanted = git.run("rev-list", "--objects", "--stdin", stdin=lines(trees))
        rest = [line for line in wanted.splitlines() if line[:40].decode() not in there]
        names = lines(f"-{it}" for it in bases) + b"".join(line + b"\n" for line in rest)
        with ExitStack() as until_packed:
            pack = until_packed.enter_context(pack_file(store))
            try:
                git.run("pack-objects", "-q", "--stdout", stdin=names, into=pack)
            except BufferError as error:
                raise WorkspaceError(TOO_LARGE) from error
            if pack.seek(0, os.SEEK_END) > PACK_LIMITS.pack:
                raise WorkspaceError(TOO_LARGE)
            pack.seek(0)
            until_packed.pop_all()
            return pack


def has_base(store: SnapshotStore, project: str, base: str) -> bool:
    """Read the files of a commit from a clone of the project into the store, so that a pack may
    leave them out; False if they are not all there. Blocks."""
    try:
        with store.working(PACK_SECONDS, "reading the commit") as group:
            git = Git.reading(group, project, store.path)
            known = _of_commit(git, base)
            store.note_fresh(known[0])
            with pack_file(store) as pack:
                git.run("pack-objects", "-q", "--stdout", stdin=lines(known), into=pack)
                pack.seek(0)
                store.git(group).run("index-pack", "--stdin", "--strict", stdin=pack)
            return True
    except WorkspaceError:
        return False  # the pack is then a whole one


def unpack(store: SnapshotStore, tree: str, pack: BinaryIO) -> None:
    """Read a stranger's pack into the store, where the snapshot is kept for an hour; blocks.

    Raises WorkspaceError unless it is a whole, well-formed snapshot within the limits. Nothing is
    laid out.
    """
    if not OBJECT.fullmatch(tree):
        raise WorkspaceError("the snapshot's id is not a git object id")
    size = pack.seek(0, os.SEEK_END)
    pack.seek(0)
    if size > PACK_LIMITS.pack:
        raise WorkspaceError(f"the files are larger than {PACK_LIMITS.pack >> 20} MB")
    with store.working(PACK_SECONDS, "reading the files", "the files were refused: ") as group:
        if shutil.disk_usage(store.path).free - size < SNAPSHOT_LIMITS.free:
            raise WorkspaceError("there is not enough disk space for the files")
        store.note_fresh(tree)
        git = store.git(group)
        # Refuses names such as `..` and `.git`, in all their disguises, and broken objects.
        strict = ("--strict", f"--max-input-size={PACK_LIMITS.pack}")
        git.run("index-pack", "--stdin", "--fix-thin", *strict, stdin=pack)
        # Every object has to be there, within the limits.
        names = _objects(git, tree)
        if len(names) > PACK_LIMITS.files:
            raise WorkspaceError(_TOO_MANY.format(PACK_LIMITS.files))
        if git.objects(names).keys() != {*names}:
            raise WorkspaceError("some of the files are missing")
        if excess := _excess(git, tree):
            raise WorkspaceError(excess)


def here(store: SnapshotStore, trees: Sequence[str]) -> set[str]:
    """Return those snapshots that are in the store, and keep them there for an hour; blocks.

    Raises WorkspaceError.
    """
    with store.working(PACK_SECONDS, *_LOOKING) as group:
        git = store.git(group)
        for tree in trees:
            store.note_fresh(tree)
        found = git.objects(trees).items()
        return {tree for tree, (kind, _) in found if kind in SNAPSHOT_KINDS}


def whole(store: SnapshotStore, trees: Sequence[str]) -> set[str]:
    """Return those snapshots of a stranger that are in the store whole, within the limits; blocks.

    Raises WorkspaceError.
    """
    found = set[str]()
    with store.working(PACK_SECONDS, *_LOOKING) as group:
        git = store.git(group)
        for tree in trees:
            with suppress(GitError, BufferError):
                if len(_objects(git, tree)) <= PACK_LIMITS.files and not _excess(git, tree):
                    found.add(tree)
    return found


_TOO_MANY = "there are more than {:,} files"


def _excess(git: Git, tree: str) -> str:
    """Return what a snapshot, laid out, has too much of; "" if nothing. One object may stand for
    many files."""
    listed = git.run("ls-tree", "-r", "-l", "-z", "--full-tree", tree).split(b"\0")
    sizes = [line.split(None, 4)[3] for line in listed if line]
    size = sum(int(size) for size in sizes if size != b"-")
    if len(sizes) > PACK_LIMITS.files:
        return _TOO_MANY.format(PACK_LIMITS.files)
    if size > PACK_LIMITS.size:
        return f"the files are more than {PACK_LIMITS.size >> 20:,} MB"
    return ""


def _objects(git: Git, *trees: str) -> list[str]:
    """The ids of trees and all in them."""
    options = ("--objects", "--no-object-names", "--stdin")
    return git.run("rev-list", *options, stdin=lines(trees)).decode().split()


def _of_commit(git: Git, commit: str) -> list[str]:
    """The ids of the tree of a commit, and all in it."""
    if not OBJECT.fullmatch(commit):
        raise GitError("no commit of that kind")
    names = git.run("rev-list", "--objects", "--no-object-names", f"{commit}^{{tree}}")
    return names.decode().split()
