"""`acphold diff`: a patch for git on stdout; anything missing is reported on stderr."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import Raw, ended, prompt, update


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository, with a file as it was before the session."""
    (folder := tmp_path / "project").mkdir()
    (folder / "greet.py").write_text("import sys\n\nprint('hi')\n\nsys.exit()\n")
    (folder / "old name.txt").write_text("gone\n")
    git(folder, "init", "-q")
    return folder


def git(folder: Path, *words: str, input: bytes = b"") -> str:
    """Run git, which must succeed, and return its output."""
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *words],
        cwd=folder,
        input=input,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def edited(name: str, path: str, old: str | None, new: str, **fields: object) -> Raw:
    diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
    return update("tool_call", toolCallId=name, status="completed", content=[diff], **fields)


def session(journal: Path, project: Path) -> None:
    """A session of two turns: an edit of a few words and a new file, then more in both."""
    greet, new = str(project / "greet.py"), str(project / "sub" / "new.txt")
    remember(
        journal,
        "aa-1",
        prompt("Be friendlier"),
        edited("1", greet, "hi", "hello", rawInput={"old_string": "hi", "new_string": "hello"}),
        edited("2", new, None, "one\n\x1b[31mtwo\r\n"),
        ended(),
        prompt("And tidy up"),
        edited("3", greet, "import sys", "import os", rawInput={"old": "import sys"}),
        edited("4", new, "one\n", "1\n"),
        edited("5", str(project / "old name.txt"), "gone\n", "", kind="delete"),
        ended(),
        cwd=str(project),
    )


def test_git_takes_the_patch_of_a_session(
    acphold: CommandLine, journal: Path, project: Path
) -> None:
    session(journal, project)
    done = acphold.run("diff", "aa")
    only = "Only edits that the agent reported are shown: no files were kept.\n"
    assert (done.code, done.err) == (0, only)
    git(project, "apply", "--check", input=done.raw)
    git(project, "apply", input=done.raw)
    assert (project / "greet.py").read_text() == "import os\n\nprint('hello')\n\nsys.exit()\n"
    assert (project / "sub/new.txt").read_bytes() == b"1\n\x1b[31mtwo\r\n"
    assert not (project / "old name.txt").exists()
    # The same patch, now that the files are as the session left them; and undone.
    again = acphold.run("diff", "aa")
    assert again.raw == done.raw
    git(project, "apply", "--check", "-R", input=again.raw)


@pytest.mark.parametrize("turn", [("aa", "--turn", "2"), ("aa", "--turn", "-1"), ("aa@5",)])
def test_the_patch_of_one_turn_follows_that_of_the_turn_before(
    acphold: CommandLine, journal: Path, project: Path, turn: tuple[str, ...]
) -> None:
    session(journal, project)
    first = acphold.run("diff", "aa", "--turn", "1").raw
    second = acphold.run("diff", *turn).raw
    git(project, "apply", input=first)
    assert (project / "greet.py").read_text() == "import sys\n\nprint('hello')\n\nsys.exit()\n"
    git(project, "apply", "--check", input=second)
    assert acphold.run("diff", *turn).raw == second


def test_by_turn_the_patches_of_an_agents_edits_follow_one_another(
    acphold: CommandLine, journal: Path, project: Path
) -> None:
    session(journal, project)
    done = acphold.run("diff", "aa", "--by-turn")
    heads = [line for line in done.out.splitlines() if line.startswith("# ")]
    assert heads == ["# Turn 1", "# Turn 2"]
    git(project, "apply", input=done.raw)
    assert (project / "greet.py").read_text() == "import os\n\nprint('hello')\n\nsys.exit()\n"


def test_what_is_missing_is_said_and_the_rest_is_a_patch(
    acphold: CommandLine, journal: Path, project: Path
) -> None:
    session(journal, project)
    (project / "greet.py").write_text("rewritten by somebody else\n")
    done = acphold.run("diff", "aa")
    assert done.code == 1
    assert done.err.startswith("greet.py: the journal has only parts of it")
    assert "greet.py" not in done.out
    git(project, "apply", "--check", input=done.raw)


@pytest.mark.parametrize("what", ["a link", "a folder", "a pipe", "no text", "a long file"])
def test_what_is_no_file_of_the_session_is_not_read(
    acphold: CommandLine,
    journal: Path,
    project: Path,
    tmp_path: Path,
    what: str,
) -> None:
    session(journal, project)
    file = project / "greet.py"
    file.unlink()
    if what == "a link":
        (tmp_path / "secret").write_text("hi\n")
        file.symlink_to(tmp_path / "secret")
    elif what == "a folder":
        file.mkdir()
    elif what == "a pipe":
        subprocess.run(["mkfifo", str(file)], check=True)
    elif what == "no text":
        file.write_bytes(b"hi\xff\n")
    else:
        file.write_text("hi\n" + "x" * (16 << 20))
    done = acphold.run("diff", "aa", "--turn", "1")
    assert done.code == 1
    assert "greet.py" in done.err
    assert "secret" not in done.all


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("aa", "--turn", "3"), "2 turns"),
        (("aa", "--turn", "0"), "2 turns"),
        (("aa", "--turn", "-3"), "2 turns"),
        (("aa@2", "--turn", "1"), "each name a turn"),
        (("aa", "--turn", "x"), "--turn"),
    ],
)
def test_a_turn_that_is_none_is_refused(
    acphold: CommandLine, journal: Path, project: Path, words: tuple[str, ...], why: str
) -> None:
    session(journal, project)
    done = acphold.run("diff", *words)
    assert (done.code, done.out) == (2, "")
    assert why in done.err


def test_a_session_without_edits_says_so(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "aa-1", prompt("Hello"), ended())
    done = acphold.run("diff", "aa")
    assert (done.code, done.out) == (0, "")
    assert "no changed files" in done.err


def test_on_a_terminal_it_is_in_colour_and_plays_no_tricks(
    acphold: CommandLine, journal: Path, project: Path
) -> None:
    session(journal, project)
    shown = acphold.shown("diff", "aa", columns=40)
    assert "\x1b[31m-print('hi')" in shown.out
    assert "\x1b[32m+print('hello')" in shown.out
    assert "\\x1b[31mtwo" in shown.plain
    assert "diff --git a/old name.txt b/old name.txt" in shown.plain.replace("\n", "")
