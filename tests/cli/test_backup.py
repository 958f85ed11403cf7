"""`acphold journal backup`: a copy of the journal that can take its place."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt, said


@pytest.fixture
def one(journal: Path) -> Path:
    """A journal with a session."""
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    return journal


def test_a_copy_can_take_the_place_of_the_journal(
    one: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("journal", "backup", str(tmp_path / "copy.db"))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Copied the journal to {tmp_path}/copy.db, ")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    shown = CommandLine(tmp_path / "copy.db").run("show", "aa-1", "--json")
    assert shown.out == acphold.run("show", "aa-1", "--json").out


def test_in_a_folder_it_is_named_by_its_date(
    one: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    assert acphold.run("journal", "backup", str(tmp_path / "kept")).code == 0
    (found,) = (tmp_path / "kept").iterdir()
    assert found.match("journal-20??-??-??-??????.db")


def test_what_is_there_is_replaced_only_if_asked(
    one: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "copy.db").write_text("mine")
    done = acphold.run("journal", "backup", str(tmp_path / "copy.db"))
    assert done.code == 2
    assert "already exists; choose another file or use --force" in done.err
    assert (tmp_path / "copy.db").read_text() == "mine"
    assert acphold.run("journal", "backup", str(tmp_path / "copy.db"), "--force").code == 0
    assert (tmp_path / "copy.db").read_bytes().startswith(b"SQLite")


def test_what_is_no_file_is_never_replaced(one: Path, acphold: CommandLine, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        done = acphold.run("journal", "backup", "--force", str(path))
        assert (done.code, done.err) == (
            2,
            f"acphold journal backup: {path} is not a file; choose another place\n",
        )
    assert pipe.is_fifo()


def test_a_folder_that_is_not_there_is_no_file(
    one: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("journal", "backup", f"{tmp_path}/none/")
    assert (done.code, done.err) == (
        2,
        f"acphold journal backup: the folder {tmp_path}/none/ does not exist; "
        "create it or name another\n",
    )
    assert not (tmp_path / "none").exists()


def test_the_journal_is_never_its_own_copy(one: Path, acphold: CommandLine) -> None:
    before = one.read_bytes()
    done = acphold.run("journal", "backup", str(one), "--force")
    assert done.code == 2
    assert "is the journal itself" in done.err
    assert one.read_bytes() == before


def test_without_a_journal_there_is_nothing_to_copy(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run("journal", "backup", str(tmp_path / "copy.db"))
    assert done.code == 4
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("part", [10, 50, 200])
def test_a_full_disk_is_the_copys_and_nothing_is_left_on_it(
    one: Path, tmp_path: Path, part: int
) -> None:
    remember(one, "bb-2", prompt("Long"), said("x" * 1_000_000), ended())
    (tmp_path / "away").mkdir()
    (copy := tmp_path / "away" / "copy.db").write_text("before")

    def nearly_full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (part * 4096, part * 4096))

    before = one.read_bytes()
    done = CommandLine(one, nearly_full).run_as_process("journal", "backup", "--force", str(copy))
    assert done.code == 4
    assert done.err.startswith(f"acphold: cannot write the copy {copy}: ")
    assert "free space on its disk, or name another place" in done.err
    assert copy.read_text() == "before"
    assert os.listdir(tmp_path / "away") == ["copy.db"]
    assert one.read_bytes() == before
