"""Stores: their content, their clean-up, and their size."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.comparison import reading
from acphold.safety.snapshots.store import SnapshotStore, Stores, locked

from .conftest import Project, changes, files, is_there, patch

MARKER = b"marker-of-a-deleted-session"


def soon() -> float:
    return time.monotonic() + 60


def holds(project: Project, marker: bytes) -> bool:
    """True if a marker can be found below the folder of the stores."""
    return any(marker in content for _, content in files(Path(project.stores.folder)).values())


def test_what_is_not_kept_is_gone_from_the_disk(project: Project) -> None:
    first = project.take()
    project.write("a.txt", MARKER)
    second = project.take()
    assert project.holds(second, MARKER)
    store = project.store(first)
    store.was_named(second.tree)
    store.keep([first.tree], soon())
    assert is_there(store, first.tree)
    assert not is_there(store, second.tree)
    assert not project.holds(first, MARKER)
    project.write("a.txt", "first\n")
    assert project.take().tree == first.tree


def test_an_object_is_whole_on_the_disk_before_it_has_its_name(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power would leave a name of nothing, for ever: nobody writes it again."""
    sizes: dict[int, int] = {}  # of what was on the disk, by the number of the file
    sync = os.fsync

    def look(descriptor: int) -> None:
        status = os.fstat(descriptor)
        sizes[status.st_ino] = status.st_size
        sync(descriptor)

    project.take()
    monkeypatch.setattr(os, "fsync", look)
    project.write("a.txt", "another\n")
    store = project.store(project.take())
    objects = [path.stat() for path in Path(store.path, "objects").glob("??/*")]
    ours = [status for status in objects if status.st_ino in sizes]
    assert len(ours) >= 2, "a file and its folder"
    assert all(sizes[status.st_ino] == status.st_size for status in ours)


def test_copies_that_a_killed_process_has_left_go_with_the_next_upkeep(project: Project) -> None:
    store = project.store(project.take())
    os.mkdir(os.path.join(store.path, "indexabc"))
    for name in ("indexabc/HEAD", "includeabc"):
        with open(os.path.join(store.path, name), "w"):
            pass
    store.keep([], soon())
    assert not [name for name in os.listdir(store.path) if name.endswith("abc")]
    assert "a.txt" in project.names(project.take())


def test_what_the_journal_may_still_name_stays(project: Project) -> None:
    taken = project.take()
    project.store(taken).keep([], soon())
    assert is_there(project.store(taken), taken.tree)


def test_what_the_journal_has_named_since_it_was_asked_stays(project: Project) -> None:
    first = project.take()
    store = project.store(first)
    asked = os.stat(os.path.join(store.path, "fresh", first.tree)).st_mtime_ns
    store.was_named(first.tree)
    store.keep([], soon(), since=asked)
    store.remove(soon(), since=asked)
    assert is_there(store, first.tree)
    store.keep([], soon(), since=time.time_ns() + 10**9)
    assert not is_there(store, first.tree)


def test_a_work_tree_goes_on_after_its_last_snapshot_was_dropped(project: Project) -> None:
    taken = project.take()
    store = project.store(taken)
    store.was_named(taken.tree)
    store.keep([], soon())
    assert not is_there(store, taken.tree)
    assert project.take().tree == taken.tree
    assert is_there(store, taken.tree)
    assert "missing" not in project.git("-C", store.path, "fsck", "--full")


def test_a_store_that_was_removed_is_made_anew(project: Project) -> None:
    taken = project.take()
    project.store(taken).was_named(taken.tree)
    project.store(taken).remove(soon())
    assert list(project.stores) == []
    again = project.take()
    assert again.store != taken.store
    assert project.names(again) == {"a.txt", "folder/b.txt"}


