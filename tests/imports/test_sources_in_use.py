"""Sources that somebody writes, locks, moves away or forbids while they are imported."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from acphold.imports import Intake, Reader, Source, databases
from acphold.imports.claude import READER
from acphold.imports.intake import read_here
from acphold.imports.opencode import READER as OPENCODE
from acphold.imports.pieces import NewsPiece
from acphold.imports.sources import ImportSelection
from acphold.imports.turns import KnownPart
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter
from tests.failures.test_journal import file_limit
from tests.imports.claude_home import SESSION
from tests.imports.every_reader import READERS, Said, write
from tests.imports.test_intake import LONG, conversation, said, say, take, whole
from tests.imports.test_opencode import Store
from tests.imports.told import Story, sources
from tests.permissions import heed_permissions

SECONDS = 60.0


def acphold_import(journal: Path, home: Path, limit: int = 0) -> subprocess.CompletedProcess[str]:
    """An import in a process of its own, which heeds permissions."""

    def before() -> None:
        heed_permissions()
        if limit:
            file_limit(limit)()

    return subprocess.run(
        [sys.executable, "-m", "acphold", "import", "--from", str(home), "--journal", str(journal)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=before,
        check=False,
    )


async def test_what_is_written_while_it_is_read_comes_with_this_import_or_the_next(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(12, LONG)
    transcript.write(tmp_path)

    async def while_written(
        source: Source, reader: Reader, known: KnownPart, selection: ImportSelection
    ) -> AsyncIterator[NewsPiece]:
        is_first = True
        async for piece in read_here(source, reader, known, selection):
            yield piece
            if is_first:
                say(transcript, 13)
                transcript.write(tmp_path)
                is_first = False

    (source,) = sources(READER, tmp_path)
    assert (await Intake(opened).take(source, READER, while_written)).outcome == "new"
    assert (await said(opened))[: len(whole(12))] == whole(12)
    assert await take(opened, tmp_path) in ("grown", "same")
    assert await said(opened) == whole(13)


async def test_what_is_cut_off_while_it_is_read_costs_nothing_that_was_taken(
    opened: Journal, tmp_path: Path
) -> None:
    conversation(12, LONG).write(tmp_path)
    (source,) = sources(READER, tmp_path)

    async def while_cut(
        source: Source, reader: Reader, known: KnownPart, selection: ImportSelection
    ) -> AsyncIterator[NewsPiece]:
        async for piece in read_here(source, reader, known, selection):
            yield piece
            os.truncate(source.paths[0], 0)

    assert (await Intake(opened).take(source, READER, while_cut)).outcome == "new"
    there = await said(opened)
    assert there == whole(12)[: len(there)]
    assert len(there) > 2
    conversation(12, LONG).write(tmp_path)
    await take(opened, tmp_path)
    assert await said(opened) == whole(12)
    assert (await opened.session(SESSION)).message_count == len(whole(12))


async def test_a_file_that_has_gone_before_it_is_read_costs_only_itself(
    opened: Journal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    conversation().write(tmp_path, str(UUID(int=1)))
    first, second = sources(READER, tmp_path)
    os.unlink(first.paths[0])
    with pytest.raises(FileNotFoundError):
        await Intake(opened).take(first, READER)
    assert (await Intake(opened).take(second, READER)).outcome == "new"
    assert len(await opened.page(ListFilter())) == 1


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_that_its_owner_has_locked_is_read(tmp_path: Path, mode: str) -> None:
    store = Store(tmp_path)
    store.session("ses_1")
    store.message("user", "Hello.", session="ses_1")
    store.message("assistant", "Hi.", session="ses_1")
    store.db.commit()
    (path,) = tmp_path.rglob("opencode.db")
    store.db.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute(f"PRAGMA journal_mode = {mode}")
        owner.execute("BEGIN EXCLUSIVE")
        assert Story.of(OPENCODE, tmp_path).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_a_database_in_a_folder_that_cannot_be_read_ends_no_import(
    journal: Path, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    store = Store(tmp_path)
    store.db.close()
    (above := store.path.parent.parent).chmod(0)
    try:
        done = acphold_import(journal, tmp_path)
    finally:
        above.chmod(0o700)
    assert done.returncode == 0
    assert f"opencode: cannot read {store.path}: Permission denied" in done.stderr
    assert "claude             1 conversation   new 1" in done.stdout


def test_files_that_cannot_be_read_are_named_for_each_reader(journal: Path, tmp_path: Path) -> None:
    names, home = READERS.keys() - {"acphold"}, tmp_path / "home"
    for name in names:
        write(name, home, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    for path in home.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0)
    done = acphold_import(journal, home)
    assert done.returncode == 0
    assert names == {
        line.split(":")[0] for line in done.stderr.splitlines() if ": cannot read" in line
    }


@pytest.mark.parametrize("inner", [".claude", ".claude/projects", ".claude/projects/closed"])
def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_taken(
    journal: Path, tmp_path: Path, inner: str
) -> None:
    conversation().write(tmp_path)
    store = Store(tmp_path)
    store.session("ses_1")
    store.message("user", "Hello.", session="ses_1")
    store.db.close()
    (closed := tmp_path / inner).mkdir(exist_ok=True)
    closed.chmod(0)
    try:
        done = acphold_import(journal, tmp_path)
    finally:
        closed.chmod(0o700)
    assert done.returncode == 0
    assert f"claude: cannot read {closed}" in done.stderr
    assert "Permission denied" in done.stderr
    assert "opencode" in done.stdout
    if inner.endswith("closed"):
        assert "2 conversations   new 1, unreadable 1" in done.stdout


def test_a_disk_that_is_full_is_said_and_the_next_import_goes_on(
    journal: Path, tmp_path: Path
) -> None:
    conversation(40, LONG).write(tmp_path)
    done = acphold_import(journal, tmp_path, limit=400_000)
    assert done.returncode != 0
    assert "disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert acphold_import(journal, tmp_path).returncode == 0
    with closing(sqlite3.connect(journal)) as file:
        assert file.execute("SELECT message_count FROM sessions").fetchall() == [(120,)]


def test_a_large_database_at_work_is_not_copied_for_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "LARGE_BYTES", 1)
    monkeypatch.setattr(databases, "REUSE_FACTOR", 1e9)
    monkeypatch.setattr(databases, "_reused", [])
    path = tmp_path / "at_work.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE told (words)")
        database.execute("INSERT INTO told VALUES ('Hello.')")
        count = "SELECT count(*) FROM told"
        assert databases.rows(path, count) == [(1,)]
        database.execute("INSERT INTO told VALUES ('Hi.')")
        assert databases.rows(path, count) == [(1,)]
        monkeypatch.setattr(databases, "_reused", [])
        assert databases.rows(path, count) == [(2,)]
