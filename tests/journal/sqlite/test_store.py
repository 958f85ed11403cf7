"""The journal in SQLite: sessions, leases, and entries that are appended and read on."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from acphold.conversation.history.entries import Segment
from acphold.errors import (
    JournalUnavailableError,
)
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.conversations import begun, open_file


def size(path: Path) -> int:
    """Bytes of the file itself, without its log."""
    return path.stat().st_size


async def test_the_folder_and_all_files_are_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "acphold"
    journal = open_file(folder / "journal.db")
    await begun(journal)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == {
        "journal.db": 0o600,
        "journal.db-wal": 0o600,
        "journal.db-shm": 0o600,
        "journal.db-owners": 0o700,
    }
    [owner] = (folder / "journal.db-owners").iterdir()
    assert stat.S_IMODE(owner.stat().st_mode) == 0o600
    await journal.aclose()


async def test_the_log_is_copied_into_the_file_in_the_background(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    before = size(path)
    for _ in range(10):
        await journal.append(lease, [("update", [b"x" * 1_000_000])])
    # Background work started now runs after the checkpoint.
    await journal.settle(lease, 0)
    assert size(path) > before + 4_000_000


def test_a_segment_that_cannot_be_cut_stays_whole() -> None:
    compacted = Segment(3, 9, "update", 0, b"{}")
    assert compacted.after(5) == compacted
    assert [entry.seq for entry in compacted.entries()] == [9]


async def test_who_waited_in_vain_for_another_program_does_not_wait_so_long_again(
    tmp_path: Path,
) -> None:
    journal = open_file(tmp_path / "journal.db", busy_seconds=2.0)
    lease = await journal.create(NewSession("s1", "a", "/w"))
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waits = []
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(JournalUnavailableError):
            await journal.append(lease, [("update", [b"{}"])])
        waits.append(time.monotonic() - began)
    other.execute("ROLLBACK")
    other.close()
    assert waits[1] + waits[2] < waits[0]
    assert (await journal.append(lease, [("update", [b"{}"])]))[0].first_seq == 1
    await journal.aclose()


async def test_other_tasks_go_on_while_another_program_holds_the_journal(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await journal.append(lease, [("update", [b"{}"])])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = [
        asyncio.create_task(attempt)
        for attempt in (
            journal.append(lease, [("update", [b"{}"])]),
            journal.change(lease, RowChange(updated_at=99)),
            journal.renew([lease]),
            journal.create(NewSession("s2", "a", "/w")),
        )
    ]
    for _ in range(5):  # each of them begins and waits, and the loop goes on
        await asyncio.sleep(0)
        assert [segment.last_seq for segment in await journal.read("s1", 0)] == [1]
    assert not any(task.done() for task in waiting)
    other.execute("ROLLBACK")
    other.close()
    await asyncio.gather(*waiting)
    assert (await journal.session("s1")).last_seq == 2
    assert (await journal.session("s2")).last_seq == 0


async def test_an_append_that_waits_for_another_program_can_be_cancelled(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(journal.append(lease, [("update", [b"{}"])]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other.execute("ROLLBACK")
    other.close()
    assert (await journal.append(lease, [("update", [b"{}"])]))[0].first_seq == 1
