"""The workspace of a session: requests to its client, its files, and commands that a turn runs.

Sources: spec v1, overview; extensibility; file system; session setup, "Working Directory";
terminals.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from acp_wire.schema import (
    CREATE_TERMINAL,
    KILL_TERMINAL,
    READ_TEXT_FILE,
    RELEASE_TERMINAL,
    TERMINAL_OUTPUT,
    WAIT_FOR_TERMINAL_EXIT,
    WRITE_TEXT_FILE,
    ClientCapabilities,
    EnvVariable,
    Implementation,
    InitializeRequest,
    Method,
    TerminalExitStatus,
    decode,
    encode,
)
from acp_wire.tasks import end, timeout
from acphold import errors
from acphold.library import bounds
from acphold.live.agents.interface import AgentListener, AgentRequest, Notified

if TYPE_CHECKING:
    from acp_wire.workspace.files import Files
    from acp_wire.workspace.roots import Roots
    from acp_wire.workspace.terminals import Terminals
    from acp_wire.workspace.threads import Threads
    from acphold.library.outbox import Outbox


log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

UNANSWERED = (errors.MethodNotFoundError, errors.ConnectionLostError)
"""Raised by `ask` when no client can answer now: do it yourself then."""

OVERLAP = 64
TRIES = 100
"""The continuation of an output whose beginning was dropped is found by comparing this many
characters, in this many places: output that repeats one character for ever must not keep us
busy."""


class ClientSide:
    """The client on the other end of session `session_id`, as it was `introduced`.

    A request leaves after everything that the author said before it, which is in `outbox`.
    """

    def __init__(
        self,
        session_id: str,
        listener: AgentListener,
        introduced: InitializeRequest,
        outbox: Outbox,
    ) -> None:
        self.session_id = session_id
        self.capabilities: ClientCapabilities = introduced.client_capabilities
        self.info: Implementation | None = introduced.client_info
        self._listener = listener
        self._outbox = outbox

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Return the client's answer.

        Raises RemoteError when the client refuses or the answer cannot be read, and one of
        UNANSWERED if no client can answer.
        """
        raw = await self.ask_raw(method.name, encode(params))
        try:
            return decode(method.result, b"{}" if raw == b"null" else raw).value
        except errors.InvalidParamsError as exc:
            said = f"the client's answer to {method.name} cannot be read: {exc}"
            raise errors.RemoteError(errors.AcpError.code, said) from exc

    async def ask_raw(self, method: str, params: bytes) -> bytes:
        """Like `ask`, with JSON in and out."""
        await self._outbox.leave()
        try:
            return await self._listener.answer(AgentRequest(method, params))
        except errors.RemoteError as exc:
            if exc.code == errors.MethodNotFoundError.code:
                raise errors.MethodNotFoundError(method) from exc
            raise

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification other than an update."""
        await self._outbox.leave()
        await self._listener.hear(Notified(method, params))


class Folders:
    """The folders of a session on this machine; imports nothing for them before their first use."""

    def __init__(self, cwd: str, additional: tuple[str, ...]) -> None:
        self.cwd = cwd
        self._additional = additional

    @cached_property
    def roots(self) -> Roots:
        """The meaning of paths inside them; its methods block."""
        from acp_wire.workspace.roots import Roots

        return Roots(self.cwd, self._additional)

    @cached_property
    def files(self) -> Files:
        """The files inside them."""
        from acp_wire.workspace.files import Files

        return Files(self.roots)

    async def client_path(self, path: str) -> str:
        """Return the absolute path of a file, for a client, after checking that it is inside."""
        return await self._threads.run(self.roots.resolve_keeping_links, path)

    async def folder(self, path: str) -> str:
        """Return the absolute path of a folder inside them; raises WorkspaceError."""
        return await self._threads.run(self.roots.folder, path)

    @cached_property
    def _threads(self) -> Threads:
        from acp_wire.workspace.threads import Threads

        return Threads(at_once=8)


class SessionFiles:
    """Text files inside the session's folders.

    They come from a client that serves files, with unsaved text; otherwise they are read and
    written here, a file in one step. A relative path starts at the session's `cwd`.

    All methods raise WorkspaceError: OutsideRootsError (also through links), MissingFileError,
    NotTextError or FileAccessError; and InvalidParamsError for values that no path or line can
    have.
    """

    def __init__(self, client: ClientSide, folders: Folders) -> None:
        self._client = client
        self._folders = folders

    async def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, or `limit` lines from `line` on.

        Lines count from 1; past the end it is "". Raises FileTooLargeError above 10 MiB.
        """
        for field, value in (("line", line), ("limit", limit)):
            if value is not None and value < 0:
                raise errors.InvalidParamsError(f"{field} is negative: {value}", field)
        if self._client.capabilities.fs.read_text_file:
            request = READ_TEXT_FILE.params(
                session_id=self._client.session_id,
                path=await self._folders.client_path(path),
                line=line,
                limit=limit,
            )
            answer = await self._ask_client(READ_TEXT_FILE, request, path, "read")
            if answer is not None:
                return answer.content
        return await self._folders.files.read(path, line=line, limit=limit)

    async def write(self, path: str, content: str) -> None:
        """Write a whole file; a missing one is created."""
        if self._client.capabilities.fs.write_text_file:
            request = WRITE_TEXT_FILE.params(
                session_id=self._client.session_id,
                path=await self._folders.client_path(path),
                content=content,
            )
            if await self._ask_client(WRITE_TEXT_FILE, request, path, "write") is not None:
                return
        await self._folders.files.write(path, content)

    async def folder(self, path: str) -> str:
        """Return the absolute path of a folder inside the session's; raises WorkspaceError."""
        return await self._folders.folder(path)

    async def _ask_client(self, method: Method[P, R], request: P, path: str, verb: str) -> R | None:
        """Return the client's answer; None if the client that prompted is not the one with that
        capability."""
        try:
            return await self._client.ask(method, request)
        except UNANSWERED:
            return None
        except errors.RemoteError as exc:
            if exc.code == errors.MissingFileError.code:
                raise errors.MissingFileError(f"there is no file {path!r}: {exc}") from exc
            raise errors.FileAccessError(f"the client cannot {verb} {path!r}: {exc}") from exc


