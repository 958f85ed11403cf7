"""`acphold session prune`: old sessions go when a person says so, and only those."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import JournalUnavailableError
from acphold.faces.cli import findings, session_commands
from acphold.journal import bounds
from acphold.journal.owners import Whose
from acphold.journal.rows import SessionRow
from acphold.journal.sqlite.store import SqliteJournal
from tests.cli.command_line import CommandLine, Finished
from tests.cli.conversation import remember
from tests.journal.sqlite.test_file import file_size_limit
from tests.owners import killed, owning
from tests.raw_entries import CONVERSATION

DAY = 24 * 60 * 60 * 1000
NOW = time.time_ns() // 1_000_000


def _age(journal: Path, session_id: str, days: int) -> None:
    with closing(sqlite3.connect(journal, isolation_level=None)) as file:
        last_active = NOW - days * DAY
        file.execute(
            "UPDATE sessions SET updated_at = ? WHERE session_id = ?", (last_active, session_id)
        )


@pytest.fixture
def old(journal: Path) -> Path:
    """A journal with sessions of 1, 10, 100 and 200 days ago, and one never prompted."""
    for days in (1, 10, 100, 200):
        remember(journal, f"s-{days}", *CONVERSATION, title=f"Of {days} days ago")
        _age(journal, f"s-{days}", days)
    remember(journal, "empty-300")
    _age(journal, "empty-300", 300)
    return journal


def ids(acphold: CommandLine) -> set[str]:
    lines = acphold.run("list", "--all", "--json").out.splitlines()
    return {line.split('"sessionId":"')[1].split('"')[0] for line in lines}


ALL = {"s-1", "s-10", "s-100", "s-200", "empty-300"}


@pytest.mark.usefixtures("old")
def test_its_seconds_are_counted_on_a_terminal_and_nowhere_else(acphold: CommandLine) -> None:
    prune = ("session", "prune", "--yes", "--older-than")
    assert "0:00:0" not in acphold.run(*prune, "150d").err
    assert "0:00:0" in acphold.on_terminal(*prune, "90d").out


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--older-than", "90d"], {"s-1", "s-10"}),
        (["--older-than", "90d", "--keep", "3"], {"s-1", "s-10", "s-100"}),
        (["--older-than", "5d", "--keep", "1"], {"s-1"}),
        (["--older-than", "1000d"], ALL),
        (["--keep", "2"], {"s-1", "s-10", "empty-300"}),
        (["--keep", "9"], ALL),
        (["--older-than", "90d", "--agent", "other"], ALL),
        (["--older-than", "90d", "--cwd", "/elsewhere"], ALL),
    ],
)
def test_what_is_old_and_not_among_the_newest_goes(
    old: Path, acphold: CommandLine, arguments: list[str], left: set[str]
) -> None:
    before = acphold.run("session", "prune", *arguments, "--dry-run")
    assert ids(acphold) == ALL
    assert before.out.count("  s-") + before.out.count("  empty-") == len(ALL - left)
    done = acphold.run("session", "prune", *arguments, "--yes")
    assert done.code == 0
    assert ids(acphold) == left
    if ALL - left:
        assert done.out.startswith(f"Deleted {len(ALL - left)} session")
    else:
        assert "There is nothing to delete." in done.all


async def test_newer_sessions_are_not_read(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def page(journal: SqliteJournal, *wanted: Any) -> list[SessionRow]:
        rows = await read_page(journal, *wanted)
        read.extend(row.session_id for row in rows)
        return rows

    read_page = SqliteJournal.page
    monkeypatch.setattr(SqliteJournal, "page", page)
    monkeypatch.setenv("ACPHOLD_JOURNAL", str(old))
    others: dict[str, Any] = dict.fromkeys(("keep", "agent", "cwd"))
    others |= dict.fromkeys(("archived", "sure", "now"), False)
    assert await session_commands.prune(older_than=NOW - 90 * DAY, **others, dry_run=True) == 0
    assert {*read} == {"s-100", "s-200", "empty-300"}


def test_nothing_is_pruned_that_nobody_asked_for(old: Path, acphold: CommandLine) -> None:
    done = acphold.run("session", "prune")
    assert done.code == 2
    assert "choose sessions with --older-than 90d, --keep 500, or both" in done.err
    done = acphold.run("session", "prune", "--keep", "1")
    assert done.code == 2
    assert "there is no terminal to ask on" in done.err
    assert ids(acphold) == ALL


def test_what_is_archived_stays_unless_asked_for(old: Path, acphold: CommandLine) -> None:
    acphold.run("session", "archive", "s-200")
    acphold.run("session", "prune", "--older-than", "90d", "--yes")
    assert acphold.run("show", "s-200").code == 0
    acphold.run("session", "prune", "--older-than", "90d", "--archived", "--yes")
    assert acphold.run("show", "s-200").code == 3


def test_what_is_open_stays(old: Path, acphold: CommandLine) -> None:
    async def prune() -> Finished:
        async with owning(old, "s-200"):
            _age(old, "s-200", 200)
            return await asyncio.to_thread(
                acphold.run, "session", "prune", "--older-than", "90d", "--yes"
            )

    done = asyncio.run(prune())
    assert done.out == "Deleted 2 sessions.\n"
    assert "s-200" in ids(acphold)


def test_a_session_that_is_deleted_while_the_old_ones_are_looked_for_is_no_error(
    old: Path, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = SqliteJournal.owner

    async def delete_first(self: SqliteJournal, session_id: str) -> Whose:
        if session_id == "s-200":
            await self.delete("s-200")
        return await owner(self, session_id)

    asyncio.run(killed(old, "s-200"))
    _age(old, "s-200", 200)
    monkeypatch.setattr(SqliteJournal, "owner", delete_first)
    done = acphold.run("session", "prune", "--older-than", "90d", "--yes")
    assert (done.code, done.out) == (0, "Deleted 2 sessions.\n")
    assert ids(acphold) == {"s-1", "s-10"}


def test_words_that_cannot_be_overwritten_now_are_told_of(old: Path, acphold: CommandLine) -> None:
    arguments = ("session", "prune", "--yes", "--now", "--older-than")
    with closing(sqlite3.connect(old, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM segments").fetchone()
        told = acphold.run(*arguments, "150d").err
        assert "words of 2 deleted sessions are not overwritten yet" in told
    assert "overwritten" not in acphold.run(*arguments, "90d").err


def test_a_disk_that_is_full_on_the_way_is_told_with_how_many_are_gone(
    journal: Path, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        remember(journal, f"s-{number}", *CONVERSATION)
        _age(journal, f"s-{number}", 100)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "DELETED_TOGETHER", 1)
    with file_size_limit(64 * 4096):
        done = acphold.run("session", "prune", "--older-than", "90d", "--yes")
    gone = 30 - len(ids(acphold))
    assert 0 < gone < 30
    assert done.code == 4
    assert f"{gone} of 30 sessions were deleted before that" in done.err
    assert acphold.run("session", "prune", "--older-than", "90d", "--yes").code == 0
    assert ids(acphold) == set()
    with closing(sqlite3.connect(journal)) as file:
        assert file.execute("SELECT count(*) FROM segments").fetchone() == (0,)


def test_upkeep_that_fails_is_not_told_as_half_a_deletion(
    old: Path, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: object) -> None:
        raise JournalUnavailableError("the disk is gone")

    monkeypatch.setattr(findings, "tidy", fails)
    done = acphold.run("session", "prune", "--older-than", "90d", "--yes")
    assert "the disk is gone" in done.err
    assert "were deleted before that" not in done.err
    assert ids(acphold) == {"s-1", "s-10"}
