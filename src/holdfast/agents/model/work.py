"""What the tools of one turn share: the turn itself, its tool calls, and what they may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic_ai.exceptions import ToolFailed

from holdfast.agents.model.modes import ASK, PLAN
from holdfast.agents.model.showing import Showing
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pydantic_ai import RunContext

    from holdfast.agents.model.showing import Draw
    from holdfast.agents.toolcall import RunningTool
    from holdfast.agents.turn import Turn

RESULT_CHARACTERS = 48_000
"""What a tool tells the model at most; more would crowd out the conversation."""

REFUSED = (
    "The person did not allow this. Do not try to get the same done in another way; "
    "go on without it, or ask what they want instead."
)


class Work:
    """One turn at work. `draw` says how its tool calls look."""

    def __init__(self, turn: Turn, draw: Draw) -> None:
        self.turn = turn
        self.showing = Showing(turn, draw)

    @property
    def mode(self) -> str:
        """The mode now: the person may change it in the middle of a turn."""
        return self.turn.session.mode or ASK

    @asynccontextmanager
    async def running(self, ctx: RunContext[Work]) -> AsyncIterator[RunningTool]:
        """The tool call that the model made: settled behind the block, by how the block ended.

        What goes wrong in the way of the world is told to the model, which may do better; the
        call stays pending until `start`, so that the person can be asked about it.
        """
        call = self.showing.call(ctx.tool_call_id or "")
        if call is None:
            call = self.turn.tool(ctx.tool_name or "tool")
            await call.announce()
        try:
            yield call
        except (HoldfastError, ToolFailed) as error:
            await call.fail(str(error))
            raise ToolFailed(str(error)) from error
        await call.complete()

    async def permit(self, call: RunningTool, remember: str, *, freely_in: str = "") -> None:
        """Let the person decide about a change, unless the mode has; ToolFailed if they refuse.

        An answer for always holds for whatever else is asked about as `remember`.
        """
        if self.mode == PLAN:
            raise ToolFailed("In plan mode nothing is changed or run: say what you would do.")
        if self.mode != freely_in and not await self.turn.allowed(
            call.title, tool=call, remember=remember
        ):
            raise ToolFailed(REFUSED)
