"""A session's connections to its MCP servers: each for its users, and all of them together.

A failing server does not hold up the others; it is reported to the session, which goes on without.
Each connects when it is used, and reconnects after a loss. Its task goes through these states:

    state         event                                       next
    Idle          it is used                                  Connecting
    Connecting    the server has introduced itself            Ready
    Connecting    it has not, and will not                    Failed
    Ready         the connection has ended                    Lost
    Failed, Lost  it is used again                            Connecting
    any           it is closed                                Closed

The MCP SDK is imported when the first session names a server, in a thread: the import takes half a
second and 50 MB, which is saved if nobody names a server.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct, structs

from acp_wire.errors import MissingExtraError
from acp_wire.extras import has_packages
from acp_wire.schema import McpServerStdio
from acp_wire.tasks import beside, end, first, timeout
from acphold.mcp_servers import bounds, errors
from acphold.mcp_servers.faults import (
    MAX_REASON,
    AnswerError,
    BadResultError,
    FaultError,
    FaultRedaction,
    LostError,
    UnsentError,
)
from acphold.mcp_servers.offers import (
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
from acphold.mcp_servers.servers import McpServerAcp, Server
from acphold.mcp_servers.transports import StdioServer

if TYPE_CHECKING:
    from acp_wire.schema import BlobResourceContents, TextResourceContents
    from acphold.mcp_servers.link import Link

T = TypeVar("T")
OfferT = TypeVar("OfferT", Tool, Resource, Prompt)

log = logging.getLogger(__name__)


SDK = ("anyio", "httpx2", "mcp", "mcp_types", "pydantic")
"""The packages of the extra `sdk`, as they are imported."""

NOISY = ("mcp", "client", "httpx2", "httpcore2")
"""Loggers of the SDK and its HTTP client.

