"""A running program as a connection: its stdin and stdout, its stderr, and its end.

`processes.program` starts and ends programs; this is the part that needs an event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from acphold.processes.exit_status import ExitWatch, describe
from acphold.processes.program import GRACE_SECONDS
from acphold.transports.pipes import PipeTransport
from acphold.transports.stderr import Stderr

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from acphold.processes.program import Program

log = logging.getLogger(__name__)


class ChildProcess:
    """A launched program: `transport` is its stdin and stdout; its stderr is always read.

    Make it inside a running event loop, and close it in every case: until then a program that has
    ended stays in the process table, so that its number keeps meaning its own group.
    """

    def __init__(
        self,
        program: Program,
        *,
        log_path: str | os.PathLike[str] | None = None,
        relay_fd: int | None = 2,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> None:
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int | None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        stdin, stdout, stderr = program.fds
        self.transport = PipeTransport(stdout, stdin)
        self._stderr = Stderr(stderr, log_path=log_path, relay_fd=relay_fd, on_data=on_stderr)
        self._watch = ExitWatch(self._loop, self.pid, self._note_exit)
        if program.guard.pid is None:
            log.warning(
                "nothing could be started to guard %s: kill -9 of acphold leaves it behind",
                program.command[0],
            )

    @property
    def pid(self) -> int:
        """The number of the process and of its process group."""
        return self._program.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, -N for signal N; None while it runs or if the system did not tell."""
        return self._exited.result() if self._exited.done() else None

    def stderr_tail(self, lines: int = 10) -> str:
        """Return the last `lines` lines of its stderr, as far as 64 KiB hold them."""
        return self._stderr.tail(lines)

    def last_words(self) -> str:
        """Return its last words on stderr, out of the last 50 lines; "" for none."""
        from acphold.processes.last_words import last_words  # late: only when it has ended

        return last_words(self._stderr.tail(50))

    async def wait(self) -> str:
        """Wait until the program ends; return `exit status 3` or `signal SIGKILL`."""
        return describe(await asyncio.shield(self._exited))

    async def aclose(self, grace: float = GRACE_SECONDS) -> None:
        """End the program and everything it started; return when they are gone; may be called
        again.

        EOF on its stdin, up to `grace` seconds, SIGTERM, up to `grace` seconds, SIGKILL; a program
        that ends sooner costs no wait. Cancelling this does not stop the ending.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(grace), name="end child process")
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        deadline = self._loop.time() + grace
        try:
            await self.transport.hang_up(grace)
            await self._exit_within(deadline - self._loop.time())
        finally:
            try:
                # In a thread: it waits, and it reads /proc. Once begun it runs to its end.
                try:
                    await self._loop.run_in_executor(None, self._program.end, grace)
                except (OSError, RuntimeError):  # out of descriptors or threads
                    self._program.end(0.0)
                await self._exit_within(grace)
            finally:
                self._watch.stop()
                self._note_exit(None)  # ends any wait for the exit
                self._program.reap()
                self._stderr.close()
                await self.transport.aclose()

    async def _exit_within(self, seconds: float) -> None:
        await asyncio.wait([self._exited], timeout=max(seconds, 0))

    def _note_exit(self, status: int | None) -> None:
        if not self._exited.done():
            self._stderr.read_rest()  # its last words, to report with the exit
            self._exited.set_result(status)
