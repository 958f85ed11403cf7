"""Patches that git takes: real `git apply` makes the new file of the old one, and the other way."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from acphold.conversation.reports import line_changes, session_diff
from acphold.conversation.reports.file_edits import ABSENT, FileText
from acphold.conversation.reports.session_diff import part_patch, whole_patch


def git_apply(folder: Path, patch: str, *options: str) -> str:
    """Apply a patch; returns git's complaints."""
    done = subprocess.run(
        ["git", "apply", *options, "-"],
        cwd=folder,
        input=patch.encode(),
        capture_output=True,
        check=False,
        # No surrounding repository's settings for white space apply.
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_DIR": "/nonexistent", "LC_ALL": "C"},
    )
    return done.stderr.decode() if done.returncode else ""


def put(folder: Path, path: str, text: FileText) -> None:
    if isinstance(text, str):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())


def found(folder: Path, path: str) -> FileText:
    file = folder / path
    return file.read_bytes().decode() if file.exists() else ABSENT


def applies(path: str, before: FileText, after: FileText, patch: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        put(folder, path, before)
        assert git_apply(folder, patch, "--check") == ""
        assert git_apply(folder, patch) == ""
        assert found(folder, path) == after
        assert git_apply(folder, patch, "-R") == ""
        assert found(folder, path) == before


LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "+d", "-e", "@@", "\r", "é\u2028f", "\\"]))
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@pytest.fixture(autouse=True)
def few_characters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts are compared in several steps."""
    monkeypatch.setattr(session_diff, "COMPARED_CHARACTERS", 4)


@given(TEXTS, TEXTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_becomes_any_other(before: str, after: str) -> None:
    patch = whole_patch("file.txt", before, after)
    if before == after:
        assert patch == ""
    else:
        applies("file.txt", before, after, patch)


@pytest.mark.parametrize(
    "path",
    ["a b/c d.txt", 'quo"te', "back\\slash", "tab\tin it", "new\nline", "ümläut/文件", "-dash"],
)
@pytest.mark.parametrize("before", ["one\n", ABSENT])
def test_any_name_is_written_as_git_reads_it(path: str, before: FileText) -> None:
    applies(path, before, "two\n", whole_patch(path, before, "two\n"))


@pytest.mark.parametrize("text", ["one\ntwo\n", "no newline", ""])
def test_files_are_made_and_deleted(text: str) -> None:
    applies("new.txt", ABSENT, text, whole_patch("new.txt", ABSENT, text))
    applies("old.txt", text, ABSENT, whole_patch("old.txt", text, ABSENT))


def test_changes_that_are_far_apart_are_hunks_of_their_own() -> None:
    before = [f"{number}\n" for number in range(40)]
    after = ["first\n", *before[1:20], "middle\n", *before[21:], "last\n"]
    patch = whole_patch("f", "".join(before), "".join(after))
    assert patch.count("\n@@ ") == 3
    assert patch.count("\n ") == 3 + 6 + 3
    applies("f", "".join(before), "".join(after), patch)


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.sampled_from([None, 7]))
def test_lines_that_both_begin_or_end_with_change_nothing_but_numbers(
    head: str, before: str, after: str, tail: str, line: int | None
) -> None:
    old, new = head + before + tail, head + after + tail
    found = whole_patch("f", old, new), part_patch("f", old, new, line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_diff, "_same", lambda *_: 0)  # all lines are made
        assert found == (whole_patch("f", old, new), part_patch("f", old, new, line))


def test_so_many_lines_that_comparing_them_takes_long_are_taken_for_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_changes, "CLOSE_STEPS", 0)
    before = "".join(f"{number}\n" for number in range(20))
    after = before.replace("3\n", "x\n").replace("9\n", "y\n")
    applies("f", before, after, whole_patch("f", before, after))


def test_the_same_line_thousands_of_times_on_both_sides_is_not_compared() -> None:
    before = "".join(f"x\na{n}\n" for n in range(4000))
    after = before.replace("a", "b")
    hunk = whole_patch("f", before, after).partition("@@\n")[2]
    assert hunk.startswith(" x\n-a0\n-x\n-a1\n")


# -- a part of a file -----------------------------------------------------------------------------

WHOLE = [f"line {number}" for number in range(1, 31)]


def part(first: int, last: int, *, end: str = "\n") -> tuple[str, str]:
    """Lines of the file, and their new version: the middle one has changed."""
    lines = WHOLE[first - 1 : last]
    changed = list(lines)
    changed[len(lines) // 2] = "changed"
    return "\n".join(lines) + end, "\n".join(changed) + end


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize(("first", "last"), [(1, 7), (10, 16), (24, 30), (1, 30), (12, 14)])
def test_lines_of_a_file_are_found_in_it(first: int, last: int, end: str, is_told: bool) -> None:
    old, new = part(first, last, end=end)
    patch = part_patch("f", old, new, first if is_told else None)
    if patch is None:  # three lines, and no word of where they stand
        assert (first, last, end, is_told) == (12, 14, "", False)
        return
    whole = "\n".join(WHOLE) + "\n"
    middle = first + (last - first + 1) // 2
    after = whole.replace(f"line {middle}\n", "changed\n")
    applies("f", whole, after, patch)


def test_a_whole_file_without_a_newline_at_its_end_is_one_too() -> None:
    before = "\n".join(WHOLE[:9])
    after = before.replace("line 1\n", "changed\n", 1)
    patch = part_patch("f", before, after, None)
    assert patch is not None
    applies("f", before, after, patch)
