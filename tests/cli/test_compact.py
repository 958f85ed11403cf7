"""`acphold journal compact`: the space of deleted sessions returns to the disk, undisturbed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from acphold.journal.rows import NewSession
from acphold.journal.sqlite import in_file
from tests.cli.command_line import ACPHOLD, CommandLine
from tests.cli.conversation import remember
from tests.journal.conversations import open_file
from tests.raw_entries import CONVERSATION, ended, prompt, said

pytestmark = pytest.mark.slow


@pytest.fixture
def half_empty(journal: Path, acphold: CommandLine) -> Path:
    """A journal of which a great part was deleted, and that has some more conversations."""
    remember(journal, "first", *CONVERSATION)
    remember(journal, "large", prompt("Go"), said("".join(map(str, range(600_000)))), ended())
    remember(journal, "last", *CONVERSATION)
    assert acphold.run("session", "delete", "--yes", "large").code == 0
    return journal


def free_of(journal: Path) -> int:
    with closing(sqlite3.connect(journal)) as file:
        return in_file.free_bytes(file)


def shown(acphold: CommandLine) -> str:
    """All that can be seen of the conversations."""
    return "".join(acphold.run("show", name, "--json").out for name in ("first", "last"))


def test_all_that_is_free_is_given_back_and_nothing_else(
    half_empty: Path, acphold: CommandLine
) -> None:
    before, kept = half_empty.stat().st_size, shown(acphold)
    assert free_of(half_empty) > before // 2
    done = acphold.run("journal", "compact")
    assert done.code == 0
    assert "MiB shorter now; it takes " in done.out
    assert half_empty.stat().st_size < before // 2
    assert free_of(half_empty) == 0
    assert shown(acphold) == kept
    assert acphold.run("doctor").code == 0
    assert "there is nothing to reclaim" in acphold.run("journal", "compact").out


def test_beside_somebody_who_reads_on_it_says_how_much_was_given_back(
    half_empty: Path, acphold: CommandLine
) -> None:
    before = half_empty.stat().st_size
    with closing(sqlite3.connect(half_empty, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessions").fetchone()
        done = acphold.run("journal", "compact")
        assert done.code == 0
        assert half_empty.stat().st_size >= before
        assert "MiB shorter as soon as" in done.out
    assert "there is nothing" in acphold.run("journal", "compact").out
    assert half_empty.stat().st_size < before // 2


async def test_it_gives_way_to_who_writes(half_empty: Path) -> None:
    writing = open_file(half_empty, busy_seconds=0.5)
    shrinking = open_file(half_empty)
    lease = await writing.create(NewSession("live", "a", "/w"))
    task = asyncio.create_task(shrinking.file.give_back())
    appended = 0
    while not task.done():
        await writing.append(lease, [("update", [b"{}"])])
        appended += 1
        await asyncio.sleep(0)
    assert await task
    assert appended > 10
    assert (await writing.session("live")).last_seq == appended
    assert (await shrinking.file.sizes(0)).free == 0
    await writing.aclose()
    await shrinking.aclose()


def test_a_full_disk_does_it_no_harm(half_empty: Path, acphold: CommandLine) -> None:
    kept = shown(acphold)

    def nearly_full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9 * 4096, 9 * 4096))

    done = CommandLine(half_empty, nearly_full).run_as_process("journal", "compact")
    assert done.code == 4
    assert "disk" in done.err
    assert shown(acphold) == kept
    assert acphold.run("doctor").code == 0
    assert acphold.run("journal", "compact").code == 0
    assert shown(acphold) == kept


def test_killed_in_the_middle_of_it_the_journal_is_whole(
    half_empty: Path, acphold: CommandLine
) -> None:
    kept = shown(acphold)
    with subprocess.Popen(
        [*ACPHOLD, "journal", "compact"], env=acphold.environment, stderr=subprocess.DEVNULL
    ) as process:
        begun = half_empty.with_name("journal.db-wal")
        deadline = time.monotonic() + 60
        has_begun = False
        while process.poll() is None and not has_begun:
            assert time.monotonic() < deadline
            with suppress(FileNotFoundError):  # not there yet, or no more
                has_begun = begun.stat().st_size > 8192
        process.send_signal(signal.SIGKILL)
    assert shown(acphold) == kept
    assert acphold.run("doctor").code == 0
    assert acphold.run("journal", "compact").code == 0
    assert shown(acphold) == kept


def test_without_a_journal_there_is_nothing_to_shrink(acphold: CommandLine) -> None:
    assert acphold.run("journal", "compact").code == 4
    assert not os.path.exists(acphold.journal)
