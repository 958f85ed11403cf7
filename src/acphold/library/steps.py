"""The steps of a turn that an author may watch; `library.middleware` does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias

StepKind: TypeAlias = Literal[
    "turn", "command", "tool", "mcp", "mcp_resource", "mcp_prompt", "permission", "form", "page"
]
"""The kind of a step; see Step."""


class TakenStep(Protocol):
    """A watched step while it is taken; its result is stored here."""

    result: Any


Entering: TypeAlias = (
    "Callable[[StepKind, str, Any], AbstractAsyncContextManager[TakenStep | None]]"
)
"""Enters a step by its kind, its name and its tool call; gives None if nobody watches."""

_NOBODY: AbstractAsyncContextManager[None] = nullcontext()


def unwatched(kind: StepKind, name: str, tool: object = None) -> AbstractAsyncContextManager[None]:
    """Enter a step that nobody watches."""
    return _NOBODY
