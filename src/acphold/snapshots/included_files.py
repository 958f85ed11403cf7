"""Ignored files of today that a project wants in its new work trees, as `.worktreeinclude` says.

It has patterns like `.gitignore`, and is a convention of several agents. It names only files: what
is copied is ignored by git, or was left out of the snapshot, and is a regular file of the project
that is reached through no link.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress

from msgspec import Struct

from acphold.errors import AgentStartError
from acphold.processes.program_group import ProgramGroup
from acphold.snapshots.checkouts import checkout_at
from acphold.snapshots.git import GitError
from acphold.snapshots.snapshot import ignored_names_of
from acphold.snapshots.store import SnapshotStore
from acphold.workspace.regular_files import contents
from acphold.workspace.replacement import SAFELY
from acphold.workspace.roots import FOLDER
from acphold.workspace.threads import Checkpoint

LIST = ".worktreeinclude"

MOST_FILES = 10_000
MOST_BYTES = 500 << 20
"""Bounds on what is copied."""

LARGEST_LIST = 64 << 10

SECONDS = 60.0
"""Seconds that finding these files may take."""

PIECE = 1 << 20


class Included(Struct, frozen=True):
    """Files that were copied: the first `names`, their `count`; `missing` says why others were not.

    `is_possible` is True if there is a list that was not asked for.
    """

    names: tuple[str, ...] = ()
    count: int = 0
    missing: str = ""
    is_possible: bool = False


def has_list(project: str) -> bool:
    """True if a project names such files."""
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(os.path.join(project, LIST)).st_mode)
    return False


def included(
    store: SnapshotStore,
    project: str,
    folder: str,
    left_out: Collection[str],
    placed: list[str],
    checkpoint: Checkpoint = lambda: None,
) -> Included:
    """Copy the files of `project` that its list names into `folder`; existing ones stay.

    `left_out` are files that the snapshot does not have although they are not ignored. The files
    and folders that were made are noted in `placed`. Blocks.
    """
    if not has_list(project):
        return Included(missing=f"the project has no {LIST}")
    try:
        names = _names(store, project, left_out)
        copied, missing = _copied(project, folder, names, placed, checkpoint)
    except TimeoutError:
        return Included(missing="it took too long to find them")
    except (GitError, AgentStartError, BufferError) as error:
        return Included(missing=str(error))
    except OSError as error:
        return Included(missing=error.strerror or str(error))
    return Included(tuple(copied[:3]), len(copied), missing)


def _names(store: SnapshotStore, project: str, left_out: Collection[str]) -> list[str]:
    """The files that the list names and that are ignored, or were left out."""
    patterns = contents(os.path.join(project, LIST), LARGEST_LIST)
    checkout = checkout_at(project)
    with (
        store.used(time.monotonic() + SECONDS),
        ProgramGroup(time.monotonic() + SECONDS) as group,
        tempfile.NamedTemporaryFile(dir=store.path, prefix="include") as named,
    ):
        named.write(patterns)
        named.flush()
        git = store.git(group, work_tree=project)
        wanted = {*git.names("ls-files", "-z", "-o", "-i", f"--exclude-from={named.name}")}
        if checkout is not None:
            wanted &= ignored_names_of(store, group, checkout) | {*left_out}
    return sorted(name for name in wanted if not name.endswith("/"))


def _copied(
    project: str, folder: str, names: Collection[str], placed: list[str], checkpoint: Checkpoint
) -> tuple[list[str], str]:
    """Copy files; return those that were, and why not all."""
    copied: list[str] = []
    left = MOST_BYTES
    for name in names:
        checkpoint()
        if len(copied) == MOST_FILES:
            return copied, f"more than {MOST_FILES:,} files"
        try:
            size = _copy(project, folder, name, left, placed, checkpoint)
        except (FileExistsError, FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except OSError as error:  # the disk is full
            return copied, error.strerror or str(error)
        if size is None:
            continue
        if size < 0:
            return copied, f"more than {MOST_BYTES >> 20} MB"
        left -= size
        copied.append(name)
    return copied, ""


def _copy(
    project: str, folder: str, name: str, most: int, placed: list[str], checkpoint: Checkpoint
) -> int | None:
    """Copy one file, whole or not at all; return its size, None if it is none, -1 if it has more
    than `most` bytes."""
    *above, last = name.split("/")
    with ExitStack() as held:
        source = _inside(held, project, above)
        if source is None:
            return None
        try:
            fd = os.open(last, os.O_RDONLY | SAFELY, dir_fd=source)
        except OSError:  # a link, or gone
            return None
        reading = held.enter_context(open(fd, "rb", buffering=0))
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > most:
            return -1
        target = _inside(held, folder, above, placed)
        if target is None:
            return None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY
        made = os.open(last, flags, stat.S_IMODE(status.st_mode) & 0o777, dir_fd=target)
        placed.append(os.path.join(folder, name))
        try:
            with open(made, "wb", buffering=0) as writing:
                left = status.st_size  # it may grow meanwhile
                while left > 0 and (piece := reading.read(min(PIECE, left))):
                    checkpoint()
                    while piece:
                        size = writing.write(piece)
                        left, piece = left - size, piece[size:]
        except BaseException:
            os.unlink(last, dir_fd=target)
            raise
        return status.st_size


def _inside(
    held: ExitStack, top: str, names: list[str], placed: list[str] | None = None
) -> int | None:
    """Open a folder below `top`, through no link; None if there is none. With `placed` it is made,
    and noted there."""
    fd = os.open(top, FOLDER)
    held.callback(os.close, fd)
    for depth, name in enumerate(names, 1):
        try:
            if placed is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                    placed.append(os.path.join(top, *names[:depth]))
            fd = os.open(name, FOLDER, dir_fd=fd)
        except OSError:  # a link, a file, or not there
            return None
        held.callback(os.close, fd)
    return fd
