"""A copy of a conversation has the files of its copied turns: in its own copies, in `diff` and
`why`, and after the original was deleted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.origins.kept import KeptSession, edit
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = begun(tmp_path)
    made.write("a.txt", "before\n")
    made.write("sub/deep.txt", "here\n")
    made.commit()
    monkeypatch.chdir(made.top)
    return made


@pytest.fixture
def session(journal: Path, project: Project) -> KeptSession:
    made = KeptSession(journal, project, cwd=project.top / "sub")
    for number, before in ((1, "before\n"), (2, "turn 1\n")):
        text = f"turn {number}\n"
        path = "../a.txt" if number == 1 else str(project.top / "a.txt")
        shown = edit(f"e{number}", path, before, text)
        made.turn(f"Turn {number}", shown, does=partial(project.write, "a.txt", text))
    return made


def fork(acphold: CommandLine, *words: str) -> str:
    done = acphold.run("continue", *words, "--from", "last")
    assert done.code == 0, done.err
    return done.out.strip()


def test_a_fork_of_a_fork_has_the_files_of_each_copied_turn(
    acphold: CommandLine, session: KeptSession, tmp_path: Path
) -> None:
    first = fork(acphold, session.id, "--files", str(tmp_path / "first"))
    for number, words in ((2, ()), (1, ("--before",))):
        folder = tmp_path / f"second{number}"
        second = fork(acphold, first, "--files", str(folder), *words)
        assert (folder / "a.txt").read_text() == f"turn {number}\n"
        assert f"{folder}/sub" in acphold.run("show", second).out
    plain = fork(acphold, fork(acphold, first, "--cwd", str(tmp_path)))
    fork(acphold, plain, "--files", str(tmp_path / "third"))
    assert (tmp_path / "third" / "a.txt").read_text() == "turn 2\n"


def test_a_fork_has_its_files_after_its_original_was_deleted(
    acphold: CommandLine, session: KeptSession, tmp_path: Path
) -> None:
    first = fork(acphold, session.id, "--files", str(tmp_path / "first"))
    assert acphold.run("session", "delete", session.id, "--yes").code == 0
    fork(acphold, first, "--files", str(tmp_path / "second"))
    assert (tmp_path / "second" / "a.txt").read_text() == "turn 2\n"


def test_the_diff_of_a_fork_is_that_of_its_turns_and_names_no_other_session(
    acphold: CommandLine, session: KeptSession, tmp_path: Path
) -> None:
    first = fork(acphold, session.id, "--files", str(tmp_path / "first"))
    for id in (session.id, first):
        done = acphold.run("diff", id)
        assert "a.txt: turns 1-2\n" in done.out
        assert "meanwhile" not in done.err
    assert "# a.txt: turn 1\n" in acphold.run("diff", first, "--turn", "1").out


def test_the_reason_that_there_are_no_files_is_the_real_one(
    acphold: CommandLine, journal: Path, project: Project, tmp_path: Path
) -> None:
    session = KeptSession(journal, project)
    session.turn("Refused", end="refused")
    session.turn("No end", end="missing")
    session.turn("None", begin="missing", end="missing")
    session.turn("Some")
    entries = acphold.run("show", session.id, "--json").out.splitlines()
    seqs = {
        text: next(json.loads(it)["seq"] for it in entries if f'"{text}"' in it)
        for text in ("Refused", "No end", "None")
    }
    for text, reason in (
        ("Refused", "it is full"),
        ("No end", "not taken yet, or acphold stopped"),
        ("None", "`snapshots` was off, or they were removed"),
    ):
        done = acphold.run(
            "continue", f"{session.id}@{seqs[text]}", "--files", str(tmp_path / "no")
        )
        assert (done.code, reason in done.err) == (1, True), done.err
    assert not (tmp_path / "no").exists()
