"""An agent as a child process: its exit, its stderr, and its end with all that it started."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.processes import exit_status as exits
from acp_wire.processes.program import launch
from acp_wire.transports.child import ChildProcess
from tests.talker import DEADLINE
from tests.watched_processes import lives

Until = Callable[..., None]
Agent = Callable[[str], list[str]]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")


@asynccontextmanager
async def running(command: list[str], log_path: Path | None = None) -> AsyncIterator[ChildProcess]:
    """A child for the block, whose stderr is not passed on to ours."""
    process = ChildProcess(launch(command), log_path=log_path, relay_to=())
    try:
        async with asyncio.timeout(30):
            yield process
    finally:
        await process.aclose(grace=0.2)


async def hears(process: ChildProcess, text: bytes) -> None:
    """Receive until `text` has come."""
    data = b""
    while text not in data:
        piece = await process.transport.receive()
        assert piece, data
        data += piece


def is_known(pid: int) -> bool:
    """True if `pid` is in the process table, even as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("code", "status", "returncode"),
    [
        ("pass", "exit status 0", 0),
        ("sys.exit(3)", "exit status 3", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL", -9),
    ],
)
async def test_the_end_is_told_in_words(
    agent: Agent, code: str, status: str, returncode: int
) -> None:
    async with running(agent(code)) as process:
        assert await process.wait() == status
        assert process.returncode == returncode
        assert await process.wait() == status


async def test_the_end_is_noticed_without_waitid_too(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "waitid")
    monkeypatch.setattr(exits, "open_pidfd", lambda pid: None)
    async with running(agent("time.sleep(60)")) as process:
        pass
    assert await process.wait() == "signal SIGTERM"
    assert not is_known(process.pid)


async def test_the_last_words_on_stderr_are_there_when_the_end_is_told(agent: Agent) -> None:
    code = "[print('line', n, file=sys.stderr) for n in range(2000)]; sys.exit('the reason')"
    async with running(agent(code)) as process:
        await process.wait()
        assert process.stderr_tail(2) == "line 1999\nthe reason"
        assert len(process.stderr_tail().splitlines()) == 10


@linux_only
async def test_the_last_words_are_there_though_the_end_is_noticed_before_they_are_read(
    agent: Agent, until: Until
) -> None:
    launched = launch(agent("input(); os.write(2, b'x' * 500_000 + b'\\nthe reason')"))
    fcntl.fcntl(launched.fds[2], fcntl.F_SETPIPE_SZ, 1024 * 1024)
    process = ChildProcess(launched, relay_to=())
    process.transport.send(b"go\n")
    until(lambda: not lives(process.pid))  # meanwhile the loop stands still
    await process.wait()
    assert process.stderr_tail(1) == "the reason"
    await process.aclose()


async def test_stderr_is_logged_whole_behind_what_the_file_held(
    agent: Agent, tmp_path: Path
) -> None:
    (log := tmp_path / "agent.log").write_text("earlier\n")
    code = "sys.stderr.write('x' * 300_000 + '\\n')"
    async with running(agent(code), log_path=log) as process:
        await process.wait()
    assert log.read_text() == "earlier\n" + "x" * 300_000 + "\n"


async def test_a_log_is_ours_alone_and_one_that_cannot_be_written_does_not_stop_the_agent(
    agent: Agent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "no/such/folder"):
        caplog.clear()
        async with running(agent("sys.exit('still read')"), log_path=tmp_path / place) as process:
            await process.wait()
            assert process.stderr_tail() == "still read"
        assert "not logged" in caplog.text
    async with running(agent("sys.exit('said')"), log_path=tmp_path / "log") as process:
        await process.wait()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


FLOOD = """
line = b"x" * 99 + b"\\n"
for _ in range(500):
    os.write(2, line * 1000)
print("answer")
time.sleep(60)
"""


async def test_fifty_megabytes_of_stderr_do_not_hold_up_the_first_answer(agent: Agent) -> None:
    async with running(agent(FLOOD)) as process:
        await hears(process, b"answer")
        assert len(process.stderr_tail(10_000)) <= 64 * 1024


async def test_nobody_reading_our_own_stderr_does_not_hold_up_the_agent(agent: Agent) -> None:
    ours, unread = os.pipe()
    process = ChildProcess(launch(agent(FLOOD)), relay_to=[unread])
    async with asyncio.timeout(30):
        await hears(process, b"answer")
        await process.aclose(grace=0.2)
    assert os.read(ours, 100) == b"x" * 99 + b"\n"
    assert os.get_blocking(unread)
    os.close(ours)
    os.close(unread)


