"""A program in front: the terminal's keys are for it, and it is gone when nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from pathlib import Path

import pytest

from acp_wire.errors import AgentStartError
from acphold.machine.foreground import ForegroundProgram, run_in_front
from tests.screen_terminal import terminal
from tests.watched_processes import until

DEADLINE = 20

HOST = """
import asyncio, fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal controls jobs here
from acphold.machine.foreground import ForegroundProgram, run_in_front
code = asyncio.run(run_in_front(ForegroundProgram([sys.executable, "-c", sys.argv[1]])))
print("it ended with", code, flush=True)
print("typed:", input(), flush=True)
"""

INTERRUPTED = """
import os, sys, time
while os.tcgetpgrp(0) != os.getpgrp():  # it is given the terminal behind its start
    time.sleep(0.01)
try:
    print("in front", flush=True)
    while True:  # a signal between two system calls would not end a wait in one
        time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_ctrl_c_is_for_the_program_in_front_and_the_terminal_comes_back() -> None:
    with terminal([sys.executable, "-c", HOST, INTERRUPTED], dict(os.environ)) as one:
        one.until("in front")
        one.type("\x03")
        one.until("it ended with 7")
        one.type("hello\r")
        one.until("typed: hello")
        assert one.ended() == 0


async def test_a_program_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    noted = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {noted}.half; mv {noted}.half {noted}; sleep 1000"]
    running = asyncio.create_task(run_in_front(ForegroundProgram(command), (theirs, theirs)))
    async with asyncio.timeout(DEADLINE):
        await until(noted.exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    os.close(ours)
    os.close(theirs)


async def test_what_is_not_there_or_not_on_a_terminal_is_an_error_of_ours() -> None:
    with pytest.raises(AgentStartError, match="no-such-program"):
        await run_in_front(ForegroundProgram(["no-such-program"]))
    ours, theirs = os.pipe()
    with pytest.raises(AgentStartError, match="sh"):
        await run_in_front(ForegroundProgram(["sh", "-c", "true"]), (ours, theirs))
    os.close(ours)
    os.close(theirs)
