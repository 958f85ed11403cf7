"""Snapshots are laid out: into work trees and plain folders, and never over anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from acp_wire.errors import WorkspaceError
from acphold.safety.snapshots import worktree

from .conftest import Project, digest, files


def test_a_new_work_tree_has_the_files_and_the_status_of_then(project: Project) -> None:
    project.write("a.txt", "changed\n")
    project.write("new.txt")
    (project.top / "folder/b.txt").unlink()
    before = (project.status(), files(project.top))
    taken = project.take()
    project.write("a.txt", "gone wrong\n")
    project.commit("later")
    own = digest(project.top)
    laid = project.lay(taken)
    assert laid.why_plain == ""
    assert (project.status(laid.folder), files(Path(laid.folder))) == before
    head = project.git("rev-parse", "HEAD", at=Path(laid.folder))
    assert head.strip() == taken.head.commit
    assert project.git("symbolic-ref", "-q", "HEAD", at=Path(laid.folder), fails=True) == ""
    changed = {name for name in digest(project.top) if digest(project.top)[name] != own.get(name)}
    assert {name for name in changed if not name.startswith(".git/worktrees")} <= {".git"}


@pytest.mark.parametrize("where", ["full", "project/inside", "project", "link", "file"])
def test_a_folder_that_is_not_new_or_lies_inside_is_refused_and_nothing_changes(
    project: Project, where: str
) -> None:
    taken = project.take()
    (project.folder / "full").mkdir()
    (project.folder / "full" / "mine.txt").write_text("mine")
    (project.folder / "empty").mkdir()
    (project.folder / "link").symlink_to("empty")
    (project.folder / "file").write_text("mine")
    before = digest(project.top)
    mine = files(project.folder / "full")
    with pytest.raises(WorkspaceError):
        project.lay(taken, where)
    assert digest(project.top) == before
    assert files(project.folder / "full") == mine
    assert not os.listdir(project.folder / "empty")


def test_the_place_of_a_work_tree_that_was_deleted_is_left_alone(project: Project) -> None:
    taken = project.take()
    place = worktree.beside(str(project.top))
    assert project.lay(taken, place).why_plain == ""
    shutil.rmtree(place)
    assert worktree.beside(str(project.top)) == f"{place}-2"
    assert "already registered worktree" in project.lay(taken, place).why_plain


def test_an_empty_folder_is_used(project: Project) -> None:
    (project.folder / "laid").mkdir()
    assert project.lay(project.take()).why_plain == ""


def test_without_its_commit_it_is_a_plain_folder_and_says_so(project: Project) -> None:
    project.write("a.txt", "kept\n")
    taken = project.take()
    project.git("commit", "-q", "--amend", "-am", "other", "--date=@9 +0000")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")
    laid = project.lay(taken)
    assert "is no longer in the repository" in laid.why_plain
    assert files(Path(laid.folder)) == files(project.top)
    assert not (Path(laid.folder) / ".git").exists()
    shutil.rmtree(project.top)
    laid = project.lay(taken, "again")
    assert "not a git repository" in laid.why_plain
    assert (Path(laid.folder) / "a.txt").read_text() == "kept\n"


def test_before_the_first_commit_it_is_a_plain_folder(folder: Project) -> None:
    folder.git("init", "-q")
    folder.write("a.txt")
    laid = folder.lay(folder.take())
    assert "no commits at that time" in laid.why_plain
    assert files(Path(laid.folder)) == files(folder.top)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_repository_of_somebody_else_becomes_a_plain_folder(project: Project) -> None:
    os.chown(project.top, 12345, -1)
    os.chown(project.top / ".git", 12345, -1)
    laid = project.lay(project.take())
    assert laid.why_plain != ""
    assert (Path(laid.folder) / "a.txt").exists()


def test_a_sparse_checkout_has_the_same_status_elsewhere(project: Project) -> None:
    project.write("big/one.txt")
    project.commit()
    project.git("sparse-checkout", "set", "--no-cone", "/a.txt", "/folder/")
    project.write("a.txt", "changed")
    assert not (project.top / "big").exists()
    laid = project.lay(project.take())
    assert project.status(laid.folder) == project.status() == " M a.txt\0"
    assert files(Path(laid.folder)) == files(project.top)


def test_a_commit_that_adds_a_file_outside_of_a_sparse_checkout_does_not_matter(
    project: Project,
) -> None:
    project.write("big/one.txt")
    project.commit()
    project.git("sparse-checkout", "set", "--no-cone", "/a.txt", "/folder/")
    taken = project.take()
    blob = project.blob("new\n")
    project.git("update-index", "--add", "--cacheinfo", f"100644,{blob},big/two.txt")
    project.git("update-index", "--skip-worktree", "big/two.txt")
    project.git("commit", "-qm", "outside")
    before = project.lay(taken)
    assert (before.why_plain, project.status(before.folder)) == ("", "")
    after = project.lay(project.take(), "after")
    assert (after.why_plain, project.status(after.folder)) == ("", "")


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_a_local_tweak_that_git_was_told_to_overlook_is_overlooked_elsewhere_too(
    project: Project, mark: str
) -> None:
    project.git("update-index", mark, "a.txt")
    project.write("a.txt", "a tweak for this machine alone\n")
    laid = project.lay(project.take())
    assert (Path(laid.folder) / "a.txt").read_text() == "a tweak for this machine alone\n"
    assert project.status(laid.folder) == project.status() == ""
    (Path(laid.folder) / "folder" / "b.txt").write_text("work\n")
    project.git("commit", "-qam", "all", at=Path(laid.folder))
    assert project.git("show", "--name-only", "--format=", at=Path(laid.folder)) == "folder/b.txt\n"


def test_a_detached_head_and_a_branch_that_moved_do_not_matter(project: Project) -> None:
    project.git("checkout", "-q", "--detach")
    project.write("a.txt", "changed")
    taken = project.take()
    project.commit("on the way")
    project.git("checkout", "-q", "main")
    laid = project.lay(taken)
    assert laid.why_plain == ""
    assert project.status(laid.folder) == " M a.txt\0"


def test_nothing_is_laid_out_of_a_store_that_has_dropped_it(project: Project) -> None:
    taken = project.take()
    project.store(taken).remove(1e12)
    store = project.store(taken)  # it is fresh: the journal may name it yet
    store.was_named(taken.tree)
    store.remove(1e12)
    with pytest.raises(AssertionError):
        project.store(taken)


def test_the_store_is_for_its_owner_alone(project: Project) -> None:
    store = project.store(project.take())
    assert os.stat(store.path).st_mode & 0o077 == 0
    assert os.stat(project.stores.folder).st_mode & 0o077 == 0


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_a_folder_that_cannot_be_filled_is_as_before_and_no_work_tree_is_left(
    project: Project, *, existed: bool, plain: bool
) -> None:
    project.write("a.txt", "only in the store")
    taken = project.take()
    store = project.store(taken)
    blob = project.git("hash-object", "a.txt").strip()
    os.unlink(os.path.join(store.path, "objects", blob[:2], blob[2:]))
    name = "laid" if existed else "new/laid"
    if existed:
        (project.folder / "laid").mkdir(mode=0o750)
    before = digest(project.folder)
    number = existed and (project.folder / "laid").stat().st_ino
    with pytest.raises(WorkspaceError):
        project.lay(taken, name, plain=plain)
    after = digest(project.folder)
    assert {*after} == {*before}
    if existed:
        assert (project.folder / "laid").stat().st_ino == number
        assert after["laid"][1] == before["laid"][1]
    assert len(project.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("plain", [True, False])
def test_a_file_that_somebody_puts_there_meanwhile_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    taken = project.take()
    (project.folder / "laid").mkdir()
    added = worktree._add_work_tree

    def slow(*given: Any) -> str:
        why = added(*given)
        (project.folder / "laid" / "a.txt").write_text("mine")
        return why

    monkeypatch.setattr(worktree, "_add_work_tree", slow)
    with pytest.raises(WorkspaceError, match="no longer empty"):
        project.lay(taken, plain=plain)
    assert files(project.folder / "laid") == {b"a.txt": ("file", b"mine")}
    assert os.listdir(project.folder / "laid") == ["a.txt"]
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_a_work_tree_whose_commit_cannot_be_read_becomes_a_plain_folder(project: Project) -> None:
    taken = project.take()
    tree = project.git("rev-parse", "HEAD:folder").strip()
    os.unlink(project.top / ".git" / "objects" / tree[:2] / tree[2:])
    laid = project.lay(taken)
    assert laid.why_plain != ""
    assert files(Path(laid.folder)) == files(project.top)
    assert not (Path(laid.folder) / ".git").exists()


def test_a_work_tree_that_another_made_in_this_moment_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = project.take()
    made = worktree.make_folders

    def slow(folder: str) -> list[str]:
        monkeypatch.setattr(worktree, "make_folders", made)
        project.lay(taken)
        return made(folder)

    monkeypatch.setattr(worktree, "make_folders", slow)
    with pytest.raises(worktree.PlaceTakenError, match="was just created"):
        project.lay(taken)
    assert len(project.git("worktree", "list").splitlines()) == 2
    assert project.status(project.folder / "laid") == ""


def test_an_empty_folder_of_a_session_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "laid").mkdir()
    (tmp_path / "laid" / "out").symlink_to(tmp_path)
    top = str(tmp_path / "laid")
    assert worktree.make_inside(top, f"{top}/out/new") == top
    assert not (tmp_path / "new").exists()
    assert worktree.make_inside(top, f"{top}/new") == f"{top}/new"
    assert (tmp_path / "laid" / "new").is_dir()