async def test_a_closed_stderr_of_ours_does_not_disturb_the_agent(agent: Agent) -> None:
    reader, broken = os.pipe()
    os.close(reader)
    process = ChildProcess(launch(agent("sys.exit('said')")), relay_to=[broken])
    await process.wait()
    assert process.stderr_tail() == "said"
    await process.aclose()
    os.close(broken)


async def test_an_agent_that_ends_at_eof_costs_no_wait(agent: Agent) -> None:
    async with running(agent("print('up'); sys.stdin.read()")) as process:
        await hears(process, b"up")
        await asyncio.wait_for(process.aclose(grace=2 * DEADLINE), DEADLINE)
        assert await process.wait() == "exit status 0"
        assert not is_known(process.pid)


async def test_an_agent_that_fills_its_stdout_still_sees_eof(agent: Agent) -> None:
    code = "print('up'); sys.stdin.read(); print('x' * 1_000_000); print('end', file=sys.stderr)"
    async with running(agent(code)) as process:
        await hears(process, b"up")
        await process.aclose(grace=20)
        assert (await process.wait(), process.stderr_tail()) == ("exit status 0", "end")


async def test_last_words_reach_a_receiver_that_waits_for_them(agent: Agent) -> None:
    async with running(agent("print('up'); sys.stdin.read(); print('bye')")) as process:
        await hears(process, b"up")
        receiving = asyncio.create_task(hears(process, b"bye"))
        await asyncio.sleep(0)
        await process.aclose()
        await receiving


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "stopped", "end"),
    [
        (
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up'); time.sleep(60)",
            False,
            "exit status 7",
        ),
        (STUBBORN, False, "signal SIGKILL"),
        ("print('up'); time.sleep(60)", True, "signal SIGKILL"),
    ],
    ids=["ignores eof", "ignores SIGTERM too", "stopped"],
)
async def test_an_agent_that_does_not_end_at_eof_gets_sigterm_and_is_killed_then(
    agent: Agent, code: str, stopped: bool, end: str
) -> None:
    async with running(agent(code)) as process:
        await hears(process, b"up")
        if stopped:
            os.kill(process.pid, signal.SIGSTOP)
        await process.aclose(grace=0.3)
        assert await process.wait() == end
        assert not is_known(process.pid)


@pytest.mark.parametrize("setsid", [False, pytest.param(True, marks=linux_only)])
@pytest.mark.parametrize("leader", ["time.sleep(60)", "sys.stdin.read()", "pass"])
async def test_children_of_the_agent_end_with_it(
    agent: Agent, pid_file: Path, until: Until, setsid: bool, leader: str
) -> None:
    code = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if {setsid}:
        os.setsid()
    open({str(pid_file)!r}, "w").write(str(os.getpid()))
    time.sleep(60)
{leader}
"""
    async with running(agent(code)) as process:
        await asyncio.to_thread(until, lambda: bool(pid_file.read_text()))
        await process.aclose(grace=0.2)
        assert not lives(int(await asyncio.to_thread(pid_file.read_text)))
        assert not is_known(process.pid)


async def test_closing_twice_and_at_once_is_one_end(agent: Agent) -> None:
    async with running(agent(STUBBORN)) as process:
        await hears(process, b"up")
        await asyncio.gather(process.aclose(grace=0.2), process.aclose(grace=0.2))
        await process.aclose(grace=60)


async def test_cancelling_a_close_does_not_stop_the_ending(agent: Agent) -> None:
    async with running(agent(STUBBORN)) as process:
        await hears(process, b"up")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await process.aclose(grace=0.2)
        assert await process.wait() == "signal SIGKILL"


def test_a_loop_that_ends_in_the_middle_of_a_close_ends_the_agent(agent: Agent) -> None:
    async def main() -> int:
        process = ChildProcess(launch(agent(STUBBORN)), relay_to=())
        await hears(process, b"up")
        closing = asyncio.create_task(process.aclose(grace=0.2))
        await asyncio.sleep(0)
        assert not closing.done()
        return process.pid

    assert not is_known(asyncio.run(main()))


async def test_closing_leaves_no_descriptor_and_no_guardian(agent: Agent) -> None:
    async with running(agent("sys.stdin.read()")):
        pass  # the executor's first thread and the like
    before = sorted(os.listdir("/dev/fd"))
    launched = launch(agent("sys.stdin.read()"))
    guardian = launched.guard.pid
    process = ChildProcess(launched, relay_to=())
    await process.aclose()
    assert sorted(os.listdir("/dev/fd")) == before
    assert guardian is not None
    assert not is_known(guardian)
