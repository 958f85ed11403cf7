"""A stranger's pack within the limits is read, and one beyond any of them is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from acp_wire.errors import WorkspaceError
from acphold.safety.snapshots import packs
from acphold.safety.snapshots.bounds import PackLimits, SnapshotLimits
from acphold.safety.snapshots.packs import make_pack, pack_file, unpack, whole
from acphold.safety.snapshots.store import SnapshotStore, Stores

from .conftest import Project, is_there

FILES = 12
SIZE = 600


@pytest.fixture
def other(tmp_path: Path) -> SnapshotStore:
    """A store on another machine."""
    return Stores(str(tmp_path / "other")).of("project", time.monotonic() + 60)


@pytest.fixture
def tree(project: Project) -> str:
    """A snapshot in which one content stands for twelve files, of 600 bytes together."""
    for name in ("a.txt", "folder/b.txt"):
        (project.top / name).unlink()
    for number in range(FILES):
        project.write(f"{number % 4}/{number}", "x" * (SIZE // FILES))
    return project.take().tree


def test_a_pack_that_is_too_large_is_neither_made_nor_read(
    project: Project, tree: str, other: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [store] = project.stores
    with make_pack(store, tree) as pack:
        size = len(pack.read())
        monkeypatch.setattr(packs, "PACK_LIMITS", PackLimits(pack=size - 1))
        with pytest.raises(WorkspaceError, match="larger than"):
            unpack(other, tree, pack)
        with pytest.raises(WorkspaceError, match="too large to be sent"):
            make_pack(store, tree)
        assert not is_there(other, tree)
        monkeypatch.setattr(packs, "PACK_LIMITS", PackLimits(pack=size))
        unpack(other, tree, pack)
    assert is_there(other, tree)


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        (PackLimits(files=FILES, size=SIZE), None),
        (PackLimits(files=FILES - 1), f"more than {FILES - 1} files"),
        (PackLimits(size=SIZE - 1), "more than 0 MB"),
        (PackLimits(files=2), "more than 2 files"),
    ],
)
def test_files_are_counted_and_measured_as_they_are_laid_out(
    project: Project,
    tree: str,
    other: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    limits: PackLimits,
    excess: str | None,
) -> None:
    [store] = project.stores
    monkeypatch.setattr(packs, "PACK_LIMITS", limits)
    assert whole(store, [tree]) == (set() if excess else {tree})
    with make_pack(store, tree) as pack:
        if excess is None:
            unpack(other, tree, pack)
        else:
            with pytest.raises(WorkspaceError, match=excess):
                unpack(other, tree, pack)


def test_without_the_room_that_stays_free_no_pack_is_read(
    project: Project, tree: str, other: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [store] = project.stores
    monkeypatch.setattr(packs, "SNAPSHOT_LIMITS", SnapshotLimits(free=1 << 60))
    with make_pack(store, tree) as pack, pytest.raises(WorkspaceError, match="disk space"):
        unpack(other, tree, pack)


def test_what_is_no_pack_is_refused(tree: str, other: SnapshotStore) -> None:
    with pack_file(other) as pack:
        pack.write(b"PACK and nothing else")
        with pytest.raises(WorkspaceError, match="refused"):
            unpack(other, tree, pack)
    with pack_file(other) as pack, pytest.raises(WorkspaceError, match="not a git object id"):
        unpack(other, "--all", pack)
