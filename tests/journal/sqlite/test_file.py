"""Everything that can go wrong with the file is refused in plain words, and changes nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from pathlib import Path

import pytest

from acphold.conversation.history.entries import Segment
from acphold.errors import (
    JournalError,
    JournalUnavailableError,
    NewerJournalError,
    NotAJournalError,
)
from acphold.journal.journal import Lease, state_of
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite import file as journal_file, file_system
from acphold.journal.sqlite.connection import Connection, OpenMode, connect
from acphold.journal.sqlite.migrations import VERSION
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.conversations import open_file

RAW = b'{"sessionUpdate":"from_the_future"}'
NOBODY = 65534


async def written(path: Path, entries: int = 20, *, create: bool = True) -> list[Segment]:
    """A journal with one session, closed again; its history."""
    journal = open_file(path, create=create)
    lease = await journal.create(NewSession("s1", "a", "/w"))
    history = [
        segment
        for n in range(entries)
        for segment in await journal.append(lease, [("update", [RAW, b"%d" % n])])
    ]
    await journal.aclose()
    return history


async def read_all(journal: SqliteJournal) -> list[Segment]:
    """The history of the session that `written` makes."""
    return await journal.read("s1", 0)


def size(path: Path) -> int:
    """Bytes of the file itself, without its log."""
    return path.stat().st_size


def refused(path: Path, error: type[JournalError], *words: str, create: bool = True) -> None:
    """Opening raises `error`, says these words and the path, and leaves every file as it is."""
    before = contents(path.parent)
    with pytest.raises(error) as caught:
        open_file(path, create=create, busy_seconds=0.05)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert contents(path.parent) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Names and bytes of the files in a folder."""
    if not folder.is_dir():
        return {}
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def files_of(path: Path) -> list[Path]:
    """The journal, and SQLite's files beside it."""
    return [file for file in path.parent.iterdir() if file.is_file()]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing in `folder` can be changed. Root gives up its powers, which no mode would stop."""
    files = list(folder.iterdir())
    for place, mode in [(folder, 0o555), *((file, 0o444) for file in files)]:
        place.chmod(mode)
    powerful = os.geteuid() == 0
    if powerful:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if powerful:
            os.seteuid(0)
        for place, mode in [(folder, 0o755), *((file, 0o600) for file in files)]:
            place.chmod(mode)


@pytest.mark.parametrize("content", [b"# Notes\n", b"x" * 5000, b"SQLite format 3\0", b"\0" * 200])
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, NotAJournalError, "not an acphold journal", "--journal", "journal= in Python")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_of_another_program_is_refused(path: Path, mode: str) -> None:
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("CREATE TABLE bookmarks (url TEXT)")
    database.commit()
    refused(path, NotAJournalError, "another program")
    database.close()
    refused(path, NotAJournalError, "another program")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER row_kept AFTER INSERT ON segments BEGIN DELETE FROM segments; END",
        "CREATE VIEW answers AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
        " SELECT x FROM n",
    ],
)
async def test_a_journal_in_which_another_program_has_put_what_acts_by_itself_is_refused(
    path: Path, statement: str
) -> None:
    await written(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
    refused(path, NotAJournalError, "that acphold has not made", statement.split()[2])


@pytest.mark.parametrize("kind", ["TRIGGER", "trigger\0", "View"])
async def test_what_acts_by_itself_is_refused_however_its_kind_is_written(
    path: Path, kind: str
) -> None:
    await written(path)
    body = "VIEW gone AS SELECT 1"
    if kind != "View":
        body = "TRIGGER gone AFTER INSERT ON segments BEGIN DELETE FROM segments; END"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE {body}")
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_schema SET type = ? WHERE name = 'gone'", (kind,))
        database.commit()
    refused(path, NotAJournalError, "that acphold has not made", "gone")


async def test_a_journal_of_a_later_release_is_refused(path: Path) -> None:
    await written(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.execute("CREATE VIEW of_that_release AS SELECT 1")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    refused(path, NewerJournalError, "version 99", f"up to {VERSION}", "update acphold")


@pytest.mark.skipif(sys.platform != "linux", reason="notes are in attributes")
@pytest.mark.parametrize("folder", ["", "elsewhere"])
async def test_a_hard_link_to_a_journal_is_refused_as_long_as_it_has_the_name_it_was_used_by(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    path, other = tmp_path / "journal.db", tmp_path / folder / "other.db"
    history = await written(path)
    if not os.listxattr(path):
        pytest.skip("a file system without attributes")
    os.link(path, other)
    for create in (True, False):
        words = f"the same file as {path}", f"Use {path}; or remove {other}, "
        refused(other, JournalUnavailableError, *words, create=create)
    await open_file(path).aclose()
    path.unlink()
    journal = open_file(other)
    assert await read_all(journal) == history
    await journal.aclose()
    other.rename(path)
    journal = open_file(path)
    assert await read_all(journal) == history
    await journal.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="notes are in attributes")
async def test_of_two_names_that_are_opened_at_once_only_one_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(path)
    if not os.listxattr(path):
        pytest.skip("a file system without attributes")
    os.link(path, one := path.with_name("one.db"))
    os.link(path, two := path.with_name("two.db"))
    os.unlink(path)  # so the name that is noted is nobody's
    opened: list[Path] = []

    async def try_to_open(name: Path) -> None:
        with suppress(JournalUnavailableError):
            await open_file(name).aclose()
            opened.append(name)

    looking = threading.Thread(target=lambda: asyncio.run(try_to_open(one)))
    look = file_system.other_name

    def look_slowly(name: str) -> str:
        found = look(name)
        if name == str(two) and not looking.ident:
            looking.start()
            looking.join(0.3)
        return found

    monkeypatch.setattr(file_system, "other_name", look_slowly)
    await try_to_open(two)
    looking.join()
    assert len(opened) == 1


async def test_a_later_release_that_is_still_at_work_is_noticed(path: Path) -> None:
    history = await written(path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA wal_autocheckpoint = 0")
    database.execute("PRAGMA user_version = 99")
    with pytest.raises(NewerJournalError):
        open_file(path)
    database.execute(f"PRAGMA user_version = {VERSION}")
    database.close()
    journal = open_file(path)
    assert await read_all(journal) == history
    await journal.aclose()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAJournalError, match="is a folder"):
        open_file(tmp_path)


def test_a_folder_that_cannot_be_made_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalUnavailableError, match="file/journal"):
        open_file(tmp_path / "file" / "journal.db")
    with pytest.raises(JournalUnavailableError, match="/proc/acphold"):
        open_file("/proc/acphold/journal.db")


def test_without_create_no_journal_is_made(path: Path) -> None:
    refused(path, JournalUnavailableError, "no journal", create=False)
    path.write_bytes(b"")
    refused(path, JournalUnavailableError, "empty", create=False)


def test_a_read_only_folder_is_said_to_be(open_folder: Path) -> None:
    with read_only(open_folder):
        refused(
            open_folder / "journal.db", JournalUnavailableError, "Permission denied", "writable"
        )


async def test_a_journal_that_may_only_be_read_takes_nothing_and_loses_nothing(
    open_folder: Path,
) -> None:
    path = open_folder / "journal.db"
    history = await written(path)
    with read_only(open_folder):
        refused(path, JournalUnavailableError, "is read-only", "writable")
        with pytest.raises(JournalUnavailableError, match="writable"):
            await written(path, create=False)
    journal = open_file(path)
    assert await read_all(journal) == history
    await journal.aclose()


async def test_a_journal_that_another_program_holds_is_waited_for_and_then_given_up(
    path: Path,
) -> None:
    history = await written(path)
    journal = open_file(path, busy_seconds=0.05)
    lease = await journal.acquire("s1")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalUnavailableError, match="another program holds it"):
        await journal.append(lease, [("update", [RAW])])
    with pytest.raises(JournalUnavailableError, match="another program holds it"):
        await journal.create(NewSession("s2", "a", "/w"))
    assert await read_all(journal) == history
    holder.execute("ROLLBACK")
    holder.close()
    [added] = await journal.append(lease, [("update", [RAW])])
    assert await read_all(journal) == [*history, added]
    await journal.aclose()


async def test_a_journal_in_which_nobody_was_to_write_is_not_read_on_when_somebody_has(
    open_folder: Path,
) -> None:
    path = open_folder / "journal.db"
    history = await written(path)
    with read_only(open_folder):
        journal = open_file(path, create=False)
        assert await read_all(journal) == history
    writing = open_file(path)
    await writing.create(NewSession("s2", "a", "/w"))
    for attempt in (journal.session("s1"), state_of(journal, "s1")):
        with pytest.raises(JournalUnavailableError, match="try again"):
            await attempt
    await writing.aclose()
    await journal.aclose()


async def test_a_journal_locked_as_a_whole_is_not_opened(path: Path) -> None:
    await written(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalUnavailableError, match="another program holds it"):
        open_file(path, busy_seconds=0.05)
    holder.close()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_journal_cut_short_is_refused(path: Path, part: float) -> None:
    asyncio.run(written(path, 2000))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    refused(path, NotAJournalError, "damaged", ".recover")


def test_damage_in_the_middle_is_told_when_it_is_met_and_not_written_over(path: Path) -> None:
    asyncio.run(written(path, 2000))
    whole = bytearray(path.read_bytes())
    whole[8192:] = b"\xa5" * (len(whole) - 8192)
    path.write_bytes(whole)
    with pytest.raises(NotAJournalError, match="damaged"):
        asyncio.run(open_and_read(path))
    assert path.read_bytes() == bytes(whole)


async def open_and_read(path: Path) -> None:
    """Whatever can be met in a journal, met."""
    async with aclosing(open_file(path)) as journal:
        await read_all(journal)


def copy(file: Path, place: Path) -> None:
    """Another file with the same bytes."""
    place.write_bytes(file.read_bytes())


def copy_torn(path: Path, torn: Path, part: float, garbage: bytes) -> None:
    """The journal as a power cut might leave it: the end of its log missing, or garbage."""
    log = path.with_name("journal.db-wal").read_bytes()
    intact = int(len(log) * part)
    torn.parent.mkdir()
    torn.write_bytes(path.read_bytes())
    torn.with_name("journal.db-wal").write_bytes(log[:intact] + garbage * (len(log) - intact))


@pytest.mark.parametrize("part", [0.0, 0.1, 0.35, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("garbage", [b"", b"\x5a"])
async def test_the_committed_beginning_of_a_log_with_a_torn_end_survives(
    path: Path, part: float, garbage: bytes
) -> None:
    history = await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    for n in range(50):
        history += await journal.append(lease, [("update", [RAW, b"%d" % n])])
    torn = path.parent / "torn" / path.name
    copy_torn(path, torn, part, garbage)
    await journal.aclose()
    again = open_file(torn)
    survived = await read_all(again)
    assert survived == history[: len(survived)]
    assert len(survived) >= 20 + int(50 * part) - 5
    [added] = await again.append(await again.acquire("s1"), [("update", [RAW])])
    assert await read_all(again) == [*survived, added]
    await again.aclose()


async def test_a_full_disk_refuses_the_append_and_keeps_what_is_there(path: Path) -> None:
    history = await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    with file_size_limit(size(path) + 40_000):
        [added] = await journal.append(lease, [("update", [RAW])])
        with pytest.raises(JournalUnavailableError, match="disk"):
            await journal.append(lease, [("update", [b"x" * 400_000])])
        with pytest.raises(JournalUnavailableError, match="disk"):
            await journal.append(lease, [("update", [b"x" * 400_000])])
        assert await read_all(journal) == [*history, added]
        [last] = await journal.append(lease, [("update", [RAW])])
    [large] = await journal.append(lease, [("update", [b"x" * 400_000])])
    assert await read_all(journal) == [*history, added, last, large]
    await journal.aclose()
    journal = open_file(path)
    assert await read_all(journal) == [*history, added, last, large]
    await journal.aclose()


async def test_a_full_disk_keeps_settling_from_changing_anything(path: Path) -> None:
    await written(path, 500)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    history = await read_all(journal)
    with file_size_limit(4096), pytest.raises(JournalUnavailableError, match="disk"):
        await journal.settle(lease, lease.next_seq - 1)
    assert await read_all(journal) == history
    await journal.settle(lease, lease.next_seq - 1)
    await journal.aclose()


async def test_a_journal_on_a_full_disk_can_be_read(path: Path) -> None:
    await written(path, 5)
    with file_size_limit(4096):
        journal = open_file(path, create=False)
        read = await read_all(journal)
        with pytest.raises(JournalUnavailableError, match="its disk"):
            await journal.change("s1", RowChange(title="no room"))
    assert read
    await journal.aclose()
    again = open_file(path, create=False)
    assert await read_all(again) == read
    await again.change("s1", RowChange(title="room"))
    await again.aclose()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size`: the kernel refuses, as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_all_who_open_a_new_journal_at_once_get_it(path: Path) -> None:
    together = threading.Barrier(8)
    opened: list[bytes] = []

    def open_one() -> None:
        together.wait(10)
        journal = open_file(path)
        opened.append(asyncio.run(journal.identity()).secret)
        journal.connect().close()

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(opened) == 8
    assert len(set(opened)) == 1


async def test_a_whole_journal_has_no_damage_and_a_gap_is_found(path: Path) -> None:
    await written(path, 2000)
    journal = open_file(path)
    assert await journal.file.damage() == []
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("DELETE FROM segments WHERE first_seq = 5")
    database.close()
    assert await journal.file.damage() == ["session 's1': entry 7 follows 4"]
    await journal.aclose()


def test_a_schema_that_is_no_text_any_more_is_damage(path: Path) -> None:
    asyncio.run(written(path, 10))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CREATE TABLE sessions", b"CREATE TABLE \xff\xfessions"))
    with pytest.raises(NotAJournalError, match="damaged"):
        open_file(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET origins = '[1]'",
        "UPDATE sessions SET additional_directories = '{'",
        "UPDATE sessions SET title = CAST(x'fffe' AS TEXT)",
    ],
)
async def test_a_row_that_nobody_wrote_like_that_is_damage(path: Path, damage: str) -> None:
    await written(path, 10)
    database = sqlite3.connect(path)
    database.execute(damage)
    database.commit()
    database.close()
    journal = open_file(path)
    with pytest.raises(NotAJournalError, match="damaged"):
        await journal.session("s1")
    await journal.aclose()


def test_damaged_pages_are_found(path: Path) -> None:
    asyncio.run(written(path, 10_000))  # in the second half of which is nothing but entries
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 : -4096] = b"\xa5" * (len(whole) - len(whole) // 2 - 4096)
    path.write_bytes(whole)
    assert asyncio.run(damage_of(path)) != []


async def damage_of(path: Path) -> list[str]:
    """The damage that a journal reports of itself."""
    async with aclosing(open_file(path)) as journal:
        return await journal.file.damage()


def test_a_pipe_is_no_journal_and_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    found: list[BaseException] = []

    def open_it() -> None:
        try:
            open_file(path)
        except BaseException as error:
            found.append(error)

    opening = threading.Thread(target=open_it, daemon=True)
    opening.start()
    opening.join(10)
    assert [type(error) for error in found] == [NotAJournalError]
    assert "is not a regular file" in str(found[0])


@pytest.mark.parametrize("pages", [0, 1, 2, 4, 8, 12, 16, 20])
def test_a_disk_that_is_full_at_the_beginning_is_said_to_be(path: Path, pages: int) -> None:
    with file_size_limit(pages * 4096), pytest.raises(JournalUnavailableError, match="disk"):
        open_file(path)
    open_file(path).connect().close()


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
async def test_a_journal_that_others_could_read_becomes_private_with_all_that_is_beside_it(
    path: Path, mode: int
) -> None:
    history = await written(path)
    busy = open_file(path)
    assert not busy.file.was_open_to_others
    lease = await busy.acquire("s1")
    for file in path.parent.glob("journal.db*"):
        file.chmod(mode | 0o100 * file.is_dir())
    journal = open_file(path)
    assert journal.file.was_open_to_others
    history += await busy.append(lease, [("update", [RAW])])
    assert await read_all(journal) == history
    assert {stat.S_IMODE(file.stat().st_mode) for file in files_of(path)} == {0o600}
    for opened in (busy, journal):
        await opened.aclose()


async def append_for(journal: SqliteJournal, lease: Lease, seconds: float) -> None:
    """Append so long, enough for checkpoints in between."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await journal.append(lease, [("update", [RAW * 100])])


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_journal_that_is_deleted_or_replaced_in_use_takes_nothing_more(
    path: Path, replaced: bool
) -> None:
    await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    await journal.append(lease, [("update", [RAW])])
    away = path.parent / "away"
    os.rename(path, away)
    if replaced:
        copy(away, path)
    with pytest.raises(JournalUnavailableError, match="deleted or replaced"):
        await append_for(journal, lease, seconds=5)
    for attempt in (
        journal.create(NewSession("s2", "a", "/w")),
        journal.acquire("s1"),
        journal.settle(lease, 1),
        state_of(journal, "s1"),
    ):
        with pytest.raises(JournalUnavailableError, match="deleted or replaced"):
            await attempt
    os.replace(away, path)
    [last] = await journal.append(lease, [("update", [RAW])])
    assert (await journal.session("s1")).last_seq == last.last_seq
    assert await journal.file.damage() == []
    await journal.aclose()


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_log_that_is_deleted_in_use_is_copied_before_the_next_write(
    path: Path, is_read: bool
) -> None:
    history = await written(path)
    journal, beside = open_file(path), open_file(path)
    lease = await journal.acquire("s1")
    history += await journal.append(lease, [("update", [RAW])])
    await beside.create(NewSession("s2", "a", "/w"))
    path.with_name("journal.db-wal").unlink()
    if is_read:  # by a program that starts then, which makes an empty log
        with suppress(JournalError):
            await read_all(open_file(path))
    for _ in range(3):
        history += await journal.append(lease, [("update", [RAW])])
    await beside.create(NewSession("s3", "a", "/w"))
    await state_of(journal, "s1")
    copied = path.with_name("copy")
    copy(path, copied)
    copy(path.with_name("journal.db-wal"), path.with_name("copy-wal"))
    for opened in (journal, beside):
        assert await opened.file.damage() == []
        assert await read_all(opened) == history
        await opened.aclose()
    later = open_file(copied)  # as after a crash
    assert await read_all(later) == history
    assert (await later.session("s3")).session_id == "s3"
    await later.aclose()


