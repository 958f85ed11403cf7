"""Stores are opened by the URL of a journal, and no store by a URL that is none of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.errors import JournalUnavailableError
from acphold.journal.stores import exists, journal_name, open_journal
from acphold.journal_location import VARIABLE


def test_a_scheme_that_no_store_has_is_refused_without_telling_the_url() -> None:
    for opened in (open_journal, journal_name):
        with pytest.raises(JournalUnavailableError, match="no store for mysql://") as caught:
            opened("mysql://me:secret@host/db")
        assert "secret" not in str(caught.value)


def test_a_file_is_looked_for_and_a_database_only_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "journal.db"
    monkeypatch.setenv(VARIABLE, str(file))
    assert not exists()
    assert not file.exists()
    file.touch()
    assert exists()
    monkeypatch.setenv(VARIABLE, "postgresql://host.invalid/journal")
    assert exists()
