"""Work trees of sessions on the command line: begun, brought back, deleted with their session."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from acphold.safety.snapshots.branches import NewTree, new_tree
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.cli.place import Place
from tests.cli.test_fork_files import keep
from tests.editor import scripted_agent
from tests.raw_entries import CONVERSATION
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    monkeypatch.setenv("HOME", str(home))
    made = begun(tmp_path)
    made.write("a.txt", "a\n")
    made.write(".gitignore", ".env\n")
    made.write(".worktreeinclude", ".env\n")
    made.commit()
    made.write(".env", "TOKEN=x")
    return made


@pytest.fixture
def tree(project: Project, journal: Path) -> NewTree:
    """A session in a work tree, with a commit and a file that is not committed."""
    made = new_tree(str(project.top))
    Path(made.cwd, "a.txt").write_text("a\nb\n")
    project.git("commit", "-qam", "Add b", at=Path(made.cwd))
    Path(made.cwd, "c.txt").write_text("c\n")
    remember(journal, "aa-1", *CONVERSATION, title="Add more", cwd=made.cwd)
    return made


def branches(project: Project) -> list[str]:
    return project.git("branch", "--format=%(refname:short)").split()


# -- begun ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chat_begins_in_a_work_tree_which_stays_once_something_was_said(
    place: Place, project: Project
) -> None:
    words = ("chat", "--worktree", "--include", "--cwd", str(project.top), "--")
    done = place.run(*words, *scripted_agent(), typed="Begin\n")
    assert done.returncode == 0, done.stderr
    folder = Path(f"{project.top}-work")
    assert f"It works in {folder}, on the branch acphold/work" in done.stderr
    assert (folder / ".env").read_text() == "TOKEN=x"
    assert stat.S_ISREG((folder / "a.txt").stat().st_mode)
    assert str(folder) in place.here("list").out
    # From there, another one.
    done = place.run("chat", "--worktree", "--cwd", str(folder), "--", *scripted_agent())
    assert f"{folder}-2" in done.stderr


@pytest.mark.slow
def test_nothing_is_left_of_a_work_tree_in_which_nothing_was_said_or_no_agent_starts(
    place: Place, project: Project
) -> None:
    folder, before = Path(f"{project.top}-work"), branches(project)
    words = ("chat", "--worktree", "--cwd", str(project.top), "--")
    silent = place.run(*words, *scripted_agent())
    assert f"Nothing is left of {folder}" in silent.stderr
    broken = place.run(*words, "sh", "-c", "exit 3")
    assert broken.returncode != 0
    assert f"Nothing is left of {folder}" in broken.stderr
    assert not folder.exists()
    assert branches(project) == before
    missing = place.run(*words, "/nothing/there")
    assert missing.returncode != 0
    assert not folder.exists()


def test_a_work_tree_is_for_a_new_session_here(acphold: CommandLine, tmp_path: Path) -> None:
    for more in (["--continue"], ["--resume", "aa"]):
        assert acphold.run("chat", "--worktree", *more).code == 2
    assert acphold.run("chat", "--include").code == 2
    refused = acphold.run("chat", "--worktree", "--cwd", str(tmp_path), "--", "true")
    assert "in no git repository" in refused.err


@pytest.mark.slow
def test_a_copy_with_files_whose_agent_does_not_start_leaves_nothing(
    place: Place, project: Project, tmp_path: Path
) -> None:
    import asyncio

    remember(place.journal, "aa-1", *CONVERSATION, title="T")
    asyncio.run(keep(place.journal, project))
    there = tmp_path / "there"
    with place.on_terminal(
        "continue", "aa", "--files", str(there), "--", "sh", "-c", "exit 3"
    ) as it:
        it.until("exit")
        assert it.ended() != 0
    assert not there.exists()
    assert len(place.here("list", "--json").out.splitlines()) == 1


# -- brought back ----------------------------------------------------------------------------


def test_without_a_yes_it_says_what_would_come_and_prints_the_command(
    acphold: CommandLine, project: Project, tree: NewTree
) -> None:
    done = acphold.run("session", "merge", "aa")
    assert done.code == 0, done.err
    target = project.git("branch", "--show-current").strip()
    lines = done.out.splitlines()
    assert lines[0] == f"“Add more”: acphold/work → {target} in {project.top}"
    assert lines[1:4] == ["  1 file not committed:", "    c.txt", "  they stay there"]
    assert lines[4:8] == ["  1 commit:", "    Add b", "  1 file:", "    a.txt +1 -0"]
    assert lines[8:] == ["To merge it:", f"  git -C {project.top} merge acphold/work"]
    assert (project.top / "a.txt").read_text() == "a\n"


def test_with_a_yes_it_commits_with_the_title_and_merges(
    acphold: CommandLine, project: Project, tree: NewTree
) -> None:
    done = acphold.on_terminal("session", "merge", "aa", typed=b"y\ny\n")
    assert done.code == 0, done.out
    assert "Commit them as “Add more”?" in done.out
    assert "Merged into" in done.out
    assert (project.top / "c.txt").read_text() == "c\n"
    assert project.git("log", "-1", "--format=%s %an").strip() == "Add more Ada"
    assert "nothing to merge" in acphold.run("session", "merge", "aa", "--yes").out


def test_changes_in_the_same_file_and_conflicts_are_refused_in_words(
    acphold: CommandLine, project: Project, tree: NewTree
) -> None:
    (project.top / "a.txt").write_text("mine\n")
    refused = acphold.run("session", "merge", "aa", "--yes")
    assert refused.code == 1
    assert "has uncommitted changes in the same files:\n    a.txt\n" in refused.err
    project.git("commit", "-qam", "Mine")
    refused = acphold.run("session", "merge", "aa", "--yes")
    assert refused.code == 1
    assert "git finds conflicts in 1 file:\n    a.txt\n" in refused.out
    assert f"git -C {project.top} merge acphold/work" in refused.out
    project.git("reset", "-q", "--hard", "HEAD~")
    (project.top / "other.txt").write_text("mine")
    left = acphold.run("session", "merge", "aa", "--yes")
    assert f"Your own git has to merge it: {project.top} has uncommitted changes." in left.out
    assert (project.top / "a.txt").read_text() == "a\n"


def test_a_work_tree_that_is_gone_is_noticed_and_its_commits_still_come(
    acphold: CommandLine, project: Project, tree: NewTree, journal: Path
) -> None:
    shutil.rmtree(tree.cwd)
    done = acphold.run("session", "merge", "aa", "--yes")
    assert f"{tree.cwd} was deleted: what was not committed there is lost" in done.out
    assert "Merged into" in done.out
    assert (project.top / "a.txt").read_text() == "a\nb\n"
    remember(journal, "bb-2", *CONVERSATION, cwd=str(project.top))
    refused = acphold.run("session", "merge", "bb")
    assert (refused.code, "is no work tree beside a repository" in refused.err) == (2, True)


# -- deleted ---------------------------------------------------------------------------------


def test_deleting_a_session_asks_about_its_work_tree_and_branch(
    acphold: CommandLine, project: Project, tree: NewTree, journal: Path
) -> None:
    remember(journal, "bb-2", *CONVERSATION, cwd=tree.cwd)
    shared = acphold.on_terminal("session", "delete", "bb", typed=b"y\n")
    assert "work tree" not in shared.out  # another session works there
    done = acphold.on_terminal("session", "delete", "aa", typed=b"y\ny\n")
    target = project.git("branch", "--show-current").strip()
    losses = f"with 1 commit that {target} lacks and 1 uncommitted file"
    asked = f"Also delete its work tree {tree.cwd} and the branch acphold/work, {losses}?"
    assert asked in done.out.replace("\n", "")
    assert not os.path.exists(tree.cwd)
    assert branches(project) == [target]


def test_without_a_terminal_the_work_tree_stays_and_it_is_said(
    acphold: CommandLine, project: Project, tree: NewTree
) -> None:
    done = acphold.run("session", "delete", "aa", "--yes")
    assert f"Its work tree {tree.cwd} and the branch acphold/work" in done.err
    assert done.err.rstrip().endswith("stays.")
    assert os.path.exists(tree.cwd)
    assert "acphold/work" in branches(project)


def test_a_locked_work_tree_stays(acphold: CommandLine, project: Project, tree: NewTree) -> None:
    project.git("worktree", "lock", tree.cwd)
    done = acphold.on_terminal("session", "delete", "aa", typed=b"y\ny\n")
    assert "is locked (without a reason) stays" in done.out.replace("\n", "")
    assert os.path.exists(tree.cwd)
