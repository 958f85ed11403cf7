"""Random histories of a project: a snapshot that is laid out equals the original."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.store import Stores

from .conftest import Project, age, digest, files

pytestmark = pytest.mark.slow

KINDS = ("sha1", "sha256")

NAMES = ("a", "b.txt", "sub/c", "sub/d e", "deep/er/f", "é", "e\u0301", "x.log", "-q", "\udcff")


class History:
    """Somebody at work in a project, by chance."""

    def __init__(self, project: Project, seed: int) -> None:
        self.project = project
        self.chance = random.Random(seed)
        self.steps: tuple[tuple[Callable[[], None], int], ...] = (
            (self.write, 8),
            (self.remove, 3),
            (self.link, 1),
            (self.program, 1),
            (self.swap, 1),
            (self.commit, 2),
            (self.stage, 4),
            (self.unstage, 1),
            (self.intend, 1),
            (self.move, 1),
            (self.conflict, 1),
            (self.ignore, 1),
            (self.branch, 1),
            (self.detach, 1),
            (self.nested, 1),
            (self.submodule, 1),
        )

    def step(self) -> None:
        steps, weights = zip(*self.steps, strict=True)
        self.chance.choices(steps, weights)[0]()

    @property
    def path(self) -> Path:
        return self.project.top / self.chance.choice(NAMES)

    def write(self) -> None:
        path = self.path
        if any(one.is_symlink() or one.is_file() for one in path.parents):
            return
        if path.is_dir() and not path.is_symlink():
            return
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            self.chance.choice([b"", b"one\r\n", b"\0\xff", self.chance.randbytes(20)])
        )

    def remove(self) -> None:
        path = self.path
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)

    def link(self) -> None:
        path = self.path
        if path.parent.is_dir() and not os.path.lexists(path):
            path.symlink_to(self.chance.choice(["a", "/etc/passwd", "..", "nowhere"]))

    def program(self) -> None:
        path = self.path
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ 0o111)

    def swap(self) -> None:
        path = self.project.top / "sub"
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
            path.write_text("a file now")

    def commit(self) -> None:
        self.project.git("add", "-A", fails=True)
        self.project.git("commit", "-q", "--allow-empty", "-m", "x", fails=True)

    def stage(self) -> None:
        name = os.path.relpath(self.path, self.project.top)
        self.project.git("add", "-A", "--", name, fails=True)

    def unstage(self) -> None:
        name = os.path.relpath(self.path, self.project.top)
        self.project.git("rm", "-rq", "--cached", "--", name, fails=True)

    def intend(self) -> None:
        name = os.path.relpath(self.path, self.project.top)
        self.project.git("add", "-N", "--", name, fails=True)

    def move(self) -> None:
        self.write()
        one, two = (os.path.relpath(self.path, self.project.top) for _ in range(2))
        self.project.git("mv", "--", one, two, fails=True)

    def conflict(self) -> None:
        blobs = [self.project.blob(str(self.chance.random())) for _ in range(3)]
        mask = self.chance.randint(1, 7)
        lines = [f"0 {'0' * len(blobs[0])}\ta\n"]
        lines += [
            f"100644 {blob} {stage}\ta\n"
            for stage, blob in enumerate(blobs, 1)
            if mask & 1 << stage - 1
        ]
        self.project.git("update-index", "--index-info", stdin="".join(lines))

    def ignore(self) -> None:
        self.project.write(".gitignore", self.chance.choice(["*.log\n", "sub/\n", "", "a\n"]))

    def aside(self) -> None:
        """A folder with the same names takes the place of another one."""
        path, beside = self.project.top / "deep", self.project.folder / "aside"
        if path.is_dir() and not path.is_symlink():
            if self.chance.random() < 0.5:
                path.rename(beside)
                path.symlink_to(beside)
            else:
                shutil.copytree(path, beside)
                shutil.rmtree(path)
                beside.rename(path)
        elif path.is_symlink():
            path.unlink()
            beside.rename(path)

    def hide(self) -> None:
        """A list of ignored names that no list of files names."""
        folder = self.project.top / self.chance.choice(["deep", "sub", "deep/er"])
        if folder.is_dir() and not folder.is_symlink():
            (folder / ".gitignore").write_text(self.chance.choice(["*\n", ".gitignore\nf\n", ""]))

    def branch(self) -> None:
        self.project.git("checkout", "-q", "-B", self.chance.choice(["main", "o/ther"]), fails=True)

    def detach(self) -> None:
        self.project.git("checkout", "-q", "--detach", fails=True)

    def nested(self) -> None:
        path = self.project.top / "nested"
        if not os.path.lexists(path):
            path.mkdir()
            self.project.git("init", "-q", at=path)
            (path / "inner").write_text("inner")
            if self.chance.random() < 0.5:
                self.project.git("add", "-A", at=path)
                self.project.git("commit", "-qm", "x", at=path)
        elif path.is_dir():
            (path / "inner").write_text(str(self.chance.random()))

    def submodule(self) -> None:
        other = self.project.folder / "other"
        if not other.exists():
            other.mkdir()
            self.project.git("init", "-q", at=other)
            self.project.git("commit", "-q", "--allow-empty", "-m", "x", at=other)
        self.project.git("submodule", "--quiet", "add", str(other), "mod", fails=True)


def expected(project: Project) -> dict[bytes, tuple[str, bytes]]:
    """All files of a project but those that git ignores."""
    ignored = project.git("ls-files", "-z", "-o", "-i", "--exclude-standard").split("\0")
    names = {os.fsencode(name) for name in ignored if name}
    return {
        name: kept
        for name, kept in files(project.top).items()
        if name not in names
        and not any(name.startswith(one) for one in names if one.endswith(b"/"))
    }


def play(folder: Path, seed: int, kind: str) -> None:
    project = Project(folder)
    project.git("init", "-q", "-b", "main", f"--object-format={kind}")
    history = History(project, seed)
    for turn in range(4):
        for _ in range(history.chance.randint(1, 6)):
            history.step()
        own = digest(project.top / ".git")
        taken = project.take()
        assert digest(project.top / ".git") == own, f"seed {seed}, turn {turn}"
        laid = project.lay(taken, f"laid{turn}")
        assert files(Path(laid.folder)) == expected(project), f"seed {seed}, turn {turn}"
        has_inner = any((project.top / name).exists() for name in ("nested", "mod"))
        if not laid.why_plain and not has_inner:
            assert project.status(laid.folder) == project.status(), f"seed {seed}, turn {turn}"


@pytest.mark.parametrize("seed", range(32))
def test_a_random_history_is_laid_out_as_it_was(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, KINDS[seed % 4 == 0])


@pytest.mark.parametrize("few", [0, 500])
@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_of_few_changes_is_the_one_of_everything_read_anew(
    tmp_path: Path, seed: int, few: int, monkeypatch: pytest.MonkeyPatch, quick_clock: None
) -> None:
    monkeypatch.setattr(bounds, "CHANGED_FILES", 5)
    monkeypatch.setattr(bounds, "FILES_LOOKED_AT", few)
    project = Project(tmp_path)
    project.git("init", "-q", "-b", "main")
    history = History(project, seed)
    history.steps = (
        *((history.write, 8), (history.remove, 3), (history.link, 2), (history.program, 2)),
        *((history.swap, 2), (history.stage, 1), (history.ignore, 1), (history.commit, 1)),
        *((history.aside, 2), (history.hide, 1), (history.nested, 1)),
    )
    other = Stores(str(tmp_path / "anew"))
    own, taken = project.stores, project.take()
    for number in range(20):
        for _ in range(history.chance.randint(1, 3)):
            history.step()
        taken = project.take()
        if history.chance.random() < 0.7:
            age()
            assert project.take().tree == taken.tree, f"seed {seed}, step {number}"
        shutil.rmtree(other.folder, ignore_errors=True)
        project.stores = other
        assert project.take().tree == taken.tree, f"seed {seed}, step {number}"
        project.stores = own
        if number % 6 == 5:
            project.store(taken).keep([taken.tree], time.monotonic() + 60)
    assert "missing" not in project.git("-C", project.store(taken).path, "fsck", "--full")


if __name__ == "__main__":  # for `make soak`: so many of them
    for number in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as place:
            play(Path(place), 1000 + number, KINDS[number % 4 == 0])
    sys.stdout.write(f"{sys.argv[1]} histories are laid out as they were\n")
