"""A fork that is killed before its session is there leaves nothing that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.origins.kept import KeptSession
from tests.snapshots.conftest import begun

pytestmark = pytest.mark.slow


def test_the_next_fork_takes_the_same_folder_and_nothing_is_left_of_the_killed_one(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    project = begun(tmp_path)
    for number in range(3000):
        project.write(f"folder/{number}.txt", f"{number}\n")
    project.commit()
    session = KeptSession(journal, project)
    session.turn("Go", does=lambda: project.write("a.txt", "new\n"))
    folder = Path(f"{project.top}-fork")
    with subprocess.Popen(
        [*ACPHOLD, "continue", session.id, "--files"],
        env=acphold.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:
        deadline = time.monotonic() + SECONDS
        while not [*folder.glob(".laying-*")]:
            assert time.monotonic() < deadline
            assert killed.poll() is None
            time.sleep(0.001)
        os.kill(killed.pid, signal.SIGSTOP)
        writing = psutil.Process(killed.pid).children(recursive=True)
        os.kill(killed.pid, signal.SIGKILL)
    assert not psutil.wait_procs(writing, SECONDS)[1]  # git goes on for a moment by itself
    assert (folder / ".git").exists()
    said = acphold.run("doctor").out
    assert str(folder) in said
    done = acphold.run("continue", session.id, "--files")
    assert done.code == 0, done.err
    assert (folder / "a.txt").read_text() == "new\n"
    assert not [*folder.glob(".laying-*")]
    assert not Path(f"{folder}-2").exists()
    assert project.git("worktree", "list").count("\n") == 2
    assert project.status(folder) == "?? a.txt\0"
    assert str(folder) not in acphold.run("doctor").out


KILLED = """
import os, signal
from acphold.live.hub import kept_files
fork = kept_files.fork
async def killed(*words, **named):
    {first}
    os.kill(os.getpid(), signal.SIGKILL)
kept_files.fork = killed
from acphold.__main__ import main
main()
"""
"""Runs acphold until a fork with files has laid them out: then it is killed."""


def killed_late(acphold: CommandLine, session: KeptSession, first: str = "pass") -> Path:
    """Kill a fork at the moment when its session is made, or behind that; return its folder."""
    words = [sys.executable, "-c", KILLED.format(first=first), "continue", session.id, "--files"]
    done = subprocess.run(
        words, env=acphold.environment, capture_output=True, timeout=SECONDS, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = Path(f"{session.project.top}-fork")
    assert (folder / "a.txt").read_text() == "new\n"
    return folder


@pytest.fixture
def session(journal: Path, tmp_path: Path) -> KeptSession:
    project = begun(tmp_path)
    project.write("folder/b.txt", "b\n")
    project.commit()
    session = KeptSession(journal, project)
    session.turn("Go", does=lambda: project.write("a.txt", "new\n"))
    return session


def test_one_that_is_killed_with_all_files_laid_out_is_removed_by_the_next(
    acphold: CommandLine, session: KeptSession
) -> None:
    folder = killed_late(acphold, session)
    assert str(folder) in acphold.run("doctor").out
    done = acphold.run("continue", session.id, "--files")
    assert done.code == 0, done.err
    assert not Path(f"{folder}-2").exists()
    assert session.project.git("worktree", "list").count("\n") == 2
    assert str(folder) not in acphold.run("doctor").out


def test_one_in_which_somebody_has_changed_something_since_stays(
    acphold: CommandLine, session: KeptSession
) -> None:
    folder = killed_late(acphold, session)
    (folder / "folder" / "b.txt").write_text("mine\n")
    assert acphold.run("continue", session.id, "--files").code == 0
    assert (folder / "folder" / "b.txt").read_text() == "mine\n"
    assert (Path(f"{folder}-2") / "a.txt").read_text() == "new\n"
    assert str(folder) in acphold.run("doctor").out


def test_one_whose_session_is_there_already_stays(
    acphold: CommandLine, session: KeptSession
) -> None:
    folder = killed_late(acphold, session, "await fork(*words, **named)")
    assert str(folder) not in acphold.run("doctor").out
    assert acphold.run("continue", session.id, "--files").code == 0
    assert (folder / "a.txt").read_text() == "new\n"
    assert Path(f"{folder}-2").exists()
