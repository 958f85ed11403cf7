"""Where a turn steps into something that an author may watch; who does is `library.middleware`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias

StepKind: TypeAlias = Literal[
    "turn", "command", "tool", "mcp", "mcp_resource", "mcp_prompt", "permission", "form", "page"
]
"""What is stepped into; see Step."""


class Taken(Protocol):
    """A step that is watched, once it is taken: it is told what came of it."""

    result: Any


Entering: TypeAlias = "Callable[[StepKind, str, Any], AbstractAsyncContextManager[Taken | None]]"
"""Steps into something by its kind, its name and its tool call; None where nobody watches."""

_NOBODY: AbstractAsyncContextManager[None] = nullcontext()


def unwatched(kind: StepKind, name: str, tool: object = None) -> AbstractAsyncContextManager[None]:
    """Nobody watches."""
    return _NOBODY
