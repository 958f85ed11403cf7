"""The process that indexes imported sessions: one per journal, and never for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acphold.faces.cli.background_import import alone, start_if_left
from acphold.imports import Intake
from acphold.imports.claude import READER
from acphold.journal.sqlite.store import SqliteIndex
from tests.cli.command_line import CommandLine
from tests.imports.test_intake import conversation
from tests.imports.told import sources
from tests.journal.conversations import open_file

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
        for source in sources(READER, home):
            await Intake(opened).take(source, READER)
    finally:
        await opened.aclose()


def test_there_is_one_for_a_journal_until_nothing_is_left(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    asyncio.run(taken_in(journal, tmp_path))
    held = alone(str(journal))
    assert held is not None
    assert acphold.run_as_process("background-import").code == 0
    assert asyncio.run(lagging(journal))
    held.release()
    assert acphold.run_as_process("background-import").code == 0
    assert not asyncio.run(lagging(journal))
    assert not is_taken(journal)


def test_where_no_process_can_index_behind_it_an_import_says_what_to_do(
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
            assert not await start_if_left(opened, str(journal))
        finally:
            await opened.aclose()

    asyncio.run(taken_in(journal, tmp_path))
    monkeypatch.setattr(SqliteIndex, "catch_up", is_not_enough)
    asyncio.run(imported())
    assert "not everything is searchable yet; run `acphold import --wait`" in caplog.text
    assert str(folder) in caplog.text
