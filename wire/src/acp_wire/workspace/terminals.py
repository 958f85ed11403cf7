"""Terminals: the commands that an agent has run in a session, their output, and their end.

Source: ACP v1, terminals.
"""

from __future__ import annotations

import asyncio
import logging
import os
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

from acp_wire import errors
from acp_wire.processes.exit_status import ExitWatch, signal_name
from acp_wire.processes.output import OutputReader
from acp_wire.processes.program import GRACE_SECONDS, Program, launch
from acp_wire.schema import TerminalExitStatus, TerminalOutputResponse
from acp_wire.tasks import TaskSet
from acp_wire.workspace import bounds
from acp_wire.workspace.threads import Threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from acp_wire.surroundings import Surroundings
    from acp_wire.workspace.roots import Roots

log = logging.getLogger(__name__)

SHELL_CHARACTERS = frozenset(" \t\n|&;<>()$`\"'*?[#~")
"""Characters that only a shell interprets; source: POSIX, shell command language, 2.2."""


class Terminals:
    """Starts commands inside `roots`, and keeps them until they are released.

    A command has all rights of the user: the roots limit where it starts, not where it goes.
    """

    def __init__(self, roots: Roots, surroundings: Surroundings) -> None:
        self.roots = roots
        self._surroundings = surroundings
        self._threads = Threads(bounds.TERMINALS_AT_ONCE)
        self._kept: dict[str, TerminalCommand] = {}
        self._starting = TaskSet()
        self._releasing = TaskSet()
        self._closed = False
        self._stopped = False

    def __contains__(self, terminal_id: object) -> bool:
        return terminal_id in self._kept

    def __getitem__(self, terminal_id: str) -> TerminalCommand:
        try:
            return self._kept[terminal_id]
        except KeyError:
            raise errors.UnknownTerminalError(terminal_id) from None

    async def create(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> TerminalCommand:
        """Run `command` with `args`; without any, it may be a line for /bin/sh (ACP v1, terminals).

        `env` is added to the environment of the surroundings. `cwd`, the session's if None, must be
        inside the roots. `output_byte_limit` bytes from the end of its output are kept, at most
        MAX_OUTPUT. Raises TerminalStartError, OutsideRootsError, MissingFileError,
        InvalidParamsError.
        """
        _check(command, args, env or {})
        if self._closed:
            raise errors.TerminalStartError("the session is closed")
        if len(self._kept) + len(self._starting) >= bounds.MAX_TERMINALS:
            raise errors.TerminalStartError(
                f"there are already {bounds.MAX_TERMINALS} terminals; release some"
            )
        limit = bounds.DEFAULT_OUTPUT if output_byte_limit is None else output_byte_limit
        asked_for = self.roots.cwd if cwd is None else cwd

        def start_program() -> Program:
            folder = self.roots.folder(asked_for)
            # Agents send `{"command": "npm test && echo ok"}`, and most clients run it.
            is_line = not args and not SHELL_CHARACTERS.isdisjoint(command)
            is_line = is_line and not os.path.exists(os.path.join(folder, command))
            argv = ["/bin/sh", "-c", command] if is_line else [command, *args]
            within = self._surroundings
            variables = {**within.env, **(env or {})}
            return launch(argv, within, env=variables, cwd=folder, merged=True)

        async def start() -> TerminalCommand:
            try:
                program = await self._threads.run(start_program)
            except errors.AgentStartError as exc:
                raise errors.TerminalStartError(str(exc)) from exc
            if self._closed:
                await self._threads.run(program.abandon)
                raise errors.TerminalStartError("the session is closed")
            terminal = TerminalCommand(program, min(limit, bounds.MAX_OUTPUT), self._threads)
            self._kept[terminal.id] = terminal
            if self._stopped:
                await self._threads.run(program.stop)
            return terminal

        def release(started: asyncio.Task[TerminalCommand]) -> None:
            """Release a terminal whose caller no longer waits for it."""
            failed = started.cancelled() or started.exception() is not None
            if not failed and started.result().id in self:
                undoing = self.release(started.result().id)
                self._releasing.start(undoing, "undo terminal")

        # In a task: even if this is cancelled, somebody will end the started command.
        starting = self._starting.start(start(), "start terminal")
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(release)
            raise

    async def stop(self) -> None:
        """Stop all commands, also those that are started from now on, until `go_on`."""
        self._stopped = True
        await asyncio.gather(*(it.stop() for it in self._kept.values()))

    async def go_on(self) -> None:
        """Have continue what `stop` has stopped."""
        self._stopped = False
        await asyncio.gather(*(it.go_on() for it in self._kept.values()))

    async def release(self, terminal_id: str) -> None:
        """End it with its children; raises UnknownTerminalError."""
        terminal = self[terminal_id]
        del self._kept[terminal_id]
        await terminal.release()

    async def aclose(self) -> None:
        """End all of them and start no more; may be called again."""
        self._closed = True
        if self._starting:
            await asyncio.wait(self._starting, timeout=bounds.START_SECONDS)
        left = [self.release(terminal_id) for terminal_id in self._kept]
        await asyncio.gather(*left, *self._releasing)


class TerminalCommand:
    """A command that `Terminals.create` started; always release it.

    `id` is unique among all terminals of all processes.
    """

    def __init__(self, program: Program, limit: int, threads: Threads) -> None:
        loop = asyncio.get_running_loop()
        self.id: str = f"term_{os.urandom(8).hex()}"
        self._program = program
        self._threads = threads
        self._tail = OutputTail(limit)
        self._exited: asyncio.Future[TerminalExitStatus] = loop.create_future()
        self._news = asyncio.Event()
        self._tidying: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        (fd,) = program.fds
        self._reader = OutputReader(loop, fd, self._take)
        self._watch = ExitWatch(loop, program.pid, self._on_exit)
        if program.guard.pid is None:
            log.warning(
                "no /bin/sh can guard a terminal: its command outlives a kill -9 of acphold"
            )

    @property
    def pid(self) -> int:
        """The pid, which is also the id of its process group."""
        return self._program.pid

    def output(self) -> TerminalOutputResponse:
        """Return its output so far, stdout and stderr in one; with the status once it has ended."""
        status = self._exited.result() if self._exited.done() else None
        return TerminalOutputResponse(
            output=self._tail.text, truncated=self._tail.is_truncated, exit_status=status
        )

    async def follow(self) -> AsyncIterator[str]:
        """Yield its output, from beginning to end, in pieces as they come.

            async for piece in terminal.follow():
                print(piece, end="")

        Any number of followers may do so, each at its own pace, also after the end or a kill.
        The command waits for none of them: a slow one gets the output since its last piece at
        once, and if that exceeds the output's limit only its end. As with `wait`, output of
        children that the command left behind is not waited for."""
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
        """Wait until the command ends; `output` is then complete.

        Children that it left behind run on until the terminal is killed or released.
        """
        return await asyncio.shield(self._exited)

    async def stop(self) -> None:
        """Stop the command and its children, until `go_on`."""
        await self._threads.run(self._program.stop)

    async def go_on(self) -> None:
        """Have continue what `stop` has stopped."""
        await self._threads.run(self._program.go_on)

    async def kill(self) -> None:
        """End the command and its children; return when they are gone. Output and status stay."""
        await self._threads.run(self._program.end, GRACE_SECONDS)
        await asyncio.wait([self._exited], timeout=GRACE_SECONDS)
        self._program.reap()

    async def release(self) -> None:
        """End all of it and free its resources; may be called again. `output` stays unchanged.

        Cancelling this does not stop the ending.
        """

        async def release() -> None:
            try:
                await self.kill()
                if self._tidying is not None:
                    await asyncio.wait([self._tidying])
            finally:
                self._settle(None)  # resolve remaining waiters
                self._watch.stop()
                self._reader.close()

        if self._releasing is None:
            self._releasing = asyncio.create_task(release(), name="release terminal")
        await asyncio.shield(self._releasing)

    def _take(self, data: bytes) -> None:
        self._tail.feed(data, final=not data)
        self._wake_followers()

    def _on_exit(self, status: int | None) -> None:
        """Read its last output, notify waiters, check for children it left."""
        self._reader.read_rest()
        self._settle(status)

        async def tidy() -> None:
            """Drop process and guardian, unless there are children that may have to be ended."""
            await self._threads.run(self._program.look)
            self._program.reap()

        self._tidying = asyncio.create_task(tidy(), name="tidy terminal")

    def _settle(self, status: int | None) -> None:
        if not self._exited.done():
            # -N is signal N, None is an unknown status.
            if status is None or status >= 0:
                self._exited.set_result(TerminalExitStatus(exit_code=status))
            else:
                self._exited.set_result(TerminalExitStatus(signal=signal_name(-status)))
            self._wake_followers()

    def _wake_followers(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class OutputTail:
    """Keeps the last `limit` bytes of a stream as text; bytes that are not UTF-8 become U+FFFD."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._dropped = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next piece; an incomplete character waits for the following one."""
        self._kept += self._decoder.decode(data, final).encode()
        if len(self._kept) > 2 * self._limit + bounds.SLACK_BYTES:
            surplus = self._surplus()
            del self._kept[:surplus]
            self._dropped += surplus

    @property
    def text(self) -> str:
        """The last `limit` bytes of UTF-8 at most, from the start of a character."""
        return self._kept[self._surplus() :].decode()

    @property
    def is_truncated(self) -> bool:
        """True if something before `text` is lost."""
        return self._dropped + len(self._kept) > self._limit

    def after(self, place: int) -> tuple[str, int]:
        """Return the kept text after `place`, and the place after it; 0 is the first."""
        behind = self._kept[max(place - self._dropped, 0) :]
        return behind.decode(), self._dropped + len(self._kept)

    def _surplus(self) -> int:
        """Return the number of kept bytes before the last `limit`, up to a whole character."""
        surplus = max(len(self._kept) - self._limit, 0)
        while 0 < surplus < len(self._kept) and self._kept[surplus] & 0xC0 == 0x80:
            surplus += 1
        return surplus


def _check(command: str, args: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise InvalidParamsError for impossible arguments of a program, without repeating values."""
    if not command:
        raise errors.InvalidParamsError("command is empty", "command")
    for field, words in (("command", (command,)), ("args", args), ("env", env.values())):
        if any(not _is_passable(word) for word in words):
            raise errors.InvalidParamsError(f"{field} contains a NUL, or is not Unicode", field)
    for name in env:
        if not name or "=" in name or not _is_passable(name):
            raise errors.InvalidParamsError(
                f"{name!r} is not a valid name of an environment variable", "env"
            )


def _is_passable(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False