async def test_a_journal_that_is_deleted_takes_nothing_more_though_the_clock_is_set_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    await journal.append(lease, [("update", [RAW])])
    earlier = time.time_ns() // 1_000_000 - 3_600_000
    monkeypatch.setattr("acphold.journal.sqlite.store.now_ms", lambda: earlier)
    os.rename(path, path.parent / "away")
    with pytest.raises(JournalUnavailableError, match="deleted or replaced"):
        await journal.append(lease, [("update", [RAW])])
    await journal.aclose()


async def test_who_closes_a_journal_that_was_replaced_leaves_the_log_of_the_new_one(
    path: Path,
) -> None:
    await written(path)
    old = open_file(path)
    await old.acquire("s1")
    for file in files_of(path):
        file.unlink()
    history = await written(path)
    new = open_file(path)
    history += await new.append(await new.acquire("s1"), [("update", [RAW])])
    await old.aclose()
    assert path.with_name("journal.db-wal").stat().st_size > 0
    assert await read_all(new) == history
    await new.aclose()


@pytest.mark.parametrize("part", [0.0, 0.5, 0.98])
@pytest.mark.parametrize("garbage", [b"", b"\x5a"])
async def test_a_log_that_lost_its_end_is_told_and_remembered(
    path: Path, part: float, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    for _ in range(50):
        await journal.append(lease, [("update", [RAW])])
    torn, whole = (path.parent / name / path.name for name in ("torn", "whole"))
    for place, kept in ((torn, part), (whole, 1.0)):
        copy_torn(path, place, kept, garbage)
        place.with_name("journal.db-shm").write_bytes(path.with_name("journal.db-shm").read_bytes())
    await journal.aclose()
    intact = open_file(whole)
    assert (await intact.session("s1")).last_seq == 90
    assert await intact.file.log_cut_at() is None
    await intact.aclose()
    assert not caplog.records
    for told in (1, 0):
        caplog.clear()
        again = open_file(torn)
        assert await again.file.log_cut_at() is not None
        assert (await again.session("s1")).last_seq < 90
        assert [record.message.count("is missing") for record in caplog.records] == [1] * told
        await again.aclose()


async def test_a_log_that_was_copied_before_it_went_is_no_loss(path: Path) -> None:
    await written(path)
    journal = open_file(path)
    lease = await journal.acquire("s1")
    [last] = await journal.append(lease, [("update", [RAW])])
    database = sqlite3.connect(path)
    database.execute("PRAGMA wal_checkpoint(PASSIVE)")
    copied = path.parent / "copied" / path.name
    copy_torn(path, copied, 0.0, b"")
    copied.with_name("journal.db-shm").write_bytes(path.with_name("journal.db-shm").read_bytes())
    database.close()
    await journal.aclose()
    again = open_file(copied)
    assert await again.file.log_cut_at() is None
    assert (await read_all(again))[-1] == last
    await again.aclose()


async def test_a_log_that_its_last_user_copied_while_we_open_the_journal_is_no_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(path)
    killed = open_file(path)
    lease = await killed.acquire("s1")
    [last] = await killed.append(lease, [("update", [RAW])])
    left = path.parent / "left" / path.name
    copy_torn(path, left, 1.0, b"")
    left.with_name("journal.db-shm").write_bytes(path.with_name("journal.db-shm").read_bytes())
    await killed.aclose()

    def connect_late(path: str, patience: float, *, access: OpenMode) -> Connection:
        other = sqlite3.connect(path)
        other.execute("SELECT * FROM meta").fetchall()
        other.close()  # the last one: all is copied, and the log is removed with its index
        return connect(path, patience, access=access)

    monkeypatch.setattr(journal_file, "connect", connect_late)
    journal = open_file(left)
    assert await journal.file.log_cut_at() is None
    assert (await read_all(journal))[-1] == last
    await journal.aclose()


HOLDER = """
import asyncio, sys
from acphold.journal.sqlite.store import SqliteJournal
async def main():
    journal = SqliteJournal(sys.argv[1])
    await journal.session("s1")
    print("open", flush=True)
    sys.stdin.readline()
    await journal.append(await journal.acquire("s1"), [("update", [b'{"said":1}'])])
    print((await journal.session("s1")).last_seq, flush=True)
    sys.stdin.readline()
    await journal.aclose()
asyncio.run(main())
"""
"""A process that has the journal open until it is told to append, and then to leave."""


@contextmanager
def holder(path: Path) -> Iterator[Callable[[], str]]:
    """Another process with the journal open; calling it makes it append: the number of entries."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == "open\n"

    def append() -> str:
        print(file=stdin, flush=True)
        return stdout.readline().strip()

    try:
        yield append
    finally:
        process.communicate("\n\n")
        assert process.returncode == 0


IN_USE = 128
"""The byte that all users of a log keep locked; source: sqlite.org, WAL-mode File Format, 2.4."""


def is_locked(path: Path, byte: int) -> bool:
    """True if another process has locked this byte of a file (Linux: struct flock of 64 bits)."""
    with path.open("rb") as file:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        told = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    return bool(struct.unpack_from("h", told)[0] != fcntl.F_UNLCK)


async def test_a_process_that_opens_a_journal_in_use_keeps_its_hold_when_the_others_leave(
    path: Path,
) -> None:
    await written(path, 20)
    with holder(path) as first, holder(path) as append:
        assert first() == "41"
        first()  # it leaves
        assert is_locked(path.with_name("journal.db-shm"), IN_USE)
        assert append() == "42"
    assert (await looked_at(path)) == 42


async def looked_at(path: Path) -> int:
    async with aclosing(open_file(path)) as journal:
        return (await journal.session("s1")).last_seq


async def test_the_first_of_two_openings_in_one_process_keeps_its_hold_when_the_second_ends(
    path: Path,
) -> None:
    await written(path, 20)
    first = open_file(path)
    await first.session("s1")
    await looked_at(path)
    with holder(path) as append:
        assert append() == "41"
    # It left as the only one, if the first had lost its hold.
    assert path.with_name("journal.db-wal").exists()
    lease = await first.acquire("s1")
    await first.append(lease, [("update", [RAW])])
    await first.aclose()
    assert await looked_at(path) == 42


@pytest.mark.parametrize("create", [False, True])
async def test_a_log_whose_journal_was_moved_away_is_left_as_it_is_and_told(
    journal: SqliteJournal, path: Path, create: bool
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await journal.append(lease, [("update", [b"1"])])
    log = path.with_name(f"{path.name}-wal")
    elsewhere = path.with_name("elsewhere.db")
    shutil.copy(path, elsewhere)  # while it runs, as after a kill
    shutil.copy(log, path.with_name("elsewhere.db-wal"))
    moved = path.with_name("moved.db")
    elsewhere.rename(moved)
    kept = path.with_name("elsewhere.db-wal").read_bytes()
    with pytest.raises(JournalUnavailableError) as refused:
        open_file(elsewhere, create=create)
    assert f"its log {elsewhere}-wal still exists" in str(refused.value)
    assert "Move the journal back" in str(refused.value)
    assert not elsewhere.exists()
    assert path.with_name("elsewhere.db-wal").read_bytes() == kept

    moved.rename(elsewhere)
    again = open_file(elsewhere)
    assert (await again.session("s1")).last_seq == 1
    await again.aclose()
