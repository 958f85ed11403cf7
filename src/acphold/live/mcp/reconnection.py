"""The states of one connection, and the task that owns and reconnects it.

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
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from acp_wire.schema import McpServerStdio
from acp_wire.tasks import beside, end, first
from acphold import errors
from acphold.extras import require
from acphold.live.mcp import bounds
from acphold.live.mcp.faults import (
    MAX_REASON,
    AnswerError,
    FaultError,
    FaultRedaction,
    LostError,
    UnsentError,
)
from acphold.live.mcp.servers import McpServerAcp, Server
from acphold.live.mcp.transports import StdioServer

if TYPE_CHECKING:
    from acphold.live.mcp.link import Link
    from acphold.live.mcp.offers import OurSide, Progress

log = logging.getLogger(__name__)


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
    """The connection could not be made."""

    error: str


class Lost(Struct, frozen=True):
    """The connection was ready and then lost."""

    error: str


class Closed(Struct, frozen=True):
    """The session no longer needs it."""


State = Idle | Connecting | Ready | Failed | Lost | Closed


class McpListener:
    """Is told what becomes of the servers, each by its name. This one ignores it."""

    def report_failure(self, server: str, reason: str) -> None:
        """Take the reason why a server cannot be connected to, in words for the person: once, and
        again only after it worked."""

    def report_change(self, server: str, what: str) -> None:
        """Note that the `tools`, `resources` or `prompts` of a server have changed."""


class Upkeep:
    """The way to one server: at most one connection at a time, each owned by its own task."""

    def __init__(self, server: Server, ours: OurSide, listener: McpListener | None = None) -> None:
        self.name: str = server.name
        self._listener = McpListener() if listener is None else listener
        self._server = server
        self._ours = ours
        self._redact = FaultRedaction(server)
        self._state: State = Idle()
        self._attempted = asyncio.Event()
        self._told = False
        self._owners: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> State:
        """The connection's current state."""
        return self._state

    @property
    def error(self) -> str | None:
        """The reason why the server is unusable now, with its name; None if it is fine."""
        match self._state:
            case Failed(error=reason) | Lost(error=reason):
                return str(errors.McpError(self.name, reason))
            case _:
                return None

    def start(self, launched: asyncio.Event | None = None) -> None:
        """Begin to connect, unless it is connected or connecting.

        The SDK is not imported before `launched`: the import would slow down the start of programs.
        """
        if not isinstance(self._state, Idle | Failed | Lost):
            return
        outcome = asyncio.get_running_loop().create_future()
        self._state = mine = Connecting(asyncio.Event(), outcome)
        owner = asyncio.create_task(self._own(mine, launched), name=f"mcp {self.name}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        # If the whole event loop is cancelled, for example: nobody shall wait in vain.
        owner.add_done_callback(lambda _: self._down(mine, "the connection was cancelled"))

    async def first_attempt(self) -> bool:
        """Wait for the end of the first attempt; return True if the server is usable now."""
        if isinstance(self._state, Idle):
            self.start()
        await self._attempted.wait()
        return isinstance(self._state, Ready)

    async def ready(self) -> Link:
        """Wait until the server is usable, retrying once if it failed; raises McpConnectError."""
        self.start()
        state = self._state
        if isinstance(state, Connecting):
            link = await asyncio.shield(state.link)
            if link is not None:
                return link
            state = self._state
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
            except TimeoutError:
                waited = "a long time without progress" if seconds is None else f"{seconds:g} s"
                reason = f"it did not answer `{method}` for {waited}"
                raise errors.McpAnswerError(self.name, reason) from None
        raise AssertionError("the second turn returns or raises")

    async def aclose(self) -> None:
        """End the connection, its program and all children; bounded, may be called again."""
        state, self._state = self._state, Closed()
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

    async def _own(self, mine: Connecting, launched: asyncio.Event | None) -> None:
        """Hold one connection from beginning to end; runs in a task that nobody cancels."""
        program = None
        try:
            if isinstance(self._server, McpServerStdio):
                program = StdioServer(self._server, self._ours.cwd, self._ours.surroundings)
                program.start()  # it starts while the SDK is imported
            async with (
                beside(_prepare(launched), "import mcp") as prepared,
                beside(mine.over.wait(), "over") as over,
            ):
                await first(prepared, over)
            if mine.over.is_set():
                return
            prepared.result()
            from acphold.live.mcp.link import open_link
            from acphold.live.mcp.streams import AcpWire, StdioWire, Wire, url_wire

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
                if self._state is mine:
                    self._state = Ready(mine.over, link)
                    self._told = False
                    self._attempted.set()
                    mine.link.set_result(link)
                await wire.over.wait()
                self._down(mine, await wire.fault("the connection was closed"))
        except FaultError as exc:
            self._down(mine, str(exc))
        except Exception:
            log.exception("MCP server %r: acphold failed to keep the connection", self.name)
        finally:
            if program is not None:
                await program.aclose()

    def _down(self, mine: Connecting, reason: str) -> None:
        state = self._state
        if state is mine:
            self._state = Failed(self._words(reason))
            mine.link.set_result(None)
        elif isinstance(state, Ready) and state.over is mine.over:
            self._state = Lost(self._words(reason))
        else:
            return  # reported before, or closed
        log.warning("%s", self.error)
        self._attempted.set()
        if isinstance(self._state, Failed) and not self._told:
            self._told = True
            self._listener.report_failure(self.name, self._state.error)

    def _drop(self, link: Link, reason: str) -> None:
        """Have the next request reconnect, before the owner has noticed the end."""
        if isinstance(self._state, Ready) and self._state.link is link:
            self._state.over.set()
            self._state = Lost(self._words(reason))
            log.warning("%s", self.error)

    def _words(self, reason: str) -> str:
        return self._redact.one_line(reason, MAX_REASON)


_import: Future[None] | None = None


async def _prepare(launched: asyncio.Event | None) -> None:
    """Import the SDK, once `launched` is set; FaultError without it."""
    if launched is not None:
        await launched.wait()
    await load_sdk()


async def load_sdk() -> None:
    """Import the SDK, so that importing `mcp.link` is cheap; FaultError without it."""
    global _import
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
        require("mcp", "MCP servers")
        for name in NOISY:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # otherwise somebody has configured it
                logger.setLevel(logging.CRITICAL)
        # Without collecting garbage, which took a sixth of the time; and what stays is excluded
        # from later collections: scanning it takes 50 ms, which somebody may wait for.
        was_on = gc.isenabled()
        gc.disable()
        try:
            import_module("acphold.live.mcp.link")
            gc.freeze()
        finally:
            if was_on:
                gc.enable()
    except errors.MissingExtraError as exc:
        done.set_exception(FaultError(str(exc)))
    except BaseException as exc:
        done.set_exception(exc)
    else:
        done.set_result(None)
