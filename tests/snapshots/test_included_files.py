"""Ignored files come along if the project names them: bounded, and through no link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acphold.snapshots import included_files
from acphold.snapshots.included_files import Included, included

from .conftest import Project


@pytest.fixture
def project(project: Project) -> Project:
    project.write(".gitignore", "*.local\n/data\n/out/\n")
    project.write(".worktreeinclude", "*.local\n/data\n/out/\na.txt\nnew.txt\n")
    project.commit()
    return project


def copied(project: Project) -> Included:
    taken = project.take()
    laid = project.lay(taken)
    return included(project.store(taken), str(project.top), laid.folder, (), [])


def test_only_ignored_files_are_copied_and_none_is_written_over(project: Project) -> None:
    project.write("a.local").chmod(0o750)
    project.write("out/deep/file", "x" * 100)
    taken = project.take()
    laid = Path(project.lay(taken).folder)
    project.write("new.txt")
    (project.top / "a.txt").write_text("of today")
    (laid / "out").mkdir()
    done = included(project.store(taken), str(project.top), str(laid), (), [])
    assert done == Included(("a.local", "out/deep/file"), 2)
    assert (laid / "a.local").stat().st_mode & 0o777 == 0o750
    assert (laid / "a.txt").read_text() == "first\n"
    assert included(project.store(taken), str(project.top), str(laid), (), []).count == 0


def test_nothing_is_read_or_written_through_a_link(project: Project) -> None:
    secret = project.folder / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (project.top / "b.local").symlink_to(secret / "key")
    (project.top / "data").symlink_to(secret)
    os.mkfifo(project.top / "pipe.local")
    assert copied(project).count == 0
    (project.top / "data").unlink()
    project.git("config", "core.excludesFile", "/dev/null")
    (project.top / "data").symlink_to(secret)
    (project.top / ".gitignore").write_text("*.local\n/out/\n")
    taken = project.take()  # with the link
    (project.top / ".gitignore").write_text("*.local\n/out/\n/data\n")
    (project.top / "data").unlink()
    project.write("data/planted")
    laid = project.lay(taken, "linked")
    done = included(project.store(taken), str(project.top), laid.folder, (), [])
    assert done.count == 0
    assert os.listdir(secret) == ["key"]


def test_there_are_bounds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        project.write(f"{number}.local", "x" * 1000)
    monkeypatch.setattr(included_files, "MOST_FILES", 3)
    assert copied(project) == Included(("0.local", "1.local", "2.local"), 3, "more than 3 files")


def test_a_list_that_is_no_file_is_not_read(project: Project) -> None:
    (project.top / ".worktreeinclude").unlink()
    os.mkfifo(project.top / ".worktreeinclude")
    assert "no .worktreeinclude" in copied(project).missing
