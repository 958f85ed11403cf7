"""Many files that were kept are compared in a time that grows with their number alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acphold.conversation.history.entries import turn_spans
from acphold.journal.journal import history
from acphold.journal.stores import open_journal
from acphold.live.origins import kept_changes
from acphold.live.origins.kept_changes import FoundChanges, session_changes
from tests.origins.kept import KeptSession
from tests.snapshots.conftest import begun


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

    async def read() -> FoundChanges:
        opened = open_journal(journal)
        row = await opened.session(session.id)
        spans = await turn_spans(history(opened, session.id))
        found = await session_changes(opened, row, spans, None, lambda path: None)
        await opened.aclose()
        return found

    found = asyncio.run(read())
    assert found.root
    assert len(found.files) == 100
    assert len(names) <= 300
