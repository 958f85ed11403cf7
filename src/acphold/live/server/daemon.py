"""The daemon of a journal: one process with all its live sessions, for the editors of this user.

An editor comes through a front (`acphold.machine.first_frame`). Each front has a desk with an
agent of its own, in the front's surroundings. A front that comes back in the same surroundings,
after a reload of its editor, gets the desk that it has left. A server in front of a network comes
through a front, too (`server.network_servers`). Other processes join live sessions, and start
nothing.

An agent whose front has gone ends once nobody has needed it for a while: no client, turn or
question. The daemon ends when it has no desk and no client.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from acp_wire.rpc import Transport
from acp_wire.tasks import finish, first, tick, timeout
from acp_wire.transports.child import StderrRelay
from acp_wire.visible_text import visible
from acphold.errors import AcpError, AgentStartError, JournalError, JournalUnavailableError
from acphold.journal.journal import Journal
from acphold.journal.stores import journal_name
from acphold.live.agents.interface import HubAgent
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.reading.processes import daemon_of
from acphold.live.server import bounds
from acphold.live.server.directory import Directory
from acphold.live.server.hung import answering_while_hung
from acphold.live.server.places import Places
from acphold.live.server.pool import FrontStderr, Pool, Pooled, Prepare, PreparedAgent
from acphold.live.server.principals import Principal
from acphold.live.server.service import Addresses, Service, attend, journal_at, new_desk, refuse
from acphold.logs import heard_by
from acphold.machine.first_frame import SERVER, FirstFrame
from acphold.machine.installation import is_replaced
from acphold.machine.unix import Front, UnixListener, listening
from acphold.version import __version__

if TYPE_CHECKING:  # late: see below
    from acphold.live.server.network_servers import NetworkServers

log = logging.getLogger(__name__)

ELSEWHERE = (
    "this editor runs in another sandbox or container than the daemon, which starts "
    "nothing there; give acphold there a runtime folder of its own, with XDG_RUNTIME_DIR"
)


class DaemonRunsError(JournalUnavailableError):
    """Another daemon keeps the sessions of the journal in this place; it listens at `path`, "" if
    that is unknown."""

    def __init__(self, journal: str, path: str = "") -> None:
        super().__init__(
            f"another process keeps the sessions of {journal} already: see `acphold agent status`, "
            "and end it with `acphold agent stop --all`"
        )
        self.path = path


def release_parts(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparison: 1.10 is newer than 1.9."""
    found = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, found[0].split("."))) if found else ()


async def serve_journal(
    path: str,
    service: Service,
    prepare: Prepare,
    *,
    called: Callable[[str], str],
    note: Callable[[str], object],
    stop: asyncio.Event,
    stays: bool,
    ready: Callable[[], None],
) -> None:
    """Serve the clients of the socket at `path` until `stop` is set, or nobody needs this process,
    unless it `stays`.

    `service` names the journal, and has the options for other processes. `called` returns a
    person's name for the key of an agent. `note` is called with each path at which we listen, first
    with this one. `ready` is called once clients can connect. Raises JournalError, OSError, and
    DaemonRunsError if there is a daemon.

    Of two that begin at once each shows itself in the journal before `ready` looks at its lock.
    """
    journal = journal_at(service.journal)
    try:
        # Each URL of a database has a daemon of its own: it may be of another user there.
        if journal.file is not None and (other := await _other_daemon(journal)):
            raise DaemonRunsError(journal_name(service.journal), other)
        hub = Hub(journal)
        # For clients that join live sessions, and start no agent.
        joining = Desk(hub, lambda _: HubAgent(), service.options, only_joins=True)
        addresses = Addresses(journal, note)

        async def join(transport: Transport, principal: Principal) -> None:
            await attend(Directory(joining), service, transport, principal=principal)

        pool = Pool(hub, prepare, called, addresses, join)
        places = Places(hub.places)
        fronts = Fronts(pool, places)

        async def attend_process(transport: Transport, place: str | None) -> None:
            from acphold.live.server.relay_protocol import read_relayed  # late: an editor waits

            principal = await places.principal_of(place)
            transport, relayed = await read_relayed(transport)
            if relayed is None or principal.place:
                await join(transport, principal)
            else:
                await fronts.servers.attend_relayed(relayed, transport)

        async with (
            hub.open(),
            answering_while_hung(path, hub, journal_name(service.journal)),
            listening(path, attend_process, addresses.listen_at, fronts) as listener,
        ):
            ready()
            idle = _wait_until_idle(fronts, pool, listener, stays=stays)
            await first(idle, stop.wait())
            await finish(hub.end_turns)
            await pool.aclose()
    finally:
        await finish(journal.aclose)


async def _other_daemon(journal: Journal) -> str:
    """Return the socket of the daemon that this journal has here already; "" if there is none, or
    the journal cannot be asked now."""
    with suppress(JournalError, TimeoutError):
        async with timeout(bounds.FIND_DAEMON_SECONDS):
            return await daemon_of(journal)
    return ""


