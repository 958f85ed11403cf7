"""Where the files that are kept with sessions are, if their journal is in no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from acphold.machine import runtime_folder
from tests.snapshots.conftest import Project


async def test_kept_files_follow_from_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_folder, "_account_home", lambda: str(tmp_path / "home"))
    project = Project(tmp_path)
    project.git("init", "-q")
    taken = project.take()
    journal = open_journal(tmp_path / "journal.db")
    try:
        monkeypatch.setattr(journal, "file", None)
        folder = Path((await stores_of(journal)).folder)
        folder.parent.mkdir(parents=True)
        os.rename(project.stores.folder, folder)
        for variable in (tmp_path / "state", tmp_path / "other"):
            monkeypatch.setenv("XDG_STATE_HOME", str(variable))
            stores = await stores_of(journal)
            assert stores.folder == str(folder)
            assert [store.id for store in stores] == [taken.store]
        assert folder.is_relative_to(tmp_path / "home")
    finally:
        await journal.aclose()
