"""`acphold import --session ID`: one conversation, also one that was deleted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.imports.claude_home import SESSION
from tests.imports.test_reconciliation import FOLDERS, conversation, put


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    return CommandLine(journal)


@pytest.mark.parametrize("sure", [True, False])
def test_one_that_was_deleted_here_is_asked_for_first(
    acphold: CommandLine, tmp_path: Path, *, sure: bool
) -> None:
    put(tmp_path, conversation("one"), 0)
    put(tmp_path, conversation("one", "two"), 1)
    acphold.run("import", "--from", str(tmp_path))
    acphold.run("session", "delete", SESSION, "--yes")
    one = ("import", "--from", str(tmp_path), "--session", SESSION[:6])
    done = acphold.run(*one, *(["--yes"] if sure else []))
    assert done.code == (0 if sure else 2)
    assert ("nothing was imported; use --yes" in done.err) is not sure
    assert (SESSION in acphold.run("list", "--json").out) is sure
    put(tmp_path, conversation("one", "two", "three"), 0)
    acphold.run("import", "--from", str(tmp_path))
    shown = acphold.run("show", SESSION).out
    assert [shown.count(f"On {words}") for words in ("one", "two", "three")] == [int(sure)] * 3


def test_one_that_is_not_here_is_imported_alone(acphold: CommandLine, tmp_path: Path) -> None:
    acphold.run("import", "--from", str(tmp_path))
    put(tmp_path, conversation("one"), 0)
    one = ("import", "--from", str(tmp_path), "--session", SESSION)
    done = acphold.run(*one)
    assert (done.code, "1 conversation   new 1" in done.out) == (0, True)
    assert "On one" in acphold.run("show", SESSION).out
    assert acphold.run(*one).code == 0
    (tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl").unlink()
    acphold.run("session", "delete", SESSION, "--yes")
    done = acphold.run(*one, "--yes")
    assert (done.code, SESSION in done.err) == (3, True)
