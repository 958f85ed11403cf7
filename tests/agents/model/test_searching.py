"""Looking for lines and listing folders, inside the roots and in bounded time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.agents.model import searching
from holdfast.agents.model.searching import MAX_LINES, Query, look, search
from holdfast.agents.model.walking import MAX_LISTED, listed
from holdfast.errors import (
    InvalidParamsError,
    MissingFileError,
    OutsideRootsError,
    WorkspaceError,
)
from holdfast.workspace import Roots


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for path, text in {
        ".gitignore": "*.log\nout/\n",
        "a.py": "import os\nprint('needle')\n",
        "src/b.py": "needle = 1\n",
        "src/c.txt": "a Needle here\n",
        "debug.log": "needle\n",
        "out/x.py": "needle\n",
        ".git/config": "needle\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def query(root: Path, pattern: str, **more: str | bool) -> Query:
    return Query(str(root), (), pattern, **more)  # type: ignore[arg-type]


async def test_a_search_finds_lines_that_git_does_not_ignore(project: Path) -> None:
    report = await search(query(project, "needle"))
    assert report.lines == ["a.py:2: print('needle')", "src/b.py:1: needle = 1"]
    assert report.files == 2


async def test_a_search_can_be_narrowed(project: Path) -> None:
    assert look(query(project, "needle", path="src")).lines == ["src/b.py:1: needle = 1"]
    assert look(query(project, "needle", path="src/b.py")).lines == ["src/b.py:1: needle = 1"]
    assert look(query(project, "needle", glob="*.txt")).lines == []
    found = look(query(project, "needle", glob="*.txt", ignore_case=True)).lines
    assert found == ["src/c.txt:1: a Needle here"]


async def test_a_bad_expression_is_explained(project: Path) -> None:
    with pytest.raises(InvalidParamsError, match="no regular expression"):
        await search(query(project, "("))


async def test_an_expression_that_never_ends_is_ended(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "long.txt").write_text("a" * 60 + "b\n")
    monkeypatch.setattr(searching, "SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(WorkspaceError, match="simpler"):
        await search(query(project, "(a+)+$"))
    assert time.monotonic() - began < 10


async def test_a_search_stays_inside_the_roots(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("needle outside\n")
    (project / "link.txt").symlink_to(tmp_path / "secret.txt")
    (project / "way").symlink_to(tmp_path)
    assert not any("outside" in line for line in look(query(project, "needle")).lines)
    with pytest.raises(OutsideRootsError):
        look(query(project, "needle", path=".."))
    with pytest.raises(OutsideRootsError):
        look(query(project, "needle", path="way"))
    with pytest.raises(MissingFileError):
        look(query(project, "needle", path="nothing/here"))


def test_what_is_no_text_is_passed_by(project: Path) -> None:
    (project / "binary").write_bytes(b"\0needle\n")
    os.mkfifo(project / "pipe")
    (project / "latin").write_bytes(b"needle \xe9\n")
    assert "latin:1: needle \ufffd" in look(query(project, "needle")).lines
    assert not any(line.startswith("binary") for line in look(query(project, "needle")).lines)


def test_a_search_that_finds_too_much_says_so(project: Path) -> None:
    (project / "many.txt").write_text("line\n" * (MAX_LINES + 10))
    report = look(query(project, "^line"))
    assert len(report.lines) == MAX_LINES
    assert report.more


async def test_modules_in_the_project_are_not_run(project: Path) -> None:
    for name in ("msgspec.py", "re.py", "holdfast.py"):
        (project / name).write_text("raise SystemExit('run from the project')\n")
    report = await search(query(project, "print"))
    assert report.lines


def test_a_folder_is_listed_without_what_is_ignored(project: Path) -> None:
    roots = Roots(str(project))
    assert listed(roots, ".", None).paths == [".gitignore", "a.py", "src/"]
    assert listed(roots, ".", "*.py").paths == ["a.py", "src/b.py"]
    assert listed(roots, "src", None).paths == ["b.py", "c.txt"]


def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 5):
        (tmp_path / f"{number}.txt").touch()
    listing = listed(Roots(str(tmp_path)), ".", None)
    assert len(listing.paths) == MAX_LISTED
    assert listing.more
