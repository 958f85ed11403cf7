"""A journal on a network file system is refused: nothing that keeps it whole holds there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acphold.errors import JournalUnavailableError
from acphold.journal import bounds
from acphold.journal.sqlite import file_system
from acphold.journal.sqlite.file_system import network_type, type_of
from tests.journal.conversations import open_file

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 259:1 / / rw,relatime - ext4 /dev/nvme0n1p1 rw
31 27 0:45 / /home rw,relatime shared:7 - nfs4 server:/home rw,vers=4.2
32 27 0:46 /a\\040b /mnt rw,relatime shared:8 master:1 - fuse.sshfs me@there: rw
33 27 0:47 / /run/user/1000 rw - tmpfs tmpfs rw
34 27 0:48
"""


@pytest.mark.parametrize(
    ("device", "found"),
    [("0:45", "nfs4"), ("0:46", "fuse.sshfs"), ("0:47", None), ("0:48", None), ("0:99", None)],
)
def test_a_network_file_system_is_known_by_its_type(device: str, found: str | None) -> None:
    assert type_of(device, MOUNTS) == found


def test_a_disk_of_this_machine_is_no_network_file_system_below_missing_folders_either(
    tmp_path: Path,
) -> None:
    assert network_type(str(tmp_path / "not" / "yet" / "journal.db")) is None


def test_a_journal_on_a_network_file_system_is_refused_with_what_to_do_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "NETWORK", frozenset({"ext4", "overlay", "tmpfs", "btrfs"}))
    monkeypatch.setattr(os, "major", lambda _: 0)
    minor = os.minor((tmp_path).stat().st_dev)
    (mounts := tmp_path / "mounts").write_text(f"31 27 0:{minor} / / rw - tmpfs tmpfs rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", str(mounts))
    with pytest.raises(JournalUnavailableError, match=r"network file system \(tmpfs\).*a disk of"):
        open_file(tmp_path / "new" / "journal.db")
    assert not (tmp_path / "new").exists()


def test_a_reserve_takes_twice_the_journal_or_a_tenth_of_the_room_and_goes_with_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (journal := tmp_path / "journal.db").write_bytes(bytes(4_000))
    (tmp_path / "journal.db-wal").write_bytes(bytes(6_000))
    reserve = tmp_path / "journal.db-reserve"
    room = 10_000
    monkeypatch.setattr(file_system, "_free_bytes", lambda _: room)
    monkeypatch.setattr(bounds, "RESERVED_BYTES", 50_000)
    file_system.keep_reserve(str(journal))
    assert not reserve.exists()
    room = 1_000_000
    file_system.keep_reserve(str(journal))
    found = reserve.stat()
    assert (found.st_size, found.st_mode & 0o777) == (20_000, 0o600)
    assert found.st_blocks * 512 >= 20_000
    journal.write_bytes(bytes(14_000))
    file_system.keep_reserve(str(journal))
    file_system.release_reserve(str(journal))
    assert reserve.stat().st_size == 20_000
    room = 40_000
    file_system.release_reserve(str(journal))
    assert not reserve.exists()
    file_system.keep_reserve(str(journal))
    assert reserve.stat().st_size == 4_000


def test_a_pipe_in_the_place_of_a_reserve_is_left_alone(tmp_path: Path) -> None:
    (journal := tmp_path / "journal.db").write_bytes(bytes(10_000))
    os.mkfifo(pipe := tmp_path / "journal.db-reserve")
    file_system.keep_reserve(str(journal))
    assert pipe.is_fifo()
