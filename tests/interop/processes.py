"""The processes a test starts, however deep: found by a mark in their environment, and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

import psutil

from tests.plugin import pause_after
from tests.watched_processes import below, started_with

MARK = "ACPHOLD_INTEROP_MARK"

GONE_SECONDS = 8.0
"""For everything to end after the client has left: acphold gives an agent some seconds."""

Gone = (psutil.NoSuchProcess, psutil.AccessDenied)


class Family:
    """Every process that carries the mark, and every one that such a process ever started.

    The second kind is acphold's guardian, which has an environment of its own; it is known from
    when it was seen as a child.
    """

    def __init__(self) -> None:
        self._mark = uuid4().hex
        self._known: set[psutil.Process] = set()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment to start the first of them with."""
        return {**os.environ, MARK: self._mark, **more}

    def living(self) -> list[psutil.Process]:
        """Those that run, oldest first; zombies do not."""
        known = {process.pid for process in self._known if _runs(process)}
        new = started_with(MARK, self._mark)
        new = (new | {child for pid in known | new for child in below(pid)}) - known
        for pid in new:
            with suppress(*Gone):
                self._known.add(psutil.Process(pid))
        return sorted(filter(_runs, self._known), key=lambda process: process.create_time())

    async def kill(self) -> None:
        """SIGKILL to all at one instant: nobody gets to see that another one is gone."""
        deadline = time.monotonic() + GONE_SECONDS
        while living := self.living():
            assert time.monotonic() < deadline, f"not to be killed: {_named(living)}"
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in living:
                    with suppress(*Gone):
                        process.send_signal(number)
            await asyncio.sleep(0.01)

    def kill_only(self, command: Sequence[str]) -> None:
        """SIGKILL to those that run `command`; fails when there is none."""
        start = list(command)
        found = [process for process in self.living() if _command(process)[: len(start)] == start]
        assert found, f"nobody runs {command}"
        for process in found:
            process.kill()

    async def gone(self, seconds: float = GONE_SECONDS) -> None:
        """Return when none is left; fail after `seconds`, having killed them."""
        deadline = time.monotonic() + seconds
        began = time.monotonic()
        while living := self.living():
            if time.monotonic() > deadline:
                left = _named(living)
                await self.kill()
                raise AssertionError(f"left behind: {left}")
            await asyncio.sleep(pause_after(time.monotonic() - began))
            began = time.monotonic()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except Gone:
        return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except Gone:
        return []


def _named(processes: list[psutil.Process]) -> str:
    return "; ".join(f"{process.pid} {' '.join(_command(process))[:200]}" for process in processes)
