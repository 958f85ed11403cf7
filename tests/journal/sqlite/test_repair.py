"""Counts, summaries and the search index, rebuilt from the entries."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acphold.errors import NotAJournalError
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import Repaired
from acphold.journal.sqlite import in_file
from acphold.journal.sqlite.store import SqliteJournal
from tests.conversations import chunk, encode
from tests.journal.conversations import begun, open_file


async def filled(path: Path, *session_ids: str) -> SqliteJournal:
    journal = open_file(path)
    for session_id in session_ids:
        lease = await journal.create(NewSession(session_id, "a", "/", title=session_id))
        await journal.append(lease, [("prompt", [b'[{"type":"text","text":"Where is it?"}]'])])
        said = [encode(chunk("agent_message", f"needle{session_id} ")) for _ in range(3)]
        await journal.append(lease, [("update", said)])
        await journal.append(lease, [("update", [b'{"sessionUpdate":"usage_update","used":1}'])])
        await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
        await journal.change(lease, RowChange(prompted=True))
        await journal.settle(lease, lease.next_seq - 1)
        await journal.release(lease)
    return journal


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in statements:
            file.execute(statement)


async def repaired(journal: SqliteJournal) -> Repaired:
    done = await journal.file.repair()
    while await journal.index.catch_up(1.0):
        pass
    return done


async def test_a_wrong_count_and_a_lost_summary_are_made_anew(path: Path) -> None:
    journal = await filled(path, "s1", "s2")
    summary = await journal.summary("s1")
    spoil(path, "UPDATE sessions SET message_count = 99", "DELETE FROM summaries")
    assert await repaired(journal) == Repaired(("s1", "s2"), 0)
    assert (await journal.session("s1")).message_count == 2
    assert await journal.summary("s1") == summary
    assert await repaired(journal) == Repaired((), 0)
    await journal.aclose()


@pytest.mark.parametrize("place", range(0, 90, 7))
async def test_a_flipped_bit_of_a_summary_is_seen_and_the_summary_is_made_anew(
    path: Path, place: int
) -> None:
    journal = await filled(path, "s1", "s2")
    summary = await journal.summary("s1")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        (kept,) = file.execute("SELECT summary FROM summaries ORDER BY session").fetchone()
        turned = bytearray(kept)
        turned[place % len(kept)] ^= 1
        file.execute("UPDATE summaries SET summary = ? WHERE session = 1", (bytes(turned),))
    assert await journal._background.run(in_file.find_spoiled) == ["s1"]
    assert await repaired(journal) == Repaired(("s1",), 0)
    assert await journal._background.run(in_file.find_spoiled) == []
    assert await journal.summary("s1") == summary
    await journal.aclose()


EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"


async def pages_written(log: Path, journal: SqliteJournal) -> int:
    """The pages that a repair writes."""
    await journal._background.run(lambda db: db.execute(EMPTY).fetchall())
    assert size_of(log) == 0
    await repaired(journal)
    return size_of(log) // 4096


def size_of(file: Path) -> int:
    return file.stat().st_size


async def test_only_what_is_wrong_is_written(path: Path) -> None:
    names = [f"s{number}" for number in range(40)]
    journal = await filled(path, *names)
    log = path.with_name(f"{path.name}-wal")
    assert await journal.index.catch_up(9) == 0
    assert await pages_written(log, journal) == 0
    spoil(path, "UPDATE sessions SET message_count = 99 WHERE number = 7")
    counts = await pages_written(log, journal)
    assert 1 <= counts <= 6
    spoil(path, "DELETE FROM documents WHERE entry >> 32 = 7")
    assert 1 <= await pages_written(log, journal) < 100
    assert await pages_written(log, journal) == 0
    for name in names:
        assert [hit.session_id for hit in await journal.index.search(f"needle{name}")] == [name]
    await journal.aclose()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO words_1 (words_1) VALUES ('delete-all')",
        "DELETE FROM documents WHERE entry >> 32 = 1",
        "UPDATE words_1_data SET block = x'00' WHERE id > 10",
        "UPDATE documents SET entry = entry + 90 WHERE entry >> 32 = 1",
    ],
)
async def test_a_damaged_index_is_mended(path: Path, statement: str) -> None:
    journal = await filled(path, "s1", "s2")
    assert await journal.index.catch_up(9) == 0
    spoil(path, statement)
    assert (await repaired(journal)).unindexed >= 1
    for name in ("s1", "s2"):
        hits = await journal.index.search(f"needle{name}")
        assert [hit.session_id for hit in hits] == [name]
    assert (await repaired(journal)).unindexed == 0
    await journal.aclose()


@pytest.mark.parametrize("seq", [1, 5])
async def test_a_row_that_cannot_be_read_keeps_no_other_from_being_found(
    path: Path, seq: int
) -> None:
    journal = await filled(path, "s1", "s2")
    spoil(
        path,
        damage_of("s2", seq),
        "UPDATE sessions SET indexed_through = 0",
        "INSERT INTO words_1 (words_1) VALUES ('delete-all')",  # numbers of documents come again
        "DELETE FROM documents",
    )
    assert await journal.index.catch_up(9) == 0
    assert {hit.session_id for hit in await journal.index.search("needle*")} == {"s1", "s2"}
    spoil(path, damage_of("s2", 4))  # after it was indexed
    assert [hit.session_id for hit in await journal.index.search("needle*")] == ["s1"]
    await journal.aclose()


async def test_a_prompt_is_found_although_its_author_cannot_be_read(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    by = b'{"name":"zed","version":"1","user":"bert"}'
    prompt = b'[{"type":"text","text":"needle"}]'
    await journal.append(lease, [("author", [by]), ("prompt", [prompt])])
    await journal.settle(lease, 2)
    assert [(hit.seq, hit.user) for hit in await journal.index.search("needle")] == [(2, "bert")]
    spoil(path, damage_of("s1", 1))
    assert [(hit.seq, hit.user) for hit in await journal.index.search("needle")] == [(2, None)]


async def test_what_is_before_a_row_that_cannot_be_read_is_read(path: Path) -> None:
    journal = await filled(path, "s1")
    spoil(path, damage_of("s1", 5))
    assert [segment.last_seq for segment in await journal.read("s1", 0)] == [1, 4]
    with pytest.raises(NotAJournalError, match="damaged"):
        await journal.read("s1", 4)
    await journal.aclose()


def damage_of(session_id: str, seq: int) -> str:
    """The statement that damages the row which ends with this entry."""
    key = f"(SELECT number << 32 | {seq} FROM sessions WHERE session_id = '{session_id}')"
    return f"UPDATE segments SET raw = x'28b52ffd00' WHERE key = {key}"


async def test_what_is_of_no_session_is_removed(path: Path) -> None:
    journal = await filled(path, "s1", "s2")
    spoil(path, "DELETE FROM sessions WHERE session_id = 's2'")
    assert await repaired(journal) == Repaired((), 1)
    await journal.aclose()
    assert b"needles2" not in await asyncio.to_thread(path.read_bytes)


async def test_a_turn_that_runs_is_left_alone(path: Path) -> None:
    journal = await filled(path, "s1")
    lease = await journal.acquire("s1")
    await journal.append(lease, [("prompt", [b'[{"type":"text","text":"More?"}]'])])
    assert await repaired(journal) == Repaired((), 0)
    assert (await journal.summary("s1")).turn == "running"
    await journal.settle(lease, lease.next_seq - 1)
    assert (await journal.session("s1")).message_count == 3
    await journal.aclose()


async def test_sizes_name_the_largest_sessions(path: Path) -> None:
    journal = await filled(path, "s1")
    lease = await journal.create(NewSession("big", "a", "/", title="Large"))
    await journal.append(lease, [("update", [encode(chunk("agent_message", "x" * 100_000))])])
    found = await journal.file.sizes(1)
    ((largest),) = found.largest
    assert (largest.session_id, largest.title) == ("big", "Large")
    assert largest.size > 100_000
    assert found.conversations is None or found.conversations > 100_000
    await journal.aclose()
