"""A project with real git, and a folder of stores."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.safety.snapshots import bounds, comparison
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.snapshot import NotTaken, Taken, take
from acphold.safety.snapshots.store import SnapshotStore, Stores
from acphold.safety.snapshots.worktree import Laid, lay

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_AUTHOR_DATE": "@1 +0000"}
COMMITTER = {key.replace("AUTHOR", "COMMITTER"): value for key, value in IDENTITY.items()}

Git = Callable[..., str]


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def changes(store: SnapshotStore, before: str, after: str) -> list[comparison.FileChange]:
    with comparison.reading(store) as snapshots:
        return snapshots.changes(before, after)


def patch(store: SnapshotStore, before: str, after: str, *paths: str) -> bytes:
    with comparison.reading(store) as snapshots:
        found = snapshots.changes(before, after, patches=True)
    return b"".join(it.patch for it in found if not paths or it.path in paths)


def is_there(store: SnapshotStore, tree: str) -> bool:
    """True if the store has a snapshot."""
    return not subprocess.run(
        ["git", "-C", store.path, "cat-file", "-e", f"{tree}^{{tree}}"],
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).returncode


class Project:
    """A work tree with its stores; snapshots are taken, listed and laid out by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = folder / "project"
        self.top.mkdir()
        self.stores = Stores(str(folder / "stores"))

    def git(self, *words: str, at: Path | None = None, fails: bool = False, stdin: str = "") -> str:
        """Run the person's git in the project, or in another folder."""
        ended = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=at or self.top,
            env={**os.environ, **IDENTITY, **COMMITTER},
            capture_output=True,
            input=stdin.encode(),
            timeout=140,
        )
        assert fails or ended.returncode == 0, ended.stderr
        return os.fsdecode(ended.stdout)

    def commit(self, message: str = "work") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def blob(self, text: str) -> str:
        """Put a content into the repository alone, and return its id."""
        return self.git("hash-object", "-w", "--stdin", stdin=text).strip()

    def write(self, name: str, text: str | bytes = "text") -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def attempt(
        self,
        limits: SnapshotLimits | None = None,
        seconds: float = 30.0,
        is_ending: Callable[[], bool] = bool,
    ) -> Taken | NotTaken:
        """Take a snapshot, with no bound on the free space of the disk."""
        checkout = checkout_of(str(self.top))
        assert checkout is not None
        return take(
            self.stores,
            checkout,
            Surroundings.here(),
            limits=limits or SnapshotLimits(free=0),
            deadline=time.monotonic() + seconds,
            is_ending=is_ending,
        )

    def take(self, limits: SnapshotLimits | None = None) -> Taken:
        taken = self.attempt(limits, seconds=120)  # also on a busy disk
        assert isinstance(taken, Taken), taken
        return taken

    def refused(self, limits: SnapshotLimits | None = None, seconds: float = 30.0) -> str:
        refused = self.attempt(limits, seconds)
        assert isinstance(refused, NotTaken), refused
        return refused.reason

    def store(self, taken: Taken) -> SnapshotStore:
        found = self.stores.find(taken.store)
        assert found is not None
        return found

    def names(self, taken: Taken) -> set[str]:
        """The files in a snapshot."""
        return {one.path for one in changes(self.store(taken), EMPTY_TREE, taken.tree)}

    def lay(self, taken: Taken, name: str = "laid", *, plain: bool = False) -> Laid:
        return lay(
            self.store(taken),
            taken.tree,
            str(self.folder / name),
            project="" if plain else str(self.top),
            commit=taken.head.commit,
        )

    def status(self, folder: Path | str | None = None) -> str:
        return self.git("status", "--porcelain", "-z", "-uall", at=Path(folder) if folder else None)

    def holds(self, taken: Taken, marker: bytes) -> bool:
        """True if a marker stands in any object of the store."""
        git = ["git", "-C", self.store(taken).path]
        listed = subprocess.run(
            [*git, "cat-file", "--batch-all-objects", "--batch"], capture_output=True, timeout=60
        )
        assert listed.returncode == 0
        return marker in listed.stdout


AGE_NS = 20_000_000
"""Nanoseconds that files age in `age`: the clock of a disk may stand still for some of them."""


SECOND_NS = 1_000_000_000


def age(least: int = AGE_NS) -> None:
    """Wait until a change of any file shows in its times."""
    until = time.time_ns() + least + 5_000_000
    while time.time_ns() < until:
        time.sleep(0.001)


@pytest.fixture
def quick_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may be believed once they have aged by `age`."""
    monkeypatch.setattr(bounds, "SETTLED_NS", (AGE_NS, AGE_NS))


def begun(folder: Path, *words: str) -> Project:
    """A new repository in the folder `work`, without a commit."""
    (folder / "work").mkdir()
    made = Project(folder / "work")
    made.git("init", "-q", "-b", "main", *words)
    return made


def digest(folder: Path) -> dict[str, tuple[str, int, int]]:
    """The bytes, mode and time of all that is below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(content).hexdigest(),
            seen.st_mode,
            seen.st_mtime_ns,
        )
    return found


def files(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """All files below a folder, without those of git: kind and bytes, by name."""
    found: dict[bytes, tuple[str, bytes]] = {}
    for at, folders, names in os.walk(os.fsencode(folder)):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        folders[:] = [name for name in folders if name != b".git" and name not in links]
        for name in [*names, *links]:
            if name == b".git":
                continue
            path = os.path.join(at, name)
            relative = os.path.relpath(path, os.fsencode(folder))
            if os.path.islink(path):
                found[relative] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as file:
                    kind = "program" if os.access(path, os.X_OK) and _is_program(path) else "file"
                    found[relative] = (kind, file.read())
    return found


def _is_program(path: bytes) -> bool:
    return bool(os.stat(path).st_mode & 0o100)


@pytest.fixture
def folder(tmp_path: Path) -> Project:
    """A folder outside of any repository, in which nothing is yet."""
    return Project(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with one commit."""
    made = Project(tmp_path)
    made.git("init", "-q", "-b", "main")
    made.write("a.txt", "first\n")
    made.write("folder/b.txt", "second\n")
    made.commit()
    return made
