"""Every code block of the second half of docs/library.md, run: a section's block is one program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import TypeChecker
from tests.docs.test_library import BLOCK, HALVES, SECTION

AGENT = Path(__file__).with_name("gemini_agent.py")


class Program:
    """The code of a section, and its output."""

    def __init__(self, title: str, text: str) -> None:
        self.title = title
        [self.code] = [code for language, code in BLOCK.findall(text) if language == "python"]
        _, _, comment = text.partition("<!-- prints: ")
        self.prints = comment.partition(" -->")[0].split(" / ")


PROGRAMS = [Program(*section) for section in SECTION.findall(HALVES[1])]


@pytest.fixture
def place(tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with notes, and a `gemini` on PATH that is the agent of the guide."""
    program = tmp_path / "bin" / "gemini"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {AGENT} "$@"\n')
    program.chmod(0o755)
    (folder := tmp_path / "project").mkdir()
    (folder / "notes.txt").write_text("a weed in here\n")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("ACPHOLD_JOURNAL", str(journal))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_the_program_of_a_section_prints_what_it_says(
    program: Program, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(program.code, f"library.md: {program.title}", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out.split("\n") == [*program.prints, ""]


@pytest.mark.slow
def test_the_programs_are_typed(tmp_path: Path, type_checker: TypeChecker) -> None:
    for place, program in enumerate(PROGRAMS):
        (tmp_path / f"client_{place}.py").write_text(program.code)
    said, status = type_checker(tmp_path)
    assert status == 0, said


def test_every_section_is_a_program_that_prints_something() -> None:
    assert len(PROGRAMS) == 10
    assert all(program.code and all(program.prints) for program in PROGRAMS)
