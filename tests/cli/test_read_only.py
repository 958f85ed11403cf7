"""A journal where nothing can be written: all of it can be read, and nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copyfile

import pytest

from tests.cli.command_line import CommandLine, Finished
from tests.cli.conversation import remember
from tests.permissions import heed_permissions
from tests.raw_entries import CONVERSATION

pytestmark = pytest.mark.slow


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that nobody who obeys file modes can change; and nobody does."""
    before = contents(folder)
    for place, mode in [*((file, 0o400) for file in folder.iterdir()), (folder, 0o500)]:
        place.chmod(mode)
    try:
        yield
    finally:
        folder.chmod(0o700)
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Names and bytes of the files in a folder, but for the index of a log that is in use."""
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and not file.name.endswith("-shm")
    }


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    """A folder with a journal with a session."""
    (folder := tmp_path / "medium").mkdir()
    remember(folder / "journal.db", "aa-1", *CONVERSATION, title="Greeting")
    return folder


def run(folder: Path, *arguments: str) -> Finished:
    """A command with the journal in this folder."""
    return CommandLine(folder / "journal.db", heed_permissions).run_as_process(*arguments)


READING = [
    ("list",),
    ("list", "--json"),
    ("show", "aa-1"),
    ("search", "friendlier"),
    ("export", "aa-1"),
    ("diff", "aa-1"),
    ("usage",),
    ("show", "--follow", "aa-1"),
    ("session", "prune", "--keep", "1", "--dry-run"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_what_only_reads_needs_no_place_to_write_to(
    medium: Path, arguments: tuple[str, ...]
) -> None:
    usual = run(medium, *arguments)
    with read_only(medium):
        found = run(medium, *arguments)
    assert (found.code, found.out, found.err) == (usual.code, usual.out, usual.err)
    assert found.code == 0


def test_a_backup_is_made_of_what_cannot_be_written_to(medium: Path, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    with read_only(medium):
        done = run(medium, "journal", "backup", str(tmp_path / "away" / "journal.db"))
    assert (done.code, done.err) == (0, "")
    assert run(tmp_path / "away", "show", "aa-1").out == run(medium, "show", "aa-1").out


def test_doctor_reads_all_of_it_and_says_that_it_cannot_be_written_to(medium: Path) -> None:
    with read_only(medium):
        found = run(medium, "doctor", "--deep")
    assert "it is intact" in found.out
    assert "make it writable" in found.out


def test_what_was_not_searchable_yet_is_no_reason_not_to_search(medium: Path) -> None:
    with closing(sqlite3.connect(medium / "journal.db", isolation_level=None)) as database:
        database.execute("UPDATE sessions SET indexed_through = 0")
    with read_only(medium):
        found = run(medium, "search", "nothing like this")
        told = run(medium, "usage")
    assert "Not searchable yet: 1" in found.err
    assert (found.code, told.code) == (0, 0)


@pytest.mark.parametrize(
    "arguments",
    [("session", "rename", "aa-1", "Another"), ("import",), ("access", "token", "--name", "a")],
)
def test_what_would_change_it_says_what_to_do(medium: Path, arguments: tuple[str, ...]) -> None:
    with read_only(medium):
        done = run(medium, *arguments)
    assert done.code == 4
    assert "is read-only; make the file and its folder writable" in done.err


def test_what_somebody_else_writes_meanwhile_is_read_too(medium: Path) -> None:
    with closing(sqlite3.connect(medium / "journal.db", isolation_level=None)) as other:
        other.execute("UPDATE sessions SET title = 'Not in the file yet'")
        with read_only(medium):
            assert "Not in the file yet" in run(medium, "list").out


def test_a_log_without_its_index_cannot_be_read_there_and_is_not_passed_over(
    medium: Path, tmp_path: Path
) -> None:
    (torn := tmp_path / "torn").mkdir()
    with closing(sqlite3.connect(medium / "journal.db", isolation_level=None)) as other:
        other.execute("UPDATE sessions SET title = 'Not in the file yet'")
        for name in ("journal.db", "journal.db-wal"):
            copyfile(medium / name, torn / name)
    with read_only(torn):
        done = run(torn, "list")
    assert done.code == 4
    assert "copy both into a writable folder" in done.err
    assert "Not in the file yet" in run(torn, "list").out
