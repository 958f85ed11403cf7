"""The process that indexes imported sessions: one per journal, and never for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acphold.faces.cli.index_beside import IndexBeside, Indexing, alone
from acphold.imports import Intake
from acphold.imports.claude import READER
from acphold.journal.sqlite.store import SqliteIndex
from tests.imports.soak import users
from tests.imports.test_intake import conversation
from tests.imports.told import sources
from tests.journal.conversations import open_file
from tests.plugin import Until

pytestmark = pytest.mark.slow

DEADLINE = 30.0


def is_taken(journal: Path) -> bool:
    held = alone(str(journal))
    if held is not None:
        held.release()
    return held is None


async def lagging(journal: Path) -> int:
    opened = open_file(journal)
    try:
        return await opened.index.catch_up(0)
    finally:
        await opened.aclose()


async def taken_in(journal: Path, home: Path) -> None:
    """A conversation that is there, and not searchable."""
    conversation().write(home)
    opened = open_file(journal)
    try:
        intake = Intake(opened)
        intake.leave_index()
        for source in sources(READER, home):
            await intake.take(source, READER)
    finally:
        await opened.aclose()


def test_there_is_one_for_a_journal_until_it_is_let_go_and_nothing_is_left(
    journal: Path, tmp_path: Path, until: Until
) -> None:
    open_file(journal)
    first = IndexBeside(str(journal))
    try:
        until(lambda: is_taken(journal), DEADLINE)
        second = IndexBeside(str(journal))
        until(lambda: not second.runs, DEADLINE)
        second.end()
        assert first.runs
        asyncio.run(taken_in(journal, tmp_path))
        until(lambda: not asyncio.run(lagging(journal)), DEADLINE)
        assert first.runs
        first.let_go()
        until(lambda: not first.runs, DEADLINE)
        assert not is_taken(journal)
    finally:
        first.end()


def test_where_no_process_can_index_beside_it_an_import_says_what_to_do(
    journal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (folder := tmp_path / "run" / "acphold").mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder.parent))

    catch_up = SqliteIndex.catch_up

    async def is_not_enough(self: SqliteIndex, seconds: float) -> int:
        return await catch_up(self, 0)

    async def imported() -> None:
        opened = open_file(journal)
        try:
            with Indexing(str(journal)) as indexing:
                assert not await indexing.lags(opened.index)
        finally:
            await opened.aclose()

    asyncio.run(taken_in(journal, tmp_path))
    monkeypatch.setattr(SqliteIndex, "catch_up", is_not_enough)
    asyncio.run(imported())
    assert "not everything is searchable yet; run `acphold import --wait`" in caplog.text
    assert str(folder) in caplog.text


_SLOW = """
import asyncio, sys
from acphold.faces.cli import import_command, main
from acphold.imports import intake
import_command.imports.WORTH_LISTING = 1
async def _take(self, *_, **__):
    print("at work", flush=True)
    await asyncio.sleep(60)
intake.Intake._take = _take
sys.exit(main.main(["import", "--from", sys.argv[1]]))
"""
"""An import that comes to no end."""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_of_an_import_that_is_cancelled_or_killed_no_process_is_left(
    journal: Path, tmp_path: Path, until: Until, how: signal.Signals
) -> None:
    conversation().write(tmp_path)
    importing = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(tmp_path)],
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert importing.stdout is not None
    try:
        assert importing.stdout.readline() == b"at work\n"
        until(lambda: is_taken(journal), DEADLINE)
        importing.send_signal(how)
        importing.wait(DEADLINE)
        until(lambda: not users(journal), DEADLINE)
    finally:
        importing.kill()
        importing.wait()
        importing.stdout.close()