def test_a_store_that_the_upkeep_removes_in_this_moment_is_made_anew(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, made = Stores.of, []

    def removed_at_once(stores: Stores, top: str, deadline: float) -> SnapshotStore:
        made.append(of(stores, top, deadline))
        if len(made) == 1:
            made[0].remove(deadline)
        return made[-1]

    monkeypatch.setattr(Stores, "of", removed_at_once)
    taken = project.take()
    assert (len(made), [store.id for store in project.stores]) == (2, [taken.store])
    assert "a.txt" in project.names(taken)


def test_many_snapshots_of_small_changes_stay_small(project: Project) -> None:
    for number in range(100):
        project.write(f"many/{number}.txt", f"line {number}\n" * 200)
    trees = [project.take().tree]
    for number in range(30):
        project.write(f"many/{number}.txt", f"line {number}\n" * 201)
        trees.append(project.take().tree)
    taken = project.take()
    store = project.store(taken)
    store.keep(trees, soon())
    assert store.size() < 1 << 20
    assert all(is_there(store, tree) for tree in trees)


def test_a_store_with_many_small_files_is_due_for_its_upkeep(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOOSE_OBJECTS", 200)
    store = project.store(project.take())
    assert not store.is_loose()
    for part in range(4):
        for number in range(150):
            project.write(f"many/{part}-{number}", f"{part} {number}\n")
        taken = project.take()
    assert store.is_loose()
    store.keep([taken.tree], soon())
    assert not store.is_loose()


def test_snapshots_are_taken_while_a_store_is_packed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = project.take()
    store = project.store(taken)
    mark, go, folder = (project.folder / name for name in ("packing", "go", "bin"))
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" repack "*) touch {mark}; '
        f'while ! [ -e {go} ]; do sleep 0.02; done;; esac\nexec {shutil.which("git")} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with ThreadPoolExecutor() as beside:
        upkeep = beside.submit(store.keep, [taken.tree], soon())
        until = soon()
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.01)
        project.write("a.txt", "meanwhile\n")
        try:
            second = project.take()
        finally:
            go.touch()
        upkeep.result()
    assert is_there(store, second.tree)
    assert files(Path(project.lay(second).folder)) == files(project.top)


def test_the_store_passes_its_limit_by_one_snapshot_at_most(project: Project) -> None:
    limits = SnapshotLimits(store=200_000, free=0)
    sizes = []
    for _ in range(10):
        project.write("noise", os.urandom(100_000))
        project.attempt(limits)
        sizes.append(sum(store.size() for store in project.stores))
    assert 200_000 < max(sizes) < 200_000 + 150_000


def test_differences_name_files_as_they_are(project: Project) -> None:
    first = project.take()
    project.write("a.txt", "first\nmore\n")
    (project.top / "folder/b.txt").rename(project.top / "new\nname")
    project.write("run", "#!").chmod(0o755)
    second = project.take()
    store = project.store(second)
    found = changes(store, first.tree, second.tree)
    assert [(one.path, one.before is None, one.after is None) for one in found] == [
        ("a.txt", False, False),
        ("folder/b.txt", False, True),
        ("new\nname", True, False),
        ("run", True, False),
    ]
    assert found[0].after is not None
    with reading(store) as snapshots:
        after = snapshots.contents([found[0].after])
    assert after == {found[0].after: b"first\nmore\n"}
    told = patch(store, first.tree, second.tree, "a.txt")
    assert b"+more" in told
    assert b"run" not in told


def test_what_a_killed_removal_has_left_goes_and_nothing_else(project: Project) -> None:
    taken = project.take()
    folder = Path(project.stores.folder)
    left = folder / "0123456789abcdef"
    (left / "objects").mkdir(parents=True)
    (folder / "mine").mkdir()
    project.stores.clear(soon())
    assert not left.exists()
    assert (folder / "mine").exists()
    assert is_there(project.store(taken), taken.tree)


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_store_that_only_another_user_may_write_is_read(
    has_lock: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_lock:
        (tmp_path / "lock").touch(0o444)
    tmp_path.chmod(0o555)
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    try:
        if user == 0:  # who may write everything
            os.seteuid(65534)
        with locked("./lock", soon(), shared=True):
            pass
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o755)
