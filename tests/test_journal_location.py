"""The location of the journal: URLs, paths, and the default."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acp_wire.surroundings import resolve_folder
from acphold.errors import JournalUnavailableError
from acphold.journal_location import default_location, journal_path


def test_a_url_or_a_path_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert journal_path("sqlite:////var/journal.db") == "/var/journal.db"
    assert journal_path("sqlite:///journal.db") == str(tmp_path / "journal.db")
    assert journal_path("sqlite:///~/journal.db") == "/home/me/journal.db"
    assert journal_path("some/journal.db") == str(tmp_path / "some" / "journal.db")
    assert journal_path(Path("/var/journal.db")) == "/var/journal.db"
    assert journal_path("/odd name?%20#.db") == "/odd name?%20#.db"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db",
        "postgresql://db",
        "my+sql://db",
        "sqlite://journal.db",
        "sqlite://",
        "",
        "sqlite:///",
    ],
)
def test_what_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(JournalUnavailableError, match="journal"):
        journal_path(url)


def test_the_default_is_in_the_users_folder_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("ACPHOLD_JOURNAL", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_location() == "/home/me/.local/share/acphold/journal.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_location() == "/home/me/.local/share/acphold/journal.db"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_location() == "/home/me/Library/Application Support/acphold/journal.db"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_location() == "/data/acphold/journal.db"
    monkeypatch.setenv("ACPHOLD_JOURNAL", "sqlite:///mine.db")
    assert default_location() == "sqlite:///mine.db"


def test_what_can_be_no_folder_is_left_as_it_is() -> None:
    assert resolve_folder("/a/b\0c") == "/a/b\0c"
    assert resolve_folder("/nowhere/./at/../all/") == "/nowhere/all"
