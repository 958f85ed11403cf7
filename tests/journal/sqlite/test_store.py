"""The journal in SQLite: sessions, leases, and entries that are appended and read on."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from acphold.errors import (
    AmbiguousIdError,
    IllegibleNameError,
    JournalUnavailableError,
    LeaseLostError,
    SessionExistsError,
    UnknownSessionError,
)
from acphold.history import Segment
from acphold.journal import (
    Journal,
    Lease,
    ListFilter,
    NewSession,
    Origin,
    RowChange,
    Sought,
    SqliteJournal,
)
from tests.journal.conversations import chunk, encode

PROMPT = b'[{"type":"text","text":"Hi"}]'


async def begun(journal: Journal, session_id: str = "s1", agent: str = "a") -> Lease:
    """A new session and its lease."""
    return await journal.create(NewSession(session_id, agent, "/home/me/project"))


def size(path: Path) -> int:
    """Bytes of the file itself, without its log."""
    return path.stat().st_size


async def test_a_new_session_is_as_it_was_created(journal: SqliteJournal) -> None:
    new = NewSession("s1", "gemini", "/home/me/project", ("/lib", "/a b"), "Title", created_at=1234)
    lease = await journal.create(new)
    row = await journal.session("s1")
    assert (row.agent, row.cwd, row.additional_directories) == (
        "gemini",
        "/home/me/project",
        ("/lib", "/a b"),
    )
    assert (row.title, row.created_at, row.updated_at) == ("Title", 1234, 1234)
    assert (row.message_count, row.prompted, row.last_seq) == (0, False, 0)
    assert (lease.session_id, lease.epoch, lease.next_seq) == ("s1", 1, 1)


async def test_an_id_is_taken_once(journal: SqliteJournal) -> None:
    await begun(journal)
    with pytest.raises(SessionExistsError, match="'s1'"):
        await begun(journal)
    assert (await journal.session("s1")).last_seq == 0


async def test_the_folder_and_all_files_are_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "acphold"
    journal = SqliteJournal.open(folder / "journal.db")
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


async def test_what_was_appended_is_read_in_order_byte_for_byte(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    raws = [encode(chunk("agent_message", f"né {n} 🙂")) for n in range(5)]
    one = await journal.append(lease, "prompt", [PROMPT])
    many = await journal.append(lease, "update", raws)
    assert (one.first_seq, one.last_seq, many.first_seq, many.last_seq) == (1, 1, 2, 6)
    assert lease.next_seq == 7
    assert await journal.read("s1", 0) == [one, many]
    assert [entry.raw for entry in many.entries()] == raws
    assert [entry.seq for entry in many.entries()] == [2, 3, 4, 5, 6]


async def test_reading_on_begins_after_the_given_entry_also_inside_a_segment(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    await journal.append(lease, "update", [b"1", b"2", b"3"])
    rest = await journal.append(lease, "update", [b"4"])
    for after in range(5):
        read = await journal.read("s1", after)
        seqs = [entry.seq for segment in read for entry in segment.entries()]
        assert seqs == list(range(after + 1, 5))
    assert await journal.read("s1", 3) == [rest]
    assert await journal.read("s1", 4) == []


async def test_one_read_brings_no_more_than_asked_for_but_never_nothing(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    for _ in range(4):
        await journal.append(lease, "update", [b"x" * 100])
    assert len(await journal.read("s1", 0, 1)) == 1
    assert len(await journal.read("s1", 0, 150)) == 2
    assert len(await journal.read("s1", 2, 10_000)) == 2


async def test_sessions_never_see_each_others_entries(journal: SqliteJournal) -> None:
    leases = [await begun(journal, f"s{n}") for n in range(3)]
    for n, lease in enumerate(leases):
        await journal.append(lease, "update", [b"%d" % n] * (n + 1))
    for n in range(3):
        (segment,) = await journal.read(f"s{n}", 0)
        assert segment.raw.split(b"\n") == [b"%d" % n] * (n + 1)
        assert (await journal.session(f"s{n}")).last_seq == n + 1


async def test_json_laid_out_over_lines_is_kept_on_one(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    segment = await journal.append(lease, "update", [b'{\n "a": 1\n}', b"{}"])
    assert [entry.raw for entry in segment.entries()] == [b'{  "a": 1 }', b"{}"]


async def test_appending_nothing_is_our_own_mistake(journal: SqliteJournal) -> None:
    with pytest.raises(ValueError, match="nothing to append"):
        await journal.append(await begun(journal), "update", [])


async def test_touch_changes_what_is_given_and_nothing_else(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    await journal.change(lease, RowChange(title="T", updated_at=99))
    await journal.change(lease, RowChange(prompted=True))
    await journal.change(lease, RowChange())
    row = await journal.session("s1")
    assert (row.title, row.updated_at, row.prompted) == ("T", 99, True)
    await journal.change(lease, RowChange(title=None))
    assert (await journal.session("s1")).title is None


async def test_a_session_can_be_renamed_from_outside(journal: SqliteJournal) -> None:
    await begun(journal)
    await journal.change("s1", RowChange(given="half a smile: \ud83d"))
    assert (await journal.session("s1")).title == "half a smile: ?"
    with pytest.raises(UnknownSessionError):
        await journal.change("s2", RowChange(given="T"))


async def test_a_title_that_a_person_gave_is_changed_by_a_person_alone(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    await journal.change("s1", RowChange(given="Mine"))
    await journal.change(lease, RowChange(title="The agent's", updated_at=99))
    await journal.append(lease, "update", [b"{}"], RowChange(title=None))
    row = await journal.session("s1")
    assert (row.title, row.renamed, row.updated_at) == ("Mine", True, 99)
    await journal.change("s1", RowChange(given="Another of mine"))
    assert (await journal.session("s1")).title == "Another of mine"
    await journal.change("s1", RowChange(given=None))
    await journal.change(lease, RowChange(title="The agent's"))
    row = await journal.session("s1")
    assert (row.title, row.renamed) == ("The agent's", False)


async def test_a_session_remembers_where_it_came_from(journal: SqliteJournal) -> None:
    first, second = Origin("s0", "a", 7), Origin("s1", "b", 9)
    lease = await journal.create(NewSession("s1", "b", "/", renamed=True, origins=(first,)))
    assert (await journal.session("s1")).origins == (first,)
    await journal.change(lease, RowChange(agent="c", origins=(first, second)))
    row = await journal.session("s1")
    assert (row.agent, row.origins, row.renamed) == ("c", (first, second), True)


async def test_an_id_may_be_given_as_any_prefix_that_fits_one_session(
    journal: SqliteJournal,
) -> None:
    for session_id in ("abc", "abcd", "abX", "x%", "é1"):
        await begun(journal, session_id)
    assert (await journal.resolve("abc")).session_id == "abc"
    assert (await journal.resolve("abcd")).session_id == "abcd"
    assert (await journal.resolve("x")).session_id == "x%"
    assert (await journal.resolve("é")).session_id == "é1"
    with pytest.raises(AmbiguousIdError) as caught:
        await journal.resolve("ab")
    assert set(caught.value.matches) == {"abc", "abcd", "abX"}
    for nothing in ("", "abcde", "%", "AB"):
        with pytest.raises(UnknownSessionError):
            await journal.resolve(nothing)


async def test_what_is_not_there_is_said_to_be_unknown(journal: SqliteJournal) -> None:
    for question in (journal.session, journal.owner, journal.state):
        with pytest.raises(UnknownSessionError) as caught:
            await question("nobody")
        assert caught.value.session_id == "nobody"
    with pytest.raises(UnknownSessionError):
        await journal.read("nobody", 0)
    with pytest.raises(UnknownSessionError):
        await journal.acquire("nobody")
    assert await journal.delete("nobody") is False


async def test_two_processes_can_use_one_journal(journal: SqliteJournal, path: Path) -> None:
    other = SqliteJournal.open(path)
    ours, theirs = await begun(journal, "s1"), await begun(other, "s2")
    await journal.append(ours, "update", [b"1"])
    await other.append(theirs, "update", [b"2"])
    assert await other.read("s1", 0) == await journal.read("s1", 0)
    taken = await other.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.append(ours, "update", [b"3"])
    assert await other.append(taken, "update", [b"3"]) == (await journal.read("s1", 1))[0]
    await other.aclose()


async def test_a_journal_opened_again_has_everything(path: Path) -> None:
    journal = SqliteJournal.open(f"sqlite:///{path}")
    secret = await journal.cursor_secret()
    lease = await begun(journal)
    segment = await journal.append(lease, "prompt", [PROMPT])
    row = await journal.session("s1")
    await journal.aclose()
    again = SqliteJournal.open(path, create=False)
    assert await again.session("s1") == row
    assert await again.read("s1", 0) == [segment]
    assert await again.cursor_secret() == secret
    assert len(secret) == 32
    await again.aclose()


async def test_the_log_is_copied_into_the_file_in_the_background(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    before = size(path)
    for _ in range(10):
        await journal.append(lease, "update", [b"x" * 1_000_000])
    # What is asked of the background now comes after the checkpoint.
    await journal.settle(lease, 0)
    assert size(path) > before + 4_000_000


def test_a_segment_that_cannot_be_cut_stays_whole() -> None:
    compacted = Segment(3, 9, "update", 0, b"{}")
    assert compacted.after(5) == compacted
    assert [entry.seq for entry in compacted.entries()] == [9]


async def test_who_waited_in_vain_for_another_program_does_not_wait_so_long_again(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal.open(tmp_path / "journal.db", busy_seconds=2.0)
    lease = await journal.create(NewSession("s1", "a", "/w"))
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waits = []
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(JournalUnavailableError):
            await journal.append(lease, "update", [b"{}"])
        waits.append(time.monotonic() - began)
    other.execute("ROLLBACK")
    other.close()
    assert waits[1] + waits[2] < waits[0]
    assert (await journal.append(lease, "update", [b"{}"])).first_seq == 1
    await journal.aclose()


async def test_others_are_served_while_another_program_holds_the_journal(path: Path) -> None:
    journal = SqliteJournal.open(path)
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await journal.append(lease, "update", [b"{}"])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = [
        asyncio.create_task(attempt)
        for attempt in (
            journal.append(lease, "update", [b"{}"]),
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
    await journal.aclose()


async def test_an_append_that_waits_for_another_program_can_be_cancelled(path: Path) -> None:
    journal = SqliteJournal.open(path)
    lease = await journal.create(NewSession("s1", "a", "/w"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(journal.append(lease, "update", [b"{}"]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other.execute("ROLLBACK")
    other.close()
    assert (await journal.append(lease, "update", [b"{}"])).first_seq == 1
    await journal.aclose()


async def test_names_that_are_no_text_are_refused_and_leave_nothing_open(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    half = "half \ud83d"
    for attempt in (
        journal.session(half),
        journal.resolve(half),
        journal.acquire(half),
        journal.state(half),
        journal.read(half, 0),
        journal.delete(half),
        journal.create(NewSession(half, "a", "/")),
        journal.create(NewSession("s2", "a", half)),
        journal.create(NewSession("s2", "a", "/", (half,))),
        journal.link(lease, "a", half),
        journal.linked("a", [half]),
        journal.page(ListFilter(cwd=half)),
        journal.search(Sought("word", cwd=half)),
        journal.append(lease, "prompt", [b"[]"], RowChange(cwd=half)),
    ):
        with pytest.raises(IllegibleNameError, match="half"):
            await attempt
    assert (await journal.append(lease, "update", [b"{}"])).first_seq == 1
    assert [row.session_id for row in await journal.page(ListFilter(include_unprompted=True))] == [
        "s1"
    ]
