"""A tool call while it runs: `async with turn.tool("Read main.py") as call: …`

Source: spec v1, tool calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from holdfast.errors import DeclarationError
from holdfast.schema import (
    Content,
    Diff,
    Terminal,
    TextContent,
    ToolCall,
    ToolCallLocation,
    ToolCallUpdate,
    encode,
)

if TYPE_CHECKING:
    from typing import Self

    from holdfast.agents.outbox import Outbox
    from holdfast.schema import ContentBlock, ToolCallContent, ToolCallStatus, ToolKind


class RunningTool:
    """Pending when it is announced, in progress inside the block, completed or failed behind it.

    An exception that leaves the block marks it failed, with the exception's words as content.
    What the call shows is replaced as a whole by each update, as the protocol has it; here it
    only grows.
    """

    def __init__(
        self,
        outbox: Outbox,
        tool_call_id: str,
        title: str,
        *,
        kind: ToolKind,
        raw_input: Any,
        locations: Sequence[ToolCallLocation],
    ) -> None:
        self.id = tool_call_id
        self.title = title
        self.status: ToolCallStatus = "pending"
        self.announced = False
        self._outbox = outbox
        self._kind = kind
        self._raw_input = raw_input
        self._locations = tuple(locations)
        self._content: list[ToolCallContent] = []

    async def announce(self) -> None:
        """Show the call as pending: for asking about it before the block is entered."""
        self.announced = True
        await self._outbox.put(
            encode(
                ToolCall(
                    tool_call_id=self.id,
                    title=self.title,
                    kind=self._kind,
                    locations=self._locations,
                    raw_input=UNSET if self._raw_input is None else self._raw_input,
                )
            )
        )

    async def __aenter__(self) -> Self:
        if not self.announced:
            await self.announce()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.status in ("completed", "failed"):
            return
        if error is None:
            await self.update(status="completed")
            return
        if isinstance(error, Exception):
            self._content.append(_text(f"{type(error).__name__}: {error}"))
        await self.update(status="failed")

    # -- what it shows --------------------------------------------------------------------

    async def start(self) -> None:
        """It runs now; entering the block says so."""
        await self.update(status="in_progress")

    async def content(self, block: str | ContentBlock) -> None:
        """Show text, or another content block."""
        item = _text(block) if isinstance(block, str) else Content(content=block)
        await self._show(item)

    async def diff(self, path: str, new_text: str, old_text: str | None = None) -> None:
        """Show a change to a file; `old_text` is None for a new one. `path` is absolute."""
        if not path.startswith("/"):
            raise DeclarationError(f"diff of {path!r}: paths are absolute in the protocol")
        await self._show(Diff(path=path, new_text=new_text, old_text=old_text))

    async def terminal(self, terminal_id: str) -> None:
        """Embed a terminal that the client runs: it shows the live output."""
        await self._show(Terminal(terminal_id=terminal_id))

    async def location(self, path: str, line: int | None = None) -> None:
        """Say that it touches this file; `line` counts from 1."""
        self._locations = (*self._locations, ToolCallLocation(path=path, line=line))
        await self.update(locations=self._locations)

    async def output(self, raw_output: Any) -> None:
        """Keep the tool's output as it is: any JSON value."""
        await self.update(raw_output=raw_output)

    async def fail(self, why: str) -> None:
        """It failed, without an exception."""
        self._content.append(_text(why))
        await self.update(status="failed")

    async def _show(self, item: ToolCallContent) -> None:
        self._content.append(item)
        await self.update()

    async def update(self, **changes: Any) -> None:
        """Send these fields and all content so far."""
        self.status = changes.get("status", self.status)
        content = tuple(self._content) or None
        update = ToolCallUpdate(tool_call_id=self.id, content=content, **changes)
        await self._outbox.put(encode(update))


def _text(text: str) -> Content:
    return Content(content=TextContent(text=text))
