"""What one turn has open, from its beginning to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from acphold.library.commands import TurnCommands
from acphold.library.outbox import TurnOutbox, fresh_id, refuse
from acphold.library.tools import RunningTool

if TYPE_CHECKING:
    from acphold.library.author_session import OpenSession
    from acphold.library.outbox import Utterance


class TurnScope:
    """What one turn has open: its tool calls, its commands, what it waits for; all ends with it.

    `speaking` is the message it says just now. `cancel` cancels the turn.
    """

    def __init__(self, opened: OpenSession, cancel: Callable[[], None]) -> None:
        self.opened = opened
        self.outbox = TurnOutbox(opened.outbox)
        self.cancel = cancel
        self.speaking: Utterance | None = None
        self._task = asyncio.current_task()
        self._waiting: set[asyncio.Task[Any] | None] = set()
        self._tools: list[RunningTool] = []
        self._commands: TurnCommands | None = None
        self._over = False

    def check(self) -> None:
        """Raise DeclarationError when the turn is over."""
        if self._over:
            refuse()

    def tool(self, title: str, **described: Any) -> RunningTool:
        """A tool call; see `Turn.tool`."""
        self.check()
        self.speaking = None  # what is said behind it is another message
        tool = RunningTool(self.outbox, self.opened.cwd, fresh_id("call"), title, **described)
        self._tools.append(tool)
        return tool

    def commands(self) -> TurnCommands:
        """What it runs."""
        self.check()
        if self._commands is None:
            opened = self.opened
            self._commands = TurnCommands(opened.client, opened.folders, opened.terminals)
        return self._commands

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For the block, this task waits for a client or a server: not beyond the turn's end."""
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    def close(self) -> None:
        """From now on the author can say and start nothing more."""
        self._over = True
        self.speaking = None

    def give_up(self) -> None:
        """The turn does not end: what it still says is refused."""
        self.close()
        self.outbox.close()

    async def aclose(self) -> None:
        """End what the turn left running, and see that all it said is journalled.

        Raises what the journal failed with.
        """
        self.close()
        for task in self._waiting:
            if task is not None and task is not self._task:
                task.cancel()
        for tool in self._tools:
            if tool.announced and not self.outbox.over:
                await tool.fail()
        if self._commands is not None:
            await self._commands.aclose()
        self.outbox.close()
        await self.opened.outbox.finish()
