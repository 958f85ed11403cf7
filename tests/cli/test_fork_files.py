"""`acphold fork --files`: a conversation with the files of that moment, somewhere else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from acphold.history.turn_spans import turn_spans
from acphold.hub.kept_files import stores_of
from acphold.journal import RowChange, history
from acphold.journal.snapshots import TurnSnapshot
from acphold.journal.stores import open_journal
from tests.cli.command_line import CommandLine
from tests.cli.conversation import CONVERSATION, ended, prompt, remember, said
from tests.snapshots.conftest import Project


@pytest.fixture
def project(journal: Path, tmp_path: Path) -> Project:
    """A session of two turns, with the files at the end of both."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Project(folder)
    made.git("init", "-q")
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
        taken = project.take()
        rows.append(
            TurnSnapshot(
                turn=span.first - 1,
                edge="end",
                root=str(project.top),
                at=number,
                state="whole",
                store=taken.store,
                tree=taken.tree,
                commit=taken.head.commit,
                left_out=tuple((one.path, one.why) for one in taken.left_out),
                left_out_count=taken.left_out_count,
            )
        )
    await opened.snapshots.keep("aa-1", rows)
    await opened.aclose()


def test_the_new_session_is_in_a_new_work_tree_with_the_files_of_its_last_turn(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("fork", "aa", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert (tmp_path / "new" / "a.txt").read_text() == "turn 2\n"
    assert f"its files are in {tmp_path}/new" in done.err
    assert "not in it: ignored files and 1 file left out (.env)" in done.err
    assert f"git worktree remove {tmp_path}/new" in done.err
    assert project.status(tmp_path / "new") == " M a.txt\0"
    assert f"{tmp_path}/new" in acphold.run("show", done.out.strip()).out


def test_an_entry_means_the_end_of_its_turn(
    acphold: CommandLine, project: Project, tmp_path: Path
) -> None:
    done = acphold.run("fork", "aa-1@2", "--files", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert (tmp_path / "new" / "a.txt").read_text() == "turn 1\n"
    assert (project.top / "a.txt").read_text() == "turn 2\n"


def test_a_folder_with_something_in_it_and_a_session_without_files_make_no_fork(
    acphold: CommandLine, project: Project, journal: Path
) -> None:
    before = acphold.run("list", "--json").out
    refused = acphold.run("fork", "aa", "--files", str(project.top))
    assert refused.code != 0
    assert "not empty" in refused.err
    remember(journal, "bb-1", *CONVERSATION)
    before = acphold.run("list", "--json").out
    refused = acphold.run("fork", "bb", "--files", str(project.folder / "new"))
    assert refused.code != 0
    assert "no files were kept with this session" in refused.err
    assert not os.path.lexists(project.folder / "new")
    assert acphold.run("list", "--json").out == before
    both = acphold.run("fork", "aa", "--files", "x", "--cwd", str(project.folder))
    assert both.code == 2


def test_deleting_the_session_removes_its_files(acphold: CommandLine, project: Project) -> None:
    for store in project.stores:
        for tree in os.listdir(os.path.join(store.path, "fresh")):
            store.was_named(tree)
    assert acphold.run("delete", "--yes", "aa").code == 0
    assert list(project.stores) == []
