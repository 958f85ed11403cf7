"""`acphold diff` of a session with snapshots: every change, with the turns in which it was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.origins.kept import KeptSession, edit
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = begun(tmp_path)
    made.write("a.txt", "one\ntwo\n")
    made.write("gone.txt", "old\n")
    made.commit()
    return made


@pytest.fixture
def session(journal: Path, project: Project) -> KeptSession:
    """Two turns: an edit that is shown, beside a command; then an edit that a command goes over."""
    made = KeptSession(journal, project)

    def first() -> None:
        project.write("a.txt", "one\nTWO\n")
        project.write("made by command.txt", "x\r\ny")
        project.write("picture.bin", b"\0\1\2" * 50)
        project.write(".env", "TOKEN=x")

    def second() -> None:
        project.write("a.txt", "ONE\nTWO\nformatted\n")
        (project.top / "gone.txt").unlink()

    made.turn("Louder", edit("1", str(project.top / "a.txt"), "two\n", "TWO\n"), does=first)
    project.write("mine.txt", "by hand\n")
    made.turn("More", edit("2", "a.txt", "one\n", "ONE\n"), does=second)
    return made


def words(text: str) -> list[str]:
    return [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]


def test_every_change_is_in_the_patch_with_what_was_seen_of_it(
    acphold: CommandLine, session: KeptSession, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("diff", "aa")
    assert done.code == 0, done.err
    assert words(done.out) == [
        "a.txt: turns 1-2",
        "gone.txt: turn 2",
        "made by command.txt: turn 1",
        "mine.txt: between turns",
        "picture.bin: turn 1",
    ]
    assert "changed between turns: mine.txt\n" in done.err
    assert "not kept, so not shown: .env (may contain a secret)" in done.err
    project.git("worktree", "add", "-q", str(tmp_path / "clean"), "HEAD")
    (tmp_path / "patch").write_bytes(done.raw)
    project.git("apply", str(tmp_path / "patch"), at=tmp_path / "clean")
    for name in ("a.txt", "made by command.txt", "mine.txt", "picture.bin"):
        assert (tmp_path / "clean" / name).read_bytes() == (project.top / name).read_bytes()
    assert not (tmp_path / "clean" / "gone.txt").exists()
    project.git("apply", "-R", str(tmp_path / "patch"), at=tmp_path / "clean")
    assert project.status(tmp_path / "clean") == ""


def test_a_file_that_was_left_out_is_not_shown_as_a_new_one_or_one_that_is_gone(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    made = KeptSession(journal, project)
    made.turn("Write", does=lambda: project.write("grows.log", "a line\n"))
    made.turn("Fill", does=lambda: os.truncate(project.top / "grows.log", 6 << 20))
    for words in (["--turn", "2"], ["--by-turn", "--turn", "2"], []):
        done = acphold.run("diff", "aa", *words)
        assert (done.out, done.code) == ("", 0)
        assert "No kept files changed." in done.err
        assert "not kept, so not shown: grows.log (larger than 5 MB)" in done.err
    made.turn("Rotate", does=lambda: os.truncate(project.top / "grows.log", 6))
    assert acphold.run("diff", "aa", "--turn", "3").out == ""
    assert "+a line" in acphold.run("diff", "aa", "--turn", "1").out


def test_a_file_of_which_only_the_staged_content_was_left_out_is_shown(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    project.git("update-index", "--cacheinfo", f"100644,{'1' * 40},a.txt")
    made = KeptSession(journal, project)
    made.turn("Go", does=lambda: project.write("a.txt", "one\n"))
    made.turn("Go on", does=(project.top / "a.txt").unlink)
    assert "deleted file" in acphold.run("diff", "aa", "--turn", "2").out
    for more in (["--turn", "1"], ["--by-turn", "--turn", "1"]):
        done = acphold.run("diff", "aa", *more)
        assert "-two" in done.out
        assert "not kept, so not shown: a.txt as it is staged (missing)" in done.err


def test_a_file_that_leaves_after_a_hundred_others_is_not_shown_as_one_that_is_gone(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    for number in range(100):
        project.write(f".env.{number}")
    project.write("old")
    made = KeptSession(journal, project)
    made.turn("Write", does=lambda: project.write("new"))  # not yet in our index
    large = b"x" * (6 << 20)
    made.turn("Fill", does=lambda: [project.write(name, large) for name in ("new", "old")])
    made.turn("Go on", does=lambda: project.write("a.txt"))
    assert acphold.run("diff", "aa", "--turn", "2").out == ""
    assert words(acphold.run("diff", "aa", "--by-turn").out)[1:] == ["Turn 3"]
    assert words(acphold.run("diff", "aa").out) == ["a.txt: turn 3"]


def test_by_turn_the_patches_follow_one_another_and_what_is_in_no_turn_is_a_line(
    acphold: CommandLine, session: KeptSession, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("diff", "aa", "--by-turn")
    assert words(done.out) == ["Turn 1", "Turn 2"]
    assert "mine.txt" not in done.out
    assert "changed between turns: mine.txt\n" in done.err
    project.git("worktree", "add", "-q", str(tmp_path / "clean"), "HEAD")
    (tmp_path / "patch").write_bytes(done.raw)
    project.git("apply", str(tmp_path / "patch"), at=tmp_path / "clean")
    assert (tmp_path / "clean" / "a.txt").read_text() == "ONE\nTWO\nformatted\n"
    last = acphold.run("diff", "aa", "--turn", "-1")
    assert words(last.out) == ["a.txt: turn 2", "gone.txt: turn 2"]
    assert "between turns" not in last.err


def test_json_has_a_line_for_each_file_or_for_each_of_a_turn(
    acphold: CommandLine, session: KeptSession
) -> None:
    whole, by_turn = (
        [json.loads(line) for line in acphold.run("diff", "aa", "--json", *more).out.splitlines()]
        for more in ([], ["--by-turn"])
    )
    assert [it["turns"] for it in whole if it["path"] == "a.txt"] == [[1, 2]]
    assert [it["turns"] for it in by_turn if it["path"] == "a.txt"] == [[1], [2]]
    [mine] = [it for it in whole if it["path"] == "mine.txt"]
    assert (mine["turns"], mine["gap"], mine["root"]) == ([], None, str(session.project.top))
    assert mine["patch"].startswith("diff --git a/mine.txt b/mine.txt\nnew file mode 100644\n")


def test_late_missing_and_refused_snapshots_are_named_and_nothing_is_ascribed_to_one_turn(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    session = KeptSession(journal, project)
    session.turn("1", does=lambda: project.write("a.txt", "1\n"), end="refused")
    session.turn("2", does=lambda: project.write("b.txt", "2\n"), begin="late", end="later")
    session.turn("3", begin="missing", end="missing")
    project.write("c.txt", "3\n")
    session.turn("4", begin="likely")
    done = acphold.run("diff", "aa")
    assert words(done.out) == ["a.txt: turns 1-2", "b.txt: turn 2", "c.txt: turn 3"]
    assert "turn 1: no snapshot of its end: it is full" in done.err
    assert (
        "turn 2: its first changes may be missing: the agent began before the snapshot" in done.err
    )
    assert "turn 2: acphold stopped during it; its last snapshot is from the next start" in done.err
    assert "turn 3: no files were kept" in done.err
    assert "turn 4" not in done.err
    assert words(acphold.run("diff", "aa", "--by-turn").out) == ["Turns 1-2", "Turn 2", "Turn 3"]


def test_sessions_at_work_in_one_folder_at_the_same_time_name_each_other(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    one = KeptSession(journal, project, "aa-1")
    other = KeptSession(journal, project, "bb-1")

    def meanwhile() -> None:
        project.write("x.txt", "x")

    one.turn("go", does=meanwhile)
    other.turn("go", does=lambda: project.write("y.txt", "y"))
    for session, its in ((one, "bb-1"), (other, "aa-1")):
        done = acphold.run("diff", session.id)
        assert f"{its} may also have changed files here meanwhile\n" in done.err


def test_without_kept_files_it_says_that_only_reported_edits_are_shown(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    session = KeptSession(journal, project)
    session.turn(
        "go",
        edit("1", "a.txt", "two\n", "TWO\n"),
        does=lambda: project.write("a.txt", "one\nTWO\n"),
        begin="refused",
        end="missing",
    )
    done = acphold.run("diff", "aa")
    assert done.out.startswith("# a.txt: turn 1\ndiff --git a/a.txt b/a.txt\n")
    assert "Only edits that the agent reported are shown: no files were kept." in done.err
    assert acphold.run("diff", "aa", "--root", str(project.top)).code == 2
    [facts] = map(json.loads, acphold.run("diff", "aa", "--json").out.splitlines())
    assert (facts["root"], facts["turns"]) == (None, [1])


def test_a_name_that_is_not_utf_8_is_in_the_json_all_the_same(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    made = KeptSession(journal, project)
    name = os.fsdecode(b"odd\xff.txt")

    def more() -> None:
        (project.top / name).write_text("new\n")

    made.turn("More", does=more)
    done = acphold.run("diff", "aa", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["path"] == "odd?.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a folder")
def test_kept_files_that_are_read_only_have_their_patch(
    journal: Path, session: KeptSession
) -> None:
    at = str(journal.parent)
    mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounts, at]
    asking = [*alone, sys.executable, "-P", "-m", "acphold", "--journal", str(journal)]
    (lock,) = journal.parent.glob("*-files/*/lock")
    for _ in ("with a lock", "without"):
        done = subprocess.run([*asking, "diff", "aa-1"], capture_output=True, text=True)
        assert "made by command.txt" in done.stdout, done.stderr
        lock.unlink(missing_ok=True)


def test_kept_files_that_cannot_be_read_are_named(
    acphold: CommandLine, journal: Path, session: KeptSession
) -> None:
    (lock,) = journal.parent.glob("*-files/*/lock")
    lock.unlink()
    lock.mkdir()
    done = acphold.run("diff", "aa-1")
    assert "the kept files cannot be read: " in done.err
    assert str(lock) in done.err
