"""The daemon of a journal: one process with all its live sessions, for the editors of this user.

An editor comes through a front (`acp_wire.transports.first_frame`). Each front has a desk with an
agent of its own, in the front's surroundings. A front that comes back in the same surroundings,
after a reload of its editor, gets the desk that it has left. A server in front of a network comes
through a front, too (`server.server_front`). Other processes join live sessions, and start nothing.

An agent whose front has gone ends once nobody has needed it for a while: no client, turn or
question. The daemon ends when it has no desk and no client.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from acp_wire.processes.installation import is_replaced
from acp_wire.processes.place import place_of
from acp_wire.rpc import Transport
from acp_wire.tasks import finish, first_of, tick
from acp_wire.transports.child import StderrRelay
from acp_wire.transports.first_frame import SERVER, FirstFrame
from acp_wire.transports.unix import Front, UnixListener, listening
from acp_wire.visible_text import visible
from acphold.errors import AcpError, AgentStartError
from acphold.live.agents.interface import AbsentAgent
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.server import bounds
from acphold.live.server.fronts import Fronted, FrontStderr, KeptDesks, Prepare
from acphold.live.server.principals import NEIGHBOUR, Principal
from acphold.live.server.relay_protocol import read_relayed
from acphold.live.server.service import (
    Addresses,
    Service,
    attend,
    journal_at,
    new_desk,
    refuse,
)
from acphold.logs import heard_by
from acphold.version import __version__

if TYPE_CHECKING:  # late: see below
    from acphold.live.server.server_front import ServerFronts

log = logging.getLogger(__name__)

ELSEWHERE = (
    "this editor runs in another sandbox or container than the background process, which starts "
    "nothing there; give acphold there a runtime folder of its own, with XDG_RUNTIME_DIR"
)


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
    held: int,
    stop: asyncio.Event,
    stays: bool,
    ready: Callable[[], None],
) -> None:
    """Serve the clients of the socket at `path` until `stop` is set, or nobody needs this process,
    unless it `stays`.

    `service` names the journal, and has the options for other processes. `called` returns a
    person's name for the key of an agent. `held` is the descriptor
    of that socket's lock (`transports.runtime_folder`), which we hold. `ready` is called once
    clients can connect. Raises JournalError, OSError.
    """
    journal = journal_at(service.journal)
    try:
        hub = Hub(journal)
        # For clients that join live sessions, and start no agent.
        joining = Desk(hub, lambda _: AbsentAgent(), service.options, only_joins=True)
        addresses = Addresses(journal, held)

        async def join(transport: Transport, principal: Principal) -> None:
            await attend(joining, service, transport, principal=principal)

        kept = KeptDesks(hub, prepare, called, addresses, join)
        desks = FrontDesks(kept)

        async def attend_process(transport: Transport) -> None:
            transport, relayed = await read_relayed(transport)
            if relayed is None:
                await join(transport, NEIGHBOUR)
            else:
                await desks.servers.attend_relayed(relayed, transport)

        async with (
            hub.open(),
            listening(path, attend_process, addresses.listen_at, desks) as listener,
        ):
            ready()
            idle = _wait_until_idle(desks, kept, listener, stays=stays)
            await first_of(idle, stop.wait())
            await finish(hub.end_turns)
            await desks.aclose()
    finally:
        await finish(journal.aclose)


async def _wait_until_idle(
    desks: FrontDesks, kept: KeptDesks, listener: UnixListener, *, stays: bool
) -> None:
    """Wait until nobody has needed us for a moment, unless this `stays`, or another process shall
    be in our place; then accept no more clients."""
    if stays:
        await desks.yielding.wait()
    while not desks.yielding.is_set():
        await first_of(kept.wait_until_none(), desks.yielding.wait())
        if not desks.yielding.is_set():
            await asyncio.sleep(bounds.DAEMON_IDLE_SECONDS)
            if not (listener.is_attending or kept):
                break
    # In the same step as the check: a client just accepted must not be disconnected.
    listener.stop()


class FrontDesks:
    """The desks of the fronts of a hub."""

    def __init__(self, kept: KeptDesks) -> None:
        self.yielding = asyncio.Event()
        self._hub = kept.hub
        self._servers: ServerFronts | None = None
        self._place = place_of()
        self._open: list[FrontDesk] = []
        self._kept = kept

    @property
    def servers(self) -> ServerFronts:
        """Those of the fronts that are of servers."""
        if self._servers is None:
            from acphold.live.server.server_front import ServerFronts  # an editor needs none

            self._servers = ServerFronts(self._kept)
        return self._servers

    def yields_to(self, front: Front) -> bool:
        """Return True once this process makes room: it is of an older release than the front, or
        its files were replaced, and nobody needs it. One that is needed serves on."""
        has_editors = any(front.frame.kind != SERVER for front in self._hub.fronts)
        has_servers = self._servers is not None and self._servers.are_needed
        has_work = has_servers or any(desk.is_needed for desk in self._open)
        if not (has_editors or has_work or self.yielding.is_set()):
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
            its = None
            with suppress(OSError):  # it hides, or has gone
                its = None if front.pid is None else place_of(front.pid)
            if its != self._place:  # we start nothing for a front in another place
                raise AgentStartError(ELSEWHERE)
            if front.frame.kind == SERVER:
                await self.servers.attend(front)
                return
            # One that an equal front has left, and whose agent can still be used.
            left = [
                it for it in self._open if it.is_free and it.frame.identity == front.frame.identity
            ]
            keep = partial(self._keep, front.frame)
            desk = left[0] if left else await self._kept.open("the desk of an editor", keep)
            desk.welcome(front)
            try:
                with heard_by(desk.fronted.heard):
                    serving = attend(desk.desk, desk.fronted.service, front.transport)
                    await first_of(serving, desk.desk.closed.wait())
            finally:
                desk.take_leave()
            if desk.frame.is_brief and not desk.is_needed:
                await desk.desk.closed.wait()  # the front is told that all has ended
        except AcpError as exc:
            log.warning("%s", exc)
            front.is_refused = True
            if front.frame.kind != SERVER:  # that one says it itself
                StderrRelay(front.stderr).pass_on(f"acphold wrap: {visible(str(exc))}\n".encode())
            await refuse(front.transport, exc, self._kept.ending)
        finally:
            self._hub.fronts.discard(front)

    async def _keep(self, frame: FirstFrame, opened: asyncio.Future[FrontDesk]) -> None:
        """Open the desk for a front and keep it open while needed."""
        with closing(FrontStderr()) as stderr:
            async with self._kept.prepare(frame, stderr.descriptor) as fronted:
                with heard_by(fronted.heard):
                    made = new_desk(self._hub, fronted.service)
                desk = FrontDesk(frame, fronted, made, stderr)
                self._open.append(desk)
                if opened.cancelled():  # the front has gone meanwhile
                    desk.take_leave()
                else:
                    opened.set_result(desk)
                try:
                    idle = desk.wait_until_idle()
                    await first_of(idle, self._kept.ending.wait(), desk.desk.closed.wait())
                finally:
                    self._open.remove(desk)
                    await desk.desk.aclose()

    async def aclose(self) -> None:
        """End all agents with their turns; clients leave."""
        await self._kept.aclose()


class FrontDesk(Struct, eq=False):
    """The desk of one front, or of those that came back to it one after the other.

    `_stderr` leads to the front's, for the agent's beside the log.
    """

    frame: FirstFrame
    fronted: Fronted
    desk: Desk
    _stderr: FrontStderr
    _left: asyncio.Event = field(default_factory=asyncio.Event)  # not by its first front
    _is_over: bool = False

    @property
    def is_needed(self) -> bool:
        """True while it has a front, or another client, a turn or a question."""
        is_busy = self.desk.is_busy and not self.frame.is_brief
        return not self._left.is_set() or self.desk.has_clients or is_busy

    @property
    def is_free(self) -> bool:
        """True if another front may have it."""
        is_bad = self.desk.start_failed.is_set() or self.desk.closed.is_set()
        return self._left.is_set() and not (self.frame.is_brief or self._is_over or is_bad)

    def welcome(self, front: Front) -> None:
        """Begin to serve a front: the agent's stderr goes to it."""
        self._left.clear()
        self._stderr.lead_to(front)

    def take_leave(self) -> None:
        """Note that the front has gone."""
        self._left.set()
        self._stderr.lead_nowhere()

    async def wait_until_idle(self) -> None:
        """Wait until nobody has needed the agent for as long as it lingers; or nobody needs it, and
        this process is of files that were replaced."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        linger = self.fronted.linger
        while True:
            if not self._left.is_set():
                await self._left.wait()
                since = loop.time()
            elif self.is_needed:
                since = loop.time()
            elif self.desk.start_failed.is_set() or loop.time() >= since + linger or is_replaced():
                self._is_over = True  # in the same step: no front may come to it any more
                return
            await tick(min(bounds.IDLE_CHECK_SECONDS, linger / 3 or 0.05))
