"""Laying out a snapshot in a folder, with the ignored files that a project wants there.

The folder is never one with anything in it, nor the one the files came from. No hook and no filter
of the project runs. The branch stays where it is: `git status` in the new work tree shows what had
changed, and what was staged.

The file `.worktreeinclude` of a project lists the ignored files to copy: its patterns are like
those of `.gitignore`, and several agents use it. Each copied file is ignored by git, or was left
out of the snapshot, and is a regular file of the project that is reached through no link.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from glob import escape as glob_escape, glob
from secrets import token_hex
from typing import NamedTuple

from msgspec import Struct

from acp_wire.errors import WorkspaceError
from acp_wire.surroundings import Surroundings
from acp_wire.workspace.files import SAFELY
from acp_wire.workspace.regular_files import contents
from acp_wire.workspace.roots import FOLDER
from acp_wire.workspace.threads import Checkpoint
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.checkouts import Checkout, checkout_at, checkout_of, head, work_trees
from acphold.safety.snapshots.git import Git, GitError
from acphold.safety.snapshots.project_index import stage
from acphold.safety.snapshots.snapshot import find_ignored_names
from acphold.safety.snapshots.store import SNAPSHOT_KINDS, SnapshotStore

INCLUDE_LIST = ".worktreeinclude"


LAYING = "laying"

ORIGIN = "acphold-branch"
"""The file in git's folder for a work tree that notes the branch that it came from."""

PIECE = 1 << 20

NO_FILES = (
    *(errno.ENOTDIR, errno.ELOOP, errno.EMLINK),  # not a folder
    *(errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP, errno.ESTALE, errno.ENAMETOOLONG),
)
"""Errors of opening something else than a file, or below something else than a folder."""


class Laid(Struct, frozen=True):
    """The folder with the files. `why_plain` says why it is no work tree of the repository, ""
    if it is one. `placed` is what we have put there, `made` are the folders that were not there.
    `note` is the file that notes it, while it is there."""

    folder: str
    why_plain: str = ""
    placed: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    note: str = ""


class PlaceTakenError(WorkspaceError):
    """Somebody else has made the folder in this moment."""


def lay(
    store: SnapshotStore,
    tree: str,
    folder: str,
    *,
    project: str = "",
    commit: str | None = None,
    checkpoint: Checkpoint = lambda: None,
    until: ExitStack | None = None,
) -> Laid:
    """Lay out a snapshot in `folder`, an absolute path, which is new or empty; blocks.

    With the top folder of a `project` and the `commit` that was checked out, it becomes a work tree
    of that repository. It is noted in the store until it is done, or until `until` is closed: if
    the process is killed before, it can be removed. Raises WorkspaceError if that folder cannot be
    used or the snapshot is gone; then nothing has changed.
    """
    exists = require_usable(folder, project)
    doing, refusal = f"{folder!r}: laying out the files", f"{folder!r}: "
    with store.working(bounds.LAYING_OUT_SECONDS, doing, refusal) as group, ExitStack() as noted:
        note = os.path.join(store.path, f"{LAYING}-{token_hex(8)}")
        noting = noted.enter_context(open(note, "wb"))
        fcntl.flock(noting, fcntl.LOCK_EX)
        # In the JSON of the standard library paths may have bytes that are no text.
        facts = {"folder": folder, "project": project, "is_new": not exists}
        noting.write(json.dumps(facts).encode())
        noting.flush()
        noted.callback(os.unlink, note)
        git = store.git(group)
        kind, _ = git.objects([tree]).get(tree, ("", 0))
        if kind not in SNAPSHOT_KINDS:
            raise WorkspaceError("the files of that moment are no longer kept")
        made = [] if exists else make_folders(folder)
        placed: list[str] = []
        why_plain = ""
        try:
            why_plain = _add_work_tree(group, store, folder, project, commit)
            checkpoint()
            _write_files(group, store, tree, folder, placed)
            checkpoint()
            if not why_plain and kind == "commit":
                stage(store, group, tree, folder)
            checkpoint()
        except BaseException:
            unlay(Laid(folder, why_plain, tuple(placed), tuple(made)), project)
            raise
        laid = Laid(folder, why_plain, tuple(placed), tuple(made), note)
        note_unused(laid)
        if until is not None:
            until.push(noted.pop_all())
        return laid


