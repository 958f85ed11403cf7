"""`acphold continue --files`: a conversation with the files of that moment, somewhere else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import turn_spans
from acphold.journal.journal import history
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.origins.kept import kept
from tests.raw_entries import CONVERSATION, ended, prompt, said
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def project(journal: Path, tmp_path: Path) -> Project:
    """A session of two turns, with the files at the end of both."""
    made = begun(tmp_path)
    made.write("a.txt", "before\n")
    made.commit()
    remember(journal, "aa-1", *CONVERSATION, prompt("And now?"), said("Now."), ended(), title="T")
    asyncio.run(keep(journal, made))
    return made


async def keep(journal: Path, project: Project) -> None:
    opened = open_journal(journal)
    await opened.change("aa-1", RowChange(cwd=str(project.top)))
    project.stores = await stores_of(opened)
    rows = []
    for number, span in enumerate(await turn_spans(history(opened, "aa-1")), 1):
        project.write("a.txt", f"turn {number}\n")
        project.write(".env", "TOKEN=x")
        rows.append(kept(project, span.first - 1, "end", "whole", number))
    await opened.snapshots.keep("aa-1", rows)
    await opened.aclose()


def test_the_new_session_is_in_a_new_work_tree_with_the_files_of_its_last_turn(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("continue", "aa", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert (tmp_path / "new" / "a.txt").read_text() == "turn 2\n"
    assert f"its files are in {tmp_path}/new" in done.err
    assert "Files in .gitignore, if any, were not copied, nor 1 file (.env)." in done.err
    assert project.status(tmp_path / "new") == " M a.txt\0"
    assert f"{tmp_path}/new" in acphold.run("show", done.out.strip()).out


def test_the_command_that_is_printed_removes_the_work_tree_and_says_what_is_lost(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("continue", "aa", "--files", str(tmp_path / "a fork"))
    (tmp_path / "a fork" / "untracked.txt").write_text("mine")
    [(command, loss)] = re.findall("`(git .*)` removes it, (.*)", done.err)
    assert loss == "with every change there that no branch has"
    subprocess.run(["sh", "-c", command], cwd="/", check=True)
    assert not (tmp_path / "a fork").exists()
    assert project.git("worktree", "list").count("\n") == 1


@pytest.mark.parametrize(
    ("state", "said"), [("late", "taken late: they may"), ("likely", "likely as they were: the")]
)
def test_files_that_may_be_others_than_at_the_end_of_the_turn_are_said_to_be_so(
    acphold: CommandLine,
    journal: Path,
    project: Project,
    tmp_path: Path,
    state: Literal["late", "likely"],
    said: str,
) -> None:
    async def mark() -> None:
        opened = open_journal(journal)
        *_, last = await opened.snapshots.of("aa-1")
        await opened.snapshots.keep("aa-1", [replace(last, state=state)])
        await opened.aclose()

    asyncio.run(mark())
    done = acphold.run("continue", "aa", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert said in done.err


def test_an_entry_means_the_end_of_its_turn(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("continue", "aa-1@2", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert (tmp_path / "new" / "a.txt").read_text() == "turn 1\n"
    assert (project.top / "a.txt").read_text() == "turn 2\n"


def test_a_folder_with_something_in_it_and_a_session_without_files_make_no_fork(
    acphold: CommandLine, project: Project, journal: Path
) -> None:
    before = acphold.run("list", "--json").out
    refused = acphold.run("continue", "aa", "--files", str(project.top))
    assert refused.code != 0
    assert "not empty" in refused.err
    remember(journal, "bb-1", *CONVERSATION)
    before = acphold.run("list", "--json").out
    refused = acphold.run("continue", "bb", "--files", str(project.folder / "new"))
    assert refused.code != 0
    assert "no files were kept with this session" in refused.err
    assert not os.path.lexists(project.folder / "new")
    assert acphold.run("list", "--json").out == before
    both = acphold.run("continue", "aa", "--files", "x", "--cwd", str(project.folder))
    assert both.code == 2


def test_without_a_folder_the_files_are_in_a_new_one_beside_the_project(
    acphold: CommandLine, project: Project
) -> None:
    for name in ("project-fork", "project-fork-2"):
        done = acphold.run("continue", "aa-1", "--files")
        assert f"its files are in {project.folder / name}" in done.err
        assert (project.folder / name / "a.txt").read_text() == "turn 2\n"
    wrong = acphold.run("continue", "--files", "aa-1")  # the id of a copy may begin with "aa"
    assert wrong.code == 2
    assert "`acphold continue aa-1 --files`" in wrong.err


def test_before_an_entry_means_the_beginning_of_its_turn_and_the_conversation_before_it(
    acphold: CommandLine, project: Project, tmp_path: Path, journal: Path
) -> None:
    asyncio.run(begin(journal, project))
    done = acphold.run("continue", "aa", "--before", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert (tmp_path / "new" / "a.txt").read_text() == "between\n"
    shown = acphold.run("show", done.out.strip()).out
    assert "friendlier" in shown
    assert "And now?" not in shown
    first = acphold.run("continue", "aa@1", "--before", "--files", str(tmp_path / "first"))
    assert first.code != 0
    assert "no turn before that one" in first.err
    assert not (tmp_path / "first").exists()
    plain = acphold.run("continue", "aa-1", "--before")
    assert "And now?" not in acphold.run("show", plain.out.strip()).out


async def begin(journal: Path, project: Project) -> None:
    """A snapshot at the beginning of the second turn."""
    opened = open_journal(journal)
    project.write("a.txt", "between\n")
    taken = project.take()
    last = (await opened.snapshots.of("aa-1"))[-1]
    await opened.snapshots.keep("aa-1", [replace(last, edge="begin", tree=taken.tree)])
    await opened.aclose()


def test_ignored_files_that_the_project_names_are_copied_on_request(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    project.write(".gitignore", "/local.toml\n/cache/\n")
    project.write(".worktreeinclude", ".env\n/local.toml\n/new.txt\n")
    project.write("local.toml", "x = 1\n")
    project.write("cache/big")
    project.write("new.txt")
    done = acphold.run("continue", "aa-1", "--files", str(tmp_path / "without"))
    assert "Files in .gitignore, if any, were not copied, nor 1 file (.env). --include" in done.err
    done = acphold.run("continue", "aa-1", "--files", str(tmp_path / "with"), "--include")
    assert "copied as they are now: 2 ignored files (.env, local.toml)" in done.err
    assert (tmp_path / "with" / "local.toml").read_text() == "x = 1\n"
    assert {*os.listdir(tmp_path / "with")} == {".git", "a.txt", ".env", "local.toml"}
