"""A session's connections to its MCP servers: each for its users, and all of them together.

Each connects when it is used, and reconnects after a loss: `mcp.reconnection` does that. A failing
server does not hold up the others; it is reported to the session, which goes on without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from acphold.errors import McpAnswerError, McpConnectError, McpError
from acphold.live.mcp import bounds
from acphold.live.mcp.faults import BadResultError
from acphold.live.mcp.offers import (
    CallResult,
    MadePrompt,
    OurSide,
    Progress,
    Prompt,
    Resource,
    Tool,
    call_result,
    offers,
    parse_prompt,
    refusal_result,
    resource_contents,
)
from acphold.live.mcp.reconnection import Failed, Lost, McpListener, Ready, Upkeep

if TYPE_CHECKING:
    from acp_wire.schema import BlobResourceContents, TextResourceContents
    from acphold.live.mcp.link import Link
    from acphold.live.mcp.servers import Server


T = TypeVar("T")
OfferT = TypeVar("OfferT", Tool, Resource, Prompt)


log = logging.getLogger(__name__)


class McpConnection(Upkeep):
    """One MCP server, started or connected to when it is first used, or before.

    A server that failed or was lost is retried, once, each time it is used.
    """

    def __init__(self, server: Server, ours: OurSide, listener: McpListener | None = None) -> None:
        super().__init__(server, ours, listener)
        self._tools = _OfferList("tools", Tool)
        self._resources = _OfferList("resources", Resource)
        self._prompts = _OfferList("prompts", Prompt)
        self._changes: dict[str, asyncio.TimerHandle] = {}

    async def tools(self) -> tuple[Tool, ...]:
        """Return its current tools; raises McpError."""
        return await self._list(self._tools)

    async def resources(self) -> tuple[Resource, ...]:
        """Return its current resources; raises McpError."""
        return await self._list(self._resources)

    async def prompts(self) -> tuple[Prompt, ...]:
        """Return its current prompts; raises McpError."""
        return await self._list(self._prompts)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        on_progress: Callable[[Progress], Awaitable[None]] | None = None,
        seconds: float | None = None,
    ) -> CallResult:
        """Call a tool. An error of the tool or the server is a result that `failed`.

        `on_progress` is awaited for each report, in order, before this returns. Cancelling this
        tells the server to stop. Raises McpConnectError, McpLostError, and McpAnswerError, also if
        no answer has come in `seconds`; by default after ten minutes without progress.
        """
        params: dict[str, object] = {"name": tool, "arguments": dict(arguments or {})}
        try:
            raw = await self._call_with_progress(params, on_progress, seconds)
        except McpAnswerError as exc:
            if exc.answer_code is None:
                raise
            return refusal_result(exc.reason, exc.answer_code)
        return self._read(call_result, raw)

    async def read_resource(
        self, uri: str
    ) -> tuple[TextResourceContents | BlobResourceContents, ...]:
        """Return the contents of the resource `uri`; raises McpError."""
        return self._read(resource_contents, await self.request("resources/read", {"uri": uri}))

    async def get_prompt(
        self, prompt: str, arguments: Mapping[str, str] | None = None
    ) -> MadePrompt:
        """Return a prompt made with these arguments; raises McpError."""
        params: dict[str, object] = {"name": prompt, "arguments": dict(arguments or {})}
        return self._read(parse_prompt, await self.request("prompts/get", params))

    async def aclose(self) -> None:
        for timer in self._changes.values():
            timer.cancel()
        self._changes.clear()
        await super().aclose()

    def _note_change(self, what: str) -> None:
        for listing in (self._tools, self._resources, self._prompts):
            if listing.what == what:
                listing.link = None
        if what not in self._changes:

            def tell() -> None:
                del self._changes[what]
                self._listener.report_change(self.name, what)

            self._changes[what] = asyncio.get_running_loop().call_later(
                bounds.CHANGES_SECONDS, tell
            )

    async def _call_with_progress(
        self,
        params: dict[str, object],
        on_progress: Callable[[Progress], Awaitable[None]] | None,
        seconds: float | None,
    ) -> dict[str, object]:
        """Return the raw result of a call of a tool, once all its progress was reported."""
        if on_progress is None:
            return await self.request("tools/call", params, seconds=seconds)
        reports: asyncio.Queue[Progress | None] = asyncio.Queue(bounds.PENDING_REPORTS)

        def enqueue(progress: Progress | None) -> None:
            if reports.full():
                reports.get_nowait()
            reports.put_nowait(progress)

        async def report() -> None:
            while (progress := await reports.get()) is not None:
                await on_progress(progress)

        # One task for all of them: the SDK starts one per report, which may overtake each other.
        reporting = asyncio.create_task(report(), name="mcp progress")
        try:
            raw = await self.request("tools/call", params, seconds=seconds, on_progress=enqueue)
            enqueue(None)
            await reporting
        finally:
            reporting.cancel()
        return raw

    async def _list(self, listing: _OfferList[OfferT]) -> tuple[OfferT, ...]:
        async with listing.lock:  # concurrent callers get the same answer
            link = await self.ready()
            if listing.what not in link.capabilities:
                return ()
            if link is not listing.link:
                listing.link = link  # a change reported meanwhile resets it
                try:
                    listing.known = await self._ask(listing)
                except BaseException:
                    listing.link = None
                    raise
            return listing.known

    async def _ask(self, listing: _OfferList[OfferT]) -> tuple[OfferT, ...]:
        """Return all pages of a server's list."""
        what, method = listing.what, f"{listing.what}/list"
        found: list[object] = []
        seen: set[object] = set()  # some servers repeat the same cursor for ever
        cursor: object = None
        try:
            async with asyncio.timeout(self._ours.deadline):
                for _ in range(bounds.LIST_PAGES):
                    result = await self.request(
                        method, {} if cursor is None else {"cursor": cursor}
                    )
                    page = result.get(what)
                    if not isinstance(page, list):
                        raise McpAnswerError(self.name, f"its answer to `{method}` is not MCP")
                    found += page
                    cursor = result.get("nextCursor")
                    if not isinstance(cursor, str) or cursor in seen:
                        break
                    seen.add(cursor)
                else:
                    more = "MCP server %r lists more than %d pages of %s"
                    log.warning(more, self.name, bounds.LIST_PAGES, what)
        except TimeoutError:
            reason = f"it did not list its {what} within {self._ours.deadline:g} s"
            raise McpAnswerError(self.name, reason) from None
        known, bad = offers(listing.kind, found, self.name)
        if bad:
            log.warning(
                "MCP server %r: dropped %d of its %s, which are not valid MCP", self.name, bad, what
            )
        return known

    def _read(self, convert: Callable[[dict[str, object]], T], raw: dict[str, object]) -> T:
        try:
            return convert(raw)
        except BadResultError as exc:
            raise McpAnswerError(self.name, f"its answer is not MCP: {exc}") from None


