"""A connection that is made again when it was lost: its states, and the task that owns it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from acphold.errors import McpAnswerError, McpConnectError, McpError, McpLostError
from acphold.mcp.faults import AnswerError, FaultError, LostError, UnsentError
from acphold.mcp.loading import load_sdk
from acphold.mcp.program import Program
from acphold.mcp.redaction import Redaction
from acphold.mcp.servers import McpServerAcp
from acphold.schema import McpServerStdio

if TYPE_CHECKING:
    from acphold.mcp.channel import Channel
    from acphold.mcp.facing import Facing
    from acphold.mcp.linking import Link
    from acphold.mcp.results import Progress
    from acphold.mcp.servers import Server

log = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0
"""After this long, closing waits for a server no more."""


MAX_REASON = 500
"""Characters of a reason; some servers answer with whole pages."""


class Idle(Struct, frozen=True):
    """Nobody has asked for the server yet."""


class Connecting(Struct, frozen=True, eq=False):
    """On the way; `over` ends the attempt, `link` is its outcome, None if it failed."""

    over: asyncio.Event
    link: asyncio.Future[Link | None]


class Ready(Struct, frozen=True, eq=False):
    """The server can be asked; `over` ends the connection."""

    over: asyncio.Event
    link: Link


class Failed(Struct, frozen=True):
    """It could not be connected to; it is tried again when it is next used."""

    error: str


class Lost(Struct, frozen=True):
    """It was ready and went away; it is connected to again when it is next used."""

    error: str


class Closed(Struct, frozen=True):
    """The session needs it no more."""


State = Idle | Connecting | Ready | Failed | Lost | Closed


class Reconnecting:
    """The way to one server: at most one connection at a time, each owned by a task of its own.

    `cwd` is where its program starts; `deadline` is in seconds. `on_failure` is told once when the
    server cannot be connected to, and again only after it could be; `on_change` what the server
    lists anew: `tools`, `resources`, `prompts`. `channel` leads to a server over ACP.
    """

    def __init__(
        self,
        server: Server,
        *,
        cwd: str,
        facing: Facing,
        deadline: float,
        on_failure: Callable[[], None],
        on_change: Callable[[str], None],
        channel: Channel | None = None,
    ) -> None:
        self.name = server.name
        self._server = server
        self._cwd = cwd
        self._facing = facing
        self._deadline = deadline
        self._on_failure = on_failure
        self._on_change = on_change
        self._channel = channel
        self._redact = Redaction(server)
        self._state: State = Idle()
        self._settled = asyncio.Event()
        self._told = False
        self._owners: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> State:
        """What the connection is in now."""
        return self._state

    @property
    def error(self) -> str | None:
        """Why the server cannot be used at the moment, naming it; None if nothing is wrong."""
        match self._state:
            case Failed(error=reason) | Lost(error=reason):
                return str(McpError(self.name, reason))
            case _:
                return None

    def start(self) -> None:
        """Begin to connect, unless it is connected or on the way."""
        if not isinstance(self._state, Idle | Failed | Lost):
            return
        outcome = asyncio.get_running_loop().create_future()
        self._state = mine = Connecting(asyncio.Event(), outcome)
        owner = asyncio.create_task(self._own(mine), name=f"mcp {self.name}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        # Cancelled after all, with the whole event loop say: nobody shall wait in vain.
        owner.add_done_callback(lambda _: self._down(mine, "the connection was given up"))

    async def settled(self) -> bool:
        """Wait for the end of the first attempt; whether the server can be asked now."""
        if isinstance(self._state, Idle):
            self.start()
        await self._settled.wait()
        return isinstance(self._state, Ready)

    async def link(self) -> Link:
        """The link, connecting if there is none; raises McpConnectError."""
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
                raise McpConnectError(self.name, reason)
            case _:
                raise McpConnectError(self.name, "it was closed")

    async def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, object]:
        """The result of a request; raises McpError."""
        for last in (False, True):
            link = await self.link()
            try:
                return await link.request(method, params, seconds=seconds, on_progress=on_progress)
            except UnsentError as exc:
                self._drop(link, str(exc))
                if last:
                    raise McpLostError(self.name, self._words(str(exc))) from None
            except LostError as exc:
                self._drop(link, str(exc))
                reason = f"{self._words(str(exc))}; `{method}` was not answered"
                raise McpLostError(self.name, reason) from None
            except FaultError as exc:
                raise McpAnswerError(self.name, self._words(str(exc))) from None
            except AnswerError as exc:
                reason = self._redact(exc.message)
                raise McpAnswerError(self.name, reason, exc.code) from None
            except TimeoutError:
                reason = f"it gave no answer to `{method}` for {seconds:g} s"
                raise McpAnswerError(self.name, reason) from None
        raise AssertionError("the second turn returns or raises")

    async def aclose(self) -> None:
        """End the connection, its program and all that it started; bounded, may be called again."""
        self._end()
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=CLOSE_SECONDS)
            for owner in late:
                log.error("MCP server %r does not end", self.name)
                owner.cancel()

    def _end(self) -> None:
        state, self._state = self._state, Closed()
        self._settled.set()
        if isinstance(state, Connecting | Ready):
            state.over.set()
        if isinstance(state, Connecting) and not state.link.done():
            state.link.set_result(None)

    async def _own(self, mine: Connecting) -> None:
        """Hold one connection from its beginning to its end: a task, which nobody cancels."""
        program = None
        try:
            if isinstance(self._server, McpServerStdio):
                program = Program(self._server, self._cwd)
                program.start()  # it starts while the SDK is imported
            await load_sdk()
            if not mine.over.is_set():
                await self._keep(mine, program)
        except FaultError as exc:
            self._down(mine, str(exc))
        except Exception:
            log.exception("MCP server %r: acphold failed", self.name)
        finally:
            if program is not None:
                await program.aclose()

    async def _keep(self, mine: Connecting, program: Program | None) -> None:
        from acphold.mcp.linking import keep_link
        from acphold.mcp.streams import wire_to

        facing = self._facing
        if isinstance(self._server, McpServerAcp):  # it has no way to ask us anything
            facing = structs.replace(facing, roots=(), sampling=None, elicitation=None)
        await keep_link(
            wire_to(self._server, program, mine.over, self._deadline, self._channel),
            facing,
            self.name,
            seconds=self._deadline,
            up=lambda link: self._up(mine, link),
            down=lambda reason: self._down(mine, reason),
            changed=self._on_change,
        )

    def _up(self, mine: Connecting, link: Link) -> None:
        if self._state is not mine:
            return
        self._state = Ready(mine.over, link)
        self._told = False
        self._settled.set()
        mine.link.set_result(link)

    def _down(self, mine: Connecting, reason: str) -> None:
        state = self._state
        if state is mine:
            self._state = Failed(self._words(reason))
            mine.link.set_result(None)
        elif isinstance(state, Ready) and state.over is mine.over:
            self._state = Lost(self._words(reason))
        else:
            return  # told before, or closed
        log.warning("%s", self.error)
        self._settled.set()
        if isinstance(self._state, Failed) and not self._told:
            self._told = True
            self._on_failure()

    def _words(self, reason: str) -> str:
        return self._redact.one_line(reason, MAX_REASON)

    def _drop(self, link: Link, reason: str) -> None:
        """Let the next request connect again, before the owner has noticed the end."""
        if isinstance(self._state, Ready) and self._state.link is link:
            self._state.over.set()
            self._state = Lost(self._words(reason))
            log.warning("%s", self.error)
