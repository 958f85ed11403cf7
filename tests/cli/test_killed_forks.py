"""A fork that is killed while it lays files out leaves nothing that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.origins.kept import KeptSession
from tests.snapshots.conftest import begun


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
        [*ACPHOLD, "fork", session.id, "--files"],
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
        os.kill(killed.pid, signal.SIGKILL)
    assert (folder / ".git").exists()
    said = acphold.run("doctor").out
    assert str(folder) in said
    done = acphold.run("fork", session.id, "--files")
    assert done.code == 0, done.err
    assert (folder / "a.txt").read_text() == "new\n"
    assert not [*folder.glob(".laying-*")]
    assert not Path(f"{folder}-2").exists()
    assert project.git("worktree", "list").count("\n") == 2
    assert project.status(folder) == "?? a.txt\0"
    assert str(folder) not in acphold.run("doctor").out