class _OfferList(Generic[OfferT]):
    """A server's list, all pages: `known` is valid while `link` is the current one."""

    def __init__(self, what: str, kind: type[OfferT]) -> None:
        self.what = what
        self.kind: type[OfferT] = kind
        self.lock = asyncio.Lock()
        self.link: Link | None = None
        self.known: tuple[OfferT, ...] = ()


class Servers(McpListener):
    """The servers of one session, by name; they are connected to by `start`, or their first use.

    `listener` is told each reason once. A session that is loaded with other servers gets another of
    these.
    """

    def __init__(
        self, servers: Sequence[Server], ours: OurSide, listener: McpListener | None = None
    ) -> None:
        self._listener = McpListener() if listener is None else listener
        self._connections = {server.name: McpConnection(server, ours, self) for server in servers}
        self._opening: tuple[asyncio.Task[object], ...] = ()
        self._tried: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def __getitem__(self, name: str) -> McpConnection:
        """Return the connection to server `name`, in any state; raises McpError without one."""
        if name not in self._connections:
            known = ", ".join(map(repr, self._connections)) or "none"
            raise McpError(name, f"this session has no such server; it has: {known}")
        return self._connections[name]

    def __contains__(self, name: object) -> bool:
        return name in self._connections

    def __iter__(self) -> Iterator[McpConnection]:
        return iter(self._connections.values())

    def __len__(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        """Begin to connect to all servers, and request their tools; returns at once.

        Starting a program blocks for some milliseconds, so urgent answers should be sent first.
        """
        launching = asyncio.create_task(self._launch(), name="mcp start")
        # The connections cache the tools for the next caller.
        self._opening = (launching, asyncio.create_task(self.tools(), name="mcp tools"))

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of all usable servers, in the order of the servers.

        Waits for those still connecting for the first time, each up to its deadline. A failed one
        is left out, and retried in the background. Never raises.
        """
        return await self._from_all(McpConnection.tools)

    async def prompts(self) -> tuple[Prompt, ...]:
        """Return the prompts of all usable servers; waits and fails like `tools`."""
        return await self._from_all(McpConnection.prompts)

    async def aclose(self) -> None:
        """Close all connections in parallel; bounded, may be called again."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*(connection.aclose() for connection in self))

    async def _launch(self) -> None:
        launched = asyncio.Event()
        try:
            for connection in self:
                connection.start(launched)
                await asyncio.sleep(0)  # let other tasks run between two programs
        finally:
            launched.set()

    async def _from_all(
        self, ask: Callable[[McpConnection], Awaitable[tuple[T, ...]]]
    ) -> tuple[T, ...]:
        if self._opening:
            await asyncio.wait(self._opening[:1])

        async def from_one(connection: McpConnection) -> tuple[T, ...]:
            await connection.first_attempt()
            match connection.state:
                case Ready() | Lost():
                    try:
                        return await ask(connection)
                    except McpConnectError:
                        pass  # reported already
                    except McpError as exc:
                        log.warning("%s", exc)
                        self._tell(exc.server, exc.reason)
                case Failed() if (
                    time.monotonic() - self._tried[connection.name] > bounds.RETRY_SECONDS
                ):
                    self._tried[connection.name] = time.monotonic()
                    connection.start()
            return ()

        found = await asyncio.gather(*map(from_one, self))
        return tuple(item for items in found for item in items)

    def report_failure(self, server: str, reason: str) -> None:
        self._tried[server] = time.monotonic()
        self._tell(server, reason)

    def report_change(self, server: str, what: str) -> None:
        self._listener.report_change(server, what)

    def _tell(self, server: str, reason: str) -> None:
        if self._told.get(server) != reason:
            self._told[server] = reason
            self._listener.report_failure(server, reason)
