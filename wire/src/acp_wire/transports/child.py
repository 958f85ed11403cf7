"""A running program as a connection: its stdin and stdout, its stderr, and its end.

The end of its stderr is kept for error messages; all of it goes to a log file, if there is one, and
to our own stderr as far as that is read.

`processes.program` starts and ends programs; this is the part that needs an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from acp_wire.processes.exit_status import ExitWatch, describe
from acp_wire.processes.output import OutputReader
from acp_wire.processes.program import GRACE_SECONDS, Program
from acp_wire.tasks import finish
from acp_wire.transports.pipes import PipeTransport

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
"""Bytes of the end of stderr that are kept for error messages."""


MUCH = 1 << 20
"""Bytes passed on after which whoever has made the log looks at its length."""


class StderrRelay:
    """Writes to a descriptor that others share, and never waits: what does not fit is dropped.

    Shared, so without O_NONBLOCK: poll promises room for PIPE_BUF bytes, and no more is written.
    `on_much` is called after each MUCH bytes: the descriptor may be a log that has to be shortened.
    """

    on_much: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._written = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def pass_on(self, data: bytes) -> None:
        """Write as much of `data` as finds room now."""
        view = memoryview(data)
        with suppress(OSError):  # closed, or nobody reads it: then it is not wanted
            while view and self._poll.poll(0) == [(self._fd, select.POLLOUT)]:
                done = os.write(self._fd, view[: select.PIPE_BUF])
                view = view[done:]
                self._written += done
        if self._written >= MUCH:
            self._written = 0
            StderrRelay.on_much()


class ChildProcess:
    """A launched program: `transport` is its stdin and stdout; its stderr is always read.

    All of that goes to the file `log_path`; as much of it as fits at once goes to the descriptors
    `relay_to`, by default our own stderr, which may be read slowly or not at all. `on_stderr` is
    called with each piece.

    Make it inside a running event loop, and close it in every case: until then a program that has
    ended stays in the process table, so that its number keeps meaning its own group.
    """

    def __init__(
        self,
        program: Program,
        *,
        log_path: str | os.PathLike[str] | None = None,
        relay_to: Sequence[int] = (2,),
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> None:
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int | None] = self._loop.create_future()
        stdin, stdout, stderr = program.fds
        self.transport = PipeTransport(stdout, stdin)
        self._on_stderr = on_stderr
        self._tail = bytearray()
        self._log_fd: int | None = None
        if log_path is not None:
            # Readable by us only. O_NONBLOCK: a pipe that nobody reads would make us wait, when it
            # is opened and when it is full.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            try:
                self._log_fd = os.open(log_path, flags, 0o600)
            except OSError as error:
                log.warning("the agent's stderr is not logged: cannot open the log: %s", error)
        self._relays = [StderrRelay(fd) for fd in relay_to]
        self._stderr = OutputReader(self._loop, stderr, self._take_stderr)
        self._watch = ExitWatch(self._loop, self.pid, self._note_exit)
        if program.guard.pid is None:
            log.warning(
                "could not start a guardian for %s: it keeps running if acphold is killed with -9",
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
        """Return the last `lines` lines of its stderr, as far as 64 KiB hold them; bytes that are
        not UTF-8 are replaced."""
        return "\n".join(self._tail.decode(errors="replace").splitlines()[-lines:])

    def last_words(self) -> str:
        """Return its last words on stderr, out of the last 50 lines; "" for none."""
        from acp_wire.processes.last_words import last_words  # late: only when it has ended

        return last_words(self.stderr_tail(50))

    async def stop(self) -> None:
        """Stop it and all its children, until `go_on`."""
        await asyncio.to_thread(self._program.stop)

    async def go_on(self) -> None:
        """Have continue what `stop` has stopped."""
        await asyncio.to_thread(self._program.go_on)

    def say(self, words: str) -> None:
        """Write a line of our own where its stderr goes."""
        for relay in self._relays:
            relay.pass_on(f"{words}\n".encode())

    async def wait(self) -> str:
        """Wait until the program ends; return `exit status 3` or `signal SIGKILL`."""
        return describe(await asyncio.shield(self._exited))

    async def aclose(self, grace: float = GRACE_SECONDS) -> None:
        """End the program and everything it started; return when they are gone; may be called
        again.

        EOF on its stdin, up to `grace` seconds, SIGTERM, up to `grace` seconds, SIGKILL; a program
        that ends sooner costs no wait.
        """
        await finish(partial(self._close, grace))

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
                self._close_log()
                await self.transport.aclose()

    async def _exit_within(self, seconds: float) -> None:
        await asyncio.wait([self._exited], timeout=max(seconds, 0))

    def _note_exit(self, status: int | None) -> None:
        if not self._exited.done():
            self._stderr.read_rest()  # its last words, to report with the exit
            self._exited.set_result(status)

    def _take_stderr(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        if self._on_stderr is not None:
            self._on_stderr(data)
        for relay in self._relays:
            relay.pass_on(data)
        if self._log_fd is not None:
            try:
                os.write(self._log_fd, data)
            except OSError as error:
                log.warning("the agent's stderr is no longer logged: %s", error)
                self._close_log()

    def _close_log(self) -> None:
        log_fd, self._log_fd = self._log_fd, None
        if log_fd is not None:
            os.close(log_fd)
