"""An agent that runs as a child process, as asyncio sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from acphold.processes.exit_status import describe, exit_status, open_pidfd
from acphold.processes.launch import reap
from acphold.transports.pipes import FLUSH_SECONDS, PipeTransport
from acphold.transports.stderr import StderrReader

if TYPE_CHECKING:
    from acphold.processes.launch import Launched

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""What a program gets for each step of its end: at EOF, after SIGTERM, after SIGKILL."""


class ChildProcess:
    """A launched program: `transport` is its stdin and stdout; its stderr is always read.

    To be made inside a running event loop, and to be closed in every case: until then a program
    that has ended stays in the process table, so that its number keeps meaning its own group.
    """

    def __init__(
        self,
        launched: Launched,
        *,
        log_path: str | os.PathLike[str] | None = None,
        relay_fd: int | None = 2,
    ) -> None:
        self._launched = launched
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int | None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self.transport = PipeTransport(launched.stdout_fd, launched.stdin_fd)
        self._stderr = StderrReader(launched.stderr_fd, log_path=log_path, relay_fd=relay_fd)
        self._watch_exit()
        if launched.guard.pid is None:
            log.warning(
                "there is no /bin/sh to guard the agent: kill -9 of acphold leaves it behind"
            )

    @property
    def pid(self) -> int:
        """The number of the process and of its process group."""
        return self._launched.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, -N for signal N; None while it runs or when the system did not tell."""
        return self._exited.result() if self._exited.done() else None

    def stderr_tail(self, lines: int = 10) -> str:
        """The last `lines` lines that it wrote to stderr, as far as 64 KiB hold them."""
        return self._stderr.tail(lines)

    async def wait(self) -> str:
        """Wait until the program ends; return `exit status 3` or `signal SIGKILL`."""
        return describe(await asyncio.shield(self._exited))

    async def aclose(self, grace: float = GRACE_SECONDS) -> None:
        """End the program and all that it started; return when they are gone; may be called again.

        EOF on its stdin, then SIGTERM, then SIGKILL, each followed by up to `grace` seconds; the
        program's own end at EOF costs no wait. Cancelling this does not stop the ending.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(grace), name="end child process")
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        try:
            await self.transport.hang_up(min(grace, FLUSH_SECONDS))
            await self._exit_within(grace)
        finally:
            gone = False
            try:
                # In a thread: it waits, and it reads /proc. Once begun it runs to its end.
                gone = await self._loop.run_in_executor(None, self._launched.end, grace)
                await self._exit_within(grace)
            finally:
                await self._release(gone=gone)

    async def _exit_within(self, seconds: float) -> None:
        await asyncio.wait([self._exited], timeout=seconds)

    async def _release(self, *, gone: bool) -> None:
        """Close what is ours; whoever still waits for the exit is told."""
        self._settle(None)
        if gone:  # else the guardian still watches this number: it must not be given away
            reap(self.pid)
        self._stderr.close()
        await self.transport.aclose()

    def _watch_exit(self) -> None:
        pidfd = open_pidfd(self.pid)
        if pidfd is not None:
            self._loop.add_reader(pidfd, self._on_exit, pidfd)
        else:
            threading.Thread(
                target=self._wait_in_thread, name="wait for agent", daemon=True
            ).start()

    def _on_exit(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._settle(exit_status(self.pid))

    def _wait_in_thread(self) -> None:
        status = exit_status(self.pid)
        with suppress(RuntimeError):  # the loop has closed meanwhile: nobody asks any more
            self._loop.call_soon_threadsafe(self._settle, status)

    def _settle(self, status: int | None) -> None:
        if not self._exited.done():
            self._stderr.read_rest()  # its last words, for whoever reports the exit
            self._exited.set_result(status)