class _Laying(NamedTuple):
    """The note of a laying out, in the file `note` of the store; a killed process leaves it,
    without its lock. Nothing was used before `since`, by the clock of the disk in ns."""

    folder: str
    project: str
    is_new: bool
    note: str
    since: int

    def is_unused(self) -> bool:
        """True if there are only files in the folder that nobody can have used yet, or has
        changed."""
        names = os.listdir(self.folder)
        if all(name == ".git" or name.startswith(f".{LAYING}-") for name in names):
            return True
        for top, folders, files in os.walk(self.folder):
            paths = (os.path.join(top, name) for name in ("", *folders, *files))
            if any(os.lstat(path).st_ctime_ns > self.since for path in paths):
                return False
        return True


def note_unused(laid: Laid) -> None:
    """Note that all that is in a folder by now was laid out there, and is unused."""
    os.utime(laid.note)


def _read_notes(stores: Iterable[SnapshotStore]) -> Iterator[_Laying]:
    """Yield what killed processes have begun to lay out. Nobody else gets at a note meanwhile."""
    for store in stores:
        for path in glob(os.path.join(glob_escape(store.path), f"{LAYING}-*")):
            with suppress(OSError, ValueError, TypeError), open(path, "rb") as note:
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
                since = os.fstat(note.fileno()).st_mtime_ns
                it = _Laying(**json.loads(note.read()), note=path, since=since)
                yield it


def find_unfinished(stores: Iterable[SnapshotStore]) -> list[str]:
    """Return the folders that killed processes have begun to lay out; blocks."""
    return sorted({it.folder for it in _read_notes(stores)})


def remove_unfinished(stores: Iterable[SnapshotStore], found: Mapping[str, bool]) -> None:
    """Remove what killed processes have begun to lay out in the folders that were `found`, unless
    somebody may have used it; blocks. If the value is True, a session works there: it was done."""
    for it in _read_notes(stores):
        if it.folder not in found:
            continue
        if not found[it.folder] and os.path.isdir(it.folder):
            if not it.is_unused():
                continue
            ours = [os.path.join(it.folder, name) for name in os.listdir(it.folder)]
            ours = [path for path in ours if os.path.basename(path) != ".git"]
            unlay(Laid(it.folder, "", tuple(ours), (it.folder,) if it.is_new else ()), it.project)
            if os.path.isdir(it.folder) and os.listdir(it.folder):
                continue
        os.unlink(it.note)


def require_usable(folder: str, project: str) -> bool:
    """Return True if the folder exists, and is empty; raise WorkspaceError if it cannot be used."""
    exists = True
    try:
        if os.path.islink(folder) or os.listdir(folder):
            raise WorkspaceError(f"{folder!r} is not empty; choose a new folder")
    except FileNotFoundError:
        exists = False
    except OSError as error:
        raise WorkspaceError(f"{folder!r} cannot be used: {error.strerror}") from error
    place = os.path.realpath(folder)
    if project and f"{place}/".startswith(f"{os.path.realpath(project)}/"):
        raise WorkspaceError(f"{folder!r} is inside the project; choose a folder beside it")
    if (around := checkout_of(os.path.dirname(place))) is not None:
        raise WorkspaceError(
            f"{folder!r} is inside the repository {around.top!r}; choose another folder"
        )
    return exists


