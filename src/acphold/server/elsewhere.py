"""The sessions that a client of this process has open in other processes, their owners.

A session has one owner. A client that opens it in another process is attached there: what it asks
goes over a line to the owner. When the owner ends, the session is opened again for the client: in
this process, or in another one that was quicker to take it. The client does nothing for that. So it
is when another process takes the session from an owner that was stopped.

A line leads to the owner itself: who is asked by a line to open what another process has, refuses,
and the client's own process looks for the owner. Else a prompt could reach one by two ways.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from acphold.errors import (
    INVALID_PARAMS,
    AcpholdError,
    ConnectionLostError,
    HeldElsewhereError,
    LeaseLostError,
    OwnerLostError,
)
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
from acphold.hub.annotations import notice
from acphold.hub.frames import Frames
from acphold.hub.owners import reachable_at
from acphold.journal import Segment
from acphold.journal.entries import UPDATE
from acphold.rpc.eager_tasks import EagerTasks
from acphold.rpc.peer import Answer
from acphold.rpc.request import Request
from acphold.schema import RESUME_SESSION, encode
from acphold.schema.splice import splice
from acphold.server import owner_line
from acphold.server.owner_line import (
    Opened,
    OwnerLine,
    is_answering,
    is_held_elsewhere,
    line_to,
)
from acphold.server.positions import behind

log = logging.getLogger(__name__)

ATTEMPTS = 25
"""How often an owner is looked for that changes while we look: each time it has ended, or another
was quicker. One that ends while it opens the session costs two of them."""

LOOK_SECONDS = 5.0
"""How often is looked who owns what is open elsewhere."""

GAP = "Something that was said is not shown here"
GAP_HOW = (
    "This session has gone to another process, and what was not told here yet was put together "
    "with the rest. To see it, load the session again."
)

NOT_OPEN = "This session is not open any more"
NOT_OPEN_HOW = (
    "The process that had it open has it no more, and it could not be opened again: {}. To go on, "
    "load the session again."
)

OpenHere = Callable[[int | None], Awaitable[None]]
"""Opens a session in this process, given the epoch of a lease whose owner is dead. Raises
HeldElsewhereError, and LeaseLostError, when the client has seen nothing of the session yet."""

OpenThere = Callable[[OwnerLine], Awaitable[None]]
"""Opens it at its owner."""


class Elsewhere:
    """See the module. `reopen` is called for each session whose owner has ended.

    `is_of_line` says that the client is a line itself.
    """

    def __init__(
        self, hub: Hub, client: Client, limit: int, reopen: Callable[[str, Opened], Awaitable[None]]
    ) -> None:
        self.introduction = b"{}"
        self.is_of_line = False
        self._hub = hub
        self._client = client
        self._limit = limit
        self._reopen = reopen
        self._lines: dict[str, OwnerLine] = {}
        self._reaching = asyncio.Lock()
        self._tasks = EagerTasks()
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        # Also those that are lost, for as long as a prompt that was sent there is not answered.
        self._known: WeakSet[OwnerLine] = WeakSet()
        self._watching: asyncio.Task[None] | None = None
        self._is_over = False

    def line(self, session_id: str) -> OwnerLine | None:
        """The line to the owner of a session that the client has open there."""
        for line in self._lines.values():
            if session_id in line.opened:
                return line
        return None

    def cancel_prompts(self, session_id: str) -> None:
        """The client has cancelled its prompts in a session, wherever they are on their way to."""
        for line in self._known:
            line.prompts.cancel(session_id)

    # -- opening --------------------------------------------------------------------------

    async def open(self, session_id: str, here: OpenHere, there: OpenThere) -> None:
        """Open a session where it is live; here, when it is live nowhere or its owner is dead."""
        dead: int | None = None
        for _ in range(ATTEMPTS):
            try:
                await here(dead)
            except HeldElsewhereError as held:
                if self.is_of_line:
                    raise
                path = reachable_at(held.owner)
                try:
                    line = await self._reach(path)
                except ConnectionLostError as exc:
                    log.info("session %s is taken over: %s", session_id, exc)
                    dead = held.epoch
                    continue
                with suppress(OwnerLostError):  # it ended before it did anything: looked for anew
                    await self._open_there(path, line, there)
                    return
            except LeaseLostError as exc:  # while it was opened; the client has seen nothing of it
                if exc.deleted:
                    raise
                log.info("%s; its new owner is looked for", exc)
            else:
                self._is_at(None, session_id)
                return
        raise ConnectionLostError("the session changes hands all the time; try again")

    async def _open_there(self, path: str, line: OwnerLine, there: OpenThere) -> None:
        """Open it at its owner; OwnerLostError when that has ended, or is stopped, meanwhile."""
        opening = asyncio.ensure_future(there(line))
        try:
            while not (await asyncio.wait([opening], timeout=owner_line.REACH_SECONDS))[0]:
                if not await is_answering(path):
                    self._lost(line)
            await opening
        finally:
            opening.cancel()
            await asyncio.wait([opening])

    async def _reach(self, path: str) -> OwnerLine:
        async with self._reaching:
            line = self._lines.get(path)
            if line is not None and not line.peer.is_lost and not await is_answering(path):
                self._lost(line)  # what else the client has open there is taken over, too
                raise ConnectionLostError("the process that has the session does not answer")
            if line is None or line.peer.is_lost:
                line = await line_to(path, self.introduction, self._client, self._limit, self._lost)
                self._lines[path] = line
                self._known.add(line)
                self._watch()
            return line

    def open_here(self, conversation: Conversation, attachment: Attachment, setup: Setup) -> None:
        """The client has the answer that opens a session here; should it go, the client follows."""
        if not self.is_of_line:
            attachment.on_moved = partial(self._follow, conversation.id, setup)
        conversation.open_to(attachment)

    def _follow(self, session_id: str, setup: Setup, told: int) -> None:
        opened = Opened(setup, told)
        opened.is_open = True
        self._begin(session_id, self._go_there(session_id, opened))

    async def _go_there(self, session_id: str, opened: Opened) -> None:
        try:
            followable = await self._hub.whereabouts.can_be_followed(session_id)
        except AcpholdError as exc:
            log.warning("who owns session %s is not known: %s", session_id, exc)
            return
        if followable:  # else each of the two would take it from the other, for ever
            await self._take_back(session_id, opened)

    async def forward_opening(
        self, line: OwnerLine, request: Request, session_id: str, setup: Setup, after: int
    ) -> None:
        """Hand on the request that opens a session there, from behind the position `after`."""

        # Before the answer comes the replay, which has positions already.
        before = line.opened.get(session_id)
        line.opened[session_id] = opening = Opened(setup, after)

        def opened() -> None:
            opening.is_open = True
            self._is_at(line, session_id)

        try:
            await line.forward(request, opened, may_ask_anew=lambda: opening.told == after)
        finally:
            if not opening.is_open and line.opened.get(session_id) is opening:
                self._put_back(line, session_id, before)

    @staticmethod
    def _put_back(line: OwnerLine, session_id: str, before: Opened | None) -> None:
        """It could not be opened: what the client had open there, it has still."""
        if before is None:
            del line.opened[session_id]
        else:
            line.opened[session_id] = before

    async def resume(self, line: OwnerLine, session_id: str, opened: Opened) -> None:
        """Open a session there that the client has open already; raises as the owner does."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def take(answer: Answer) -> None:
            if isinstance(answer, bytes):
                line.opened[session_id] = opened
                self._is_at(line, session_id)
            if not answered.done():
                answered.set_result(answer)

        params = splice(opened.setup.params, {"sessionId": encode(session_id)})
        id_ = line.ask(RESUME_SESSION.name, behind(params, opened.told), take)
        try:
            answer = await answered
        except asyncio.CancelledError:
            line.peer.withdraw(id_)  # the client has closed it meanwhile, or opens it itself
            raise
        if not isinstance(answer, bytes):
            raise OwnerLostError(RESUME_SESSION.name) if is_held_elsewhere(answer) else answer

    def _is_at(self, place: OwnerLine | None, session_id: str) -> None:
        """It is open there, or here: whoever had it before has it no more."""
        for line in self._lines.values():
            if line is not place:
                line.opened.pop(session_id, None)

    # -- leaving --------------------------------------------------------------------------

    def left(self, line: OwnerLine, session_id: str) -> None:
        """The client has closed or deleted a session there."""
        line.opened.pop(session_id, None)

    def _watch(self) -> None:
        if self._watching is None and not self._is_over:
            self._watching = asyncio.create_task(self._look_on(), name="watch owners")

    async def _look_on(self) -> None:
        """Find out whether sessions have another owner: one that was stopped cannot tell."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for path, line in tuple(self._lines.items()):
                for session_id, opened in tuple(line.opened.items()):
                    if opened.is_open and await self._has_moved(session_id, path):
                        self._move(path, line, session_id)

    async def _has_moved(self, session_id: str, path: str) -> bool:
        try:
            owner = await self._hub.whereabouts.owner_of(session_id)
        except AcpholdError as exc:
            log.info("who owns session %s is not known: %s", session_id, exc)
            return False
        return owner not in ("", path)

    def _move(self, path: str, line: OwnerLine, session_id: str) -> None:
        """Another process has taken the session from the owner that this line leads to."""
        if self._lines.get(path) is not line or session_id not in line.opened:
            return  # the client has closed it meanwhile, or the line has ended
        log.info("session %s has another owner; it is opened there", session_id)
        self._begin_take_back(session_id, line.opened.pop(session_id))
        line.prompts.lose(session_id)
        if not line.opened:
            del self._lines[path]
            self._end(line.aclose())

    def _lost(self, line: OwnerLine) -> None:
        for path, known in tuple(self._lines.items()):
            if known is line:
                del self._lines[path]
        opened, line.opened = line.opened, {}
        for session_id, each in opened.items():
            if each.is_open:  # else its client has been told that it has to ask again
                self._begin_take_back(session_id, each)
        self._end(line.peer.aclose())

    def _end(self, closing: Coroutine[None, None, None]) -> None:
        ending = asyncio.create_task(closing, name="end line")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _begin_take_back(self, session_id: str, opened: Opened) -> None:
        self._begin(session_id, self._take_back(session_id, opened))

    def _begin(self, session_id: str, work: Coroutine[None, None, None]) -> None:
        if self._is_over:
            work.close()
            return  # it is not to be open to a client that has gone
        # At once: what comes for the session from now on waits.
        task = self._tasks.begin(work, "reopen session")
        if task is None:
            return
        self._reopening[session_id] = task

        def over(task: asyncio.Task[None]) -> None:
            if self._reopening.get(session_id) is task:
                del self._reopening[session_id]

        task.add_done_callback(over)

    async def reopen_no_more(self, session_id: str) -> None:
        """The client itself opens, closes or deletes the session: what it wants now counts."""
        if (task := self._reopening.get(session_id)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _take_back(self, session_id: str, opened: Opened) -> None:
        try:
            try:
                await self._reopen(session_id, opened)
            except AcpholdError as exc:
                if exc.code != INVALID_PARAMS:
                    raise
                # Somebody else had the session meanwhile, and settled it.
                log.warning("session %s: %s", session_id, exc)
                opened.told = await self._hub.whereabouts.last_seq(session_id)
                await self._reopen(session_id, opened)
                self._tell(session_id, notice(GAP, GAP_HOW, "warning"))
        except AcpholdError as exc:
            log.warning("session %s is not open any more: %s", session_id, exc)
            self._tell(session_id, notice(NOT_OPEN, NOT_OPEN_HOW.format(exc), "warning"))

    def _tell(self, session_id: str, update: bytes) -> None:
        """Tell the client alone; it is in no journal."""
        frames = Frames(session_id, self._client.capabilities)
        self._client.send(frames.live(Segment(0, 0, UPDATE, 0, update)))

    async def aclose(self) -> None:
        """Leave every owner."""
        self._is_over = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        reopening = tuple(self._reopening.values())
        for task in reopening:  # all in one step: none is to attach a client that has gone
            task.cancel()
        if reopening:
            await asyncio.wait(reopening)
        self._tasks.close()
        if self._ending:
            await asyncio.wait(self._ending)
        lines = tuple(self._lines.values())
        self._lines.clear()
        for line in lines:
            await line.aclose()
