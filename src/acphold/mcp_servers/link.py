"""One connection to one MCP server, through the SDK: opened, kept and closed in one task.

The SDK's contexts must be left by the task that entered them, so that task does nothing else; the
requests of a `Link` may come from any. Nobody cancels the task: it is told to end by an event.

Needs the SDK: imported only after `connections.load_sdk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from acp_wire.tasks import end, timeout
from acphold.mcp_servers import bounds
from acphold.mcp_servers.faults import AnswerError, FaultError, LostError, UnsentError
from acphold.mcp_servers.messages import FORGOTTEN, UNSENT, fault_mark
from acphold.mcp_servers.offers import OurSide, Progress
from acphold.mcp_servers.streams import Wire, root_cause

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext


CHANGES: dict[type[BaseModel], str] = {
    types.ToolListChangedNotification: "tools",
    types.ResourceListChangedNotification: "resources",
    types.PromptListChangedNotification: "prompts",
}


class Patience:
    """The time limit of calls: CALL_SECONDS after the server's last sign of life.

    It is suspended while the server waits for us, as for a person's answer to one of its
    `questions`.
    """

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self.questions: int = 0

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[Callable[[], None]]:
        """Raise TimeoutError after `seconds`, or CALL_SECONDS after the last call of what it
        yields.
        """
        async with timeout(seconds) as limit:
            if seconds is not None:
                yield lambda: None
                return
            self._limits.add(limit)
            self._renew(limit)
            try:
                yield partial(self._renew, limit)
            finally:
                self._limits.discard(limit)

    @contextmanager
    def count_question(self) -> Iterator[None]:
        """Note for the block that the server has asked us something."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        self.questions += step
        for limit in self._limits:
            self._renew(limit)

    def _renew(self, limit: asyncio.Timeout) -> None:
        if not limit.expired():
            end = asyncio.get_running_loop().time() + bounds.CALL_SECONDS
            limit.reschedule(None if self.questions else end)


class Link(Struct, eq=False):
    """A server after its handshake."""

    _wire: Wire
    _dispatcher: JSONRPCDispatcher
    _introduced: types.InitializeResult
    _patience: Patience

    @property
    def capabilities(self) -> frozenset[str]:
        """The names of its capabilities."""
        return frozenset(self._introduced.capabilities.model_dump(exclude_none=True))

    async def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, object]:
        """Return the result, undecoded. Cancelling this tells the server to stop.

        Raises AnswerError, and FaultError (LostError if the connection is over), also after
        `seconds`; by default after CALL_SECONDS without an answer or progress.
        """
        # Not the SDK's typed methods: they fail a list for one bad tool, and make requests for
        # lists of their own, without a limit, to check a tool's result.
        version = self._introduced.protocol_version
        options: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: version}}
        try:
            async with self._patience.limit(seconds) as alive:
                if on_progress is not None:

                    async def report(
                        progress: float, total: float | None, message: str | None
                    ) -> None:
                        alive()
                        on_progress(Progress(progress, total, message))

                    options["on_progress"] = report
                return await self._dispatcher.send_raw_request(method, params, options)
        except TimeoutError:
            waited = "a long time without progress" if seconds is None else f"{seconds:g} s"
            why = await self._wire.fault(f"it did not answer `{method}` for {waited}")
            raise FaultError(why) from None
        except MCPError as exc:
            if (mark := fault_mark(exc.data)) is not None:
                kind = UnsentError if mark in (UNSENT, FORGOTTEN) else FaultError
                raise kind(exc.message) from None
            # The words are the SDK's: a server may use these numbers for its own errors.
            if exc.code == types.PARSE_ERROR and exc.message.startswith("Failed to parse"):
                raise FaultError("its answer cannot be read") from None  # in an event stream
            if exc.code == types.CONNECTION_CLOSED and exc.message == "Connection closed":
                why = await self._wire.fault("the connection was closed")
                raise LostError(why) from None
            if exc.code == types.CONNECTION_CLOSED and exc.message.startswith("SSE stream"):
                raise LostError("its answer broke off") from None
            raise AnswerError(exc.code, exc.message) from None


