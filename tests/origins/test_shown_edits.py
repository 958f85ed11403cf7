"""The edits that an agent showed, by the turn and the file in which snapshots have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import turn_spans
from acphold.journal.journal import history
from acphold.journal.stores import open_journal
from acphold.live.origins import kept_changes
from acphold.live.origins.kept_changes import KeptChanges, edits_by_turn, read_kept_changes
from tests.origins.kept import KeptSession, edit
from tests.snapshots.conftest import begun


@pytest.mark.parametrize("is_copy", [True, False])
def test_relative_paths_of_a_copied_turn_are_in_the_folder_of_its_original(
    journal: Path, tmp_path: Path, is_copy: bool
) -> None:
    project = begun(tmp_path)
    elsewhere = project.top / "sub"
    session = KeptSession(journal, project, cwd=elsewhere)
    session.turn("Go", edit("c1", "a.txt", None, "new\n"))

    async def found() -> list[tuple[int, str]]:
        opened = open_journal(journal)
        row = await opened.session(session.id)
        spans = await turn_spans(history(opened, session.id))
        rows = await opened.snapshots.of(session.id)
        if is_copy:
            rows = [replace(it, cwd=str(project.top)) for it in rows]
        shown = await edits_by_turn(opened, row, spans, rows)
        await opened.aclose()
        return [*shown]

    assert asyncio.run(found()) == [(1, "a.txt" if is_copy else "sub/a.txt")]


def test_the_changes_of_many_files_take_no_longer_for_each(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = begun(tmp_path)
    session = KeptSession(journal, project)
    session.turn("Write", does=lambda: [project.write(f"{number}") for number in range(100)])
    names: list[str] = []

    def counted(name: str) -> str:
        names.append(name)
        return name

    monkeypatch.setattr(kept_changes, "storable", counted)

    async def read() -> KeptChanges | None:
        opened = open_journal(journal)
        row = await opened.session(session.id)
        spans = await turn_spans(history(opened, session.id))
        found = await read_kept_changes(opened, row, spans, None)
        await opened.aclose()
        return found

    found = asyncio.run(read())
    assert found is not None
    assert len(found.files) == 100
    assert len(names) <= 300