async def _wait_until_idle(
    fronts: Fronts, pool: Pool, listener: UnixListener, *, stays: bool
) -> None:
    """Wait until nobody has needed us for a moment, unless this `stays`, or another process shall
    be in our place; then accept no more clients."""
    if stays:
        await fronts.yielding.wait()
    while not fronts.yielding.is_set():
        await first(pool.wait_until_none(), fronts.yielding.wait())
        if not fronts.yielding.is_set():
            await asyncio.sleep(bounds.DAEMON_IDLE_SECONDS)
            if not (listener.is_attending or pool):
                break
    # In the same step as the check: a client just accepted must not be disconnected.
    listener.stop()


class Fronts:
    """Serves the fronts of a daemon: editors at desks of their own, and servers."""

    def __init__(self, pool: Pool, places: Places) -> None:
        self.yielding = asyncio.Event()
        self._hub = pool.hub
        self._servers: NetworkServers | None = None
        self._places = places
        self._pool = pool

    @property
    def servers(self) -> NetworkServers:
        """Those of the fronts that are servers."""
        if self._servers is None:
            from acphold.live.server.network_servers import NetworkServers  # an editor needs none

            self._servers = NetworkServers(self._pool)
        return self._servers

    def yields_to(self, front: Front) -> bool:
        """Return True once this process makes room: it is of an older release than the front, or
        its files were replaced, and nobody needs it. One that is needed serves on."""
        has_editors = any(front.frame.kind != SERVER for front in self._hub.fronts)
        if not (has_editors or self._pool.are_needed or self.yielding.is_set()):
            is_newer = release_parts(front.frame.release) > release_parts(__version__)
            if is_newer or is_replaced():
                log.warning("making room for release %s", front.frame.release)
                self.yielding.set()
        if not self.yielding.is_set():
            self._hub.fronts.add(front)
        return self.yielding.is_set()

    async def attend(self, front: Front) -> None:
        """Serve the editor or the server behind a front until it leaves."""
        try:
            if not self._places.is_ours(front.place):  # we start nothing in another place
                raise AgentStartError(ELSEWHERE)
            if front.frame.kind == SERVER:
                await self.servers.attend(front)
                return
            make = partial(self._make, front.frame)
            desk = await self._pool.open(front, EditorDesk, front.frame.identity, make)
            try:
                with heard_by(desk.prepared.heard):
                    serving = attend(Directory(desk.desk), desk.prepared.service, front.transport)
                    await first(serving, desk.desk.closed.wait())
            finally:
                desk.take_leave()
            if desk.frame.is_brief and not desk.is_needed:
                await desk.desk.closed.wait()  # the front is told that all has ended
        except AcpError as exc:
            log.warning("%s", exc)
            front.is_refused = True
            if front.frame.kind != SERVER:  # that one says it itself
                StderrRelay(front.stderr).pass_on(f"acphold wrap: {visible(str(exc))}\n".encode())
            await refuse(front.transport, exc, self._pool.ending)
        finally:
            self._hub.fronts.discard(front)

    @asynccontextmanager
    async def _make(self, frame: FirstFrame, stderr: FrontStderr) -> AsyncIterator[EditorDesk]:
        """Open the desk of a front for the block."""
        async with self._pool.prepare(frame, stderr.descriptor) as prepared:
            with heard_by(prepared.heard):
                its = None if frame.is_brief else frame.surroundings
                desk = new_desk(self._hub, prepared.service, its)
            async with aclosing(desk):
                yield EditorDesk(frame, prepared, desk, stderr=stderr)


class EditorDesk(Pooled, eq=False):
    """The desk of one front, or of those that came back to it one after the other."""

    what: ClassVar = "the desk of an editor"
    frame: FirstFrame
    prepared: PreparedAgent
    desk: Desk

    @property
    def is_needed(self) -> bool:
        """True while it has a front, or another client, a turn or a question."""
        is_busy = self.desk.is_busy and not self.frame.is_brief
        return not self.left.is_set() or self.desk.has_clients or is_busy

    @property
    def is_free(self) -> bool:
        """True if another front may have it, and its agent can still be used."""
        is_bad = self.desk.start_failed.is_set() or self.desk.closed.is_set()
        return super().is_free and not (self.frame.is_brief or is_bad)

    async def wait_until_over(self) -> None:
        """Wait until it is idle, or has closed."""
        await first(self._wait_until_idle(), self.desk.closed.wait())

    async def _wait_until_idle(self) -> None:
        """Wait until nobody has needed the agent for as long as it lingers; or nobody needs it, and
        this process is of files that were replaced."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        linger = self.prepared.linger
        while True:
            if not self.left.is_set():
                await self.left.wait()
                since = loop.time()
            elif self.is_needed:
                since = loop.time()
            elif self.desk.start_failed.is_set() or loop.time() >= since + linger or is_replaced():
                self.is_over = True  # in the same step: no front may come to it any more
                return
            await tick(min(bounds.IDLE_CHECK_SECONDS, linger / 3 or 0.05))