@asynccontextmanager
async def open_link(
    wire: Wire, ours: OurSide, server: str, changed: Callable[[str], None]
) -> AsyncIterator[Link]:
    """Connect over `wire` for the block, within `ours.deadline`, and close at its end.

    `changed` is called with the name of a changed list: `tools`, `resources` or `prompts`. Raises
    FaultError, and nothing else except a cancellation.
    """
    failed: FaultError | None = None
    # Outside of all contexts, and without a deadline until the end: leaving a scope before the
    # contexts entered in it is an error.
    with anyio.CancelScope() as life:
        try:
            async with wire.open() as (read, write):
                dispatcher: JSONRPCDispatcher = JSONRPCDispatcher(read, write)
                patience = Patience()
                async with _session(dispatcher, ours, server, changed, patience) as session:
                    try:
                        introduced = await _handshake(session, wire, ours.deadline)
                        link = Link(wire, dispatcher, introduced, patience)

                        def all_changed(link: Link = link) -> None:
                            for what in link.capabilities.intersection(CHANGES.values()):
                                changed(what)

                        wire.on_gap = all_changed
                        yield link
                    except FaultError as exc:
                        failed = exc
                    finally:
                        life.deadline = anyio.current_time() + bounds.SESSION_CLOSE_SECONDS
        except Exception as exc:  # the transports raise all kinds of groups
            failed = failed or FaultError(await wire.fault(root_cause(exc)))
    if failed is not None:
        raise failed


async def _handshake(session: ClientSession, wire: Wire, seconds: float) -> types.InitializeResult:
    """Do the handshake; raises FaultError."""
    # In its own task, as no cancel scope may begin or end between the contexts.
    greeting = asyncio.create_task(session.initialize(), name="mcp initialize")
    ending = asyncio.create_task(wire.over.wait())
    try:
        await asyncio.wait({greeting, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if greeting.done():
            return await greeting
        if ending.done():
            raise FaultError(await wire.fault("the connection was closed"))
        raise FaultError(await wire.fault(f"it did not answer for {seconds:g} s"))
    except MCPError as exc:
        words = f"it refused `initialize`: {exc.message} ({exc.code})"
        if fault_mark(exc.data) is not None:
            words = exc.message
        elif exc.code == types.CONNECTION_CLOSED and exc.message == "Connection closed":
            words = await wire.fault("the connection was closed")
        raise FaultError(words) from None
    except ValidationError:
        raise FaultError("its answer to `initialize` is not MCP") from None
    except RuntimeError as exc:  # the SDK's error for an unknown version
        raise FaultError(f"its answer to `initialize` cannot be used: {exc}") from None
    finally:
        with suppress(asyncio.CancelledError):
            await end(greeting, ending)


def _session(
    dispatcher: JSONRPCDispatcher,
    ours: OurSide,
    server: str,
    changed: Callable[[str], None],
    patience: Patience,
) -> ClientSession:
    """Return a session that offers exactly what `ours` has."""

    async def on_message(message: object) -> None:
        if (what := CHANGES.get(type(message))) is not None:  # type: ignore[arg-type]
            changed(what)

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
        roots = [{"uri": PurePath(root).as_uri()} for root in ours.roots]
        return types.ListRootsResult.model_validate({"roots": roots})

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        assert ours.elicitation is not None
        if patience.questions >= bounds.PENDING_QUESTIONS:
            return types.ErrorData(code=types.INVALID_REQUEST, message="too many pending questions")
        with patience.count_question():
            asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            answer = await ours.elicitation(server, asked)
        return types.ElicitResult.model_validate(answer)

    return ClientSession(
        dispatcher=dispatcher,
        message_handler=on_message,
        list_roots_callback=list_roots if ours.roots else None,
        elicitation_callback=None if ours.elicitation is None else elicit,
        client_info=types.Implementation(name=ours.name, version=ours.version),
    )
