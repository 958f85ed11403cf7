"""A copy of the journal while it is in use: whole, of one moment, and for its owner alone."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from acphold.errors import JournalUnavailableError
from acphold.journal.journal import state_of
from acphold.journal.rows import NewSession
from acphold.journal.sqlite.in_file import copy_to
from acphold.journal.sqlite.store import SqliteJournal
from tests.conversations import chunk, encode
from tests.journal.conversations import open_file


async def copied(journal: SqliteJournal, path: Path) -> int:
    return await journal._background.run(lambda db: copy_to(db, str(path)))


async def test_a_copy_is_whole_private_and_stands_for_itself(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.append(lease, [("update", [encode(chunk("agent_message", "Hello"))])])
    target = tmp_path / "copy.db"
    size = await copied(journal, target)
    assert target.stat().st_size == size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if "copy" in name] == ["copy.db"]
    other = open_file(target)
    assert await state_of(other, "s1") == await state_of(journal, "s1")
    assert await other.file.damage() == []
    await other.aclose()


async def test_a_copy_is_made_while_somebody_writes(path: Path, tmp_path: Path) -> None:
    writing = open_file(path)
    copying = open_file(path)
    lease = await writing.create(NewSession("s1", "a", "/"))
    raw = encode(chunk("agent_message", "x" * 2000))

    async def write() -> None:
        for _ in range(200):
            await writing.append(lease, [("update", [raw])])
            await asyncio.sleep(0)

    task = asyncio.create_task(write())
    for number in range(3):
        await copied(copying, tmp_path / f"{number}.db")
    await task
    for number in range(3):
        other = open_file(tmp_path / f"{number}.db")
        assert await other.file.damage() == []
        await other.aclose()
    assert (await writing.session("s1")).last_seq == 200
    await writing.aclose()
    await copying.aclose()


async def test_a_copy_that_cannot_be_made_leaves_what_was_there(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy.db").write_text("before")

    def fail(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("acphold.journal.sqlite.in_file.write_out", fail)
    with pytest.raises(JournalUnavailableError, match="No space left"):
        await copied(journal, tmp_path / "copy.db")
    assert await asyncio.to_thread((tmp_path / "copy.db").read_text) == "before"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".acphold-")]


async def test_a_folder_that_is_not_there_is_said(journal: SqliteJournal, tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailableError, match="cannot write the copy"):
        await copied(journal, tmp_path / "no" / "copy.db")


def test_a_copy_that_is_not_whole_takes_no_place(tmp_path: Path) -> None:
    class Broken(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **_: object) -> None:
            target.execute("CREATE TABLE t (x INTEGER CHECK (x > 0))")
            target.execute("PRAGMA ignore_check_constraints = ON")
            target.execute("INSERT INTO t VALUES (-1)")
            target.execute("PRAGMA ignore_check_constraints = OFF")

    source = sqlite3.connect(":memory:", factory=Broken)
    with pytest.raises(JournalUnavailableError, match="the copy is damaged"):
        copy_to(source, str(tmp_path / "copy.db"))
    assert list(tmp_path.iterdir()) == []
    source.close()
