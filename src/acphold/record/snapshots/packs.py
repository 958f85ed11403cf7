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
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from acp_wire.processes.program_group import ProgramGroup
from acphold.errors import AgentStartError, WorkspaceError
from acphold.record.snapshots import bounds
from acphold.record.snapshots.git import HARMLESS, Git, GitError
from acphold.record.snapshots.store import SnapshotStore

OBJECT = re.compile(r"[0-9a-f]{40}")


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
    deadline = time.monotonic() + bounds.PACK_SECONDS
    try:
        with store.used(deadline), ProgramGroup(deadline) as group:
            git = store.git(group)
            there = {*_objects(git, *known)} if known else set[str]()
            bases = [*known[-1:]]
            with suppress(GitError):  # without the commit here, the pack is a whole one
                if base:
                    of_commit = _objects_of_commit(group, store, project, base)
                    there.update(of_commit)
                    bases.append(of_commit[0])
            wanted = git.run("rev-list", "--objects", "--stdin", stdin=_lines(trees))
            lines = [line for line in wanted.splitlines() if line[:40].decode() not in there]
            names = _lines(f"-{it}" for it in bases) + b"".join(line + b"\n" for line in lines)
            with ExitStack() as until_packed:
                pack = until_packed.enter_context(pack_file(store))
                git.run("pack-objects", "-q", "--stdout", stdin=names, into=pack)
                if pack.seek(0, os.SEEK_END) > bounds.PACK_LIMITS.pack:
                    raise BufferError
                pack.seek(0)
                until_packed.pop_all()
                return pack
    except TimeoutError as error:
        raise WorkspaceError("packing the files took too long") from error
    except BufferError as error:
        raise WorkspaceError("the files are too large to be sent") from error
    except (GitError, AgentStartError, OSError) as error:
        raise WorkspaceError(f"the files cannot be packed: {error}") from error


def has_base(store: SnapshotStore, project: str, base: str) -> bool:
    """Read the files of a commit from a clone of the project into the store, so that a pack may
    leave them out; False if they are not all there. Blocks."""
    deadline = time.monotonic() + bounds.PACK_SECONDS
    try:
        with store.used(deadline), ProgramGroup(deadline) as group:
            known = _objects_of_commit(group, store, project, base)
            git = _of_project(group, store)
            store.note_fresh(known[0])
            top = ("-C", project, *HARMLESS)
            with pack_file(store) as pack:
                git.run(*top, "pack-objects", "-q", "--stdout", stdin=_lines(known), into=pack)
                pack.seek(0)
                store.git(group).run("index-pack", "--stdin", "--strict", stdin=pack)
            return True
    except (TimeoutError, BufferError, GitError, AgentStartError, OSError):
        return False  # the pack is then a whole one


def unpack(
    store: SnapshotStore, tree: str, pack: BinaryIO, limits: bounds.PackLimits = bounds.PACK_LIMITS
) -> None:
    """Read a stranger's pack into the store, where the snapshot is kept for an hour; blocks.

    Raises WorkspaceError unless it is a whole, well-formed snapshot within the limits. Nothing is
    laid out.
    """
    deadline = time.monotonic() + bounds.PACK_SECONDS
    if not OBJECT.fullmatch(tree):
        raise WorkspaceError("the snapshot's id is not a git object id")
    size = pack.seek(0, os.SEEK_END)
    pack.seek(0)
    if size > limits.pack:
        raise WorkspaceError(f"the files are larger than {limits.pack >> 20} MB")
    try:
        if shutil.disk_usage(store.path).free - size < bounds.SNAPSHOT_LIMITS.free:
            raise WorkspaceError("there is not enough disk space for the files")
        with store.used(deadline), ProgramGroup(deadline) as group:
            store.note_fresh(tree)
            git = store.git(group)
            # Refuses names such as `..` and `.git`, in all their disguises, and broken objects.
            strict = ("--strict", f"--max-input-size={limits.pack}")
            git.run("index-pack", "--stdin", "--fix-thin", *strict, stdin=pack)
            # Every object has to be there, within the limits.
            names = _objects(git, tree)
            if len(names) > limits.files:
                raise WorkspaceError(f"there are more than {limits.files:,} files")
            checked = git.run(
                "cat-file",
                "--batch-check=%(objecttype) %(objectsize)",
                stdin=_lines(names),
            )
            for line in checked.splitlines():
                if line.partition(b" ")[0] not in (b"blob", b"tree", b"commit"):
                    raise WorkspaceError("some of the files are missing")
            if not _is_within(git, tree, limits):
                raise WorkspaceError(f"the files are more than {limits.size >> 20:,} MB")
    except TimeoutError as error:
        raise WorkspaceError("reading the files took too long") from error
    except (GitError, BufferError, AgentStartError) as error:
        raise WorkspaceError(f"the files were refused: {error}") from error
    except OSError as error:
        raise WorkspaceError(f"the files cannot be kept: {error.strerror or error}") from error


