"""The cost of snapshots: what git is asked, what is read again, and the memory of the upkeep."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acphold.machine import program_group
from acphold.machine.program_group import Finished, ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.snapshot import NotTaken, Taken

from .conftest import SECOND_NS, Project, age, digest, files, is_there


class Calls:
    """The programs that were run, with their input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Sequence[str]] = []
        self.inputs: list[bytes] = []
        self.fails_after = 1 << 30
        real = ProgramGroup.run

        def counted(
            group: ProgramGroup, command: Sequence[str], *given: Any, **named: Any
        ) -> Finished:
            if "update-index" in command and len(self.reading()) >= self.fails_after:
                raise TimeoutError("a program did not end in time")
            self.commands.append(command)
            self.inputs.append(named.get("stdin", b""))
            return real(group, command, *given, **named)

        monkeypatch.setattr(ProgramGroup, "run", counted)

    def clear(self) -> None:
        self.commands.clear()
        self.inputs.clear()

    def reading(self) -> list[int]:
        """The numbers of files of each call that reads some."""
        pairs = zip(self.commands, self.inputs, strict=True)
        return [given.count(b"\0") for command, given in pairs if "update-index" in command]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.mark.parametrize("few", [0, 500])
def test_git_is_started_once_and_in_a_small_project_only_for_new_names(
    project: Project,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    quick_clock: None,
    few: int,
) -> None:
    monkeypatch.setattr(bounds, "FILES_LOOKED_AT", few)

    def asked() -> tuple[Taken, list[str]]:
        """A snapshot without any guardian, and what git was asked for it."""
        calls.clear()
        with monkeypatch.context() as unguarded:
            unguarded.delattr(program_group, "launch")
            taken = project.take()
        return taken, [" ".join(command[3:]).partition(" --")[0] for command in calls.commands]

    changes = [] if few else ["ls-files -z -t -m -d"]
    news = ["ls-files -z -t -m -d -o"]
    project.write(".env", "left out, and there each time")
    (project.top / "empty").mkdir()
    project.take()
    age(SECOND_NS)
    first = project.take()  # and our index is written once more
    age()
    project.take()
    taken, words = asked()
    assert (taken.tree, words) == (first.tree, changes)
    project.write("a.txt", "changed\n")
    taken, words = asked()
    assert (taken.added, words) == (1, changes)
    assert [one.path for one in taken.left_out] == [".env"]
    assert project.names(taken) == {"a.txt", "folder/b.txt"}
    age()
    again, words = asked()
    assert (again.tree, words) == (taken.tree, changes)
    (project.top / "folder/b.txt").touch()
    again, words = asked()
    assert (again.tree, again.added, words) == (taken.tree, 0, changes)
    age()
    project.write("empty/c.txt")
    taken, words = asked()
    assert words == news
    assert project.names(taken) == {"a.txt", "folder/b.txt", "empty/c.txt"}
    age()
    again, words = asked()
    assert (again.tree, words) == (taken.tree, changes)
    (project.top / "folder/b.txt").unlink()
    taken, words = asked()
    assert words[:-1] == news  # and the project, for names that may come back
    assert project.names(taken) == {"a.txt", "empty/c.txt"}
    age()
    again, words = asked()
    assert (again.tree, words) == (taken.tree, changes)


def test_trees_that_upkeep_has_packed_are_read_by_one_more_git(
    project: Project, calls: Calls, quick_clock: None
) -> None:
    taken = project.take()
    age(SECOND_NS)
    for _ in range(2):
        project.take()
        age()
    project.store(taken).keep([taken.tree], time.monotonic() + 60)
    project.write("folder/b.txt", "changed\n")
    calls.clear()
    taken = project.take()
    assert [command[3] for command in calls.commands] == ["cat-file"]
    assert project.names(taken) == {"a.txt", "folder/b.txt"}


def test_folders_are_remembered_but_for_ignored_ones(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch, quick_clock: None
) -> None:
    monkeypatch.setattr(bounds, "FILES_LOOKED_AT", 0)
    project.write(".gitignore", "/built*\n:odd\n")
    project.write(".git/info/exclude", "aside\n")
    for ignored in ("built/x/1", "folder/aside/1", ":odd/1"):
        project.write(ignored)
    project.take()
    age(SECOND_NS)
    project.take()
    age()
    for ignored in ("built/x/2", "folder/aside/2", ":odd/2"):
        project.write(ignored)
    calls.clear()
    project.take()
    assert ["-o" in command for command in calls.commands] == [False]
    project.write(".git/info/exclude", "")
    taken = project.take()
    names = {".gitignore", "a.txt", "folder/b.txt"}
    assert project.names(taken) == names | {"folder/aside/1", "folder/aside/2"}


