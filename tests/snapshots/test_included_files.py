"""Ignored files come along if the project names them: bounded, and through no link."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.threads import AbandonedError
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.worktree import Included, include

from .conftest import Project


@pytest.fixture
def project(project: Project) -> Project:
    project.write(".gitignore", "*.local\n/data\n/out/\n")
    project.write(".worktreeinclude", "*.local\n/data\n/out/\na.txt\nnew.txt\n")
    project.commit()
    return project


HERE = Surroundings.here()


def copied(project: Project) -> Included:
    taken = project.take()
    laid = project.lay(taken)
    return include(project.store(taken), str(project.top), laid.folder, (), HERE, [])


def test_only_ignored_files_are_copied_and_none_is_written_over(project: Project) -> None:
    project.write("a.local").chmod(0o750)
    project.write("out/deep/file", "x" * 100)
    taken = project.take()
    laid = Path(project.lay(taken).folder)
    project.write("new.txt")
    (project.top / "a.txt").write_text("of today")
    (laid / "out").mkdir()
    done = include(project.store(taken), str(project.top), str(laid), (), HERE, [])
    assert done == Included(("a.local", "out/deep/file"), 2)
    assert (laid / "a.local").stat().st_mode & 0o777 == 0o750
    assert (laid / "a.txt").read_text() == "first\n"
    assert include(project.store(taken), str(project.top), str(laid), (), HERE, []).count == 0


def test_a_disk_that_gets_full_leaves_no_part_of_a_file_and_what_was_copied_is_told(
    project: Project,
) -> None:
    project.write("a.local")
    project.write("b.local", "x" * (3 << 19))
    taken = project.take()
    laid = Path(project.lay(taken).folder)
    placed = list[str]()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 18, before[1]))  # within its second piece
    try:
        done = include(project.store(taken), str(project.top), str(laid), (), HERE, placed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done == Included(("a.local",), 1, "File too large")
    assert str(laid / "a.local") in placed
    assert not (laid / "b.local").exists()


def test_a_file_that_is_being_copied_when_nobody_wants_it_any_more_is_removed(
    project: Project,
) -> None:
    project.write("a.local", "x" * (3 << 20))
    taken = project.take()
    laid = Path(project.lay(taken).folder)
    sizes = list[int]()

    def checkpoint() -> None:
        if (laid / "a.local").exists():
            sizes.append((laid / "a.local").stat().st_size)
            if sizes[-1]:
                raise AbandonedError

    with pytest.raises(AbandonedError):
        include(
            project.store(taken),
            str(project.top),
            str(laid),
            (),
            Surroundings.here(),
            [],
            checkpoint,
        )
    assert sizes == [0, 1 << 20]
    assert not (laid / "a.local").exists()


def test_nothing_is_read_or_written_through_a_link(project: Project) -> None:
    (secret := project.folder / "secret").mkdir()
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
    done = include(project.store(taken), str(project.top), laid.folder, (), HERE, [])
    assert done.count == 0
    assert os.listdir(secret) == ["key"]


def test_there_are_bounds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        project.write(f"{number}.local", "x" * 1000)
    monkeypatch.setattr(bounds, "INCLUDED_FILES", 3)
    assert copied(project) == Included(("0.local", "1.local", "2.local"), 3, "more than 3 files")


def test_a_list_that_is_no_file_is_not_read(project: Project) -> None:
    (project.top / ".worktreeinclude").unlink()
    os.mkfifo(project.top / ".worktreeinclude")
    assert "no .worktreeinclude" in copied(project).missing