class CommandExit(Struct, frozen=True):
    """The exit code of a command, or the signal that ended it, if known."""

    code: int | None = None
    signal: str | None = None


class CommandOutput(Struct, frozen=True):
    """The output of a command so far, stdout and stderr in one, or its end if it is `truncated`."""

    text: str
    truncated: bool
    exit: CommandExit | None


class RunningCommand(ABC):
    """A running command; it ends at `release` or with the turn.

        async for piece in running:
            print(piece, end="")

    prints its output in pieces as they come; see also `lines`. `id` is that of its terminal.
    `in_client` is True if the client runs it. The methods raise RemoteError, MethodNotFoundError
    and ConnectionLostError when the client fails.
    """

    in_client = False

    def __init__(self, id: str) -> None:
        self.id = id
        self._released = False

    @abstractmethod
    async def output(self) -> CommandOutput:
        """Return the output so far, or that at its `release`."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[str]: ...

    async def lines(self) -> AsyncIterator[str]:
        """Yield its lines, without line ends, until it ends."""
        begun = ""
        async for piece in self:
            *whole, begun = (begun + piece).split("\n")
            for line in whole:
                yield line.removesuffix("\r")
        if begun:
            yield begun

    @abstractmethod
    async def wait(self) -> CommandExit:
        """Wait until it ends."""

    @abstractmethod
    async def kill(self) -> None:
        """End it; its output can still be asked for."""

    async def release(self) -> None:
        """End it if it runs, and release the terminal."""
        if not self._released:
            self._released = True
            await self._release()

    @abstractmethod
    async def _release(self) -> None: ...


class ClientCommand(RunningCommand):
    """A command in a terminal of the client."""

    in_client = True

    def __init__(self, id: str, client: ClientSide) -> None:
        super().__init__(id)
        self._client = client
        self._last: CommandOutput | None = None

    async def output(self) -> CommandOutput:
        return await self._output() if self._last is None else self._last

    async def _output(self) -> CommandOutput:
        found = await self._ask(TERMINAL_OUTPUT)
        return CommandOutput(found.output, found.truncated, _exit(found.exit_status))

    async def __aiter__(self) -> AsyncIterator[str]:
        seen = ""
        ended = asyncio.create_task(self.wait(), name="wait for command")
        try:
            while True:
                over = ended.done() or self._released
                found = await self.output()
                if piece := _behind(seen, found.text):
                    yield piece
                seen = found.text
                if over:
                    return
                await asyncio.wait([ended], timeout=bounds.OUTPUT_POLL_SECONDS)
        finally:
            await end(ended)

    async def wait(self) -> CommandExit:
        status = await self._ask(WAIT_FOR_TERMINAL_EXIT)
        return CommandExit(status.exit_code, status.signal)

    async def kill(self) -> None:
        await self._ask(KILL_TERMINAL)

    async def _release(self) -> None:
        # What fails here, the client says to the release too.
        with suppress(errors.AcpError, TimeoutError):
            async with timeout(bounds.OUTPUT_SECONDS):
                self._last = await self._output()
        await self._ask(RELEASE_TERMINAL)

    async def _ask(self, method: Method[Any, R]) -> R:
        request = method.params(session_id=self._client.session_id, terminal_id=self.id)
        return await self._client.ask(method, request)


class OwnCommand(RunningCommand):
    """A command that this process runs, in a process group of its own."""

    def __init__(self, id: str, terminals: Terminals) -> None:
        super().__init__(id)
        self._terminal = terminals[id]
        self._terminals = terminals

    async def output(self) -> CommandOutput:
        found = self._terminal.output()
        return CommandOutput(found.output, found.truncated, _exit(found.exit_status))

    def __aiter__(self) -> AsyncIterator[str]:
        return self._terminal.follow()

    async def wait(self) -> CommandExit:
        status = await self._terminal.wait()
        return CommandExit(status.exit_code, status.signal)

    async def kill(self) -> None:
        await self._terminal.kill()

    async def _release(self) -> None:
        if self.id in self._terminals:
            await self._terminals.release(self.id)


def _exit(status: TerminalExitStatus | None) -> CommandExit | None:
    return None if status is None else CommandExit(status.exit_code, status.signal)


def _behind(seen: str, text: str) -> str:
    """Return the new part of `text` after `seen`; the beginning of both may have been dropped."""
    begin, at = text[:OVERLAP], -1
    for _ in range(TRIES):
        at = seen.find(begin, at + 1)
        if at < 0:
            break
        if text.startswith(seen[at:]):
            return text[len(seen) - at :]
    for length in range(min(len(begin), len(seen)), 0, -1):
        if seen.endswith(begin[:length]):
            return text[length:]
    return text


class Command(Struct, frozen=True):
    """A command to run; the last `output_bytes` of its output are kept."""

    command: str
    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    output_bytes: int | None


class TurnCommands:
    """The commands that one turn has started; they end with the turn."""

    def __init__(
        self, client: ClientSide, folders: Folders, terminals: Callable[[], Terminals]
    ) -> None:
        self._client = client
        self._folders = folders
        self._terminals = terminals
        self._starting: set[asyncio.Task[RunningCommand]] = set()
        self._running: list[RunningCommand] = []

    async def start(self, command: Command) -> RunningCommand:
        """Run `command`; see `Turn.terminal`. It ends with the turn, even if this is cancelled."""

        def over(task: asyncio.Task[RunningCommand]) -> None:
            self._starting.discard(task)
            if not task.cancelled():
                task.exception()  # seen, also when nobody waits for it any more

        task = asyncio.create_task(self._start(command), name="start command")
        self._starting.add(task)
        task.add_done_callback(over)
        return await asyncio.shield(task)

    async def _start(self, command: Command) -> RunningCommand:
        started: RunningCommand | None = None
        if self._client.capabilities.terminal:
            request = CREATE_TERMINAL.params(
                session_id=self._client.session_id,
                command=command.command,
                args=command.args,
                env=tuple(EnvVariable(name=name, value=it) for name, it in command.env.items()),
                # Ours in the client's own words.
                cwd=self._folders.cwd
                if command.cwd is None
                else await self._folders.folder(command.cwd),
                output_byte_limit=command.output_bytes,
            )
            try:
                created = await self._client.ask(CREATE_TERMINAL, request)
                started = ClientCommand(created.terminal_id, self._client)
            except UNANSWERED:
                pass  # the client that prompted is not the one that said it can
            except errors.RemoteError as exc:
                raise errors.TerminalStartError(
                    f"the client cannot run {command.command!r}: {exc}"
                ) from exc
        if started is None:
            terminals = self._terminals()
            terminal = await terminals.create(
                command.command,
                command.args,
                env=command.env,
                cwd=command.cwd,
                output_byte_limit=command.output_bytes,
            )
            started = OwnCommand(terminal.id, terminals)
        self._running.append(started)
        return started

    async def aclose(self) -> None:
        """End all commands, within seconds."""
        if self._starting:
            await asyncio.wait(self._starting, timeout=bounds.COMMANDS_END_SECONDS)
        for task in tuple(self._starting):
            task.cancel()
        left = [self._release(command) for command in self._running]
        if left:
            await asyncio.gather(*left)

    async def _release(self, command: RunningCommand) -> None:
        try:
            async with timeout(bounds.COMMANDS_END_SECONDS):
                await command.release()
        except (errors.AcpError, TimeoutError) as exc:
            log.warning("terminal %s was not released: %r", command.id, exc)


class PendingCommand:
    """A command: `await` it, or use it with `async with`, which releases it."""

    def __init__(self, commands: TurnCommands, command: Command) -> None:
        self._commands = commands
        self._command = command
        self._running: RunningCommand | None = None

    def __await__(self) -> Generator[object, None, RunningCommand]:
        return self._commands.start(self._command).__await__()

    async def __aenter__(self) -> RunningCommand:
        self._running = await self._commands.start(self._command)
        return self._running

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            await self._running.release()
