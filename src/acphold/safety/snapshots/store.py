"""The stores of snapshots: a bare git repository of our own for each project.

To take a snapshot, nothing is written into a person's repository. A store is known by a random id,
which the journal names with each snapshot: a project that was moved keeps its history. A snapshot
is a tree of git, or a commit that has what was staged, too. Nothing in a store refers to it until
`keep` does, from what the journal still names.

    FOLDER/told            there once the person has been told that files are kept
    FOLDER/ID/             the bare repository
    FOLDER/ID/project      the folder that all work trees of the project share
    FOLDER/ID/roots/KEY/   for each work tree: its index and the snapshot in that, what is known of
                           it and of its folders, its lock, why it was given up, and a mark while
                           its first snapshot is not finished
    FOLDER/ID/fresh/TREE   a snapshot that the journal may not name yet
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EPERM, EROFS
from hashlib import sha256

from acp_wire.workspace.regular_files import contents
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.git import Git, GitError, explained

CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tprecomposeunicode = false
\tautocrlf = false
\tfsmonitor = false
\tuntrackedcache = false
\thooksPath = /dev/null
\tprotectNTFS = true
\tfsyncMethod = batch
\tfsync = committed
[index]
\tsparse = false
[gc]
\tauto = 0
[repack]
\twriteBitmaps = false
"""

ATTRIBUTES = "* -text -filter -ident -working-tree-encoding -export-subst\n"
"""A snapshot has the bytes of a file, whatever a project says about it."""


GIVEN_UP = "given-up"
"""The name of a file that says why no snapshots of a work tree are taken."""

UNFINISHED = "unfinished"
"""The name of a file beside the index of a work tree whose first snapshot was interrupted."""

BASE = "base"
"""The name of a file beside the index of a work tree: the snapshot that the index has, whose
contents it refers to."""

NAMED = ".named"
"""The end of a marker's name once the journal names its snapshot."""


PACKING = (
    *("-c", "pack.threads=1", "-c", "pack.windowMemory=32m", "-c", "pack.deltaCacheSize=16m"),
    *("-c", "core.bigFileThreshold=16m"),  # larger files are streamed, and have no deltas
)
"""Options that bound the memory and the threads of packing."""

SNAPSHOT_KINDS = ("tree", "commit")
"""The kinds of objects that a snapshot may be."""

STORE_ID = re.compile(r"[0-9a-f]{16}")


class StoreInUseError(TimeoutError):
    """A lock was not free until the deadline."""


