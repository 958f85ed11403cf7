"""Connections to one journal take turns: live sessions come in between pieces of long work."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import NewerJournalError
from acphold.journal import bounds
from acphold.journal.journal import Append, Lease
from acphold.journal.rows import RowChange
from acphold.journal.sqlite import in_file
from acphold.journal.sqlite.connection import Connection, connect, writing
from acphold.journal.sqlite.migrations import VERSION
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.conversations import append, begun, open_file, turn

DEADLINE = 60.0
PIECES = 100


async def test_who_is_live_comes_in_between_the_pieces_of_what_gives_way(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    done: list[int] = []
    begins = threading.Event()

    def work() -> None:
        connection = connect(str(path), DEADLINE, gives_way=True)
        for number in range(PIECES):
            with writing(connection):
                begins.set()
                time.sleep(bounds.PIECE_SECONDS)  # the time for a piece of work
            done.append(number)
        connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    assert begins.wait(DEADLINE)
    came_in: list[int] = []
    while len(came_in) < 10:
        await journal.append(lease, [("update", [b"{}"])])
        came_in.append(len(done))
    worker.join(DEADLINE)
    assert not worker.is_alive()
    assert came_in[-1] < PIECES / 2


async def test_more_of_the_file_is_kept_in_memory_only_where_many_sessions_write_together(
    journal: SqliteJournal,
) -> None:
    connection = journal.connect().connection
    sizes: list[int] = []
    for number in (1, bounds.CROWD + 1, 1):
        leases = [await begun(journal, f"{number} {len(sizes)} {it}") for it in range(number)]
        await journal.append_all([Append(lease, [("update", [b"{}"])]) for lease in leases])
        sizes.append(connection.execute("PRAGMA cache_size").fetchone()[0])
    assert sizes == [-bounds.CACHE_KIB, -bounds.CROWD_CACHE_KIB, -bounds.CROWD_CACHE_KIB]


async def test_the_lock_of_this_process_is_free_while_another_program_is_waited_for(
    path: Path,
) -> None:
    await open_file(path).aclose()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    connection = connect(str(path), DEADLINE, gives_way=True)
    waits = threading.Thread(target=connection.begin)
    waits.start()
    taken = connection.alone.acquire(timeout=DEADLINE)
    other.execute("COMMIT")
    if taken:
        connection.alone.release()
    waits.join(DEADLINE)
    assert taken
    assert connection.in_transaction
    connection.end()
    connection.close()
    other.close()


async def test_a_question_is_asked_again_until_it_can_be_answered(path: Path) -> None:
    await open_file(path).aclose()
    connection = connect(str(path), DEADLINE)
    connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    tried = 0

    def question(connection: Connection) -> int:
        nonlocal tried
        tried += 1
        if tried == 1:
            other.execute("BEGIN IMMEDIATE")
            connection.execute("BEGIN IMMEDIATE")  # which is refused
        other.execute("COMMIT")
        return tried

    assert connection.look(question) == 2
    connection.close()
    other.close()


# -- the log --------------------------------------------------------------------------------------


def log_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def test_nobody_waits_while_somebody_reads_on_in_a_long_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_PAGES_AT_MOST", 100)
    monkeypatch.setattr(bounds, "CHECKPOINT_BYTES", 100_000)
    # With the patience of a test at its longest: waiting for the reader would hang.
    journal = open_file(path, busy_seconds=3600)
    lease = await begun(journal)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM segments").fetchone()
    for _ in range(30):
        await journal.append(lease, [("update", [b"x" * 100_000])])
        await journal.settle(lease, 0)  # behind a checkpoint, which is behind the append
    assert log_bytes(path) > 2_500_000
    reader.execute("COMMIT")
    reader.close()
    await journal.aclose()


async def test_a_long_log_begins_anew_in_the_middle_of_a_flood(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_PAGES_AT_MOST", 250)
    monkeypatch.setattr(bounds, "CHECKPOINT_BYTES", 200_000)
    journal = open_file(path)
    lease = await begun(journal)
    rested = 0
    for _ in range(5000):
        rested += journal._background.rest is not None
        await journal.append(lease, [("update", [b"x" * 10_000])])
    assert rested
    assert log_bytes(path) < 5000 * 10_000  # less than was written
    await journal.aclose()


async def test_a_long_log_begins_anew_also_if_others_write_during_each_pass_over_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_PAGES_AT_MOST", 100)
    monkeypatch.setattr(bounds, "CHECKPOINT_BYTES", 100_000)
    # With the patience of a test at its longest: waiting for the reader would hang.
    journal = open_file(path, busy_seconds=3600)
    lease = await begun(journal)
    other, reader = (
        sqlite3.connect(path, isolation_level=None, check_same_thread=False) for _ in range(2)
    )
    lengths: list[int] = []
    reads = True

    class Beside(Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            if "RESTART" in statement and reads:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM segments").fetchone()
            if "PASSIVE" not in statement:
                return super().execute(statement, *values)
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT OR REPLACE INTO meta VALUES ('beside', random())")
            done = super().execute(statement, *values)
            other.execute("COMMIT")
            return done

    def stay_beside(connection: Connection) -> None:
        connection.__class__ = Beside

    await journal._background.run(stay_beside)
    for number in range(60):
        if number == 30:
            assert reader.in_transaction, "it came to read in a log that was to start over"
            reader.execute("COMMIT")
            reads = False
        await journal.append(lease, [("update", [b"x" * 100_000])])
        await journal.settle(lease, 0)  # behind a checkpoint, which is behind the append
        lengths.append(log_bytes(path))
    assert lengths[29] > 2_500_000
    assert lengths[59] == lengths[30]
    reader.close()
    other.close()
    await journal.aclose()


async def test_what_was_copied_is_flushed_before_anybody_waits_for_the_rest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_PAGES_AT_MOST", 100)
    monkeypatch.setattr(bounds, "CHECKPOINT_BYTES", 100_000)
    journal = open_file(path)
    lease = await begun(journal)
    done: list[str] = []
    fsync = os.fsync

    class Noting(Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            done.append(statement)
            return super().execute(statement, *values)

    def note(file: int) -> None:
        done.append("the file" if os.fstat(file).st_ino == path.stat().st_ino else "another")
        fsync(file)

    def watch(connection: Connection) -> None:
        connection.__class__ = Noting

    await journal._background.run(watch)
    monkeypatch.setattr(os, "fsync", note)
    await journal.append(lease, [("update", [b"x" * 1_000_000])])
    await journal.settle(lease, 0)  # behind a checkpoint, which is behind the append
    before = done[: done.index("PRAGMA wal_checkpoint(RESTART)")]
    last = max(at for at, it in enumerate(before) if "PASSIVE" in it)
    assert "the file" in before[last:]
    await journal.aclose()


async def test_what_a_flood_made_of_the_log_is_given_back_behind_it_and_not_by_who_appends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_BYTES_KEPT", 100_000)
    monkeypatch.setattr(bounds, "CHECKPOINT_BYTES", 100_000)
    journal = open_file(path)
    lease = await begun(journal)
    for _ in range(300):
        await journal.append(lease, [("update", [b"x" * 10_000])])
    flooded = log_bytes(path)
    assert flooded > 100_000
    await journal._background.run(lambda db: db.execute("PRAGMA wal_checkpoint(PASSIVE)"))
    await journal.append(lease, [("update", [b"{}"])])  # the log begins anew with it
    assert log_bytes(path) == flooded
    await journal.index.tidy(0)
    assert log_bytes(path) <= 100_000
    (last,) = await journal.read(lease.session_id, lease.next_seq - 2)
    assert last.raw == b"{}"
    await journal.aclose()


async def test_a_log_is_cut_piece_by_piece_and_a_crash_between_them_loses_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_BYTES_KEPT", 100_000)
    monkeypatch.setattr(bounds, "CUT_BYTES", 1_000_000)
    journal = open_file(path)
    lease = await begun(journal)
    for _ in range(50):
        await journal.append(lease, [("update", [b"x" * 100_000])])
    flooded = log_bytes(path)
    pieces: list[int] = []
    cut = os.ftruncate

    def note(file: int, size: int) -> None:
        pieces.append(os.fstat(file).st_size - size)
        cut(file, size)
        crashed = tmp_path / f"{len(pieces)}.db"
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{crashed}{suffix}")
        with closing(sqlite3.connect(crashed)) as found:
            assert found.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            assert found.execute("SELECT count(*) FROM segments").fetchall() == [(50,)]

    monkeypatch.setattr(os, "ftruncate", note)
    await journal.index.tidy(0)
    assert len(pieces) > 4
    assert max(pieces) <= bounds.CUT_BYTES
    assert log_bytes(path) <= 100_000
    assert sum(pieces) >= flooded - 100_000
    await journal.append(lease, [("update", [b"{}"])])
    assert await journal.file.damage() == []
    await journal.aclose()


async def test_who_gives_room_back_gives_back_that_of_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_BYTES_KEPT", 100_000)
    journal = open_file(path)
    lease = await begun(journal)
    await journal.append(lease, [("update", [b"x" * 1_000_000])])
    assert log_bytes(path) > 1_000_000
    assert journal.file is not None
    await journal.file.give_back()
    assert log_bytes(path) <= 100_000
    await journal.aclose()


async def test_room_that_cannot_be_given_back_for_long_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SHORTENED_SECONDS", 0.05)
    monkeypatch.setattr(in_file, "_is_shortened", lambda _: False)
    journal = open_file(path)
    await begun(journal)
    assert journal.file is not None
    async with asyncio.timeout(DEADLINE):
        await journal.file.give_back()
    await journal.aclose()


async def test_a_log_in_which_somebody_reads_is_not_given_back_and_nobody_waits_for_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_BYTES_KEPT", 100_000)
    # With the patience of a test at its longest: waiting for the reader would hang.
    journal = open_file(path, busy_seconds=3600)
    lease = await begun(journal)
    await journal.append(lease, [("update", [b"x" * 1_000_000])])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM segments").fetchone()
    await journal.index.tidy(0)
    assert log_bytes(path) > 1_000_000
    reader.execute("COMMIT")
    reader.close()
    await journal.index.tidy(0)
    assert log_bytes(path) <= 100_000
    await journal.aclose()


# -- a newer release ------------------------------------------------------------------------------


def brought_to_the_next_version(path: Path) -> None:
    """As a later release does it while this one runs."""
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute("BEGIN IMMEDIATE")
    newer.execute("ALTER TABLE summaries RENAME COLUMN summary TO packed_summary")
    newer.execute("UPDATE leases SET epoch = 0")
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.execute("COMMIT")
    newer.close()


Ask = Callable[[SqliteJournal, Lease], Awaitable[object]]

QUESTIONS: dict[str, Ask] = {
    "append": lambda journal, lease: journal.append(lease, [("update", [b"{}"])]),
    "read": lambda journal, _: journal.read("s1", 0),
    "row": lambda journal, _: journal.session("s1"),
    "what it looks for is no more": lambda journal, _: journal.summary("s1"),
    "who owns it": lambda journal, _: journal.owner("s1"),
    "write": lambda journal, _: journal.change("s1", RowChange(given="T")),
    "create": lambda journal, _: begun(journal, "s2"),
    "in the background": lambda journal, _: journal.index.search("word"),
    "in pieces": lambda journal, _: journal.delete("s1"),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
async def test_who_was_there_before_a_newer_release_is_told_to_start_again_and_writes_nothing(
    journal: SqliteJournal, path: Path, ask: Ask
) -> None:
    lease = await begun(journal)
    await journal.settle(lease, await append(journal, lease, turn("Hi")))
    brought_to_the_next_version(path)
    database = sqlite3.connect(path)
    before = [*database.iterdump()]
    with pytest.raises(NewerJournalError, match=r"restart the agent in your editor"):
        await ask(journal, lease)
    assert [*database.iterdump()] == before
    database.close()


async def test_who_waited_for_a_migration_writes_nothing_in_the_old_way(path: Path) -> None:
    journal = open_file(path, busy_seconds=DEADLINE)
    lease = await begun(journal)
    newer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    newer.execute("BEGIN IMMEDIATE")
    newer.execute("UPDATE leases SET epoch = 0")
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    ends = threading.Timer(0.2, lambda: newer.execute("COMMIT"))
    ends.start()
    with pytest.raises(NewerJournalError):
        await journal.append(lease, [("update", [b"{}"])])
    ends.join()
    assert newer.execute("SELECT * FROM segments").fetchall() == []
    newer.close()
    await journal.aclose()