def unlay(laid: Laid, project: str) -> None:
    """Remove a snapshot that was laid out just now, with its note as a work tree of the project;
    blocks. What anybody else has put into the folder stays."""
    for path in laid.placed:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)
    # The note of a work tree that is not ours stays.
    tops = (laid.folder, "" if laid.why_plain else project)
    ours, its = (checkout_at(top) if top else None for top in tops)
    if ours is not None and its is not None and ours.common == its.common:
        work_trees = os.path.join(its.common, "worktrees")
        if os.path.dirname(ours.git_folder) == work_trees:
            shutil.rmtree(ours.git_folder, ignore_errors=True)
            with suppress(OSError):
                os.unlink(os.path.join(laid.folder, ".git"))
            with suppress(OSError):  # other work trees are in it
                os.rmdir(work_trees)
    for one in reversed(laid.made):
        with suppress(OSError):  # something else is in it by now
            os.rmdir(one)


def beside(project: str, ending: str = "fork") -> str:
    """Return a folder that is not there yet, beside the first work tree of a project and outside of
    every repository, with this ending of its name. It is no work tree that was deleted: git keeps
    its place."""
    checkout = checkout_at(os.path.realpath(project))
    known = [project] if checkout is None else work_trees(checkout)
    project = known[0]
    top = os.path.realpath(project)
    while (around := checkout_of(os.path.dirname(top))) is not None:
        top = around.top
    place = os.path.join(os.path.dirname(top), os.path.basename(project) or "files")
    for number in itertools.count(1):
        folder = f"{place}-{ending}{'' if number == 1 else f'-{number}'}"
        if not os.path.lexists(folder) and folder not in known:
            break
    return folder


def make_inside(top: str, folder: str) -> str:
    """Make a folder of a snapshot that was laid out in `top`: git knows no empty ones. Return it,
    or `top` if a link of the snapshot leads out."""
    if not f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(top)}/"):
        return top
    os.makedirs(folder, exist_ok=True)
    return folder


def _add_work_tree(
    group: ProgramGroup, store: SnapshotStore, folder: str, project: str, commit: str | None
) -> str:
    """Make `folder` a work tree of the project at `commit`, without files; return why not."""
    if not project or checkout_at(project) is None:
        return "the project is not a git repository here"
    if commit is None:
        return "the repository had no commits at that time"
    try:
        git = Git.within(group, project, store.path)
        git.run("cat-file", "-e", f"{commit}^{{commit}}")
    except GitError:
        return f"commit {commit[:12]} is no longer in the repository, or git refuses to use it"
    try:
        git.run("worktree", "add", "--detach", "--no-checkout", "--", folder, commit)
    except GitError as error:
        return str(error)
    try:
        Git.within(group, folder, store.path).run("read-tree", commit)
        if (ours := checkout_at(folder)) is not None and (its := checkout_at(project)) is not None:
            note_origin(ours, its)
    except GitError as error:
        unlay(Laid(folder), project)
        return str(error)
    return ""


def note_origin(tree: Checkout, project: Checkout) -> None:
    """Note for a new work tree which branch is checked out in the one that it is made of."""
    with open(os.path.join(tree.git_folder, ORIGIN), "w", encoding="utf-8") as note:
        note.write(head(project).branch)


def newest_change(folder: str) -> int:
    """Return when something in a folder changed last, by the clock of its disk, in ns."""
    newest = 0
    for top, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            with suppress(OSError):
                newest = max(newest, os.lstat(os.path.join(top, name)).st_ctime_ns)
    return newest


def make_folders(folder: str) -> list[str]:
    """Make a folder, and those above it; return those that were not there, the highest first."""
    missing = []
    above = folder
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.mkdir(folder)
    except FileExistsError:
        raise PlaceTakenError(f"{folder!r} was just created; choose another folder") from None
    return missing[::-1]


