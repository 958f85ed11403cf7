"""One process that serves clients: a journal, a hub, and everybody who is connected to it.

`wrap` and `run` serve the editor that started them, and other processes over a socket; the process
behind `wrap --background` serves over its socket alone.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from acphold.errors import AcpholdError, JournalBusyError, RuntimeFolderError
from acphold.hub import CANCEL_GRACE, Hub
from acphold.hub.alerts import NO_ALERTS, Alerts
from acphold.hub.owners import owner_name
from acphold.hub.questions import NO_RULES, QuestionRules
from acphold.journal import SqliteJournal
from acphold.rpc import (
    MAX_MESSAGE,
    NotificationReceived,
    Peer,
    Transport,
    connected,
)
from acphold.rpc.request import Request
from acphold.schema import PROMPT
from acphold.server.connection import Connection
from acphold.transports.runtime_folder import own_socket
from acphold.transports.unix import listening

if TYPE_CHECKING:
    from acphold.agents import Agent, Listener
    from acphold.journal import Journal
    from acphold.transports import unix

log = logging.getLogger(__name__)

LAST_ANSWERS_SECONDS = 5.0
"""What a client that has said all it has to say waits for its answers: one in a shell pipe. A turn
is not waited for: an editor that leaves ends it."""

LOOK_SECONDS = 2.0
"""How often a background process looks whether anybody needs it."""

MakeAgent = Callable[["Listener", "Journal"], "Agent"]
"""Makes the agent that answers, given who hears it and where its sessions are kept."""


class Service(Struct, frozen=True, kw_only=True):
    """What is served: the agent that `make_agent` makes, its sessions kept in `journal`.

    A cancelled turn has `cancel_grace` seconds to end. With `all_agents` the sessions of other
    agents are listed too; with `unstable` clients get the methods of `server.unstable`. `limit` is
    bytes in one message.
    """

    journal: str
    make_agent: MakeAgent
    cancel_grace: float = CANCEL_GRACE
    questions: QuestionRules = NO_RULES
    alerts: Alerts = NO_ALERTS
    all_agents: bool = False
    unstable: bool = False
    limit: int = MAX_MESSAGE

    def hub(self, journal: Journal, path: str) -> Hub:
        """The hub of this process, which can be reached at the socket `path`, or not at all: ""."""
        return Hub(
            journal,
            lambda listener: self.make_agent(listener, journal),
            owner=owner_name(path),
            cancel_grace=self.cancel_grace,
            questions=self.questions,
            alerts=self.alerts,
            all_agents=self.all_agents,
        )


async def serve(
    transport: Transport,
    service: Service,
    *,
    stop: asyncio.Event,
    give_up: Callable[[], Coroutine[None, None, None]] | None = None,
) -> None:
    """Serve until the client leaves or `stop` is set; then end the agent and all turns.

    Other clients of this user may attach to the sessions meanwhile, over a socket. Without a
    journal every request is refused with the reason, and `give_up` is awaited, which ends an agent
    that was started already; while another program holds it, what needs it is refused.
    """
    try:
        journal = open_journal(service.journal)
    except AcpholdError as exc:
        log.error("%s", exc)
        await refuse(transport, exc, stop, give_up)
        return
    path, limit = _socket_path(), service.limit
    try:
        hub = service.hub(journal, path)
        async with hub.open(), _reachable(hub, path, limit):
            await attend(hub, transport, limit, stop, unstable=service.unstable)
    finally:
        await journal.aclose()


async def serve_background(
    path: str,
    service: Service,
    *,
    stop: asyncio.Event,
    linger: float,
    ready: Callable[[], None],
) -> None:
    """Serve whoever connects to the socket at `path`; nobody's leaving ends anything.

    `ready` is called once clients may come. Ends when `stop` is set, or after `linger` seconds
    without a client, a running turn and an open question. Raises JournalError, OSError.
    """
    journal = open_journal(service.journal)

    async def one(transport: Transport) -> None:
        await attend(hub, transport, service.limit, unstable=service.unstable)

    try:
        hub = service.hub(journal, path)
        async with hub.open(), listening(path, one) as listener:
            ready()
            idle = asyncio.create_task(_idle(hub, listener, linger), name="idle")
            await _first(idle, stop)
            idle.cancel()
            await asyncio.wait([idle])
    finally:
        await journal.aclose()


async def _idle(hub: Hub, listener: unix.Listener, seconds: float) -> None:
    """Wait until nobody needs us for so long; then nobody is let in any more."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    while loop.time() < since + seconds:
        await asyncio.sleep(min(LOOK_SECONDS, seconds / 4))
        if listener.is_attending or hub.is_busy:
            since = loop.time()
    # In the step of the last look: who is let in is not to be sent away at once.
    listener.stop()


def open_journal(location: str) -> SqliteJournal:
    """The journal at `location`; one that another program holds right now is tried again later."""
    journal = SqliteJournal(location)
    with suppress(JournalBusyError):  # whatever needs it tries again
        journal.connect()
    return journal


async def attend(
    hub: Hub,
    transport: Transport,
    limit: int,
    stop: asyncio.Event | None = None,
    *,
    unstable: bool = False,
) -> None:
    """Serve one client until it leaves, or `stop` is set; what it asked last is answered."""
    connection = Connection(hub, transport, limit=limit, unstable=unstable)
    try:
        async with connected(connection.peer) as pump:
            await _first(pump, stop)
            if stop is None or not stop.is_set():
                answering = asyncio.create_task(
                    connection.peer.finish(LAST_ANSWERS_SECONDS, but=PROMPT.name),
                    name="last answers",
                )
                await _first(answering, stop)
    finally:
        await connection.aclose()


def _socket_path() -> str:
    """Where this process can be reached; "" when it cannot: its sessions are then not shared."""
    try:
        return own_socket()
    except (RuntimeFolderError, OSError) as exc:
        log.warning("%s", exc)
        return ""


@asynccontextmanager
async def _reachable(hub: Hub, path: str, limit: int) -> AsyncIterator[None]:
    """Let other processes of this user attach to the sessions of `hub` for the block."""
    async with AsyncExitStack() as stack:
        if path:
            try:
                attending = listening(path, lambda transport: attend(hub, transport, limit))
                await stack.enter_async_context(attending)
            except OSError as exc:
                log.warning("sessions cannot be shared: %s: %s", path, exc)
        yield


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What asks a program to end."""


def stop_at_signals(numbers: Sequence[signal.Signals] = ENDING) -> asyncio.Event:
    """An event that any of these signals sets."""
    stop = asyncio.Event()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def refuse(
    transport: Transport,
    error: AcpholdError,
    stop: asyncio.Event,
    give_up: Callable[[], Coroutine[None, None, None]] | None = None,
) -> None:
    """Answer whatever is asked with this error: editors show that, and not a program's stderr.

    So it is without a journal, when nothing of what acphold promises holds.
    """
    async with asyncio.TaskGroup() as tasks:
        if give_up is not None:  # beside it: the client is not to wait for the agent's end
            tasks.create_task(give_up(), name="end agent")
        async with connected(Peer(transport, _Refusal(error), name="client")) as pump:
            await _first(pump, stop)


class _Refusal:
    def __init__(self, error: AcpholdError) -> None:
        self._error = error

    async def on_request(self, request: Request) -> bytes:
        raise self._error

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


async def _first(task: asyncio.Task[None], stop: asyncio.Event | None) -> None:
    """Wait for the end of a task, or of us."""
    if stop is None:
        await asyncio.wait({task})
        return
    stopped = asyncio.create_task(stop.wait(), name="signal")
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
