"""Nothing is left behind, also when acphold itself is killed with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acp_wire.processes import process_tree
from acp_wire.processes.guardian import VARIABLE, Guard, Marking
from acp_wire.processes.program import launch
from tests.watched_processes import family, lives, pids

Until = Callable[..., None]
Agent = Callable[[str], list[str]]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")

NO_GROUP = -1

TERM = 1 << (signal.SIGTERM - 1)
"""The bit of SIGTERM, the last that the guardian sets aside, in the masks of /proc."""


class Acphold:
    """A process that launches a command as acphold does, and waits."""

    def __init__(self, command: list[str]) -> None:
        code = f"""
import time
from acp_wire.processes.program import launch
program = launch({command!r})
print(program.pid, program.guard.pid, flush=True)
time.sleep(60)
"""
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.agent, self.guardian = map(int, self.process.stdout.readline().split())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[Callable[[list[str]], Acphold]]:
    """`start(command)`: an Acphold around `command`, killed after the test."""
    started = []

    def run(command: list[str]) -> Acphold:
        started.append(Acphold(command))
        return started[-1]

    yield run
    for acphold in started:
        acphold.kill()


def inner_acphold(innermost: list[str]) -> list[str]:
    """One that launches another command as acphold does, and ignores SIGTERM."""
    code = f"""
import signal, time
from acp_wire.processes.program import launch
signal.signal(signal.SIGTERM, signal.SIG_IGN)
launch({innermost!r})
time.sleep(60)
"""
    return [sys.executable, "-c", code]


def test_when_acphold_is_killed_all_that_its_agents_started_ends(
    start: Callable[[list[str]], Acphold], agent: Agent, pid_file: Path, until: Until
) -> None:
    plain = agent(family(pid_file))
    deaf = agent(family(pid_file, ignore_term=True))
    kept, died = [*map(start, (plain, deaf))], [start(deaf)]
    count = 6
    if sys.platform == "linux":  # marks are read from /proc
        apart = agent(family(pid_file, ignore_term=True, setsid=True))
        kept += map(start, (apart, inner_acphold(apart)))
        # Neither environment nor session are its parent's.
        orphan = f"env -i setsid sh -c 'echo $$ >> {pid_file}; exec sleep 60' &"
        died.append(start(["sh", "-c", orphan]))
        count += 5
    until(lambda: len(pids(pid_file)) == count)
    os.kill(died[0].agent, signal.SIGKILL)
    until(lambda: not any(lives(acphold.agent) for acphold in died))
    assert all(lives(acphold.agent) for acphold in kept)
    for acphold in (*kept, *died):
        acphold.kill()
    everyone = [pid for it in (*kept, *died) for pid in (it.agent, it.guardian)]
    until(lambda: not any(map(lives, [*pids(pid_file), *everyone])))


def test_an_agent_that_ends_at_eof_is_given_the_time_for_it(
    start: Callable[[list[str]], Acphold],
    agent: Agent,
    tmp_path: Path,
    until: Until,
) -> None:
    saved = tmp_path / "saved"
    acphold = start(agent(f"sys.stdin.read(); time.sleep(0.3); open({str(saved)!r}, 'w').close()"))
    acphold.kill()
    until(lambda: not lives(acphold.agent) and not lives(acphold.guardian))
    assert saved.exists()


@linux_only
def test_the_guardian_outlives_the_signals_of_a_terminal(
    start: Callable[[list[str]], Acphold], until: Until, agent: Agent
) -> None:
    acphold = start(agent("time.sleep(60)"))
    assert os.getsid(acphold.guardian) == acphold.guardian
    status = Path(f"/proc/{acphold.guardian}/status")
    until(lambda: int(status.read_text().split("SigIgn:")[1].split()[0], 16) & TERM != 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        os.kill(acphold.guardian, number)
    acphold.kill()
    until(lambda: not lives(acphold.agent) and not lives(acphold.guardian))


def test_a_dismissed_guardian_ends_and_touches_nobody(agent: Agent, pid_file: Path) -> None:
    guard = Guard()
    bystander = subprocess.Popen(
        agent("time.sleep(60)"), start_new_session=True, env=guard.environment({})
    )
    pid_file.write_text(str(bystander.pid))
    guard.watch(bystander.pid)
    guardian = guard.pid
    assert guardian is not None
    assert lives(guardian)
    guard.dismiss()
    assert not lives(guardian)
    guard.dismiss()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_guardian_that_was_killed_disturbs_nothing(agent: Agent) -> None:
    program = launch(agent("sys.stdin.read()"))
    assert program.guard.pid is not None
    os.kill(program.guard.pid, signal.SIGKILL)
    program.abandon()


@linux_only
def test_a_guardian_is_no_part_of_what_an_outer_guard_ends(
    start: Callable[[list[str]], Acphold], agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = Guard()
    monkeypatch.setenv(VARIABLE, outer.mark)
    acphold = start(agent("time.sleep(60)"))
    reached = process_tree.living(NO_GROUP, outer.mark)
    assert acphold.agent in reached
    assert acphold.guardian not in reached


def test_ending_what_has_ended_already_takes_no_time(agent: Agent) -> None:
    program = launch(agent("pass"))
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert process_tree.end(program.pid, program.guard.mark, grace=0)
    program.abandon()


@linux_only
def test_another_program_that_starts_at_the_same_time_is_told_from_it(agent: Agent) -> None:
    guard = Guard()
    with Marking(guard):
        stranger = subprocess.Popen(agent("time.sleep(60)"))
    assert f" {guard.mark} " in Path(f"/proc/{stranger.pid}/limits").read_text()
    assert guard.mark not in Path("/proc/self/limits").read_text()
    assert process_tree.living(NO_GROUP, guard.mark) == set()
    stranger.kill()
    stranger.wait()


def test_a_strangers_group_is_not_what_we_look_at(agent: Agent) -> None:
    program = launch(agent("pass"))
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert os.getpid() not in process_tree.living(program.pid, program.guard.mark)
    program.abandon()