They log whole messages, addresses with keys in them, and a traceback for each line that is not
JSON. The important parts are reported as errors.
"""


class Idle(Struct, frozen=True):
    """The server was not used yet."""


class Connecting(Struct, frozen=True, eq=False):
    """An attempt to connect; `over` ends it, `link` is its outcome, None if it failed."""

    over: asyncio.Event
    link: asyncio.Future[Link | None]


class Ready(Struct, frozen=True, eq=False):
    """The server is usable; `over` ends the connection."""

    over: asyncio.Event
    link: Link


class Failed(Struct, frozen=True):
    """The connection could not be made, at this time (`monotonic`)."""

    error: str
    at: float


class Lost(Struct, frozen=True):
    """The connection was ready and then lost."""

    error: str


class Closed(Struct, frozen=True):
    """The session no longer needs it."""


State = Idle | Connecting | Ready | Failed | Lost | Closed


class McpListener:
    """Is told what becomes of the servers, each by its name. This one ignores it."""

    def report_failure(self, server: str, reason: str) -> None:
        """Take the reason why a server cannot be used, in words for the person; the same one is
        not told twice in a row."""

    def report_change(self, server: str, what: str) -> None:
        """Note that the `tools`, `resources` or `prompts` of a server have changed."""


class McpConnection:
    """One MCP server, started or connected to when it is first used, or before.

    A server that failed or was lost is retried, once, each time it is used. There is at most one
    connection at a time, each owned by its own task.
    """

    def __init__(self, server: Server, ours: OurSide, listener: McpListener | None = None) -> None:
        self.name: str = server.name
        self._listener = McpListener() if listener is None else listener
        self._server = server
        self._ours = ours
        self._redact = FaultRedaction(server)
        self.state: State = Idle()
        """The connection's current state."""
        self._attempted = asyncio.Event()
        self._told = False
        self._reported = ""
        self._owners: set[asyncio.Task[None]] = set()
        self._tools = _OfferList("tools", Tool)
        self._resources = _OfferList("resources", Resource)
        self._prompts = _OfferList("prompts", Prompt)
        self._changes: dict[str, asyncio.TimerHandle] = {}

    @property
    def error(self) -> str | None:
        """The reason why the server is unusable now, with its name; None if it is fine."""
        match self.state:
            case Failed(error=reason) | Lost(error=reason):
                return str(errors.McpError(self.name, reason))
            case _:
                return None

    def start(self, launched: asyncio.Event | None = None) -> None:
        """Begin to connect, unless it is connected or connecting.

        The SDK is not imported before `launched`: the import would slow down the start of programs.
        """
        if not isinstance(self.state, Idle | Failed | Lost):
            return
        outcome = asyncio.get_running_loop().create_future()
        self.state = mine = Connecting(asyncio.Event(), outcome)
        owner = asyncio.create_task(self._own(mine, launched), name=f"mcp {self.name}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        # If the whole event loop is cancelled, for example: nobody shall wait in vain.
        owner.add_done_callback(lambda _: self._down(mine, "the connection was cancelled"))

    async def first_attempt(self) -> bool:
        """Wait for the end of the first attempt; return True if the server is usable now."""
        if isinstance(self.state, Idle):
            self.start()
        await self._attempted.wait()
        return isinstance(self.state, Ready)

    async def ready(self) -> Link:
        """Wait until the server is usable, retrying once if it failed; raises McpConnectError."""
        self.start()
        state = self.state
        if isinstance(state, Connecting):
            link = await asyncio.shield(state.link)
            if link is not None:
                return link
            state = self.state
        match state:
            case Ready(link=link):
                return link
            case Failed(error=reason) | Lost(error=reason):
                raise errors.McpConnectError(self.name, reason)
            case _:
                raise errors.McpConnectError(self.name, "it was closed")

    async def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, object]:
        """Return the result of a request, with `Link.request`'s time limits; raises McpError."""
        for last in (False, True):
            link = await self.ready()
            try:
                return await link.request(method, params, seconds=seconds, on_progress=on_progress)
            except UnsentError as exc:
                self._drop(link, str(exc))
                if last:
                    raise errors.McpLostError(self.name, self._words(str(exc))) from None
            except LostError as exc:
                self._drop(link, str(exc))
                reason = f"{self._words(str(exc))}; `{method}` was not answered"
                raise errors.McpLostError(self.name, reason) from None
            except FaultError as exc:
                raise errors.McpAnswerError(self.name, self._words(str(exc))) from None
            except AnswerError as exc:
                reason = self._redact(exc.message)
                raise errors.McpAnswerError(self.name, reason, exc.code) from None
        raise AssertionError("the second turn returns or raises")

    def report(self, reason: str) -> None:
        """Tell the listener why it cannot be used, unless that was the last thing it was told."""
        if reason != self._reported:
            self._reported = reason
            self._listener.report_failure(self.name, reason)

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
        except errors.McpAnswerError as exc:
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
        """End the connection, its program and all children; bounded, may be called again."""
        for timer in self._changes.values():
            timer.cancel()
        self._changes.clear()
        state, self.state = self.state, Closed()
        self._attempted.set()
        if isinstance(state, Connecting | Ready):
            state.over.set()
        if isinstance(state, Connecting) and not state.link.done():
            state.link.set_result(None)
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=bounds.SERVER_CLOSE_SECONDS)
            if late:
                log.error("MCP server %r does not close; cancelling it", self.name)
            await end(*late)

    def _note_change(self, what: str) -> None:
        """Note that the server's `tools`, `resources` or `prompts` have changed."""
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
            async with timeout(self._ours.deadline):
                for _ in range(bounds.LIST_PAGES):
                    result = await self.request(
                        method, {} if cursor is None else {"cursor": cursor}
                    )
                    page = result.get(what)
                    if not isinstance(page, list):
                        raise errors.McpAnswerError(
                            self.name, f"its answer to `{method}` is not MCP"
                        )
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
            raise errors.McpAnswerError(self.name, reason) from None
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
            raise errors.McpAnswerError(self.name, f"its answer is not MCP: {exc}") from None

    async def _own(self, mine: Connecting, launched: asyncio.Event | None) -> None:
        """Hold one connection from beginning to end; runs in a task that nobody cancels."""
        program = None
        try:
            if not has_packages(*SDK):
                raise FaultError(str(MissingExtraError("MCP servers", "mcp", "acphold")))
            if isinstance(self._server, McpServerStdio):
                program = StdioServer(self._server, self._ours.cwd, self._ours.surroundings)
                program.start()  # it starts while the SDK is imported
            async with (
                beside(load_sdk(launched), "import mcp") as prepared,
                beside(mine.over.wait(), "over") as over,
            ):
                await first(prepared, over)
            if mine.over.is_set():
                return
            prepared.result()
            from acphold.mcp_servers.link import open_link
            from acphold.mcp_servers.streams import AcpWire, StdioWire, Wire, url_wire

            ours = self._ours
            wire: Wire
            if isinstance(self._server, McpServerAcp):
                assert ours.channel is not None
                wire = AcpWire(self._server, ours.channel, mine.over)
                ours = structs.replace(ours, roots=(), elicitation=None)  # it sends no requests
            elif program is not None:
                wire = StdioWire(program, mine.over)
            else:
                assert not isinstance(self._server, McpServerStdio)
                wire = url_wire(self._server, mine.over, ours.deadline)
            async with open_link(wire, ours, self.name, self._note_change) as link:
                if self.state is mine:
                    self.state = Ready(mine.over, link)
                    self._told = False
                    self._attempted.set()
                    mine.link.set_result(link)
                await wire.over.wait()
                self._down(mine, await wire.fault("the connection was closed"))
        except FaultError as exc:
            self._down(mine, str(exc))
        except Exception:
            log.exception("MCP server %r: the connection could not be kept", self.name)
        finally:
            if program is not None:
                await program.aclose()

    def _down(self, mine: Connecting, reason: str) -> None:
        state = self.state
        if state is mine:
            self.state = Failed(self._words(reason), time.monotonic())
            mine.link.set_result(None)
        elif isinstance(state, Ready) and state.over is mine.over:
            self.state = Lost(self._words(reason))
        else:
            return  # reported before, or closed
        log.warning("%s", self.error)
        self._attempted.set()
        if isinstance(self.state, Failed) and not self._told:
            self._told = True
            self.report(self.state.error)

    def _drop(self, link: Link, reason: str) -> None:
        """Have the next request reconnect, before the owner has noticed the end."""
        if isinstance(self.state, Ready) and self.state.link is link:
            self.state.over.set()
            self.state = Lost(self._words(reason))
            log.warning("%s", self.error)

    def _words(self, reason: str) -> str:
        return self._redact.one_line(reason, MAX_REASON)


