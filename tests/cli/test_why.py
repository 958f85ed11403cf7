"""`acphold why`: the prompt behind a line, or a commit; and the lines of unknown origin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from acphold.faces.cli.why import _text
from acphold.live.origins.why import LineOrigin, LineRun
from acphold.safety.snapshots.checkouts import Checkout
from tests.cli.command_line import CommandLine
from tests.origins.kept import KeptSession, edit
from tests.raw_entries import Raw
from tests.snapshots.conftest import Project, begun, digest

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = begun(tmp_path)
    made.write("cart.py", "def total(items):\n    return 0\n")
    made.commit("begin")
    monkeypatch.chdir(made.top)
    return made


def asked(call: str, rule: str = "") -> list[Raw]:
    """The question about a call, and its answer: by a rule, or by a person."""
    params = {
        "toolCall": {"toolCallId": call, "title": "Edit cart.py"},
        "options": [{"optionId": "y", "name": "Allow", "kind": "allow_once"}],
    }
    question = {"id": f"q{call}", "method": "session/request_permission", "params": params}
    answer: dict[str, object] = {
        "question": f"q{call}",
        "outcome": "answered",
        "result": {"outcome": {"outcome": "selected", "optionId": "y"}},
    }
    if rule:
        answer["rule"] = {"numbers": [3], "texts": [rule], "at": 1}
    else:
        answer["client"] = {"name": "Zed", "version": "1"}
    return [("question", json.dumps(question).encode()), ("answer", json.dumps(answer).encode())]


@pytest.fixture
def session(journal: Path, project: Project) -> KeptSession:
    """A turn with an edit and a command, a change by hand, a turn with an edit; all committed."""
    made = KeptSession(journal, project)

    def first() -> None:
        project.write("cart.py", "def total(items):\n    return sum(items)\n")
        project.write("lock.txt", "made by a command\n")

    def second() -> None:
        text = (project.top / "cart.py").read_text()
        project.write("cart.py", text + "\n\ndef empty():\n    return []\n")

    one = edit("1", "cart.py", "    return 0\n", "    return sum(items)\n")
    made.turn(f"Sum up, with {SECRET} @team <b>", *asked("1"), one, does=first)
    project.write("cart.py", (project.top / "cart.py").read_text() + "# by hand\n")
    two = edit("2", "cart.py", "# by hand\n", "# by hand\n\n\ndef empty():\n    return []\n")
    made.turn("Now an empty one", *asked("2", "edit src/**"), two, does=second)
    project.write("cart.py", (project.top / "cart.py").read_text() + "last = 1\n")
    project.commit("squashed")
    return made


LINES = {
    1: ["Unknown: 1 line: cart.py 1", "it existed before"],
    2: ["“Sum up, with", "aa-1@1 · turn 1 · claude", "allowed: answered in Zed with “Allow”"],
    3: ["Unknown: 1 line: cart.py 3", "between two turns"],
    6: ["“Now an empty one”", "turn 2", "allowed: by your rule 3: edit src/**"],
    8: ["Unknown: 1 line: cart.py 8", "in no snapshot"],
}


def test_a_line_leads_to_its_prompt_or_is_unknown(
    acphold: CommandLine, session: KeptSession
) -> None:
    for line, words in LINES.items():
        done = acphold.run("why", f"cart.py:{line}")
        assert done.code == 0, done.err
        assert [word for word in words if word not in done.out] == []
        assert ("Unknown" in done.out) == ("Unknown" in words[0])
    absolute = acphold.run("why", f"{session.project.top}/cart.py:8").out
    assert absolute.splitlines()[1:] == done.out.splitlines()[1:]


def test_what_a_command_made_is_said_to_be_seen_and_not_shown(
    acphold: CommandLine, session: KeptSession
) -> None:
    said = acphold.run("why", "lock.txt:1").out
    assert "  new in this turn, but not shown by the agent: lock.txt 1\n" in said
    assert "a command of the agent, you, or another session made it" in said
    assert "allowed" not in said


def test_a_commit_leads_to_all_its_prompts_whatever_was_done_to_it(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    before = digest(project.top / ".git")
    whole = [
        json.loads(it) for it in acphold.run("why", "HEAD", "--format", "json").out.splitlines()
    ]
    known = {(it["path"], it["firstLine"], it["lastLine"]): (it["how"], it["turn"]) for it in whole}
    assert known == {
        ("cart.py", 2, 2): ("shown", 1),
        ("cart.py", 3, 3): ("unknown", None),
        ("cart.py", 4, 7): ("shown", 2),
        ("cart.py", 8, 8): ("unknown", None),
        ("lock.txt", 1, 1): ("seen", 1),
    }
    assert digest(project.top / ".git") == before
    project.git("commit", "-q", "--amend", "-m", "another message", "--date", "2001-01-01T00:00")
    project.git("checkout", "-q", "-b", "other", "HEAD~1")
    project.write("first.txt", "upstream\n")
    project.commit()
    project.git("rebase", "-q", "other", "main")
    for name in ("main", "HEAD", project.git("rev-parse", "HEAD").strip()[:9]):
        again = acphold.run("why", name, "--format", "json")
        assert [json.loads(it) for it in again.out.splitlines()] == whole
    assert "Unknown: 1 line: first.txt 1" in acphold.run("why", "other").out


def test_a_block_for_a_pull_request_has_no_secret_and_notifies_nobody(
    acphold: CommandLine, session: KeptSession
) -> None:
    said = acphold.run("why", "HEAD", "--pr").out
    assert said.startswith("### Prompts\n\n- Sum up, with ")
    assert SECRET not in said
    assert "@team" not in said
    assert "<b>" not in said
    assert "6 of 8 lines came from these turns; the others did not, or nobody knows." in said
    assert acphold.run("why", "HEAD", "--pr", "--format", "json").code == 2


def test_what_is_not_there_is_refused(acphold: CommandLine, session: KeptSession) -> None:
    for target in ("cart.py:99", "cart.py:0", "nothing.py:1", "nobranch", "--all", "HEAD~7"):
        done = acphold.run("why", "--", target)
        assert (done.code, done.out) == (2, "")
    assert "add a line: acphold why cart.py:1" in acphold.run("why", "cart.py").err
    assert "no commit 'nobranch' here" in acphold.run("why", "nobranch").err
    assert "no file 'nothing.py'" in acphold.run("why", "nothing.py:1").err


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a folder")
def test_a_line_of_kept_files_that_are_read_only_leads_to_its_prompt(
    journal: Path, session: KeptSession
) -> None:
    at = str(journal.parent)
    mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounts, at]
    asking = [*alone, sys.executable, "-P", "-m", "acphold", "--journal", str(journal)]
    done = subprocess.run([*asking, "why", "cart.py:2"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [word for word in LINES[2] if word not in done.stdout] == []
    done = subprocess.run([*asking, "diff", "aa-1@1"], capture_output=True, text=True)
    assert "made by a command" in done.stdout, done.stderr
    (lock,) = journal.parent.glob("*-files/*/lock")
    lock.unlink()
    done = subprocess.run([*asking, "why", "cart.py:2"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_kept_files_that_cannot_be_read_are_named(
    acphold: CommandLine, session: KeptSession, journal: Path
) -> None:
    (lock,) = journal.parent.glob("*-files/*/lock")
    lock.unlink()
    lock.mkdir()
    done = acphold.run("why", "cart.py:2")
    assert (done.code, done.out) == (2, "")
    assert "cart.py:2: " in done.err
    assert str(lock) in done.err


def test_names_and_reasons_are_printed_without_control_characters() -> None:
    said = [LineRun("a\x1b[2Jb", 1, 1, LineOrigin("unknown", reason="gone\x1b]0;evil\x07"))]
    assert "\x1b" not in "".join(_text("a\x1bb", said, {}, {}))


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_line_is_known_under_another_name_of_its_file_and_a_moved_one_is_of_no_new_turn(
    acphold: CommandLine,
    journal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    project = begun(tmp_path, f"--object-format={kind}")
    monkeypatch.chdir(project.top)
    session = KeptSession(journal, project)
    lines = [f"number_{number} = {number}\n" for number in range(8)]

    def rename(old: str, new: str, *more: str) -> None:
        text = (project.top / old).read_text()
        (project.top / old).unlink()
        project.write(new, text + "".join(more))

    session.turn(
        "Begin",
        edit("1", "one.py", None, "".join(lines)),
        does=lambda: project.write("one.py", "".join(lines)),
    )
    session.turn("Rename", does=lambda: rename("one.py", "two.py", "added_here = 1\n"))
    rename("two.py", "three.py")
    session.turn("Go on")
    session.turn("And back", does=lambda: rename("three.py", "one.py", "added_last = 1\n"))

    def tear() -> None:
        (project.top / "one.py").unlink()
        project.write("torn.py", "".join([lines[0], *(f"other_{n} = {n}\n" for n in range(30))]))

    project.commit()
    told = acphold.run("why", "HEAD").out
    assert "“Begin”" in told
    assert "shown by the agent: one.py 1-8" in told
    assert "not shown by the agent: one.py 9" in told
    assert "not shown by the agent: one.py 10" in told
    session.turn("Tear", does=tear)
    assert "Unknown: 1 line: torn.py 1\n" in acphold.run("why", "torn.py:1").out
    assert "“Tear”" in acphold.run("why", "torn.py:2").out
    assert acphold.run("diff", session.id).code == 0


def test_a_line_is_known_in_a_work_tree_of_its_repository_that_no_session_had(
    acphold: CommandLine, session: KeptSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.project.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path / "other")
    assert "“Now an empty one”" in acphold.run("why", "cart.py:6").out


def test_a_line_of_a_repository_that_no_session_had_is_unknown(
    acphold: CommandLine, session: KeptSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange").mkdir()
    strange = begun(tmp_path / "strange")
    strange.write("cart.py", "def total(items):\n    return sum(items)\n")
    monkeypatch.chdir(strange.top)
    done = acphold.run("why", "cart.py:2")
    assert done.code == 0, done.err
    assert "Unknown: 1 line: cart.py 2\n" in done.out
    assert "there is no snapshot of this file" in done.out


def test_a_file_of_a_kept_folder_that_is_no_repository_has_an_answer(
    acphold: CommandLine, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    plain = Project(tmp_path / "plain")
    monkeypatch.setattr("tests.snapshots.conftest.checkout_of", Checkout)
    session = KeptSession(journal, plain)
    session.turn("Begin", does=lambda: plain.write("deep/a.txt", "made\n"))
    assert "“Begin”" in acphold.run("why", f"{plain.top}/deep/a.txt:1").out
    (tmp_path / "b.txt").write_text("x\n")
    done = acphold.run("why", f"{tmp_path}/b.txt:1")
    assert (done.code, done.out) == (2, "")
    assert "is not in a git repository, and was not kept" in done.err


def test_nothing_of_a_hostile_repository_runs(
    acphold: CommandLine, session: KeptSession, project: Project, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    trap = project.write(".git/trap", f"#!/bin/sh\ntouch {marker}\n")
    trap.chmod(0o755)
    with (project.top / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {trap}\n\thooksPath = .git\n\tpager = {trap}\n")
        config.write(f'[diff]\n\texternal = {trap}\n[diff "x"]\n\ttextconv = {trap}\n')
        config.write(f'[filter "x"]\n\tclean = {trap}\n\tsmudge = {trap}\n[blame]\n')
        config.write("\tignoreRevsFile = /dev/stdin\n[include]\n\tpath = /dev/stdin\n")
    project.write(".gitattributes", "* diff=x filter=x\n")
    for target in ("HEAD", "cart.py:2"):
        assert "turn 1" in acphold.run("why", target).out
    assert acphold.run("diff", "aa").code == 0
    assert not os.path.lexists(marker)


@pytest.mark.parametrize(
    ("name", "most"), [("MOST_VERSIONS", 3), ("MOST_BYTES", 15 * 23)], ids=["versions", "bytes"]
)
def test_of_too_many_versions_the_oldest_are_left_out_and_the_answer_says_so(
    acphold: CommandLine,
    journal: Path,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    most: int,
) -> None:
    session = KeptSession(journal, project)
    lines = [f"line_{number} = 'is number {number}'\n" for number in range(6)]
    for number in range(1, 7):
        session.turn(
            f"Line {number}", does=partial(project.write, "many.py", "".join(lines[:number]))
        )
    known = acphold.run("why", "many.py:1-6", "--format", "json").out.splitlines()
    assert [json.loads(it)["turn"] for it in known] == [1, 2, 3, 4, 5, 6]
    monkeypatch.setattr(f"acphold.live.origins.snapshot_versions.{name}", most)
    first, *others = map(
        json.loads, acphold.run("why", "many.py:1-6", "--format", "json").out.splitlines()
    )
    assert (first["how"], first["firstLine"], first["lastLine"]) == ("unknown", 1, 4)
    assert first["reason"].startswith("it may be in one of the 3 oldest")
    assert [it["turn"] for it in others] == [5, 6]


def test_edits_of_too_many_bytes_are_left_out_the_oldest_first(
    acphold: CommandLine, journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = KeptSession(journal, project)
    one, two, three = (f"line_{number} = 'is number {number}'\n" for number in range(3))
    edits = edit("1", "many.py", None, one), edit("2", "many.py", one, one + two)
    session.turn("Two", *edits, does=lambda: project.write("many.py", one + two))
    third = edit("3", "many.py", two, two + three)
    session.turn("And one", third, does=lambda: project.write("many.py", one + two + three))
    monkeypatch.setattr("acphold.live.origins.snapshot_versions.MOST_BYTES", 120)
    done = acphold.run("why", "many.py:1-3", "--format", "json")
    first, last = map(json.loads, done.out.splitlines())
    assert (first["how"], "were left out" in first["reason"]) == ("unknown", True)
    assert (last["how"], last["turn"]) == ("shown", 2)


def test_all_answers_to_questions_about_one_edit_are_named(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    session = KeptSession(journal, project)
    new = "    return sum(items)\n"
    one = edit("1", "cart.py", "    return 0\n", new)
    other = [(kind, raw.replace(b'"q1"', b'"q2"')) for kind, raw in asked("1", "edit **")]
    session.turn(
        "Sum up",
        *(*asked("1"), *other, one),
        does=lambda: project.write("cart.py", f"def total(items):\n{new}"),
    )
    said = acphold.run("why", "cart.py:2").out
    assert "allowed: answered in Zed with “Allow”; by your rule 3: edit **\n" in said


def test_a_line_that_was_shown_is_shown_though_a_command_changed_more_of_the_file(
    acphold: CommandLine, journal: Path, project: Project
) -> None:
    session = KeptSession(journal, project)
    new = "    return sum(items)\n"
    one = edit("1", "cart.py", "    return 0\n", new)
    text = f"import command\ndef total(items):\n{new}"
    session.turn("Sum up", one, does=lambda: project.write("cart.py", text))
    done = acphold.run("why", "cart.py:1-3", "--format", "json")
    assert [json.loads(it)["how"] for it in done.out.splitlines()] == ["seen", "unknown", "shown"]
