"""A program that is stopped for a while: nothing of it runs, and nothing of it stays stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from acp_wire.processes.program import Program, launch
from tests.watched_processes import lives

Until = Callable[..., None]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")

NAMES = ("agent", "shell", "own session", "stripped")


def command(folder: Path) -> list[str]:
    """An agent whose children write a letter to a file of their own, again and again: one in its
    group, one with a session of its own, and one without its variables, too. Each writes its pid
    first."""
    code = f"""
import os, subprocess
loop = 'echo $$ >"$0"; while :; do printf x >>"$0"; sleep 0.01; done'
where = {str(folder)!r} + "/"
for name, before in (
    ("shell", []),
    ("own session", ["setsid"]),
    ("stripped", ["setsid", "env", "-i", "PATH=" + os.environ["PATH"]]),
):
    subprocess.Popen([*before, "sh", "-c", loop, where + name])
os.execvp("sh", ["sh", "-c", loop, where + "agent"])
"""
    return [sys.executable, "-S", "-E", "-c", code]


def pid_in(file: Path) -> int:
    text = file.read_text() if file.exists() else ""
    return int(text.partition("\n")[0]) if "\n" in text else 0


def pids(folder: Path) -> list[int]:
    """The pids of all four, once they write."""
    found = [pid_in(folder / name) for name in NAMES]
    return found if all(found) else []


def sizes(folder: Path) -> list[int]:
    return [(folder / name).stat().st_size for name in NAMES]


def are_stopped(found: list[int]) -> bool:
    return all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in found)


@pytest.fixture
def program(tmp_path: Path, until: Until) -> Iterator[Program]:
    """That agent, with all its children."""
    started = launch(command(tmp_path))
    until(lambda: pids(tmp_path))
    yield started
    started.abandon()
    assert not any(map(lives, pids(tmp_path)))


def test_nothing_of_a_stopped_program_runs_until_it_goes_on(
    program: Program, tmp_path: Path, until: Until
) -> None:
    program.stop()
    until(lambda: are_stopped(pids(tmp_path)))
    before = sizes(tmp_path)
    program.stop()  # once more changes nothing
    assert sizes(tmp_path) == before
    program.go_on()
    until(lambda: all(now > was for now, was in zip(sizes(tmp_path), before, strict=True)))


def test_what_somebody_else_has_stopped_stays_so(
    program: Program, tmp_path: Path, until: Until
) -> None:
    other = pid_in(tmp_path / "own session")
    os.kill(other, signal.SIGSTOP)
    until(lambda: are_stopped([other]))
    program.stop()
    program.go_on()
    until(lambda: not are_stopped([pid_in(tmp_path / "agent")]))
    assert are_stopped([other])


def test_a_stopped_program_ends_without_running_again(
    program: Program, tmp_path: Path, until: Until
) -> None:
    program.stop()
    until(lambda: are_stopped(pids(tmp_path)))
    before = sizes(tmp_path)
    assert program.end()
    assert not any(map(lives, pids(tmp_path)))
    assert sizes(tmp_path) == before


def test_a_program_whose_starter_is_killed_while_it_is_stopped_ends_at_once(
    tmp_path: Path, until: Until
) -> None:
    code = f"""
import sys
from acp_wire.processes.program import launch
program = launch({command(tmp_path)!r})
sys.stdin.readline()
program.stop()
print("stopped", flush=True)
sys.stdin.readline()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        until(lambda: pids(tmp_path))
        starter.stdin.write(b"\n")
        starter.stdin.flush()
        assert starter.stdout.readline() == b"stopped\n"
        starter.kill()
    until(lambda: not any(map(lives, pids(tmp_path))))
