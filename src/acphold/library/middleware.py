"""Middleware around each step of a turn, to measure, trace or refuse it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from inspect import isasyncgenfunction
from typing import TYPE_CHECKING, Any, TypeAlias

from acphold.errors import DeclarationError

if TYPE_CHECKING:
    from acphold.library.steps import StepKind
    from acphold.library.tools import RunningTool
    from acphold.library.turn import Turn


class Step:
    """A step of a turn, as `Agent.middleware` gets it.

    | `kind`           | what                             | `name`         | `result`        |
    |------------------|----------------------------------|----------------|-----------------|
    | `"turn"`         | what answers the prompt          | of the agent   | the stop reason |
    | `"command"`      | the coroutine of a slash command | of the command | the stop reason |
    | `"tool"`         | the block of a tool call         | of the tool    | None            |
    | `"mcp"`          | the call of an MCP server's tool | server/tool    | the result      |
    | `"mcp_resource"` | the reading of a resource        | server/uri     | its contents    |
    | `"mcp_prompt"`   | the making of a prompt           | server/prompt  | what was made   |
    | `"permission"`   | the wait for a person's answer   | the question   | the Decision    |
    | `"form"`         | the wait until one is filled in  | the question   | the FormAnswer  |
    | `"page"`         | the wait for a person's consent  | the question   | the Visit       |

    `turn` is the turn it belongs to, and `tool` the tool call that it is or is about. A tool
    without a name has its title as `name`. `result` is set once the step is over, unless it has
    raised.
    """

    __slots__ = ("kind", "name", "result", "tool", "turn")

    def __init__(
        self, kind: StepKind, name: str, turn: Turn, tool: RunningTool | None = None
    ) -> None:
        self.kind = kind
        self.name: str = name
        self.turn: Turn = turn
        self.tool: RunningTool | None = tool
        self.result: Any = None

    def __repr__(self) -> str:
        return f"<Step {self.kind} {self.name!r}>"


Middleware: TypeAlias = "Callable[[Step], AsyncIterator[None] | AbstractAsyncContextManager[Any]]"
"""Gets a step and yields once while it is done; or returns a context manager for it."""

Around: TypeAlias = "Callable[[Step], AbstractAsyncContextManager[Any]]"
"""Returns the context manager around a step."""


def around_each(middleware: Middleware) -> Around:
    """Return the middleware as a context manager; DeclarationError if it cannot be one."""
    if isasyncgenfunction(middleware):
        return asynccontextmanager(middleware)
    if not callable(middleware):
        raise DeclarationError(f"{middleware!r} is no middleware: `async def` with one `yield`")
    return middleware  # type: ignore[return-value]  # generators were the other half


@asynccontextmanager
async def entered(
    middleware: Sequence[Around],
    turn: Turn,
    kind: StepKind,
    name: str,
    tool: RunningTool | None = None,
) -> AsyncIterator[Step]:
    """Take a step of `turn` in this block; the first of the middleware is the outermost.

    An exception of the block passes through all of them; one that catches it sees it but cannot
    suppress it. An exception raised by middleware replaces it; before the block, it replaces the
    step.
    """
    step = Step(kind, name, turn, tool)
    error: BaseException | None = None
    async with AsyncExitStack() as stack:
        for each in middleware:
            await stack.enter_async_context(each(step))
        try:
            yield step
        except BaseException as exc:
            error = exc
            raise
    if error is not None:
        raise error
