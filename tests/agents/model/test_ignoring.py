"""The rules of .gitignore, compared with what git itself says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.model.ignoring import glob_pattern, is_ignored, read_rules

PATHS = ("a", "a.py", "b.txt", "a/b.txt", "a/c/b.txt", "c/a.py", "c/a/x", "build/x", "c/build/x")

LINES = st.sampled_from(
    [
        *("a", "/a", "a/", "*.py", "!a.py", "**/b.txt", "a/**", "a/**/b.txt", "/c/*", "!c/a.py"),
        *("build/", "b?txt", "[ab].txt", "[!a].txt", "# a", "", "\\#a", "c/a", "*", "!*/", "a*"),
    ]
)


def ours(text: str) -> set[str]:
    """The paths that are left out, asked about as a walk does: folders first."""
    rules = [read_rules("", text)]
    ignored = set()
    for path in PATHS:
        names = path.split("/")
        above = ("/".join(names[:count]) for count in range(1, len(names)))
        if any(is_ignored(folder, True, rules) for folder in above) or is_ignored(
            path, False, rules
        ):
            ignored.add(path)
    return ignored


def gits(text: str, folder: Path) -> set[str]:
    (folder / ".gitignore").write_text(text)
    asked = "\n".join(PATHS)
    command = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(
        command, cwd=folder, input=asked, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@settings(max_examples=40, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=4))
def test_rules_mean_what_they_mean_to_git(lines: list[str], repository: Path) -> None:
    text = "\n".join(lines)
    assert ours(text) == gits(text, repository)


def test_an_inner_file_has_the_last_word() -> None:
    rules = [read_rules("", "*.log"), read_rules("a/", "!keep.log")]
    assert is_ignored("a/other.log", False, rules)
    assert not is_ignored("a/keep.log", False, rules)


def test_what_version_control_keeps_is_left_out_without_rules() -> None:
    assert is_ignored(".git", True, [])
    assert is_ignored("web/node_modules", True, [])


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a/b/c.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/test_*.py", "src/a/b/test_x.py", True),
        ("src/**/test_*.py", "src/test_x.py", True),
        ("**/x", "x", True),
    ],
)
def test_a_glob_with_a_slash_is_about_the_whole_path(glob: str, path: str, fits: bool) -> None:
    assert (glob_pattern(glob).fullmatch(path) is not None) == fits
