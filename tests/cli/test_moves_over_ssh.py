"""`acphold continue --on` and `--bring-from`: a conversation goes to another machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from acphold.journal.rows import RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.cli.test_ssh import ACPHOLD, journal_of, there, write  # noqa: F401 - a fixture
from tests.raw_entries import CONVERSATION, ended, prompt
from tests.snapshots.conftest import Project

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, there: Path) -> Project:  # noqa: F811 - the fixture
    """A clone on each machine, and a session here whose files were kept."""
    (tmp_path / "work").mkdir()
    made = Project(tmp_path / "work")
    made.git("init", "-q", "-b", "main")
    made.write("a.txt", "before\n")
    made.commit()
    made.git("clone", "-q", str(made.top), str(there / "code"))
    made.write("a.txt", "after\n")
    made.write("new.txt", "new\n")
    made.write(".env", "TOKEN=x")
    return made


async def keep(journal: Path, project: Project) -> None:
    opened = open_journal(journal)
    await opened.change("aa-1", RowChange(cwd=str(project.top)))
    project.stores = await stores_of(opened)
    taken = project.take()
    row = TurnSnapshot(
        turn=0,
        edge="end",
        root=str(project.top),
        at=1,
        state="whole",
        store=taken.store,
        tree=taken.tree,
        commit=taken.head.commit,
        left_out=tuple((one.path, one.why) for one in taken.left_out),
        left_out_count=taken.left_out_count,
    )
    await opened.snapshots.keep("aa-1", [row])
    await opened.aclose()


def test_a_conversation_goes_with_its_files_and_comes_back(
    acphold: CommandLine,
    journal: Path,
    there: Path,  # noqa: F811 - the fixture
    project: Project,
) -> None:
    remember(journal, "aa-1", *CONVERSATION, title="T", cwd=str(project.top))
    asyncio.run(keep(journal, project))
    remember(journal_of(there), "known", prompt("x"), ended(), cwd=str(there / "code"))
    done = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert done.code == 0, done.err
    laid = there / "code-aa1"
    assert done.out.splitlines() == [
        "“T” now continues on me@there",
        f"  in {laid} there",
        f"  its files are in a new work tree of {there}/code",
        f"  `git -C {there}/code worktree remove --force {laid}` removes it, with every change "
        "there that no branch has",
        "  Files in .gitignore, if any, were not copied, nor 1 file (.env).",
        "  here you can still read it; `acphold continue aa-1 --from last` continues a copy",
        "To continue: acphold continue --host me@there aa-1",
    ]
    assert project.status(laid) == " M a.txt\0?? new.txt\0"
    assert "on me@there" in acphold.run("list").out
    assert "continues on me@there" in acphold.run("show", "aa-1").out
    assert "Make it friendlier" in acphold.run_as_process("show", "--host", "me@there", "aa-1").out
    for words in (["continue", "aa-1"], ["ask", "x", "--session", "aa-1"]):
        refused = acphold.run(*words)
        assert refused.code != 0
        assert "continues on me@there; `acphold continue aa-1 --from last`" in refused.err
    again = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert "“T” had already moved to me@there" in again.out
    # It comes back, without files; its agent is unknown here, which is said behind that.
    back = acphold.run_as_process(
        "continue", "--bring-from", "me@there", "aa-1", "--no-files", "--cwd", str(project.top)
    )
    assert "aa-1 was moved here from me@there" in back.out
    assert "without its files: you did not ask for them" in back.out
    assert acphold.run("list").out.count("on me@there") == 0
    assert f"on {os.uname().nodename}" in acphold.run_as_process("list", "--host", "me@there").out


def test_errors_of_the_other_machine_and_of_the_way_there_are_said(
    acphold: CommandLine,
    journal: Path,
    there: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    remember(journal, "aa-1", *CONVERSATION, title="T", cwd="/nowhere/at/all")
    refused = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert refused.code == 1
    assert "knows neither the folder '/nowhere/at/all' nor a clone of its project" in refused.err
    assert "name a folder there with --cwd" in refused.err
    none = acphold.run_as_process("continue", "--bring-from", "me@there", "zz")
    assert "no session id begins with 'zz'" in none.err + none.out
    write(tmp_path / "bin" / "ssh", "#!/bin/sh\necho 'me@there: Permission denied' >&2; exit 255\n")
    lost = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert "(me@there: Permission denied); start the same command again" in lost.err
    assert acphold.run("list").out.count("on me@there") == 0


def test_another_session_than_the_one_asked_for_does_not_come(
    acphold: CommandLine,
    there: Path,  # noqa: F811 - the fixture
) -> None:
    remember(journal_of(there), "bb-2", *CONVERSATION, title="T", cwd=str(there))
    real = ACPHOLD.format(python=shlex.quote(sys.executable))
    liar = real.replace('"$@"', "move-end give bb-2")
    assert liar != real
    write(there / ".local" / "bin" / "acphold", liar)
    refused = acphold.run_as_process(
        "continue", "--bring-from", "me@there", "aa-1", "--cwd", str(there)
    )
    assert refused.code == 1
    assert "you asked for session 'aa-1', but the other machine offers 'bb-2'" in refused.err
    assert "bb-2" not in acphold.run("list").out
    for text in ("bb", "-"):  # both find a session on the other machine
        came = acphold.run_as_process(
            "continue", "--bring-from", "me@there", text, "--cwd", str(there)
        )
        assert "bb-2" in came.out
        assert "is already here" in came.out or "was moved here" in came.out


def test_a_map_of_folders_names_the_folder_here(
    acphold: CommandLine,
    journal: Path,
    there: Path,  # noqa: F811 - the fixture
) -> None:
    remember(journal, "aa-1", *CONVERSATION, title="T", cwd="/Users/me/work/src")
    (settings := there / ".config" / "acphold").mkdir(parents=True)
    (there / "mine" / "src").mkdir(parents=True)
    (settings / "settings.toml").write_text('[folders]\n"/Users/me/work" = "~/mine"\n')
    done = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert done.code == 0, done.err
    assert f"  in {there}/mine/src there" in done.out
    (settings / "settings.toml").write_text('[folders]\n"work" = "~/mine"\n')
    wrong = acphold.run_as_process("continue", "aa", "--on", "me@there")
    assert "[folders] 'work': both must be absolute paths" in wrong.err
