"""A session's owner is known by its living process, not by a name, a path or a clock."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import (
    HeldElsewhereError,
    HistoryLostError,
    JournalUnavailableError,
    LeaseLostError,
)
from acphold.journal.access import new_token
from acphold.journal.journal import Append, Journal
from acphold.journal.owners import At, Free
from acphold.journal.rows import NewSession
from acphold.journal.sqlite import file_system, leases
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.conversations import open_file
from tests.owners import OWNING, die, killed, owning

ODD = "../../etc/passwd"


@pytest.fixture
async def session(journal: SqliteJournal) -> str:
    """One that nobody owns."""
    await journal.release(await journal.create(NewSession("s1", "a", "/w")))
    return "s1"


def owner_files(path: Path) -> set[str]:
    """The files of owners; none when their folder has gone with the last of them."""
    return {file.name for file in path.parent.glob(f"{path.name}-owners/*")}


def make_file(path: Path) -> None:
    path.write_text("not a folder")


async def owner_of(journal: Journal, session: str) -> At:
    whose = await journal.owner(session)
    assert isinstance(whose, At)
    return whose


async def test_what_a_process_owned_is_free_once_it_is_killed_and_no_sooner(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    async with owning(path, session, "unix:/a.sock") as process:
        os.kill(process.pid, signal.SIGSTOP)
        there = await owner_of(journal, session)
        assert (there.owner.pid, there.owner.addresses) == (process.pid, ("unix:/a.sock",))
        process.kill()
        await process.wait()
        assert await journal.owner(session) == Free(there.epoch)


async def test_what_a_process_owned_is_free_at_once_when_it_ends_in_order(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    async with owning(path, session) as process:
        there = await owner_of(journal, session)
        await process.communicate(b"\n")
    assert await journal.owner(session) == Free(there.epoch)


@pytest.mark.parametrize("column", ["host", "pid"])
async def test_an_owner_lives_wherever_it_says_that_it_is(
    journal: SqliteJournal, path: Path, session: str, column: str
) -> None:
    async with owning(path, session):
        with closing(sqlite3.connect(path)) as file, file:  # another container, say
            file.execute(f"UPDATE owners SET {column} = 4194304")
        assert isinstance(await journal.owner(session), At)


async def test_what_an_owner_has_that_has_told_nothing_for_long_is_free_until_it_reports(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other = open_file(path)
    lease = await other.acquire(session)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE owners SET renewed_at = renewed_at - 60000")
    silent = Free(lease.epoch, is_silent=True)
    assert await journal.owner(session) == silent
    await other.renew([lease])
    with pytest.raises(HeldElsewhereError, match=f"process {os.getpid()}"):
        await journal.acquire(session, silent)
    assert isinstance(await journal.owner(session), At)
    with closing(sqlite3.connect(path)) as file, file:  # of a machine that was started anew since
        file.execute("UPDATE owners SET renewed_at = renewed_at + 86400000")
    assert isinstance(await journal.owner(session), At)
    await other.aclose()


async def test_the_day_that_a_clock_says_counts_for_nothing(
    journal: SqliteJournal, path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_file(path)
    await other.acquire(session)
    monkeypatch.setattr("time.time_ns", lambda: 4_000_000_000_000_000_000)
    assert isinstance(await journal.owner(session), At)
    await other.aclose()


async def test_an_owner_whose_file_is_removed_makes_it_anew_and_keeps_its_sessions(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other = open_file(path)
    lease = await other.acquire(session)
    shutil.rmtree(f"{path}-owners")
    assert await other.renew([lease]) == []
    assert isinstance(await journal.owner(session), At)
    assert len(owner_files(path)) == 1
    await other.aclose()


async def test_an_owner_whose_journal_was_moved_makes_nothing_there_and_goes_on_once_it_is_back(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other = open_file(path)
    lease = await other.acquire(session)
    os.rename(path.parent, away := path.parent.with_name("away"))
    with pytest.raises(JournalUnavailableError, match="gone with its folder"):
        await other.renew([lease])
    os.rename(away, path.parent)  # it is not there
    assert await other.renew([lease]) == []
    assert isinstance(await journal.owner(session), At)
    await other.aclose()


async def test_who_was_taken_for_dead_finds_what_it_has_lost(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other = open_file(path)
    lease = await other.acquire(session)
    shutil.rmtree(f"{path}-owners")
    seen = await journal.owner(session)
    assert isinstance(seen, Free)
    await journal.acquire(session, seen)
    [lost] = await other.renew([lease])
    assert (lost.session_id, lost.deleted) == (session, False)
    with pytest.raises(LeaseLostError):
        await other.append(lease, [("update", [b"1"])])
    await other.aclose()


async def test_an_owner_that_was_taken_for_dead_and_forgotten_is_known_again_when_it_renews(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other, next_owner = open_file(path), open_file(path)
    lease = await other.acquire(session)
    shutil.rmtree(f"{path}-owners")
    await next_owner.create(NewSession("s2", "a", "/w"))
    assert isinstance(await journal.owner(session), Free)
    assert await other.renew([lease]) == []
    assert isinstance(await journal.owner(session), At)
    await next_owner.aclose()
    await other.aclose()


async def test_an_owner_that_could_not_be_noted_leaves_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(leases, "register", fail)
    journal = open_file(path)
    with pytest.raises(MemoryError):
        await journal.create(NewSession("s1", "a", "/w"))
    await journal.aclose()
    assert owner_files(path) == set()


async def test_what_the_dead_have_left_is_swept_by_the_next_owner(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    await journal.aclose()
    await killed(path, session)
    await killed(path, session)
    assert len(owner_files(path)) == 1  # the second one has removed the file of the first
    await journal.acquire(session)
    with closing(sqlite3.connect(path)) as file:
        assert {id_ for (id_,) in file.execute("SELECT id FROM owners")} == owner_files(path)
    await journal.aclose()
    assert owner_files(path) == set()


async def test_an_owner_with_a_strange_id_in_the_journal_does_not_live(
    journal: SqliteJournal, path: Path, session: str
) -> None:
    other = open_file(path)
    await other.acquire(session)
    die(other)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"UPDATE owners SET id = '{ODD}' WHERE id = (SELECT owner FROM leases)")
        file.execute(f"UPDATE leases SET owner = '{ODD}'")
    assert isinstance(await journal.owner(session), Free)
    await other.aclose()


async def test_a_folder_in_which_nothing_can_be_locked_is_told_with_what_to_do(path: Path) -> None:
    make_file(Path(f"{path}-owners"))
    journal = open_file(path)
    with pytest.raises(JournalUnavailableError, match=r"cannot lock .*journal\.db-owners"):
        await journal.create(NewSession("s1", "a", "/w"))
    assert await journal.links.sessions_of("a", []) == {}
    await journal.aclose()


async def test_a_change_of_owners_that_is_undone_does_not_look_like_a_file_that_went_back(
    journal: SqliteJournal, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise ValueError("in the middle of the transaction")

    with monkeypatch.context() as patched:
        patched.setattr(leases, "lineage_of", fails)
        with pytest.raises(ValueError, match="in the middle"):
            await journal.acquire(session)
    assert await journal.file.went_back_at() is None
    await journal.acquire(session)
    assert await journal.file.went_back_at() is None


async def test_a_token_stays_good_while_another_process_takes_a_session(
    journal: SqliteJournal, session: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = new_token("phone", ("watch",), 1)
    await journal.access.keep_token(token)
    read_note = file_system.read_note
    taken: list[object] = []

    def reads_once_it_is_taken(*given: Any, **how: Any) -> int:
        if not taken:
            take = [sys.executable, "-c", OWNING, str(path), session]
            taken.append(subprocess.run(take, input=b"\n", check=True, timeout=60))
        return read_note(*given, **how)

    monkeypatch.setattr(file_system, "read_note", reads_once_it_is_taken)
    [found] = await journal.access.tokens()
    assert taken
    assert not found.is_held


async def test_what_several_append_at_once_makes_positions_void_where_an_entry_is_gone(
    journal: SqliteJournal, path: Path
) -> None:
    held = [await journal.create(NewSession(name, "a", "/w")) for name in ("gone", "whole")]
    for lease in held:
        await journal.append(lease, [("prompt", [b"[]"])])
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM segments WHERE key >> 32 = ?", (held[0].number,))
        database.commit()
    lost, _ = await journal.append_all([Append(it, [("update", [b"{}"])]) for it in held])
    assert isinstance(lost, HistoryLostError)
    assert (await journal.session("whole")).lineage == ""  # until its next owner begins an era
