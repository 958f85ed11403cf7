"""The coding agent searches a project, and nothing in the project can block it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from acphold.testing import connect
from tests.examples.coder.conftest import finders
from tests.examples.coder.scripted import Call, Script, call
from tests.watched_processes import until

EXPLODING = "*a" * 20 + "*b"
"""A glob that Python's regular expressions do not get done with."""

FILES = {
    ".gitignore": "*.log\nout/\n",
    "a.py": "import os\nprint('needle')\n",
    "src/b.py": "needle = 1\n",
    "src/c.txt": "a Needle here\n",
    "src/.gitignore": "secret.*\n",
    "src/secret.txt": "needle\n",
    "debug.log": "needle\n",
    "out/x.py": "needle\n",
}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository; nothing in it is committed."""
    root = tmp_path / "project"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "init", "-q")
    return root


async def found(folder: Path, *calls: Call) -> list[list[str]]:
    """The result of each call as the model sees it, in lines."""
    script = Script(list(calls), "ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(folder)).prompt("look")
    return [line.removeprefix("tool: ").splitlines() for line in script.given()[-len(calls) :]]


async def test_what_git_ignores_is_not_found(project: Path) -> None:
    listed, python, below, lines = await found(
        project,
        call("find"),
        call("find", glob="*.py"),
        call("find", path="src"),
        call("find", pattern="needle"),
    )
    assert listed == [".gitignore", "a.py", "src/"]
    assert python == ["a.py", "src/b.py"]
    assert below == [".gitignore", "b.py", "c.txt"]
    assert lines == ["a.py:2: print('needle')", "src/b.py:1: needle = 1"]


async def test_a_search_can_be_narrowed(project: Path) -> None:
    answers = await found(
        project,
        call("find", pattern="needle", path="src"),
        call("find", pattern="needle", glob="*.txt"),
        call("find", pattern="(?i)needle", glob="src/*.txt"),
        call("find", glob="**/b.py"),
    )
    assert answers == [
        ["src/b.py:1: needle = 1"],
        ["(Nothing.)"],
        ["src/c.txt:1: a Needle here"],
        ["src/b.py"],
    ]


async def test_a_file_that_is_tracked_is_found_though_it_is_ignored_and_not_once_it_is_gone(
    project: Path,
) -> None:
    git(project, "add", "-f", "debug.log", "a.py")
    (project / "a.py").unlink()
    [listed] = await found(project, call("find"))
    assert listed == [".gitignore", "debug.log", "src/"]


async def test_without_git_the_rules_of_a_gitignore_hold_and_what_is_not_a_rule_is_passed_over(
    tmp_path: Path,
) -> None:
    (tmp_path / ".gitignore").write_text("!\n/\n*.log\n")
    for path in ("a.py", "b.log", "node_modules/c.js", "src/d.log", "src/e.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "src" / "around").symlink_to(tmp_path)
    [listed] = await found(tmp_path, call("find", glob="*"))
    assert listed == [".gitignore", "a.py", "src/around", "src/e.py"]


async def test_names_that_are_not_utf8_are_shown_as_far_as_they_can_be(project: Path) -> None:
    (project / os.fsdecode(b"caf\xe9.txt")).write_text("needle\n")
    listed, lines = await found(project, call("find"), call("find", pattern="^needle$"))
    assert listed == [".gitignore", "a.py", "caf?.txt", "src/"]
    assert lines == ["caf?.txt:1: needle"]


async def test_what_is_not_text_is_passed_over(project: Path) -> None:
    (project / "binary").write_bytes(b"\0needle\n")
    os.mkfifo(project / "pipe")
    (project / "latin").write_bytes(b"needle \xe9\n")
    [lines] = await found(project, call("find", pattern="needle"))
    assert [line.partition(":")[0] for line in lines] == ["a.py", "latin", "src/b.py"]
    assert "latin:1: needle \ufffd" in lines


async def test_a_search_stays_inside_the_folder(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("needle outside\n")
    (project / "moved").mkdir()
    (project / "moved" / "a.txt").write_text("needle inside\n")
    git(project, "add", ".")
    (project / "moved" / "a.txt").unlink()
    (project / "moved").rmdir()
    (project / "moved").symlink_to(tmp_path / "outside")  # git still knows moved/a.txt
    (project / "link.txt").symlink_to(tmp_path / "outside" / "a.txt")
    [lines] = await found(project, call("find", pattern="outside"))
    assert lines == ["(Nothing.)"]


async def test_a_search_that_finds_too_much_says_so(project: Path) -> None:
    (project / "many.txt").write_text("line\n" * 600)
    [lines] = await found(project, call("find", pattern="^line"))
    assert len(lines) == 501
    assert lines[-1] == "(There is more: ask for less.)"


async def test_a_bad_expression_is_explained(project: Path) -> None:
    [[line]] = await found(project, call("find", pattern="("))
    assert "missing )" in line


def lack_an_object(project: Path) -> None:
    """Let git look for the contents of a .gitignore that is no file, and not in the repository."""
    (project / ".gitignore").write_text("nothing\n")
    git(project, "add", ".gitignore")
    git(project, "update-index", "--skip-worktree", ".gitignore")
    (project / ".gitignore").unlink()
    for kept in (project / ".git" / "objects").glob("[0-9a-f][0-9a-f]/*"):
        kept.unlink()


async def test_modules_and_hooks_in_the_project_are_not_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    for name in ("json.py", "re.py", "pathspec.py"):
        (project / name).write_text("raise SystemExit('run from the project')\n")
    lack_an_object(project)
    for name, value in {
        "core.fsmonitor": "touch was-run; false",
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(project),
        "remote.origin.uploadpack": "touch was-run; false",
    }.items():
        git(project, "config", name, value)
    listed, _ = await found(project, call("find"), call("find", pattern="print"))
    assert "json.py" in listed
    assert not (project / "was-run").exists()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(call("find", pattern="(a+)+$"), id="expression"),
        pytest.param(call("find", glob=EXPLODING), id="glob"),
        pytest.param(call("find"), id="gitignore"),
    ],
)
async def test_a_pattern_that_never_gets_done_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Call
) -> None:
    monkeypatch.setattr("toolbox.FIND_SECONDS", 0.4)
    (tmp_path / ".gitignore").write_text(EXPLODING if asked == call("find") else "")
    (tmp_path / ("a" * 120)).write_text("a" * 60 + "b\n")
    [[line]] = await found(tmp_path, asked)
    assert line == "this took more than 0.4 s: look for less"
    assert not finders(tmp_path)


async def test_a_search_can_be_cancelled_while_it_matches(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 60 + "b\n")
    script = Script(call("find", pattern="(a+)+$"))
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.prompt("look")
        await until(lambda: finders(tmp_path), 20)
        session.cancel()
        assert (await asyncio.wait_for(turn, 10)).stop_reason == "cancelled"
    assert not finders(tmp_path)
