"""The commands that the agent of one session runs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from acphold.errors import InvalidParamsError, TerminalStartError, UnknownTerminalError
from acphold.processes.command import run
from acphold.workspace.terminal import Terminal
from acphold.workspace.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acphold.processes.command import Program
    from acphold.schema import TerminalOutputResponse
    from acphold.workspace.roots import Roots

DEFAULT_OUTPUT = 1024 * 1024
"""Bytes of output kept when no limit is asked for."""

MAX_OUTPUT = 10 * 1024 * 1024
"""Bytes kept whatever is asked for: as JSON, whatever they are, they fit one message."""

SHOWN_BYTES = 64 * 1024
SHOWN_TERMINALS = 64
"""What is known of terminals that were released: so much of the output of so many of them."""

MAX_TERMINALS = 256
"""Terminals of one session that are not released."""

AT_ONCE = 64
"""Terminals that are started or ended at a time."""


class Terminals:
    """Starts commands inside `roots`, and keeps them until they are released.

    A command may do what the user may: the roots say where it starts, not where it goes.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self._threads = Threads(AT_ONCE)
        self._kept: dict[str, Terminal] = {}
        self._shown: dict[str, TerminalOutputResponse] = {}
        self._starting: set[asyncio.Task[Terminal]] = set()
        self._undoing: set[asyncio.Task[None]] = set()
        self._closed = False

    def __contains__(self, terminal_id: object) -> bool:
        return terminal_id in self._kept

    def __getitem__(self, terminal_id: str) -> Terminal:
        try:
            return self._kept[terminal_id]
        except KeyError:
            raise UnknownTerminalError(terminal_id) from None

    async def create(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> Terminal:
        """Run `command` with `args`; a line for /bin/sh if it has none (ACP v1, terminals).

        `env` is added to our own environment. `cwd`, the session's if None, must be inside the
        roots. `output_byte_limit` bytes from the end of its output are kept, at most MAX_OUTPUT.
        Raises TerminalStartError, OutsideRootsError, MissingFileError, InvalidParamsError.
        """
        _check(command, args, env or {})
        if self._closed or len(self._kept) + len(self._starting) >= MAX_TERMINALS:
            raise TerminalStartError(
                "the session is closed"
                if self._closed
                else f"{MAX_TERMINALS} terminals are kept already; release some"
            )
        limit = DEFAULT_OUTPUT if output_byte_limit is None else output_byte_limit
        surroundings = {**os.environ, **(env or {})}
        folder = self.roots.cwd if cwd is None else cwd
        # In a task: cancelled or not, a command that was started has somebody to end it.
        starting = asyncio.create_task(
            self._start(command, args, surroundings, folder, min(limit, MAX_OUTPUT)),
            name="start terminal",
        )
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            undoing = asyncio.create_task(self._undo(starting), name="undo terminal")
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            raise

    def shown(self, terminal_id: str) -> TerminalOutputResponse | None:
        """What a terminal showed, at most SHOWN_BYTES from its end; None if it is unknown.

        Also of one that was released, also after `aclose`, while it is one of the last
        SHOWN_TERMINALS: for who keeps as text what a tool call shows as a terminal.
        """
        terminal = self._kept.get(terminal_id)
        return self._shown.get(terminal_id) if terminal is None else terminal.shown(SHOWN_BYTES)

    async def release(self, terminal_id: str) -> None:
        """End it with its children, and forget all but what it showed; UnknownTerminalError."""
        terminal = self[terminal_id]
        del self._kept[terminal_id]
        self._shown[terminal_id] = terminal.shown(SHOWN_BYTES)
        try:
            await terminal.release()
        finally:
            self._shown[terminal_id] = terminal.shown(SHOWN_BYTES)
            while len(self._shown) > SHOWN_TERMINALS:
                del self._shown[next(iter(self._shown))]

    async def aclose(self) -> None:
        """End all of them and start no more; may be called again."""
        self._closed = True
        while pending := {*self._starting, *self._undoing}:
            await asyncio.wait(pending)
        await asyncio.gather(*(self.release(terminal_id) for terminal_id in list(self._kept)))

    async def _start(
        self, command: str, args: Sequence[str], env: dict[str, str], cwd: str, limit: int
    ) -> Terminal:
        def start(_: object) -> Program:
            return run(command, args, env, self.roots.folder(cwd))

        terminal = Terminal(await self._threads.run(start), limit, self._threads)
        self._kept[terminal.id] = terminal
        return terminal

    async def _undo(self, starting: asyncio.Task[Terminal]) -> None:
        await asyncio.wait([starting])
        if (
            not starting.cancelled()
            and starting.exception() is None
            and starting.result().id in self
        ):
            await self.release(starting.result().id)


def _check(command: str, args: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise InvalidParamsError for what no program can be given; values stay unsaid."""
    if not command:
        raise InvalidParamsError("command is empty", "command")
    for field, words in (("command", (command,)), ("args", args), ("env", env.values())):
        if any(not _is_passable(word) for word in words):
            raise InvalidParamsError(f"{field} holds a NUL, or is not Unicode", field)
    for name in env:
        if not name or "=" in name or not _is_passable(name):
            raise InvalidParamsError(f"no environment variable can be called {name!r}", "env")


def _is_passable(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False
