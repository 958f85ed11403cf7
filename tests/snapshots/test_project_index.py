"""A snapshot keeps the project's staged changes and stages them again when it is laid out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from acp_wire.errors import WorkspaceError
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.packs import make_pack, unpack
from acphold.safety.snapshots.project_index import COMMIT
from acphold.safety.snapshots.snapshot import NotTaken
from acphold.safety.snapshots.store import Stores
from acphold.safety.snapshots.worktree import lay

from .conftest import Project, digest


@pytest.fixture(params=["sha1", "sha256"])
def staged(tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    """A project in which something is staged in every way."""
    made = Project(tmp_path)
    made.git("init", "-q", "-b", "main", f"--object-format={request.param}")
    for name in ("changed", "twice", "gone", "kept", "moved", "fought", "mode", "kind"):
        made.write(name, f"{name}, as it was\n" * 5)
    made.commit()
    made.write("changed", "staged\n")
    made.write("twice", "staged only: 4711\n")
    made.write("new", "new\n")
    made.write("empty", "")
    made.write("odd\n-name \udcff".encode("utf-8", "surrogateescape").decode("latin-1"))
    (made.top / "mode").chmod(0o755)
    (made.top / "kind").unlink()
    (made.top / "kind").symlink_to("nowhere")
    made.git("mv", "moved", "elsewhere")
    made.git("rm", "-q", "--cached", "kept")
    made.git("rm", "-q", "gone")
    made.git("add", "-A", "--", ":!kept")
    made.write("twice", "and changed since\n")
    made.write("intended")
    made.write("intended too", "")
    made.git("add", "-N", "intended", "intended too")
    blobs = [made.blob(text) for text in ("base\n", "ours\n", "theirs\n")]
    lines = [f"100644 {blob} {stage}\tfought\n" for stage, blob in enumerate(blobs, 1)]
    lines.insert(0, f"0 {'0' * len(blobs[0])}\tfought\n")
    made.git("update-index", "--index-info", stdin="".join(lines))
    made.write("untracked")
    return made


def test_the_status_of_a_fork_is_the_same_with_all_that_was_staged(staged: Project) -> None:
    before, own = staged.status(), digest(staged.top / ".git")
    for kind in ("M ", "A ", "MM", "D ", "R ", " A", "UU", "T ", "??"):
        assert f"{kind} " in before
    taken = staged.take()
    assert digest(staged.top / ".git") == own
    laid = staged.lay(taken)
    assert laid.why_plain == ""
    there = Path(laid.folder)
    assert staged.status(there) == before
    for words in (["show", ":twice"], ["show", ":3:fought"], ["diff", "--cached", "--stat"]):
        assert staged.git(*words, at=there) == staged.git(*words)


def test_what_is_only_staged_is_whole_in_the_store_also_when_the_repository_has_lost_it(
    staged: Project,
) -> None:
    before, taken = staged.status(), staged.take()
    staged.git("reset", "-q", "--hard")
    staged.git("gc", "-q", "--prune=now")
    assert staged.holds(taken, b"staged only: 4711")
    store = staged.store(taken)
    store.keep([taken.tree], time.monotonic() + 30)
    assert staged.status(staged.lay(taken).folder) == before


def test_it_is_read_once_and_again_when_it_or_the_commit_has_changed(project: Project) -> None:
    plain = project.take()
    project.write("a.txt", "staged\n")
    project.git("add", "a.txt")
    first = project.take()
    size = project.store(first).size()
    assert project.take().tree == first.tree
    assert project.store(first).size() == size
    project.git("reset", "-q")
    unstaged = project.take()
    project.git("commit", "-qam", "work")
    committed = project.take()
    assert unstaged.tree == committed.tree != plain.tree
    project.git("reset", "-q", "--soft", "HEAD~1")  # changes no index
    assert project.take().tree == first.tree
    store = project.store(first)
    store.keep([], time.monotonic() + 30)
    assert project.take().tree == first.tree


def test_what_is_too_large_or_missing_is_not_staged_and_is_named(project: Project) -> None:
    project.write("large", "x" * 1000)
    project.write("lost", "lost\n")
    project.git("add", "large", "lost")
    for name in ("large", "lost"):
        project.write(name, "small now\n")
    lost = project.blob("lost\n")
    (project.top / f".git/objects/{lost[:2]}/{lost[2:]}").unlink()
    for _ in range(2):
        taken = project.take(SnapshotLimits(free=0, tracked_file=500))
        assert [(it.path, it.why) for it in taken.left_out] == [
            ("large as it is staged", "0 MB"),
            ("lost as it is staged", "missing"),
        ]
    assert "?? large" in project.status(project.lay(taken).folder)
    project.write(".git/index", b"DIRC nonsense")
    [one] = project.take().left_out
    assert one.path == "the staged changes"


def test_a_split_and_a_sparse_index_are_no_matter(project: Project) -> None:
    project.write("a.txt", "staged\n")
    project.git("add", "a.txt")
    project.git("update-index", "--split-index")
    for part in (project.top / ".git").glob("sharedindex.*"):
        os.utime(part, (1e9, 1e9))
    own = digest(project.top / ".git")
    project.take()
    assert digest(project.top / ".git") == own
    assert project.status(project.lay(project.take()).folder) == project.status()
    project.git("update-index", "--no-split-index")
    project.write("big/deep/one.txt")
    project.commit()
    project.git("sparse-checkout", "set", "--cone", "--sparse-index", "folder")
    assert "big/" in project.git("ls-files", "--sparse")
    for path in (project.top / ".git").rglob("*"):
        os.utime(path, (1e9, 1e9))
    own = digest(project.top / ".git")
    taken = project.take()
    assert digest(project.top / ".git") == own
    assert project.status(project.lay(taken, "sparse").folder) == project.status()


def test_a_part_of_a_split_index_that_is_a_pipe_is_not_waited_for(project: Project) -> None:
    project.git("update-index", "--split-index")
    [part] = (project.top / ".git").glob("sharedindex.*")
    part.unlink()
    os.mkfifo(part)
    assert [it.path for it in project.take().left_out] == ["the staged changes"]


def test_it_travels_in_a_pack(staged: Project, tmp_path: Path) -> None:
    before, taken = staged.status(), staged.take()
    pack = make_pack(staged.store(taken), taken.tree)
    clone = tmp_path / "clone"
    staged.git("clone", "-q", str(staged.top), str(clone))
    there = Stores(str(tmp_path / "there")).of(str(clone), time.monotonic() + 30)
    with pack:
        unpack(there, taken.tree, pack)
    folder = str(tmp_path / "laid")
    lay(there, taken.tree, folder, project=str(clone), commit=taken.head.commit)
    assert staged.status(folder) == before


@pytest.mark.parametrize("path", [".git/hooks/x", "../x", "a.txt/../../x", "/tmp/x", "link/x"])
@pytest.mark.parametrize("mode", ["100644", "N", "nonsense"])
def test_a_strangers_list_that_leads_out_is_refused_and_nothing_is_left(
    project: Project, path: str, mode: str
) -> None:
    (project.folder / "x").mkdir()
    (project.top / "link").symlink_to("../x")
    project.commit()
    taken = project.take()
    store = project.store(taken)

    def made(*words: str, stdin: str) -> str:
        return project.git("-C", store.path, *words, stdin=stdin).strip()

    blob = made("hash-object", "-w", "--stdin", stdin="evil\n")
    listed = made("hash-object", "-w", "--stdin", stdin=f"{mode} {blob} 0\t{path}\0")
    tree = made("mktree", stdin=f"100644 blob {listed}\tlist\n100644 blob {blob}\t{blob}\n")
    options = ("hash-object", "-w", "-t", "commit", "--stdin")
    parent = made(*options, stdin=COMMIT.format(tree, ""))
    snapshot = made(*options, stdin=COMMIT.format(taken.tree, f"parent {parent}\n"))
    own, folder = digest(project.folder / "x"), project.folder / "laid"
    try:
        lay(store, snapshot, str(folder), project=str(project.top), commit=taken.head.commit)
    except WorkspaceError:
        assert not folder.exists()
        assert "laid" not in project.git("worktree", "list")
    else:  # git has left it out, or it is in the index alone
        assert path == "link/x" or project.status(folder) == project.status()
    assert digest(project.folder / "x") == own
    assert not (project.top / ".git/hooks/x").exists()


def test_a_damaged_index_keeps_no_files_from_being_laid_out(project: Project) -> None:
    os.truncate(project.top / ".git/index", 100)
    taken = project.take()
    assert [it.path for it in taken.left_out] == ["the staged changes"]
    assert "a.txt" in os.listdir(project.lay(taken).folder)


def test_without_git_objects_a_snapshot_has_the_files(project: Project) -> None:
    project.write("a.txt", "staged\n")
    project.git("add", "a.txt")
    shutil.rmtree(project.top / ".git/objects")
    (project.top / ".git/objects").mkdir()
    checkout = checkout_of(str(project.top))
    assert checkout is not None
    taken = project.attempt()
    assert not isinstance(taken, NotTaken)
    assert "cannot be read" in taken.left_out[0].why
    assert (
        subprocess.run(
            ["git", "-C", project.store(taken).path, "fsck", "--strict"],
            capture_output=True,
            timeout=60,
        ).returncode
        == 0
    )
