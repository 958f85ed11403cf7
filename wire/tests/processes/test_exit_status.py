"""The exit of a child is noticed once, without reaping it, and put in words."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable

import pytest

from acp_wire.processes import exit_status as exits
from acp_wire.processes.exit_status import ExitWatch, describe, exit_status

Agent = Callable[[str], list[str]]


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-9, "signal SIGKILL"),
        (-35, "signal SIG35"),
        (None, "an unknown exit status"),
    ],
)
def test_every_end_has_words(status: int | None, words: str) -> None:
    assert describe(status) == words


@pytest.mark.parametrize("pidfd", [True, False])
async def test_the_end_of_a_child_is_told_once_and_leaves_it_to_be_reaped(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    if not pidfd:  # as on macOS
        monkeypatch.setattr(exits, "open_pidfd", lambda pid: None)
    child = started(agent("sys.exit(3)"))
    told: asyncio.Queue[int | None] = asyncio.Queue()
    watch = ExitWatch(asyncio.get_running_loop(), child.pid, told.put_nowait)
    async with asyncio.timeout(10):
        assert await told.get() == 3
    assert exit_status(child.pid) == 3
    watch.stop()
    child.communicate(timeout=10)
    assert child.returncode == 3
    assert told.empty()


@pytest.mark.parametrize("pidfd", [True, False])
async def test_whoever_calls_off_the_watch_of_an_exit_is_told_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    if not pidfd:
        monkeypatch.setattr(exits, "open_pidfd", lambda pid: None)
    before = len(os.listdir("/dev/fd"))
    child = started(agent("sys.stdin.read()"))
    told: list[int | None] = []
    watch = ExitWatch(asyncio.get_running_loop(), child.pid, told.append)
    watch.stop()
    child.communicate(timeout=10)
    await asyncio.sleep(0)
    assert told == []
    assert len(os.listdir("/dev/fd")) == before


def test_a_child_that_somebody_else_reaped_has_no_status(agent: Agent) -> None:
    child = started(agent("pass"))
    child.communicate(timeout=10)
    assert exit_status(child.pid) is None