class _OfferList(Generic[OfferT]):
    """A server's list, all pages: `known` is valid while `link` is the current one."""

    def __init__(self, what: str, kind: type[OfferT]) -> None:
        self.what = what
        self.kind: type[OfferT] = kind
        self.lock = asyncio.Lock()
        self.link: Link | None = None
        self.known: tuple[OfferT, ...] = ()


class Servers:
    """The servers of one session, by name; they are connected to by `start`, or their first use.

    A session that is loaded with other servers gets another of these.
    """

    def __init__(
        self, servers: Sequence[Server], ours: OurSide, listener: McpListener | None = None
    ) -> None:
        self._connections = {
            server.name: McpConnection(server, ours, listener) for server in servers
        }
        self._opening: tuple[asyncio.Task[object], ...] = ()

    def __getitem__(self, name: str) -> McpConnection:
        """Return the connection to server `name`, in any state; raises McpError without one."""
        if name not in self._connections:
            known = ", ".join(map(repr, self._connections)) or "none"
            raise errors.McpError(name, f"this session has no such server; it has: {known}")
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
                    except errors.McpConnectError:
                        pass  # reported already
                    except errors.McpError as exc:
                        log.warning("%s", exc)
                        connection.report(exc.reason)
                case Failed(at=at) if time.monotonic() - at > bounds.RETRY_SECONDS:
                    connection.start()
            return ()

        found = await asyncio.gather(*map(from_one, self))
        return tuple(item for items in found for item in items)


_import: Future[None] | None = None


async def load_sdk(launched: asyncio.Event | None = None) -> None:
    """Import the SDK, once `launched` is set, so that importing `link` is cheap."""
    global _import
    if launched is not None:
        await launched.wait()
    if _import is None or (_import.done() and _import.exception() is not None):
        _import = Future()
        _import.set_running_or_notify_cancel()  # a cancelled waiter must not cancel it for all
        threading.Thread(target=_load, args=(_import,), name="import mcp").start()
    if not _import.done():
        await asyncio.wrap_future(_import)
    elif (error := _import.exception()) is not None:
        raise error


def _load(done: Future[None]) -> None:
    try:
        for name in NOISY:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # otherwise somebody has configured it
                logger.setLevel(logging.CRITICAL)
        # Without collecting garbage, which took a sixth of the time; and what stays is excluded
        # from later collections: scanning it takes 50 ms, which somebody may wait for.
        was_on = gc.isenabled()
        gc.disable()
        try:
            import_module("acphold.mcp_servers.link")
            gc.freeze()
        finally:
            if was_on:
                gc.enable()
    except BaseException as exc:
        done.set_exception(exc)
    else:
        done.set_result(None)
