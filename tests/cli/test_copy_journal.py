"""`acphold journal copy`: all sessions of a journal in another one."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acphold.faces.cli import journal_commands
from acphold.faces.cli.command_line import Exit
from acphold.journal.stored_history import FRAME
from acphold.journal.stores import open_journal
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, prompt


@pytest.fixture
def two(journal: Path) -> Path:
    """A journal with two sessions."""
    for name in ("aa-1", "bb-2"):
        remember(journal, name, *CONVERSATION, title=f"Title {name}")
    return journal


def test_all_sessions_of_a_journal_are_in_its_copy(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    done = acphold.run("journal", "copy", str(two), str(copy))
    assert (done.code, done.err) == (0, "")
    assert done.out == "2 sessions copied, 0 brought up to date, 0 unchanged.\n"
    for command in (("list", "--json"), ("show", "aa", "--json")):
        assert CommandLine(copy).run(*command).out == acphold.run(*command).out
    again = acphold.run("journal", "copy", str(two), str(copy))
    assert again.out == "0 sessions copied, 0 brought up to date, 2 unchanged.\n"


def test_on_a_terminal_a_bar_shows_how_far_it_is(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.on_terminal("journal", "copy", str(two), str(tmp_path / "copy.db"))
    assert done.code == 0
    assert "sessions" in done.plain
    assert "2 sessions copied" in done.plain


def test_a_ctrl_c_says_how_to_continue(
    two: Path, acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr(journal_commands, "copy_all", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        done = acphold.run("journal", "copy", str(two), str(tmp_path / "copy.db"))
    finally:  # a command that ends by it ignores a second one
        signal.signal(signal.SIGINT, before)
    assert done.code == Exit.INTERRUPTED
    assert done.err == "Interrupted; what was copied stays. Run the command again to continue.\n"


def test_sessions_that_differ_are_named_and_the_exit_code_says_it(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    remember(copy, "bb-2", prompt("Another one"))
    done = acphold.run("journal", "copy", str(two), str(copy))
    assert done.code == 1
    assert done.err == "bb-2 differs in TO and was left unchanged there\n"
    assert done.out == "1 session copied, 0 brought up to date, 0 unchanged.\n"


def test_a_session_that_is_damaged_is_left_out_and_told_and_the_others_are_copied(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(two, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE segments SET raw = ? WHERE key = (SELECT min(key) FROM segments)",
            (FRAME + b"nothing that was packed",),
        )
    copy = tmp_path / "copy.db"
    done = acphold.run("journal", "copy", str(two), str(copy))
    assert done.code == 1
    (told,) = done.err.splitlines()
    assert told.startswith("aa-1 cannot be read to its end and was left out")
    assert done.out == "1 session copied, 0 brought up to date, 0 unchanged.\n"
    assert CommandLine(copy).run("show", "aa").code == 3


def test_a_session_that_is_open_is_named_and_has_an_exit_code_of_its_own(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"

    async def while_it_is_open() -> None:
        journal = open_journal(two)
        lease = await journal.acquire("bb-2")
        await journal.append(lease, [("prompt", [b"[]"])])
        done = await asyncio.to_thread(acphold.run, "journal", "copy", str(two), str(copy))
        assert done.code == 10
        assert done.err == "bb-2 is open, so its end was not copied\n"
        assert "Not copied completely: 1 open session" in done.out
        assert "run the command again" in done.out
        await journal.aclose()

    asyncio.run(while_it_is_open())
    done = acphold.run("journal", "copy", str(two), str(copy))
    assert (done.code, done.err) == (0, "")


def test_a_journal_is_not_copied_onto_itself(two: Path, acphold: CommandLine) -> None:
    for name in (str(two), f"sqlite:///{two}"):
        done = acphold.run("journal", "copy", str(two), name)
        assert done.code == 2
        assert "FROM and TO are the same journal" in done.err


def test_what_is_to_be_copied_is_not_made(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run("journal", "copy", str(tmp_path / "none.db"), str(tmp_path / "copy.db"))
    assert done.code == 4
    assert not any((tmp_path / name).exists() for name in ("none.db", "copy.db"))