class SnapshotStore:
    """One store, at `path`."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def id(self) -> str:
        return os.path.basename(self.path)

    def root(self, top: str) -> str:
        """The folder of what is known of a work tree, made if it is missing."""
        path = os.path.join(self.path, "roots", sha256(os.fsencode(top)).hexdigest()[:32])
        os.makedirs(path, 0o700, exist_ok=True)
        return path

    def git(self, group: ProgramGroup, *, work_tree: str | None = None, index: str = "") -> Git:
        """Git on this store; without an `index` on an empty one."""
        index = index or os.path.join(self.path, "none")
        return Git(group, self.path, home=self.path, work_tree=work_tree, index=index)

    def link_to(self, path: str) -> None:
        """Make a store at `path` with the same files. The knowledge about work trees is left out:
        it is found out anew."""
        _make_folders(path)
        for name in ("config", "info/attributes", "project", "packed-refs", "HEAD"):
            with suppress(FileNotFoundError):
                shutil.copyfile(os.path.join(self.path, name), os.path.join(path, name))
        objects = os.path.join(self.path, "objects")
        for folder, _, names in os.walk(objects):
            target = os.path.join(path, "objects", os.path.relpath(folder, objects))
            os.makedirs(target, 0o700, exist_ok=True)
            for name in names:
                if not name.startswith(("tmp_", ".tmp")):
                    with suppress(FileExistsError):
                        os.link(os.path.join(folder, name), os.path.join(target, name))

    def size(self) -> int:
        """The bytes that it takes on disk."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total

    @contextmanager
    def used(self, deadline: float, *, alone: bool = False) -> Iterator[None]:
        """Use the store for a block, beside others or `alone`; raises TimeoutError at the deadline
        and FileNotFoundError if it is gone."""
        with locked(os.path.join(self.path, "lock"), deadline, shared=not alone):
            if not os.path.isfile(os.path.join(self.path, "HEAD")):
                raise FileNotFoundError(f"{self.path} was removed")
            yield

    @contextmanager
    def working(self, seconds: float, doing: str, refusal: str = "") -> Iterator[ProgramGroup]:
        """Work with git on the store for a block, for so many seconds; errors are `explained`."""
        deadline = time.monotonic() + seconds
        with (
            explained(doing, refusal),
            self.used(deadline),
            ProgramGroup(deadline) as group,  # all of it has ended before others may use it
        ):
            yield group

    def note_fresh(self, tree: str) -> None:
        """Keep a snapshot until the journal has named it."""
        folder = os.path.join(self.path, "fresh")
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(os.path.join(folder, tree), "w"):
            pass

    def is_loose(self) -> bool:
        """True if it has so many small files that packing them pays: one in 256 is looked at."""
        with suppress(FileNotFoundError):
            looked_at = os.listdir(os.path.join(self.path, "objects", "17"))
            return len(looked_at) * 256 > bounds.LOOSE_OBJECTS
        return False

    def was_named(self, tree: str) -> None:
        """Note that the journal names a snapshot."""
        marker = os.path.join(self.path, "fresh", tree)
        with suppress(OSError):
            os.utime(marker)
            os.replace(marker, f"{marker}{NAMED}")

    def keep(
        self,
        trees: Collection[str],
        deadline: float,
        *,
        since: int | None = None,
        checkpoint: Callable[[], None] | None = None,
    ) -> None:
        """Keep these snapshots, and those that are fresh; remove all others from the disk.

        `since` is the time, by the clock of the disk in ns, at which the journal was asked for
        them: what it has named after that stays. By default nothing has been named since.

        Raises TimeoutError, GitError and OSError, and what `checkpoint` raises, which is called
        while git runs; then nothing that is to be kept is gone.
        """
        with self.used(deadline), _gentle(deadline, checkpoint) as group:
            # The long part drops nothing, so that snapshots are taken meanwhile.
            self.git(group).run(*PACKING, "repack", "-a", "-d", "-k", "-q")
        with self.used(deadline, alone=True), _gentle(deadline, checkpoint) as group:
            for name in os.listdir(os.path.join(self.path, "objects", "pack")):
                if name.startswith(("tmp_", ".tmp")):  # nobody else is here: a kill has left it
                    os.unlink(os.path.join(self.path, "objects", "pack", name))
            for entry in os.listdir(self.path):
                if entry.startswith(("index", "include")):
                    path = os.path.join(self.path, entry)
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            kept = {*trees, *self._fresh(since)}
            # Forget the work trees whose index refers to what goes: they are read anew next time.
            for folder in self._roots():
                if is_unfinished(folder):
                    index = os.path.join(folder, "index")
                    with suppress(GitError):  # it is damaged, and is then read anew
                        kept.add(self.git(group, index=index).run("write-tree").decode().strip())
                        continue
                is_kept = False
                with suppress(OSError):
                    is_kept = {tree_of(folder), tree_of(folder, BASE)} <= kept
                for name in () if is_kept else os.listdir(folder):
                    if name not in ("lock", GIVEN_UP):
                        os.unlink(os.path.join(folder, name))
            git = self.git(group)
            objects = git.objects(kept).items()
            existing = [name for name, (kind, _) in objects if kind in SNAPSHOT_KINDS]
            lines = ["# pack-refs with: peeled fully-peeled sorted \n"]
            lines += [f"{tree} refs/acphold/{tree}\n" for tree in sorted(existing)]
            write_whole(os.path.join(self.path, "packed-refs"), "".join(lines).encode())
            git.run(*PACKING, "repack", "-a", "-d", "-q")
            git.run("prune", "--expire=now")

    def remove(self, deadline: float, *, since: int | None = None) -> None:
        """Remove it from the disk, unless something in it is fresh; `since` is as in `keep`."""
        with suppress(FileNotFoundError), self.used(deadline, alone=True):
            if not self._fresh(since) and not any(map(is_remembered, self._roots())):
                os.unlink(os.path.join(self.path, "HEAD"))
                shutil.rmtree(self.path)

    def _roots(self) -> list[str]:
        """The folders of what is known of work trees."""
        above = os.path.join(self.path, "roots")
        return (
            [os.path.join(above, key) for key in os.listdir(above)] if os.path.isdir(above) else []
        )

    def _fresh(self, since: int | None) -> set[str]:
        found = set()
        with suppress(FileNotFoundError), os.scandir(os.path.join(self.path, "fresh")) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                    if entry.name.endswith(NAMED):
                        is_fresh = since is not None and status.st_mtime_ns >= since
                    else:
                        is_fresh = time.time() - status.st_mtime < bounds.UNNAMED_SECONDS
                    if not is_fresh:
                        os.unlink(entry.path)
                except FileNotFoundError:  # the journal names it at this moment
                    is_fresh = True
                if is_fresh:
                    found.add(entry.name.removesuffix(NAMED))
        return found


def is_unfinished(root: str) -> bool:
    """True if the first snapshot of a work tree was interrupted, and not too long ago."""
    return _is_younger(os.path.join(root, UNFINISHED), bounds.UNFINISHED_SECONDS)


