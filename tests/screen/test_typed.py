"""Typed lines: completed, kept over runs, made into prompts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from acp_wire.schema.updates import AvailableCommand
from acphold.faces.screen.typed import (
    PrivateHistory,
    PromptCompleter,
    continue_line,
    fitting,
    links,
)

COMMANDS = (
    AvailableCommand(name="review", description="Look it over"),
    AvailableCommand(name="test", description="Run them"),
)


def completed(text: str, cwd: Path) -> list[str]:
    completer = PromptCompleter(lambda: COMMANDS, str(cwd))
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + it.start_position] + it.text for it in found]


def test_a_file_behind_an_at_becomes_a_link_beside_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("12345")
    (tmp_path / "b c.md").write_text("")
    first, second = links('look at @a.py and @"b c.md" and @a.py', str(tmp_path))
    assert (first.name, first.uri, first.size) == ("a.py", (tmp_path / "a.py").as_uri(), 5)
    assert second.name == "b c.md"


def test_what_names_no_file_stays_text(tmp_path: Path) -> None:
    assert links("mail me@home or @nobody", str(tmp_path)) == []


def test_a_name_that_no_file_can_have_stays_text(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("a" * 5000, "a\0b", "loop"):
        assert links(f"@{name}", str(tmp_path)) == []


def test_a_link_that_leads_to_itself_keeps_no_other_file_from_being_offered(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert completed("see @", tmp_path) == ["see @a.py ", "see @loop "]


def test_a_slash_at_the_beginning_completes_our_commands_and_the_agents(tmp_path: Path) -> None:
    assert completed("/re", tmp_path) == ["/resume ", "/review "]
    assert completed("/", tmp_path)[-2:] == ["/review ", "/test "]
    assert completed("say /re", tmp_path) == []


def test_an_at_completes_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a b.py").touch()
    (tmp_path / ".hidden").touch()
    assert completed("see @", tmp_path) == ["see @src/"]
    assert completed("see @.h", tmp_path) == ["see @.hidden "]
    assert completed("see @src/", tmp_path) == ['see @"src/a b.py" ']
    assert completed("see @nowhere/", tmp_path) == []


def test_a_backslash_at_the_end_begins_a_new_line() -> None:
    assert continue_line("one\\") == "one\n"
    assert continue_line("one") is None


def test_prompts_are_kept_for_this_user_only_and_two_programs_may_add_to_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state" / "prompts"
    one, other = PrivateHistory(str(path)), PrivateHistory(str(path))
    one.store_string("first\nof two lines")
    other.store_string("second")
    assert list(one.load_history_strings()) == ["second", "first\nof two lines"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_at_finds_a_file_by_any_letters_of_its_path(tmp_path: Path) -> None:
    for name in ("src/screen/layout.py", "src/cli/list.py", "node_modules/layout.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "layout").touch()
    assert completed("see @layo", tmp_path) == ["see @src/screen/layout.py "]
    assert completed("see @sclay", tmp_path) == ["see @src/screen/layout.py "]
    assert completed("see @nothing", tmp_path) == []
    assert "src/screen/layout.py" in fitting("", str(tmp_path))


def test_names_and_folders_of_any_length_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("a" * 250)).touch()
    assert completed("see @" + "a" * 30 + "b", tmp_path) == []
    monkeypatch.chdir(tmp_path)
    for _ in range(1100):
        os.mkdir("d")
        os.chdir("d")
    assert completed("see @aa", tmp_path) == [f"see @{'a' * 250} "]
    for _ in range(1100):  # pytest does not get so deep
        os.chdir("..")
        os.rmdir("d")
