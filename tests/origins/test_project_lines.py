"""The lines that git brought into a file, and the commits that they came with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from acphold.live.origins.project_lines import ProjectLines
from acphold.live.origins.versions import GitStep
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.comparison import bare_folder
from tests.snapshots.conftest import Project, begun


def brought(project: Project, step: GitStep, *texts: bytes) -> dict[bytes, str]:
    """Those of these lines that git brought, with the words for each."""
    checkout = checkout_of(str(project.top))
    assert checkout is not None
    with ProgramGroup(time.monotonic() + 60) as group, bare_folder() as folder:
        return ProjectLines(group, checkout, folder).lines_from_git(step, texts)


def step_to(commit: str, before: bytes) -> GitStep:
    now = int(time.time() * 1000)
    return GitStep("a.txt", before, (commit,), (), (), now, is_written=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return begun(tmp_path)


def test_a_line_that_the_file_had_as_often_before_is_not_gits(project: Project) -> None:
    project.write("a.txt", "once\ntwice\ntwice\nnew\n")
    commit = project.commit("bring lines")
    before = b"twice\nonce\ntwice\n"
    assert [*brought(project, step_to(commit, before), b"once", b"twice", b"new")] == [b"new"]
    assert {*brought(project, step_to(commit, b"twice\nonce\n"), b"once", b"twice")} == {b"twice"}
    assert not brought(project, step_to(commit, b"twice\n" * 3), b"twice")


def test_a_line_that_was_added_once_more_is_of_the_commit_with_its_last_place(
    project: Project,
) -> None:
    project.write("a.txt", "above\nthe same\nbetween\n")
    project.commit("the first time")
    project.write("a.txt", "above\nthe same\nbetween\nthe same\n")
    second = project.commit("once more")
    project.write("a.txt", "above\nthe same\nbetween\nthe same\nbelow\n")
    last = project.commit("below it")
    found = brought(project, step_to(last, b"above\nthe same\nbetween\n"), b"the same")
    assert found[b"the same"].startswith(f"commit {second[:12]} by ")
    assert "“once more”" in found[b"the same"]
