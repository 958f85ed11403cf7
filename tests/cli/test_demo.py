"""`acphold demo`: every claim holds, on a terminal and off, and one that does not is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

CLAIMS = 10


def test_every_claim_of_the_demo_holds(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run_as_process("demo", "--keep", str(tmp_path / "kept"))
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(r"^ {6}✓ ", done.out, re.MULTILINE)) == CLAIMS
    assert "✗ Count without end" in done.out
    assert "\x1b" not in done.out
    kept = acphold.run("list", "--journal", str(tmp_path / "kept" / "journal.db"))
    assert "Make the greeting friendlier" in kept.out


def test_the_demo_leaves_the_journal_of_the_user_alone(acphold: CommandLine, journal: Path) -> None:
    shown = acphold.on_terminal("demo")
    assert shown.code == 0
    assert f"{CLAIMS} of {CLAIMS} claims hold" in shown.plain
    assert "\x1b[1;36m    you\x1b[0m" in shown.out
    assert not journal.exists()


def test_a_claim_that_does_not_hold_is_named(acphold: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "journal.db").write_text("no journal")
    done = acphold.run_as_process("demo", "--keep", str(tmp_path / "kept"))
    assert done.code == 1
    assert "✗" in done.out
    assert "not an acphold journal" in " ".join(done.out.split())


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null"])
def test_a_folder_that_cannot_be_made_is_a_usage_error(acphold: CommandLine, folder: str) -> None:
    assert acphold.run("demo", "--keep", folder).code == 2
