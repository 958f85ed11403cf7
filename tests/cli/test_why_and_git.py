"""`acphold why` where git brings lines into a file during a turn: whose commit it was is said, and
no prompt is named for the work of others."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.origins.kept import KeptSession, edit
from tests.snapshots.conftest import Project, begun

THEIRS = "def colleague(items):\n    return [it.price for it in items]\n"
HEAD = "def total(items):\n    return 0\n"
LAST_YEAR = "1740000000 +0000"


def git(project: Project, *words: str, name: str = "Me Myself", at: str = "", **more: Any) -> str:
    """Run git as somebody, at a time: now, if none is given."""
    when = at or f"{int(time.time())} +0000"
    people = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", "x@example"), ("DATE", when))
    }
    done = subprocess.run(
        ["git", *words],
        cwd=project.top,
        env={**os.environ, **people, "GIT_EDITOR": "true"},
        capture_output=True,
        timeout=60,
        check=not more.get("fails"),
    )
    return done.stdout.decode()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A branch with a colleague's commit of last year, and one without it that is checked out."""
    made = begun(tmp_path)
    made.write("cart.py", HEAD)
    made.write("other.py", "x = 1\n")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "begin", at=LAST_YEAR)
    git(made, "checkout", "-qb", "theirs")
    made.write("cart.py", THEIRS + HEAD)
    git(made, "commit", "-qam", "Prices of a colleague", name="Ann Other", at=LAST_YEAR)
    git(made, "checkout", "-q", "main")
    made.write("other.py", "x = 1\ny = 'mine, before the first turn'\n")
    git(made, "commit", "-qam", "mine", at=LAST_YEAR)
    monkeypatch.chdir(made.top)
    return made


@pytest.fixture
def session(journal: Path, project: Project) -> KeptSession:
    made = KeptSession(journal, project)
    made.at = int(time.time() * 1000)
    return made