def _write_files(
    group: ProgramGroup, store: SnapshotStore, tree: str, folder: str, placed: list[str]
) -> None:
    """Write the files of a snapshot into `folder`: beside one another first, so that no file that
    somebody else puts there is written over. Notes in `placed` what we have put there."""
    beside = tempfile.mkdtemp(dir=folder, prefix=f".{LAYING}-")
    placed.append(beside)
    index = f"{beside}.index"
    placed += [index, f"{index}.lock"]
    git = store.git(group, work_tree=beside, index=index)
    git.run("read-tree", tree)
    git.run("checkout-index", "--all", "--quiet")
    os.unlink(index)
    for name in os.listdir(beside):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            raise WorkspaceError(f"{folder!r} is no longer empty: it contains {name!r}")
        os.rename(os.path.join(beside, name), path)
        placed.append(path)
    os.rmdir(beside)


# -- ignored files that are copied -----------------------------------------------------------


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
        return stat.S_ISREG(os.lstat(os.path.join(project, INCLUDE_LIST)).st_mode)
    return False


def include(
    store: SnapshotStore,
    project: str,
    folder: str,
    left_out: Collection[str],
    surroundings: Surroundings,
    placed: list[str],
    checkpoint: Checkpoint = lambda: None,
) -> Included:
    """Copy the files of `project` that its list names into `folder`; existing ones stay.

    `left_out` are files that the snapshot does not have although they are not ignored. The files
    and folders that were made are noted in `placed`. Blocks.
    """
    if not has_list(project):
        return Included(missing=f"the project has no {INCLUDE_LIST}")
    try:
        # Only files that are ignored, or were left out.
        checkout = checkout_at(project)
        with (
            store.working(bounds.INCLUDING_SECONDS, "finding them") as group,
            tempfile.NamedTemporaryFile(dir=store.path, prefix="include") as named,
        ):
            path = os.path.join(project, INCLUDE_LIST)
            named.write(contents(path, bounds.INCLUDE_LIST_BYTES))
            named.flush()
            git = store.git(group, work_tree=project)
            wanted = {*git.names("ls-files", "-z", "-o", "-i", f"--exclude-from={named.name}")}
            if checkout is not None:
                wanted &= find_ignored_names(store, group, checkout, surroundings) | {*left_out}
    except WorkspaceError as error:
        return Included(missing=str(error))
    copied: list[str] = []
    missing, left = "", bounds.INCLUDED_BYTES
    for name in sorted(name for name in wanted if not name.endswith("/")):
        checkpoint()
        if len(copied) == bounds.INCLUDED_FILES:
            missing = f"more than {bounds.INCLUDED_FILES:,} files"
            break
        try:
            size = _copy_file(project, folder, name, left, placed, checkpoint)
        except (FileExistsError, FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            if error.errno in NO_FILES:
                continue
            missing = error.strerror or str(error)  # the disk is full
            break
        if size is None:
            continue
        if size < 0:
            missing = f"more than {bounds.INCLUDED_BYTES >> 20} MB"
            break
        left -= size
        copied.append(name)
    return Included(tuple(copied[:3]), len(copied), missing)


def _copy_file(
    project: str, folder: str, name: str, most: int, placed: list[str], checkpoint: Checkpoint
) -> int | None:
    """Copy one file, whole or not at all; return its size, None if it is none, -1 if it has more
    than `most` bytes."""
    *above, last = name.split("/")
    with ExitStack() as held:
        source = _open_folder(held, project, above)
        fd = os.open(last, os.O_RDONLY | SAFELY, dir_fd=source)
        reading = held.enter_context(open(fd, "rb", buffering=0))
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > most:
            return -1
        target = _open_folder(held, folder, above, placed)
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


def _open_folder(
    held: ExitStack, top: str, names: list[str], placed: list[str] | None = None
) -> int:
    """Open a folder below `top`, through no link; raises OSError. With `placed` it is made, and
    noted there."""
    fd = os.open(top, FOLDER)
    held.callback(os.close, fd)
    for depth, name in enumerate(names, 1):
        if placed is not None:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
                placed.append(os.path.join(top, *names[:depth]))
        fd = os.open(name, FOLDER, dir_fd=fd)
        held.callback(os.close, fd)
    return fd