def is_remembered(root: str) -> bool:
    """True if something is known of a work tree without any snapshot."""
    given_up = os.path.join(root, GIVEN_UP)
    return is_unfinished(root) or _is_younger(given_up, bounds.GIVEN_UP_SECONDS)


def _is_younger(path: str, seconds: float) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < seconds
    except OSError:
        return False


def tree_of(root: str, name: str = "tree") -> str:
    """The last snapshot of a work tree, or the one that its index has; raises OSError if there is
    none."""
    return contents(os.path.join(root, name), 100).decode("ascii", "replace")


class Stores:
    """The stores in one folder, which is made when it is needed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[SnapshotStore]:
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.folder)):
                if (store := self.find(name)) is not None:
                    yield store

    def is_news(self) -> bool:
        """True once, for one of all processes: the person is told then that files are kept."""
        try:
            os.close(os.open(os.path.join(self.folder, "told"), os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        return True

    def find(self, store_id: str) -> SnapshotStore | None:
        """The store with this id; None if it is not here."""
        if not (store_id.isascii() and store_id.isalnum()):
            return None
        path = os.path.join(self.folder, store_id)
        return SnapshotStore(path) if os.path.isfile(os.path.join(path, "HEAD")) else None

    def find_for(self, project: str) -> SnapshotStore | None:
        """The store of a project, as `of` has it; None if there is none yet."""
        named = os.fsencode(project)
        for store in self:
            with suppress(OSError):
                if contents(os.path.join(store.path, "project"), 1 << 16) == named:
                    return store
        return None

    def clear(self, deadline: float) -> None:
        """Remove what a killed process has left of a store; raises TimeoutError and OSError."""
        with locked(os.path.join(self.folder, ".lock"), deadline):
            for name in os.listdir(self.folder):
                if STORE_ID.fullmatch(name) and self.find(name) is None:
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def begin_with(self, others: Iterable[Stores], deadline: float) -> None:
        """Make this folder with everything that the folders of `others` have, unless it exists.

        Files that never change are linked, so that they take no further room until one of the
        folders drops them. Raises TimeoutError and OSError; then the folder is not made.
        """
        if not (stores := [store for one in others for store in one]):
            return
        with locked(f"{self.folder}.lock", deadline):
            if os.path.isdir(self.folder):  # another process was quicker
                return
            made = f"{self.folder}.new"
            shutil.rmtree(made, ignore_errors=True)  # of a killed process
            os.mkdir(made, 0o700)
            for store in stores:
                with suppress(FileNotFoundError), store.used(deadline):  # it was removed just now
                    store.link_to(os.path.join(made, store.id))
            os.rename(made, self.folder)

    def of(self, project: str, deadline: float) -> SnapshotStore:
        """The store of the project whose work trees share this folder, made if there is none.

        Raises TimeoutError and OSError.
        """
        os.makedirs(self.folder, 0o700, exist_ok=True)
        with locked(os.path.join(self.folder, ".lock"), deadline):
            if (store := self.find_for(project)) is not None:
                return store
            named = os.fsencode(project)
            path = os.path.join(self.folder, os.urandom(8).hex())
            _make_folders(path)
            for name, text in (
                ("config", CONFIG.encode()),
                ("info/attributes", ATTRIBUTES.encode()),
                ("project", named),
                ("HEAD", b"ref: refs/heads/none\n"),  # the last: with it, it is a store
            ):
                write_whole(os.path.join(path, name), text)
            return SnapshotStore(path)


def _make_folders(path: str) -> None:
    for folder in ("objects/info", "objects/pack", "refs", "info", "roots"):
        os.makedirs(os.path.join(path, folder), 0o700, exist_ok=True)
    os.chmod(path, 0o700)


def _gentle(deadline: float, checkpoint: Callable[[], None] | None) -> ProgramGroup:
    return ProgramGroup(deadline, niceness=bounds.LOWEST_NICENESS, checkpoint=checkpoint)


@contextmanager
def locked(path: str, deadline: float, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock for a block; the system frees it if this process is killed.

    Raises StoreInUseError at the deadline.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (EROFS, EACCES, EPERM):
            raise
        # To read is all that is left. Where nobody has made a lock, nobody writes.
        there = path if os.path.lexists(path) else os.path.dirname(path)
        descriptor = os.open(there, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(descriptor, how)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreInUseError("another process is using it") from None
                time.sleep(bounds.LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def write_whole(path: str, data: bytes, *, is_lasting: bool = True) -> None:
    """Write a file whole or not at all. One that is not `is_lasting` may be torn if the power
    fails."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(data)
        if is_lasting:
            file.flush()
            os.fsync(file.fileno())
    os.replace(beside, path)
