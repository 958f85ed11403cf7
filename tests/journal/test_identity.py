"""The identity of a journal: a copy, a restore and a loss change it, and nothing else does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acphold.journal.copies import copy_all
from acphold.journal.lineage import identity
from acphold.journal.rows import NewSession
from acphold.journal.sqlite import file_system
from acphold.journal.sqlite.backup import restore_file
from acphold.journal.stores import open_journal
from tests.timelines import database


async def own(location: str, name: str) -> str:
    """Create a session in a journal, and return its identity then."""
    async with aclosing(open_journal(location)) as journal:
        lease = await journal.create(NewSession(name, "agent", "/project"))
        assert lease.journal == await identity(journal)
        return lease.journal


async def look(location: str) -> str:
    async with aclosing(open_journal(location)) as journal:
        found = await identity(journal)
        assert found is not None
        return found


async def back_up(location: str, to: Path) -> None:
    async with aclosing(open_journal(location)) as journal:
        assert journal.file is not None
        await journal.file.copy_to(str(to))


@pytest.fixture
def on_disk() -> Iterator[Path]:
    # A file system in memory gives no inode again.
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder) / "journal.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def test_a_restart_and_a_boot_of_the_machine_leave_the_identity(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await look(str(path))
    assert await own(str(path), "s1") == before
    monkeypatch.setattr(file_system, "boot", lambda: "another boot")
    monkeypatch.setattr("socket.gethostname", lambda: "another name")
    assert await look(str(path)) == before
    assert await own(str(path), "s2") == before
    assert await own(str(path), "s3") == before


async def test_a_file_that_is_moved_in_its_file_system_keeps_its_identity(path: Path) -> None:
    before = await own(str(path), "s1")
    moved = path.with_name("moved.db")
    shutil.move(path, moved)
    assert await look(str(moved)) == before


async def test_a_raw_copy_has_an_identity_of_its_own(path: Path) -> None:
    before = await own(str(path), "s1")
    copies = [path.with_name(f"{number}.db") for number in range(2)]
    for copy in copies:
        shutil.copy2(path, copy)  # with its attributes
        for name in os.listxattr(path):
            os.setxattr(copy, name, os.getxattr(path, name))
    seen = [await look(str(copy)) for copy in copies]
    assert len({before, *seen}) == 3
    # The owner of a session keeps what every reader saw before.
    assert [await own(str(copy), "s2") for copy in copies] == seen
    assert [await look(str(copy)) for copy in copies] == seen
    assert await own(str(path), "s2") == before


async def test_a_copy_under_the_inode_of_a_deleted_file_has_another_identity(
    on_disk: Path,
) -> None:
    path = on_disk
    before = await own(str(path), "s1")
    copy = path.with_name("copy.db")
    shutil.copy2(path, copy)
    path.unlink()
    shutil.copy2(copy, path)  # most file systems give it the inode that became free
    assert await look(str(path)) != before


async def test_an_earlier_copy_in_the_file_itself_has_another_identity(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await own(str(path), "s1")
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    assert await own(str(path), "s2") == before
    shutil.copyfile(copy, path)
    monkeypatch.setattr(file_system, "boot", lambda: "another boot")
    seen = await look(str(path))
    assert seen != before
    assert await own(str(path), "s3") == seen
    assert await own(str(path), "s4") == seen
    assert await look(str(path)) == seen
    # And once more: what was planned between the two is not in the copy.
    shutil.copyfile(copy, path)
    assert await look(str(path)) not in (before, seen)


async def test_an_owner_killed_before_it_has_noted_that_the_file_went_back_leaves_the_identity(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await own(str(path), "s1")
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    await own(str(path), "s2")
    shutil.copyfile(copy, path)
    monkeypatch.setattr(file_system, "boot", lambda: "another boot")
    monkeypatch.setattr(file_system, "note", lambda *_: None)
    seen = await own(str(path), "s3")
    assert seen != before
    assert await look(str(path)) == seen


async def test_a_copy_that_went_on_elsewhere_and_comes_back_has_another_identity(
    path: Path,
) -> None:
    before = await own(str(path), "s1")
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    elsewhere = [await own(str(copy), f"s{number}") for number in range(2, 5)]
    assert len({before, *elsewhere}) == 2
    shutil.copyfile(copy, path)
    assert await look(str(path)) not in (before, *elsewhere)


async def test_a_backup_and_what_is_restored_from_it_have_other_identities(path: Path) -> None:
    before = await own(str(path), "s1")
    backup = path.with_name("backup.db")
    await back_up(str(path), backup)
    restore_file(str(path), str(backup), carries_over=True)
    assert len({before, await look(str(path)), await look(str(backup))}) == 3


async def test_what_is_restored_is_on_the_disk_before_it_has_the_name_of_the_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power would leave neither the former journal nor the backup there."""
    await own(str(path), "s1")
    backup = path.with_name("backup.db")
    await back_up(str(path), backup)
    flushed: list[int] = []
    sync, named = os.fsync, os.replace

    def flush(descriptor: int) -> None:
        sync(descriptor)
        flushed.append(os.fstat(descriptor).st_ino)

    def name(source: str, target: str) -> None:
        if target == str(path):
            assert os.stat(source).st_ino in flushed
            flushed.append(0)
        named(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", name)
    restore_file(str(path), str(backup), carries_over=True)
    assert path.parent.stat().st_ino in flushed[flushed.index(0) :]  # and its name


async def test_the_target_of_a_whole_copy_has_its_own_identity(path: Path) -> None:
    before = await own(str(path), "s1")
    source, target = open_journal(str(path)), open_journal(str(path.with_name("copy.db")))
    await copy_all(source, target, lambda *_: None)
    assert await identity(target) != before
    for journal in (source, target):
        await journal.aclose()


@pytest.mark.parametrize("name", ["", "the file system tells no birth"])
async def test_the_place_of_a_file_is_told_without_its_generation(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError

    monkeypatch.setattr("fcntl.ioctl", refuse)
    if name:
        monkeypatch.setattr("ctypes.CDLL", lambda _: None)
    before = await own(str(path), "s1")
    assert await own(str(path), "s2") == before
    shutil.copyfile(path, path.with_name("copy.db"))
    assert await look(str(path.with_name("copy.db"))) != before


@pytest.mark.postgresql
async def test_a_database_keeps_its_identity_at_a_restart_and_loses_it_with_its_last_entries() -> (
    None
):
    with database() as server:
        before = await own(server.url, "s1")
        await server.remember()
        assert await look(server.url) == before
        server.go_back()
        seen = await look(server.url)
        assert seen != before
        assert await own(server.url, "s2") == seen
        assert await own(server.url, "s3") == seen


@pytest.mark.postgresql
async def test_an_owner_that_lives_through_a_failover_without_a_loss_vouches_for_the_identity() -> (
    None
):
    with database() as server:
        journal = open_journal(server.url)
        lease = await journal.create(NewSession("s1", "agent", "/project"))
        await server.remember()
        server.go_back()
        assert await journal.renew([lease]) == []
        assert await identity(journal) == lease.journal
        await journal.aclose()
        assert await own(server.url, "s2") == lease.journal
