"""A tool call while it runs (`async with turn.tool("Read main.py") as call: …`); steps of turns.

Source: spec v1, tool calls.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypedDict, get_args

from msgspec import UNSET, Raw, UnsetType

from acp_wire.schema import (
    Content,
    ContentBlock,
    Diff,
    Terminal,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
    ToolCallPatch,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
    encode,
)
from acp_wire.tasks import timeout
from acphold.conversation.history.timeline import shorten
from acphold.errors import AcpError, DeclarationError
from acphold.library import bounds
from acphold.library.store import to_json
from acphold.library.workspace import CommandExit, RunningCommand

if TYPE_CHECKING:
    from acphold.library.outbox import TurnOutbox


StepKind: TypeAlias = Literal[
    "turn", "command", "tool", "mcp", "mcp_resource", "mcp_prompt", "permission", "form", "page"
]
"""The kind of a step; see Step."""


class TakenStep(Protocol):
    """A watched step while it is taken; its result is stored here."""

    result: Any


Entering: TypeAlias = "Callable[[StepKind, str, Any], AbstractAsyncContextManager[TakenStep]]"
"""Enters a step by its kind, its name and its tool call."""


class _Unwatched:
    """A step that nobody watches; its result is dropped."""

    result = property(fset=lambda self, result: None)


_UNWATCHED: AbstractAsyncContextManager[TakenStep] = nullcontext(_Unwatched())


def plain_step(kind: StepKind, name: str, tool: Any) -> AbstractAsyncContextManager[TakenStep]:
    """Enter a step that nobody watches."""
    return _UNWATCHED


Location: TypeAlias = "str | tuple[str, int] | ToolCallLocation"
"""A file that a tool works on, and the line."""

KINDS = get_args(ToolKind)


class _Shown(TypedDict, total=False):
    """The members of an update that replace what is shown of a call."""

    content: tuple[ToolCallContent, ...]
    locations: tuple[ToolCallLocation, ...]


class RunningTool:
    """A tool call: pending at first, in progress inside the block, then completed or failed.

    An exception that leaves the block marks it failed, and its message is shown. Clients have its
    `id`, `title`, `kind`, `name` and `status` once it is `announced`. Content is added until it is
    replaced, and sent at intervals if it grows in a loop. Relative paths start at the session's
    `cwd`.
    """

    def __init__(
        self,
        outbox: TurnOutbox,
        cwd: str,
        tool_call_id: str,
        title: str,
        *,
        kind: ToolKind = "other",
        name: str | None = None,
        input: Any = UNSET,
        locations: Iterable[Location] = (),
        around: Entering,
    ) -> None:
        if kind not in KINDS:
            raise DeclarationError(f"the kind of a tool is one of {', '.join(KINDS)}, not {kind!r}")
        if isinstance(locations, str):
            raise DeclarationError(f"the locations of a tool are a list, not {locations!r}")
        self.id = tool_call_id
        self.title: str = title
        self.status: ToolCallStatus = "pending"
        self.announced: bool = False
        self._outbox = outbox
        self._cwd = cwd
        self.kind: ToolKind = kind
        self.name = name
        self._step = around("tool", name or title, self)
        self._input = _json(input)
        self._has_output = False
        self._locations = [*map(self._location, locations)]
        self._content: list[ToolCallContent] = []
        self._passing: dict[object, str] = {}
        self._commands: dict[RunningCommand, asyncio.Task[None] | None] = {}
        self._stale: set[Literal["content", "locations"]] = set()
        self._sent = 0
        self._next_at = 0.0
        self._later: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RunningTool {self.id!r} {self.status}: {shorten(self.title)!r}>"

    async def __aenter__(self) -> Self:
        await self._step.__aenter__()
        try:
            await self.start()
        except BaseException as exc:
            await self._step.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        return self

    # No generator with a `with` inside: its frames would stand between the author's line and ours.
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.complete()
            else:
                why = None  # a cancellation needs no words
                if isinstance(error, AcpError):
                    why = str(error)
                elif isinstance(error, Exception):
                    why = f"{type(error).__name__}: {error}".removesuffix(": ")
                await self.fail(why)
        except BaseException as exc:
            await self._step.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        await self._step.__aexit__(kind, error, traceback)

    # -- how it goes ----------------------------------------------------------------------

    async def announce(self) -> None:
        """Show the call before it runs; asking for permission does this."""
        if self.announced:
            return
        self.announced = True
        self._stale.clear()
        await self._outbox.put(
            encode(
                ToolCallStart(
                    tool_call_id=self.id,
                    title=self.title,
                    name=self.name,
                    kind=self.kind,
                    content=tuple(self._content),
                    locations=tuple(self._locations),
                    raw_input=self._input,
                )
            )
        )

    async def start(self) -> None:
        """As entering the block does."""
        await self.announce()
        if self.status == "pending":
            self.status = "in_progress"
            await self._send(ToolCallUpdate(tool_call_id=self.id, status="in_progress"))

    async def complete(self) -> None:
        """As leaving the block does."""
        if not self.over:
            await self._end("completed")

    async def fail(self, why: str | None = None) -> None:
        """Mark it failed; `why` is shown."""
        if not self.over:
            if why:
                self._content.append(_text(why))
                self._stale.add("content")
            await self._end("failed")

    @property
    def over(self) -> bool:
        """True if it is completed or failed."""
        return self.status in ("completed", "failed")

    async def _end(self, status: ToolCallStatus) -> None:
        await self.announce()
        for command, showing in self._commands.items():
            if showing is not None:
                showing.cancel()
            await self._keep_output(command)
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._passing:
            self._passing.clear()
            self._stale.add("content")
        self.status = status
        shown = self._take_changes()
        await self._send(ToolCallUpdate(tool_call_id=self.id, status=status, **shown))

    # -- what it shows --------------------------------------------------------------------

    async def content(self, *blocks: str | ContentBlock) -> None:
        """Add text, or other content blocks."""
        await self._show(*map(_item, blocks))

    async def replace(self, *blocks: str | ContentBlock) -> None:
        """Show these instead."""
        self._content.clear()
        await self._show(*map(_item, blocks))

    async def diff(self, path: str, new_text: str, old_text: str | None = None) -> None:
        """Show a changed or new file."""
        await self._show(Diff(path=self._absolute(path), new_text=new_text, old_text=old_text))

    async def terminal(self, command: RunningCommand) -> None:
        """Show a command's output.

        The call keeps the output and the exit for replays.
        """
        if command in self._commands:
            return
        if command.in_client:
            self._commands[command] = None
            await self._show(Terminal(terminal_id=command.id))
            return

        async def show_live() -> None:
            shown = ""
            async for piece in command:
                shown = (shown + piece)[-bounds.LIVE_CHARACTERS :]
                self._passing[command] = _fence(shown)
                self._change("content")
                await asyncio.sleep(bounds.LIVE_PAUSE_SECONDS)

        self._commands[command] = asyncio.create_task(show_live(), name="show output")

    async def progress(self, text: str) -> None:
        """Show `text` until something else is shown."""
        self._outbox.check()
        self._passing[self] = text
        self._change("content")
        await self._outbox.pause()

    async def location(self, path: str, line: int | None = None) -> None:
        """Show that it works on this file; `line` counts from 1. Clients may follow along."""
        self._outbox.check()
        self._locations.append(ToolCallLocation(path=self._absolute(path), line=line))
        self._change("locations")
        await self._outbox.pause()

    async def output(self, output: Any) -> None:
        """Keep the tool's output, any JSON value, else TypeError."""
        raw = _json(output)
        self._has_output = True
        await self._send(ToolCallUpdate(tool_call_id=self.id, raw_output=raw))

    async def rename(self, title: str) -> None:
        """Change the title."""
        self.title = title
        await self._send(ToolCallUpdate(tool_call_id=self.id, title=title))

    async def _show(self, *items: ToolCallContent) -> None:
        self._outbox.check()
        self._content += items
        self._passing.pop(self, None)
        self._change("content")
        await self._outbox.pause()

    def _change(self, what: Literal["content", "locations"]) -> None:
        """Send this at once if little was sent so far, or nothing for a while; else with all that
        changes until then.

        Each update repeats everything, so the pauses grow with what was sent.
        """
        self._stale.add(what)
        if self.announced and self._later is None:  # earlier, it is shown with the announcement
            wait = self._next_at - monotonic()
            if wait > 0:
                self._later = asyncio.get_running_loop().call_later(wait, self._send_changes)
            else:
                self._send_changes()

    def _send_changes(self) -> None:
        self._later = None
        if not self._outbox.over:
            raw = encode(ToolCallUpdate(tool_call_id=self.id, **self._take_changes()))
            self._sent += len(raw)
            if self._sent > bounds.AT_ONCE_BYTES:
                grown = max(1, self._sent / bounds.LIVE_PAUSE_CHARACTERS)
                self._next_at = monotonic() + bounds.LIVE_PAUSE_SECONDS * grown
            self._outbox.add(raw)

    def _take_changes(self) -> _Shown:
        """Return what has changed since it was sent: the lasting content, then the passing one."""
        shown: _Shown = {}
        if "content" in self._stale:
            shown["content"] = (*self._content, *map(_text, self._passing.values()))
        if "locations" in self._stale:
            shown["locations"] = tuple(self._locations)
        self._stale.clear()
        return shown

    async def _send(self, update: ToolCallUpdate) -> None:
        self._outbox.check()
        if self.announced:  # earlier values are shown with the announcement, or with the end
            await self._outbox.put(encode(update))

    async def _keep_output(self, command: RunningCommand) -> None:
        try:
            async with timeout(bounds.OUTPUT_SECONDS):
                output = await command.output()
        except (AcpError, TimeoutError):
            return  # the client has gone, and the terminal with it
        raw: dict[str, object] = {}
        if command.in_client:
            raw["output"] = output.text[-bounds.OUTPUT_CHARACTERS :]
        elif output.text:
            self._content.append(_text(_fence(output.text[-bounds.OUTPUT_CHARACTERS :])))
            self._stale.add("content")
        if not self._has_output:
            ended = output.exit or CommandExit()
            cut = output.truncated or len(output.text) > bounds.OUTPUT_CHARACTERS
            raw |= {"truncated": cut, "exitCode": ended.code, "signal": ended.signal}
            await self.output(raw)

    def _location(self, location: Location) -> ToolCallLocation:
        match location:
            case str():
                return ToolCallLocation(path=self._absolute(location))
            case (path, line):
                return ToolCallLocation(path=self._absolute(path), line=line)
            case ToolCallLocation():
                return location

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._cwd, path))


def permission_view(tool: RunningTool) -> ToolCallPatch:
    """Return the whole call, as a permission request shows it."""
    return ToolCallPatch(
        tool_call_id=tool.id,
        title=tool.title,
        kind=tool.kind,
        status=tool.status,
        content=tuple(tool._content) or None,
        locations=tuple(tool._locations) or None,
        raw_input=tool._input,
    )


def _json(value: Any) -> Raw | UnsetType:
    """Return `value` as JSON; TypeError, at the author's line, if JSON cannot hold it."""
    return UNSET if value is UNSET else Raw(to_json(value))


def _item(block: str | ContentBlock) -> Content:
    return _text(block) if isinstance(block, str) else Content(content=block)


def _text(text: str) -> Content:
    return Content(content=TextContent(text=text))


def _fence(text: str) -> str:
    """Return `text` unchanged, as Markdown."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
