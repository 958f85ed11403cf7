"""The connection to one MCP server of a session, as those who use the server see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from acphold.errors import McpAnswerError
from acphold.mcp.faults import BadResultError
from acphold.mcp.listing import Listing
from acphold.mcp.reconnecting import Reconnecting, State
from acphold.mcp.results import (
    CallResult,
    MadePrompt,
    Progress,
    Prompt,
    Resource,
    Tool,
    call_result,
    made_prompt,
    refused_call,
    resource_contents,
)

if TYPE_CHECKING:
    from acphold.mcp.channel import Channel
    from acphold.mcp.facing import Facing
    from acphold.mcp.servers import Server
    from acphold.schema import BlobResourceContents, TextResourceContents

T = TypeVar("T")
OfferT = TypeVar("OfferT", Tool, Resource, Prompt)

DEADLINE = 10.0
"""Seconds in which a server has to answer `initialize`, and again to list what it has."""

CHANGE_SECONDS = 0.1
"""Changes that a server tells within this time are one: some tell five of them at once."""


class Connection:
    """One MCP server, which is started or connected to when it is asked something at the latest.

    A server that failed or went away is tried again, once, each time it is used. `cwd` is where
    its program starts; `deadline` is in seconds. `on_failure` is told once when the server cannot
    be connected to, and again only after it could be; `on_change` that it lists other `tools`,
    `resources` or `prompts` than before. `channel` leads to a server over ACP.
    """

    def __init__(
        self,
        server: Server,
        *,
        cwd: str,
        facing: Facing,
        deadline: float = DEADLINE,
        on_failure: Callable[[Connection], None] | None = None,
        on_change: Callable[[Connection, str], None] | None = None,
        channel: Channel | None = None,
    ) -> None:
        self.name = server.name
        self._deadline = deadline
        self._on_failure = on_failure
        self._on_change = on_change
        self._way = Reconnecting(
            server,
            cwd=cwd,
            facing=facing,
            deadline=deadline,
            on_failure=self._failed,
            on_change=self._changed,
            channel=channel,
        )
        self._tools = Listing("tools", Tool)
        self._resources = Listing("resources", Resource)
        self._prompts = Listing("prompts", Prompt)
        self._changes: dict[str, asyncio.TimerHandle] = {}

    @property
    def state(self) -> State:
        """What the connection is in now."""
        return self._way.state

    @property
    def error(self) -> str | None:
        """Why the server cannot be used at the moment, naming it; None if nothing is wrong."""
        return self._way.error

    def start(self) -> None:
        """Begin to connect, unless it is connected or on the way."""
        self._way.start()

    async def ready(self) -> None:
        """Wait until the server can be asked, trying once more if it failed; McpConnectError."""
        await self._way.link()

    async def settled(self) -> bool:
        """Wait for the end of the first attempt; whether the server can be asked now."""
        return await self._way.settled()

    async def tools(self) -> tuple[Tool, ...]:
        """The tools it has now; raises McpError."""
        return await self._listed(self._tools)

    async def resources(self) -> tuple[Resource, ...]:
        """The resources it has now; raises McpError."""
        return await self._listed(self._resources)

    async def prompts(self) -> tuple[Prompt, ...]:
        """The prompts it has now; raises McpError."""
        return await self._listed(self._prompts)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        on_progress: Callable[[Progress], Awaitable[None]] | None = None,
        seconds: float | None = None,
    ) -> CallResult:
        """Call a tool. What the tool or the server says against it is a result that `failed`.

        `on_progress` is awaited for each report, in order, before this returns. Cancelling this
        tells the server to stop. Raises McpConnectError, McpLostError, and McpAnswerError, which
        is also raised when no answer has come in `seconds`.
        """
        params: dict[str, object] = {"name": tool, "arguments": dict(arguments or {})}
        try:
            raw = await self._reported("tools/call", params, on_progress, seconds)
        except McpAnswerError as exc:
            if exc.answer_code is None:
                raise
            return refused_call(exc.reason, exc.answer_code)
        return self._read(call_result, raw)

    async def read_resource(
        self, uri: str
    ) -> tuple[TextResourceContents | BlobResourceContents, ...]:
        """The contents of the resource `uri`; raises McpError."""
        return self._read(
            resource_contents, await self._way.request("resources/read", {"uri": uri})
        )

    async def get_prompt(
        self, prompt: str, arguments: Mapping[str, str] | None = None
    ) -> MadePrompt:
        """What a prompt becomes with these arguments; raises McpError."""
        params: dict[str, object] = {"name": prompt, "arguments": dict(arguments or {})}
        return self._read(made_prompt, await self._way.request("prompts/get", params))

    async def aclose(self) -> None:
        """End the connection, its program and all that it started; bounded, may be called again."""
        for timer in self._changes.values():
            timer.cancel()
        self._changes.clear()
        await self._way.aclose()

    def _failed(self) -> None:
        if self._on_failure is not None:
            self._on_failure(self)

    def _changed(self, what: str) -> None:
        for listing in (self._tools, self._resources, self._prompts):
            if listing.what == what:
                listing.forget()
        if self._on_change is not None and what not in self._changes:
            loop = asyncio.get_running_loop()
            self._changes[what] = loop.call_later(CHANGE_SECONDS, self._tell_change, what)

    def _tell_change(self, what: str) -> None:
        del self._changes[what]
        if self._on_change is not None:
            self._on_change(self, what)

    async def _reported(
        self,
        method: str,
        params: dict[str, object],
        on_progress: Callable[[Progress], Awaitable[None]] | None,
        seconds: float | None,
    ) -> dict[str, object]:
        if on_progress is None:
            return await self._way.request(method, params, seconds=seconds)
        reports: asyncio.Queue[Progress | None] = asyncio.Queue()

        async def report() -> None:
            while (progress := await reports.get()) is not None:
                await on_progress(progress)

        # One task for all of them: the SDK makes one for each, which may overtake each other.
        reporting = asyncio.create_task(report(), name="mcp progress")
        try:
            raw = await self._way.request(
                method, params, seconds=seconds, on_progress=reports.put_nowait
            )
            reports.put_nowait(None)
            await reporting
        finally:
            reporting.cancel()
        return raw

    async def _listed(self, listing: Listing[OfferT]) -> tuple[OfferT, ...]:
        return await listing.read(self._way, self._deadline)

    def _read(self, convert: Callable[[dict[str, object]], T], raw: dict[str, object]) -> T:
        try:
            return convert(raw)
        except BadResultError as exc:
            raise McpAnswerError(self.name, f"its answer is not MCP: {exc}") from None