@pytest.mark.parametrize(
    ("bound", "value", "are_remembered"),
    [("FOLDERS", 2, True), ("FOLDERS", 1, False), ("FOLDERS_SECONDS", -1.0, False)],
)
def test_folders_are_remembered_if_they_are_few_and_looking_at_them_is_quick(
    project: Project,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    quick_clock: None,
    bound: str,
    value: float,
    are_remembered: bool,
) -> None:
    monkeypatch.setattr(bounds, bound, value)
    project.take()
    age(SECOND_NS)
    project.take()
    age()
    calls.clear()
    project.take()
    assert any("-o" in command for command in calls.commands) is not are_remembered
    project.write("folder/c.txt")
    assert project.names(project.take()) == {"a.txt", "folder/b.txt", "folder/c.txt"}


def test_a_folder_that_has_its_names_again_is_looked_at_once(
    project: Project, quick_clock: None
) -> None:
    project.take()
    age(SECOND_NS)
    for _ in range(2):
        project.take()
        age()
    [remembered] = project.folder.glob("stores/**/folders")
    first = remembered.stat()
    project.take()
    assert remembered.stat() == first  # nothing is new
    project.write("folder/c.txt").unlink()
    age()
    project.take()
    second = remembered.stat()
    assert second.st_mtime_ns > first.st_mtime_ns
    project.take()
    assert remembered.stat() == second


def test_a_list_of_ignored_names_that_is_ignored_itself_is_noticed(
    project: Project, quick_clock: None
) -> None:
    project.write(".gitignore", ".gitignore\n")
    project.write("folder/.gitignore", "c.txt\n")
    project.write("folder/c.txt")
    for _ in range(3):
        taken = project.take()
        age()
    assert project.names(taken) == {"a.txt", "folder/b.txt"}
    project.write("folder/.gitignore", "d.txt\n")
    assert project.names(project.take()) == {"a.txt", "folder/b.txt", "folder/c.txt"}


def test_a_first_snapshot_that_was_interrupted_is_continued_after_an_upkeep_too(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FILES_AT_ONCE", 10)
    for number in range(60):
        project.write(f"many/{number}", os.urandom(100))
    project.commit()
    before = digest(project.top / ".git")
    calls.fails_after = 3
    assert "the next one continues" in project.refused()
    [store] = project.stores
    store.remove(time.monotonic() + 60)
    store.keep([], time.monotonic() + 60)
    calls.fails_after = 1 << 30
    calls.clear()
    taken = project.take()
    assert sum(calls.reading()) == 62 - 30
    assert digest(project.top / ".git") == before
    assert files(Path(project.lay(taken).folder)) == files(project.top)
    assert is_there(project.store(taken), taken.tree)
    assert "missing" not in project.git("-C", store.path, "fsck", "--full")


def test_a_first_snapshot_is_finished_by_processes_that_all_end_before_it(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FILES_AT_FIRST", 10)
    monkeypatch.setattr(bounds, "STEP_SECONDS", 0.0)  # a slow disk
    for number in range(60):
        project.write(f"many/{number}", os.urandom(100))
    project.commit()
    for number in range(6):
        calls.clear()
        refused = project.attempt(is_ending=lambda: len(calls.reading()) > 1)
        assert isinstance(refused, NotTaken)
        assert "the next one continues" in refused.reason
        assert calls.reading()[0] == 10, number
        calls.clear()
        assert isinstance(project.attempt(is_ending=lambda: True), NotTaken)
        assert not calls.commands
    assert len(project.names(project.take())) == 62


def test_a_folder_that_was_given_up_is_left_alone_by_every_process_until_it_changes(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        project.write(f"new/{number}")
    limits = SnapshotLimits(new_files=29, free=0)
    for _ in range(2):
        assert "30 new files" in project.refused(limits)
    calls.clear()
    refused = project.attempt(limits)
    assert isinstance(refused, NotTaken)
    assert (refused.cause, calls.commands) == ("given up", [])
    assert "30 new files" in refused.reason
    with monkeypatch.context() as later:
        later.setattr(bounds, "GIVEN_UP_SECONDS", -1.0)
        assert not isinstance(project.attempt(), NotTaken)
    (project.top / ".gitignore").write_text("/new\n")
    assert project.names(project.take(limits)) == {"a.txt", "folder/b.txt", ".gitignore"}


KEEP = """
import resource, sys, time
from acphold.safety.snapshots.store import SnapshotStore
SnapshotStore(sys.argv[1]).keep(sys.argv[2:], time.monotonic() + 500)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # the upkeep leaves the processors to others
def test_the_upkeep_of_large_binaries_takes_little_memory(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SNAPSHOT_SECONDS", 600)  # memory is measured, also on a busy disk
    for number in range(3):
        project.write(f"{number}.bin", os.urandom(40 << 20))
    project.commit()
    taken = project.take()
    words = [sys.executable, "-c", KEEP, project.store(taken).path, taken.tree]
    done = subprocess.run(words, capture_output=True, timeout=600, check=True)
    assert int(done.stdout) < 150 * 1024
    assert is_there(project.store(taken), taken.tree)