def answers(acphold: CommandLine, *target: str) -> list[dict[str, Any]]:
    done = acphold.run("why", *target, "--format", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def merge(project: Project) -> None:
    git(project, "merge", "-q", "-m", "merge theirs", "theirs")


def checkout(project: Project) -> None:
    git(project, "checkout", "-q", "theirs")


def cherry_pick(project: Project) -> None:
    git(project, "cherry-pick", "theirs")


def restore(project: Project) -> None:
    git(project, "checkout", "theirs", "--", "cart.py")


def squash(project: Project) -> None:
    git(project, "merge", "-q", "--squash", "theirs")
    git(project, "pack-refs", "--all")


@pytest.mark.parametrize("brings", [merge, checkout, cherry_pick, restore, squash])
def test_a_line_that_git_brought_is_of_its_commit_and_of_no_prompt(
    acphold: CommandLine,
    session: KeptSession,
    project: Project,
    brings: Callable[[Project], None],
) -> None:
    session.turn("Take theirs", does=lambda: brings(project))
    for line in (1, 2):
        [it] = answers(acphold, f"cart.py:{line}")
        assert (it["how"], it["turn"], it["prompt"]) == ("git", None, None)
        assert "by Ann Other: “Prices of a colleague”" in it["reason"]
    said = acphold.run("why", "cart.py:1-2").out
    assert "From git: 2 lines: cart.py 1-2\n  commit " in said
    assert "Take theirs" not in said


def test_a_line_from_a_stash_came_in_from_git(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    project.write("cart.py", HEAD + "stashed = 'by hand, before the first turn'\n")
    project.write("new.py", "untracked = 'and stashed as well'\n")
    git(project, "stash", "push", "-q", "-u")
    session.turn("Put it back", does=lambda: git(project, "stash", "pop", "-q"))
    for place in ("cart.py:3", "new.py:1"):
        [it] = answers(acphold, place)
        assert (it["how"], "stash" in it["reason"]) == ("git", True)
    git(project, "prune", "--expire=now")
    [it] = answers(acphold, "cart.py:3")
    assert (it["how"], "no longer in the repository" in it["reason"]) == ("unknown", True)


def test_what_the_agent_stashes_and_pops_itself_stays_its_own(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    def work() -> None:
        project.write("cart.py", HEAD + "own = 'made by a command in this turn'\n")
        git(project, "stash", "push", "-q")
        git(project, "pull", "-q", ".", "theirs", "--no-rebase")
        git(project, "stash", "pop", "-q")

    session.turn("Update, and go on", does=work)
    [own] = answers(acphold, "cart.py:5")
    assert (own["how"], own["turn"]) == ("seen", 1)
    assert answers(acphold, "cart.py:1")[0]["how"] == "git"


def test_an_agent_that_commits_amends_and_rebases_its_own_work_keeps_it(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    first = HEAD + "shown = 'by the agent'\n"

    def write() -> None:
        project.write("cart.py", first)
        project.write("made.py", "made = 'by a command, not committed yet'\n")

    def commit() -> None:
        project.write("whole.py", "whole = 'a file that the agent wrote and committed'\n")
        git(project, "add", "-A")
        git(project, "commit", "-qm", "the agent's")
        project.write("cart.py", first + "amended = 'and shown as well'\n")
        git(project, "commit", "-qam", "the agent's", "--amend")
        git(project, "rebase", "-q", "theirs")

    shown, amended = "shown = 'by the agent'\n", "amended = 'and shown as well'\n"
    one = edit("1", "cart.py", "    return 0\n", f"    return 0\n{shown}")
    two = edit("3", "cart.py", shown, shown + amended)
    session.turn("Write", one, does=write)
    session.turn(
        "Commit and rebase",
        edit("2", "whole.py", None, "whole = 'a file that the agent wrote and committed'\n"),
        two,
        does=commit,
    )
    found = {it["path"]: it for it in answers(acphold, "HEAD") if it["path"] != "cart.py"}
    assert (found["made.py"]["how"], found["made.py"]["turn"]) == ("seen", 1)
    assert (found["whole.py"]["how"], found["whole.py"]["turn"]) == ("shown", 2)
    lines = {it["firstLine"]: (it["how"], it["turn"]) for it in answers(acphold, "cart.py:1-6")}
    assert lines == {1: ("git", None), 3: ("unknown", None), 5: ("shown", 1), 6: ("shown", 2)}


def test_a_whole_file_that_the_agent_wrote_after_a_merge_has_the_lines_of_others_too(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    whole = THEIRS + HEAD + "own = 'of the agent alone'\n"

    def work() -> None:
        merge(project)
        project.write("cart.py", whole)
        git(project, "commit", "-qam", "all of it")

    session.turn("Merge and go on", edit("1", "cart.py", None, whole), does=work)
    assert [(it["firstLine"], it["how"]) for it in answers(acphold, "cart.py:1-5")][::2] == [
        (1, "git"),
        (5, "shown"),
    ]


def test_what_a_turn_made_on_another_branch_is_still_its_own_after_a_merge(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    def branch() -> None:
        git(project, "checkout", "-qb", "feature")
        project.write("cart.py", HEAD + "feature = 'made on its branch'\n")

    session.turn("Begin", does=branch)
    git(project, "commit", "-qam", "feature")
    git(project, "checkout", "-q", "main")
    project.write("cart.py", "import prices\n" + HEAD)
    git(project, "commit", "-qam", "import")
    session.turn("Merge it", does=lambda: git(project, "merge", "-qm", "merged", "feature"))
    [it] = answers(acphold, "cart.py:4")
    assert (it["how"], it["turn"], it["prompt"]) == ("seen", 1, "Begin")


def test_a_commit_that_is_gone_is_no_reason_to_name_a_prompt(
    acphold: CommandLine, session: KeptSession, project: Project
) -> None:
    def work() -> None:
        git(project, "cherry-pick", "theirs")

    session.turn("Take it", does=work)
    git(project, "reset", "-q", "--soft", "HEAD~1")
    git(project, "branch", "-D", "theirs")
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")
    [it] = answers(acphold, "cart.py:1")
    assert (it["how"], it["turn"]) == ("unknown", None)
    assert "is no longer in the repository" in it["reason"]
