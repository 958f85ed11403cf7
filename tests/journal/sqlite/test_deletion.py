"""Deleting: a session is gone from lists at once, and from the file piece by piece; and pruning,
the deletion of what is old, and of nothing that anybody uses."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acphold.conversation.history.entries import now_ms
from acphold.errors import RewrittenError, UnknownSessionError
from acphold.journal import bounds
from acphold.journal.journal import is_forgotten
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.sqlite import deletion, file_system, free_pages, search_index
from acphold.journal.sqlite.connection import Connection, connect
from acphold.journal.sqlite.search_index import Indexed, unindex
from acphold.journal.sqlite.store import SqliteJournal
from tests.conversations import chunk, encode
from tests.journal.conversations import append, begun, open_file, turn


async def test_a_deletion_that_a_crash_cut_short_is_finished_later(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    await journal.settle(lease, await append(journal, lease, turn("Hi")))
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("DELETE FROM sessions")
    database.execute("DELETE FROM leases")
    database.execute("INSERT INTO deleted VALUES (?, '')", (lease.number,))
    again = await begun(journal)
    assert await journal.read("s1", 0) == []
    assert await journal.index.search("Hi") == []
    await journal.settle(again, 0)
    await journal.file.sweep()
    assert database.execute("SELECT * FROM segments").fetchall() == []
    database.close()


async def test_a_session_with_a_row_that_cannot_be_read_is_deleted_like_any_other(
    journal: SqliteJournal, path: Path
) -> None:
    for name in ("s1", "s2"):
        await talked(journal, name)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        least = "(SELECT min(key) FROM segments)"
        database.execute(f"UPDATE segments SET raw = x'28b52ffd00' WHERE key = {least}")
        assert await journal.delete("s1", "s2") == ["s1", "s2"]
        await journal.file.sweep()
        for table in ("segments", "documents"):
            assert database.execute(f"SELECT * FROM {table}").fetchall() == []
        database.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words_1, row)")
        fish = "SELECT term, doc FROM terms WHERE term LIKE 'zebra%'"
        assert database.execute(fish).fetchall() == [("zebrafishs1", 1)]  # of that row alone
    assert await journal.file.unswept() == 0


async def talked(journal: SqliteJournal, name: str) -> None:
    """A session in which much was said: its name is in every word."""
    lease = await journal.create(NewSession(name, "a", "/w"))
    for number in range(20):
        text = b'{"type":"text","text":"zebrafish%b %d"}' % (name.encode(), number)
        await journal.append(lease, [("prompt", [b"[%b]" % text])])
        chunk = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % text
        for _ in range(5):
            await journal.append(lease, [("update", [chunk])])
        await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
        if number % 2:
            await journal.settle(lease, lease.next_seq - 1)


def left(path: Path) -> bytes:
    """All bytes of the journal, its log and its index."""
    files = sorted(file for file in path.parent.iterdir() if file.is_file())
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("ended", [False, True])
async def test_the_words_of_a_deleted_session_are_nowhere_in_the_files(
    journal: SqliteJournal, path: Path, by_another: bool, ended: bool
) -> None:
    await talked(journal, "kept")
    await talked(journal, "gone")
    other = open_file(path) if by_another else journal
    assert b"fishgone" in left(path)
    assert await other.delete("gone")
    await other.file.sweep()
    if ended:
        await other.aclose()
        await journal.aclose()
        assert not path.with_name("journal.db-wal").exists()
    assert b"zebrafishkept" in left(path)
    assert b"fishgone" not in left(path)
    await other.aclose()


async def swept(journal: SqliteJournal) -> None:
    """Wait until nothing is left of deleted sessions."""
    async with asyncio.timeout(30):
        while await journal.file.unswept():  # noqa: ASYNC110  another task does it
            await asyncio.sleep(0.01)


async def killed(journal: SqliteJournal) -> None:
    """Close a journal as far as the system does it for a process that is killed."""
    await journal._background.aclose()
    assert journal._owner is not None
    journal._owner.close()


async def test_deletions_of_a_minute_are_hidden_at_once_and_swept_together(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_file(path)
    for name in ("gone1", "gone2", "kept"):
        await talked(journal, name)
    await journal.renew()
    assert await journal.delete("gone1")
    await journal.renew()
    assert await other.delete("gone2")
    for _ in range(3):
        await journal.renew()
    shown = await journal.page(ListFilter(include_unprompted=True))
    assert [row.session_id for row in shown] == ["kept"]
    assert await journal.index.search("zebrafishgone*") == []
    with pytest.raises(UnknownSessionError):
        await journal.session("gone2")
    assert await journal.file.unswept() == 2
    monkeypatch.setattr(bounds, "GATHERED_SECONDS", bounds.RENEW_SECONDS)
    await journal.renew()
    await other.aclose()  # leaves to us what it has deleted
    await swept(journal)
    assert b"fishgone" not in left(path)


async def test_a_deleted_session_is_told_for_an_hour_and_then_forgotten(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0
    monkeypatch.setattr(bounds, "FORGOTTEN_AT_ONCE", 2)
    monkeypatch.setattr(deletion, "now_ms", lambda: now_ms() + passed * 1000)
    for number in range(9):
        await begun(journal, f"s{number}")
    first = (await journal.changes(None)).last

    async def told_after_deleting(*names: str) -> list[str]:
        assert await journal.delete(*names)
        await journal.file.sweep()
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT session_id FROM changes ORDER BY session_id")
            return [name for (name,) in found]

    kept = [f"s{number}" for number in range(5, 9)]
    assert await told_after_deleting("s0", "s1", "s2") == ["s0", "s1", "s2", "s3", "s4", *kept]
    second = (await journal.changes(None)).last
    passed += bounds.KEPT_CHANGES_SECONDS - 100
    assert await told_after_deleting("s3") == ["s0", "s1", "s2", "s3", "s4", *kept]
    assert (await journal.changes(first)).session_ids == ["s0", "s1", "s2", "s3"]
    passed += 200
    assert await told_after_deleting("s4") == ["s3", "s4", *kept]
    assert (await journal.changes(second)).session_ids == ["s3", "s4"]
    with pytest.raises(RewrittenError):  # whoever was away for so long reads all again
        await journal.changes(first)


async def test_what_a_killed_process_has_deleted_is_swept_by_the_next_at_once(
    journal: SqliteJournal, path: Path
) -> None:
    first = open_file(path)
    await talked(first, "gone")
    assert await first.delete("gone")
    await killed(first)
    assert b"fishgone" in left(path)
    assert await journal.page(ListFilter()) == []
    await journal.renew()
    await swept(journal)
    assert b"fishgone" not in left(path)


async def test_whoever_closes_the_journal_as_the_last_sweeps(path: Path) -> None:
    first, last = open_file(path), open_file(path)
    await talked(first, "gone")
    await talked(last, "kept")
    assert await first.delete("gone")
    await first.aclose()
    assert b"fishgone" in left(path)
    await last.aclose()
    assert b"fishgone" not in left(path)


async def test_what_was_deleted_does_not_come_back_with_pages_that_are_used_again(
    journal: SqliteJournal, path: Path
) -> None:
    other = open_file(path)
    for number in range(12):
        await talked(journal, f"gone{number}")
    await talked(other, "kept")  # it has read the list of free pages
    assert await journal.delete(*(f"gone{number}" for number in range(12)))
    await journal.file.sweep()
    for number in range(12):
        await talked(other if number % 2 else journal, f"new{number}")
        assert b"fishgone" not in left(path)
    await other.aclose()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def written() -> int:
    """Bytes that this process has written until now."""
    counts = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(counts[counts.index("wchar:") + 1])


async def test_a_sweep_rewrites_the_volumes_that_stay_and_writes_nothing_of_those_that_go(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 200_000)
    random = Random(1)
    for number in range(50):
        lease = await journal.create(NewSession(f"s{number:02}", "a", "/w"))
        text = " ".join(f"{random.randrange(100_000):x}" for _ in range(4000))
        await journal.append(lease, [("update", [encode(chunk("agent_message", text))])])
        await journal.settle(lease, lease.next_seq - 1)
    await journal.file.give_back()  # and all of the log is in the file
    with closing(sqlite3.connect(path)) as file:
        sizes = "SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name GLOB ?"
        (volume,) = file.execute(sizes, ("words_2_*",)).fetchone()
        (volumes,) = file.execute("SELECT count(*) FROM volumes").fetchone()
        which = "SELECT session_id FROM sessions JOIN documents ON entry >> 32 = sessions.number"
        second = [name for (name,) in file.execute(f"{which} WHERE volume = 2")]
    assert volumes > 4
    before = written()
    await journal.delete(second[3])
    await journal.file.sweep()
    one = written() - before
    before = written()
    await journal.delete(*second)
    await journal.file.sweep()
    whole = written() - before
    assert one < 6 * volume
    assert whole < volume


async def test_a_log_that_somebody_reads_is_emptied_of_what_was_deleted_as_soon_as_it_can_be(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EMPTYING_TRIES", 2)
    await talked(journal, "kept")
    await talked(journal, "gone")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM segments").fetchone()
    assert await journal.delete("gone")
    await journal.file.sweep()
    assert b"fishgone" in left(path)
    reader.execute("COMMIT")
    reader.close()
    await journal.file.sweep()
    assert b"fishgone" not in left(path)


async def test_a_sweep_beside_a_turn_that_writes_all_the_time_ends(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EMPTYING_TRIES", 3)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(free_pages, "_RUN_PAGES", 1)
    monkeypatch.setattr(bounds, "BLANKED_RUNS", 1)
    frozen, tries = free_pages._as_of_one_moment, count()

    @contextmanager
    def seldom_frozen(connection: Connection, reader: Connection) -> Iterator[bool]:
        if next(tries) % 3:
            yield False
        else:
            with frozen(connection, reader) as is_frozen:
                yield is_frozen

    monkeypatch.setattr(free_pages, "_as_of_one_moment", seldom_frozen)
    await talked(journal, "gone")
    assert await journal.delete("gone")
    await journal.file.sweep()
    assert await journal.file.unswept() == 0
    assert b"fishgone" not in left(path)
    assert next(tries) >= 7, "it failed more often than it may in a row"


async def test_who_reads_on_keeps_a_sweep_from_ending_for_a_second_at_most(
    journal: SqliteJournal, path: Path
) -> None:
    await talked(journal, "gone")
    lease = await begun(journal)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM segments").fetchone()
    began = time.process_time()
    assert await journal.delete("gone")
    sweeping = asyncio.create_task(journal.file.sweep())
    longest = 0.0
    while not sweeping.done():
        before = time.process_time()
        await journal.append(lease, [("update", [b"{}"])])
        longest = max(longest, time.process_time() - before)
        await asyncio.sleep(0)
    await sweeping
    assert time.process_time() - began < 10
    assert longest < 3
    reader.close()


async def remember(journal: SqliteJournal, session_id: str, at: int, *, held: bool = False) -> None:
    lease = await journal.create(NewSession(session_id, "a", "/", created_at=at))
    await journal.append(lease, [("update", [encode(chunk("agent_message", f"word{session_id}"))])])
    await journal.settle(lease, lease.next_seq - 1)
    await journal.links.link(lease, "a", f"agents-{session_id}")
    await journal.change(lease, RowChange(prompted=True, updated_at=at))
    if not held:
        await journal.release(lease)


async def ids(journal: SqliteJournal) -> list[str]:
    return [row.session_id for row in await journal.page(ListFilter())]


async def test_what_is_pruned_is_gone_like_what_is_deleted(path: Path) -> None:
    journal = open_file(path)
    for number in range(5):
        await remember(journal, f"s{number}", 1000 + number)
    assert await journal.delete("s0", "s1", "s2", "no such", idle_since=5000) == ["s0", "s1", "s2"]
    assert await ids(journal) == ["s4", "s3"]
    assert await is_forgotten(journal, "a", "agents-s1")
    assert await journal.index.search("words1") == []
    assert len(await journal.index.search("words3")) == 1
    await journal.aclose()
    assert b"words1" not in await asyncio.to_thread(path.read_bytes)


async def test_what_went_on_meanwhile_and_what_somebody_holds_stay(journal: SqliteJournal) -> None:
    await remember(journal, "old", 1000)
    await remember(journal, "held", 1000, held=True)
    await remember(journal, "new", 3000)
    assert await journal.delete("old", "held", "new", idle_since=2000) == ["old"]
    assert await ids(journal) == ["new", "held"]


async def test_a_session_is_swept_in_pieces_between_which_others_write(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talked(journal, "gone")
    await talked(journal, "kept")
    lease = await journal.acquire("kept")
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "PART_BYTES", 1)
    database = connect(str(path), 60.0, gives_way=True)
    for _ in deletion.delete(database, ["gone"], None, set()):
        pass
    pieces = 0
    for _ in deletion.sweep(database):
        await journal.append(lease, [("update", [b"{}"])])
        pieces += 1
    assert pieces > 40
    assert b"fishgone" not in left(path)
    assert database.execute("SELECT * FROM deleted").fetchall() == []
    database.close()


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 9, 1000])
async def test_volumes_of_the_index_of_which_all_is_deleted_go_as_a_whole_also_after_a_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 45)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    journal = open_file(path)
    names = [f"s{number:02}" for number in range(12)]
    for number, name in enumerate(names):
        await remember(journal, name, 1000 + number)
    database = connect(str(path), 60.0, gives_way=True)
    volumes = {*database.execute("SELECT number FROM volumes")}
    assert len(volumes) == 2
    for _ in deletion.delete(database, names[:-1], 5000, set()):
        pass
    one_by_one: set[int] = set()

    def taken_out(db: Connection, session: int, tenant: str, found: Iterable[Indexed]) -> None:
        one_by_one.add(session)
        unindex(db, session, tenant, found)

    monkeypatch.setattr(search_index, "unindex", taken_out)
    for _ in islice(deletion.sweep(database), steps):
        pass
    for _ in deletion.sweep(database):
        pass
    assert one_by_one <= {8, 9, 10, 11}
    assert len(volumes - {*database.execute("SELECT number FROM volumes")}) == 1
    assert [hit.session_id for hit in await journal.index.search("word*")] == ["s11"]
    assert not [name for name in names[:-1] if f"word{name}".encode() in left(path)]
    database.close()
    await journal.aclose()


async def test_sessions_are_pruned_in_pieces_each_of_which_is_whole(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await remember(journal, name, 1000)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "DELETED_TOGETHER", 2)
    database = connect(str(path), 60.0, gives_way=True)
    gone: set[str] = set()
    for number, _ in enumerate(deletion.delete(database, names, 2000, gone), 1):
        assert gone == {*names[: 2 * number]}
        assert sorted(await ids(journal)) == names[2 * number :]
    assert gone == {*names}
    database.close()


async def test_on_a_disk_that_fills_meanwhile_the_rest_is_deleted_one_by_one_with_the_reserve(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await journal.release(await journal.create(NewSession(name, "a", "/w")))
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "DELETED_TOGETHER", 3)
    reserve = Path(f"{path}-reserve")
    sizes: list[int] = []
    remove = deletion.remove_rows

    def note(connection: Connection, numbers: Sequence[int], *, as_if_never: bool) -> None:
        assert reserve.exists() == (not sizes)
        sizes.append(len(numbers))
        remove(connection, numbers, as_if_never=as_if_never)

    monkeypatch.setattr(deletion, "remove_rows", note)
    monkeypatch.setattr(file_system, "is_nearly_full", lambda _: bool(sizes))
    file_system.keep_reserve(str(path))
    assert await journal.delete(*names) == names
    assert sizes == [3, 1, 1]


async def test_many_sessions_are_hidden_at_once_but_beside_a_live_session_few(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bounds.PIECE_BESIDE_TURNS < bounds.PIECE_SECONDS
    for name in ("PIECE_SECONDS", "PIECE_BESIDE_TURNS"):
        monkeypatch.setattr(bounds, name, 0.0)
    database = connect(str(path), 60.0, gives_way=True)
    pieces: list[int] = []
    for lives in (False, True):
        names = [f"{lives} {number}" for number in range(3 * bounds.DELETED_BESIDE_TURNS)]
        for name in names:
            await journal.release(await journal.create(NewSession(name, "a", "/w")))
        if lives:
            await journal.create(NewSession("live", "a", "/w"))
        gone: set[str] = set()
        pieces.append(sum(1 for _ in deletion.delete(database, names, None, gone)))
        assert gone == {*names}
        assert database.beside_turns == lives
    assert pieces == [1, 3]
    database.close()


async def test_a_merge_looks_through_few_parts_however_many_sessions_are_deleted(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(8 * bounds.VOLUME_PARTS)]
    for name in names:
        await remember(journal, name, 1000)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    database = connect(str(path), 60.0, gives_way=True)
    for _ in deletion.delete(database, names[:-1], None, set()):
        pass
    parts = [
        len(database.execute("SELECT DISTINCT segid FROM words_1_idx").fetchall())
        for _ in deletion.sweep(database)
    ]
    assert max(parts) < 3 * bounds.VOLUME_PARTS
    assert parts[-1] == 1
    database.close()


async def test_free_pages_are_overwritten_while_others_write_and_take_some_of_them(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await journal.create(NewSession("gone", "a", "/w"))
    said = Random(1).randbytes(6 << 20).hex()
    await journal.append(lease, [("update", [encode(chunk("agent_message", said))])])
    blank = file_system.blank
    # Nobody waits for the lock that it wants.
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    kept: list[bytes] = []
    overwritten = 0

    def blank_beside(file: int, start: int, size: int) -> None:
        nonlocal overwritten
        overwritten += size
        kept.append(Random(len(kept)).randbytes(50_000))
        other.execute("INSERT INTO meta VALUES (?, ?)", (f"kept {len(kept):05}", kept[-1]))
        other.execute("PRAGMA wal_checkpoint(PASSIVE)")
        blank(file, start, size)

    monkeypatch.setattr(free_pages, "blank", blank_beside)
    await journal.delete("gone")
    await journal.file.sweep()
    monkeypatch.undo()
    assert overwritten > 8 << 20
    found = other.execute("SELECT value FROM meta WHERE name GLOB 'kept *' ORDER BY name")
    assert [value for (value,) in found] == kept
    other.close()
    assert await journal.file.unswept() == 0
    assert await journal.file.damage() == []
    assert said[-100:].encode() not in left(path)


async def test_who_takes_the_pages_of_a_sweep_keeps_no_words_at_their_ends(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await journal.create(NewSession("gone", "a", "/w"))
    for _ in range(10):
        text = encode(chunk("agent_message", "zebrafish " * 10_000))
        await journal.append(lease, [("update", [text])])
    overwrite = free_pages.overwrite

    def taken(connection: Connection, finish: Callable[[], object]) -> Iterator[None]:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            number = 0
            while other.execute("PRAGMA freelist_count").fetchone() != (0,):
                # Three quarters of a page, the last of its value.
                other.execute("INSERT INTO meta VALUES (?, ?)", (f"{number}", b"k" * 2000))
                number += 1
        assert number > 200
        yield from overwrite(connection, finish)

    monkeypatch.setattr(free_pages, "overwrite", taken)
    await journal.delete("gone")
    await journal.file.sweep()
    assert await journal.file.unswept() == 0
    assert b"zebrafish" not in left(path)


async def test_a_merge_holds_the_lock_for_one_step_if_there_is_no_more_time(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    for number in range(40):
        lease = await journal.create(NewSession(f"s{number}", "a", "/w"))
        text = " ".join(f"{random.randrange(100_000):x}" for _ in range(3000))
        await journal.append(lease, [("update", [encode(chunk("agent_message", text))])])
        await journal.settle(lease, lease.next_seq - 1)
    for name in ("PIECE_SECONDS", "PIECE_BESIDE_TURNS"):
        monkeypatch.setattr(bounds, name, 0.0)
    statements: list[str] = []
    with closing(connect(str(path), 60.0, gives_way=True)) as database:
        for _ in deletion.delete(database, [f"s{number}" for number in range(20)], None, set()):
            pass
        database.set_trace_callback(statements.append)
        for _ in deletion.sweep(database):
            pass
    merges = [
        transaction.count("VALUES ('merge'")
        for transaction in "\n".join(statements).split("BEGIN IMMEDIATE")
    ]
    assert sum(merges) > 4
    assert max(merges) == 1


async def test_nobody_waits_while_a_log_is_copied_that_others_are_copying(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EMPTYING_WAIT_SECONDS", 0.0)
    await talked(journal, "gone")
    statements: list[str] = []

    class Busy(Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            statements.append(statement)
            if "PASSIVE" in statement and statements.count(statement) <= 4:
                statement = "SELECT 1, -1, -1"
            return super().execute(statement, *values)

    with closing(connect(str(path), 60.0, gives_way=True)) as database:
        for _ in deletion.delete(database, ["gone"], None, set()):
            pass
        database.__class__ = Busy
        for _ in deletion.sweep(database):
            pass
    before = statements[: statements.index("PRAGMA wal_checkpoint(TRUNCATE)")]
    assert before.count("PRAGMA wal_checkpoint(PASSIVE)") > 4
    assert b"fishgone" not in left(path)
