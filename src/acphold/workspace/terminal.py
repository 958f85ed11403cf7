"""One command that an agent runs: its output so far, its end, and its children's."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from acphold.processes.exit_status import open_pidfd
from acphold.schema import TerminalExitStatus, TerminalOutputResponse
from acphold.workspace.output import OutputTail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from acphold.processes.command import Program
    from acphold.workspace.threads import Threads

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""What a command that is killed gets after SIGTERM, and again after SIGKILL."""

READ_SIZE = 64 * 1024
"""Bytes asked of one read; what a pipe holds."""

READ_COST = 16 * 1024
"""What one read counts for besides its bytes."""

REST_READS = 16
"""Reads for what is left at the exit: a child that still prints must not hold us there."""

WINDOW_SECONDS = 0.01
WINDOW_BYTES = 1024 * 1024
"""A command that prints more than this in that time waits in its pipe for the next such time."""


class Terminal:
    """A command that `Terminals.create` started; to be released in every case.

    `id` is unique among all terminals of all processes.
    """

    def __init__(self, program: Program, limit: int, threads: Threads) -> None:
        self.id = f"term_{os.urandom(8).hex()}"
        self._program = program
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._tail = OutputTail(limit)
        self._exited: asyncio.Future[TerminalExitStatus] = self._loop.create_future()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pidfd = open_pidfd(program.pid)
        self._fd: int | None = program.output_fd
        self._resume: asyncio.TimerHandle | None = None
        self._window_ends = 0.0
        self._spent = 0
        os.set_blocking(program.output_fd, False)  # our end of our pipe: the flag is ours alone
        self._loop.add_reader(program.output_fd, self._on_output)
        self._watch_exit()
        if not program.guarded:
            log.warning(
                "there is no /bin/sh to guard a terminal: kill -9 of acphold leaves it behind"
            )

    @property
    def pid(self) -> int:
        """The number of the process and of its process group."""
        return self._program.pid

    def output(self) -> TerminalOutputResponse:
        """What it printed so far, stdout and stderr in one; the status too once it has ended."""
        status = self._exited.result() if self._exited.done() else None
        return TerminalOutputResponse(
            output=self._tail.text, truncated=self._tail.truncated, exit_status=status
        )

    def shown(self, limit: int) -> TerminalOutputResponse:
        """Like `output`, but no more than its last `limit` bytes."""
        output, text = self.output(), self._tail.last(limit)
        cut = output.truncated or len(text) < len(output.output)
        return TerminalOutputResponse(output=text, truncated=cut, exit_status=output.exit_status)

    async def follow(self) -> AsyncIterator[str]:
        """What it prints, from its beginning to its end, in pieces as they come.

            async for piece in terminal.follow():
                print(piece, end="")

        Any number of followers may do so, each at its own pace, also behind the end or a kill. The
        command waits for none of them: one that is slow gets what came meanwhile in one piece, and
        of more than the limit of the output only the end. As with `wait`, what children print
        that the command left behind is not waited for.
        """
        place = 0
        while True:
            over, news = self._exited.done(), self._news
            piece, place = self._tail.after(place)
            if piece:
                yield piece
            elif over:
                return
            else:
                await news.wait()

    async def wait(self) -> TerminalExitStatus:
        """Wait until the command ends; what it printed is in `output` then.

        Children that it left behind go on until the terminal is killed or released.
        """
        return await asyncio.shield(self._exited)

    async def kill(self) -> None:
        """End the command and its children; return when they are gone. Output and status stay."""
        await self._threads.run(lambda _: self._program.end(GRACE_SECONDS))
        await asyncio.wait([self._exited], timeout=GRACE_SECONDS)
        self._program.reap()

    async def release(self) -> None:
        """End all of it and free what it holds; may be called again. `output` stays as it was."""
        try:
            await self.kill()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._settle(None)  # whoever still waits is told
            self._close_pidfd()
            self._close_output()

    def _watch_exit(self) -> None:
        if self._pidfd is None:
            self._start(self._wait_in_thread(), "wait for terminal")
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        self._close_pidfd()
        self._ended(self._program.status())

    async def _wait_in_thread(self) -> None:
        self._ended(await self._threads.run(lambda _: self._program.status()))

    def _ended(self, status: int | None) -> None:
        """Read its last words, tell who waits, look what it left."""
        for _ in range(REST_READS):
            if not self._read_some():
                break
        self._settle(status)
        self._start(self._tidy(), "tidy terminal")

    def _settle(self, status: int | None) -> None:
        if not self._exited.done():
            self._exited.set_result(_exit_status(status))
            self._tell_followers()

    def _tell_followers(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _tidy(self) -> None:
        """Let go of process and guardian, unless there are children that may need an end."""
        await self._threads.run(lambda _: self._program.look())
        self._program.reap()

    def _start(self, work: Coroutine[object, object, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_output(self) -> None:
        now = self._loop.time()
        if now > self._window_ends:
            self._window_ends, self._spent = now + WINDOW_SECONDS, 0
        self._read_some()
        if self._spent > WINDOW_BYTES and self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_at(self._window_ends, self._read_on)

    def _read_on(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._on_output)

    def _read_some(self) -> bool:
        """Take one piece; False when there is none now, or never again."""
        if self._fd is None:
            return False
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return False
        self._spent += len(data) + READ_COST
        self._tail.feed(data, final=not data)
        self._tell_followers()
        if not data:
            self._close_output()
        return bool(data)

    def _close_pidfd(self) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def _close_output(self) -> None:
        fd, self._fd = self._fd, None
        if self._resume is not None:
            self._resume.cancel()
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)


def _exit_status(status: int | None) -> TerminalExitStatus:
    """-N is signal N, None is an end of which nothing is known."""
    if status is None or status >= 0:
        return TerminalExitStatus(exit_code=status)
    name = f"SIG{-status}"  # a real-time signal has no name
    with suppress(ValueError):
        name = signal.Signals(-status).name
    return TerminalExitStatus(signal=name)