def here(store: SnapshotStore, trees: Sequence[str]) -> set[str]:
    """Return those snapshots that are in the store, and keep them there for an hour; blocks.

    Raises WorkspaceError.
    """
    with _looking(store) as git:
        for tree in trees:
            store.note_fresh(tree)
        lines = git.run("cat-file", "--batch-check", stdin=_lines(trees)).decode().splitlines()
        words = (line.split() for line in lines)
        return {name for name, kind, *_ in words if kind in ("tree", "commit")}


def whole(
    store: SnapshotStore, trees: Sequence[str], limits: bounds.PackLimits = bounds.PACK_LIMITS
) -> set[str]:
    """Return those snapshots of a stranger that are in the store whole, within the limits; blocks.

    Raises WorkspaceError.
    """
    found = set[str]()
    with _looking(store) as git:
        for tree in trees:
            with suppress(GitError, BufferError):
                if len(_objects(git, tree)) <= limits.files and _is_within(git, tree, limits):
                    found.add(tree)
    return found


@contextmanager
def _looking(store: SnapshotStore) -> Iterator[Git]:
    """Look into a store for a block; its errors are WorkspaceErrors."""
    deadline = time.monotonic() + bounds.PACK_SECONDS
    try:
        with store.used(deadline), ProgramGroup(deadline) as group:
            yield store.git(group)
    except TimeoutError as error:
        raise WorkspaceError("looking for the earlier files took too long") from error
    except (GitError, BufferError, AgentStartError, OSError) as error:
        raise WorkspaceError(f"the earlier files cannot be read: {error}") from error


def _is_within(git: Git, tree: str, limits: bounds.PackLimits) -> bool:
    """True if a snapshot has no more than these files and bytes: one object may stand for many."""
    listed = git.run("ls-tree", "-r", "-l", "-z", "--full-tree", tree).split(b"\0")
    sizes = [line.split(None, 4)[3] for line in listed if line]
    size = sum(int(size) for size in sizes if size != b"-")
    return len(sizes) <= limits.files and size <= limits.size


def _objects(git: Git, *trees: str) -> list[str]:
    """The ids of trees and all in them."""
    options = ("--objects", "--no-object-names", "--stdin")
    return git.run("rev-list", *options, stdin=_lines(trees)).decode().split()


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _objects_of_commit(
    group: ProgramGroup, store: SnapshotStore, project: str, commit: str
) -> list[str]:
    """The ids of the tree of a commit in a project, and all in it."""
    if not OBJECT.fullmatch(commit):
        raise GitError("no commit of that kind")
    top = ("-C", project, *HARMLESS)
    names = ("rev-list", "--objects", "--no-object-names", f"{commit}^{{tree}}")
    return _of_project(group, store).run(*top, *names).decode().split()


def _of_project(group: ProgramGroup, store: SnapshotStore) -> Git:
    return Git(group, None, home=store.path)
