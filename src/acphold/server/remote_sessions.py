"""The sessions that a client of this process has open in other processes, their owners.

A session has one owner. A client that opens it in another process is attached there: its requests
go over a line to the owner. When the owner ends, the session is opened again for the client: in
this process, or in another one that was quicker to take it. The client does nothing for that. The
same happens when another process takes the session from an owner that was stopped.

A line leads to the owner itself: a process that is asked over a line to open a session of another
process refuses, and the client's own process looks for the owner. Else a prompt could reach an
owner by two ways.

A session may change hands while it is looked for: its owner has ended, or another process was
quicker. A process that cannot be reached loses the session only if it is known to be silent or to
have ended.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal
from weakref import WeakSet

from acphold import errors
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
from acphold.hub.annotations import LEFT_OUT, notice
from acphold.hub.attachments import DELETED_NOTICE
from acphold.hub.frames import Frames
from acphold.journal import Silent
from acphold.journal.owners import other_owner
from acphold.lines.line import OpenSessions
from acphold.reading.neighbours import is_answering
from acphold.rpc.eager_tasks import EagerTasks
from acphold.rpc.requests import Request
from acphold.rpc.wire_errors import incident
from acphold.schema import RESUME_SESSION, encode
from acphold.schema.splice import splice
from acphold.server import bounds
from acphold.server.owner_line import Opened, OwnerLine, line_to
from acphold.server.positions import behind, told_lineage
from acphold.tasks import END_SECONDS, TaskSet, end
from acphold.transports.addresses import are_here, can_be_tried

log = logging.getLogger(__name__)

MUTE = "The process that has this session says nothing"
MUTE_HOW = (
    "It was stopped, or is cut off from here. What you have sent waits for it. To go on without "
    "it, cancel, and send that again."
)
AWAY = "This session cannot be reached for the moment"
AWAY_HOW = (
    "The process that has it is looked for, for up to a minute; what you send waits. Has it ended, "
    "the session goes on without it."
)
BACK = "This session can be reached again"
BACK_HOW = "What was said meanwhile follows."

GAP_HOW = (
    "This session has gone to another process, and what was not told here yet was put together "
    "with the rest. To see it, load the session again."
)

NOT_OPEN = "This session is not open any more"
NOT_OPEN_HOW = (
    "The process that had it open has it no more, and it could not be opened again: {}. To go on, "
    "load the session again."
)

FINAL = frozenset({errors.INVALID_PARAMS, errors.RESOURCE_NOT_FOUND, errors.AUTH_REQUIRED})
"""The codes of errors that further tries would not change."""


class Opening:
    """One opening under way; `before` is the one before it that has not ended."""

    def __init__(self, before: Opening | None) -> None:
        self._before = before
        self.done = asyncio.Event()
        self._waiting: set[Request] = set()
        self._cancelled: set[Request] = set()

    async def ends(self) -> None:
        """Wait until neither this one nor any before it is under way."""
        if self._before is not None:
            await self._before.ends()
        await self.done.wait()

    async def over(self, prompt: Request | None) -> bool:
        """Wait until this one is over; return True if the prompt was cancelled meanwhile."""
        if prompt is not None:
            self._waiting.add(prompt)
        await self.done.wait()
        return prompt in self._cancelled

    def cancel(self) -> None:
        """Cancel the prompts that wait: `session/cancel` came."""
        self._cancelled |= self._waiting
        if self._before is not None:
            self._before.cancel()


class Openings:
    """The sessions that a client is opening, and its messages for them that came meanwhile.

    A client need not wait for the answer to `session/load` before it prompts: its messages for the
    session wait here until that is open, or failed to open. Several requests for one session may be
    under way at once. The same goes for a session that is opened again because its owner has ended.
    Kept is the last opening of each session, by its id.
    """

    def __init__(self) -> None:
        self._last: dict[str, Opening] = {}

    @contextmanager
    def one(self, session_id: str) -> Iterator[Opening | None]:
        """Open a session during the block; yields the opening before it."""
        before = self._last.get(session_id)
        opening = self._last[session_id] = Opening(before)
        try:
            yield before
        finally:
            opening.done.set()
            if self._last.get(session_id) is opening:
                del self._last[session_id]

    def has(self, session_id: str) -> bool:
        """Return True if the session is being opened."""
        return session_id in self._last

    async def over(self, session_id: str, prompt: Request | None = None) -> bool:
        """Wait until the session is open, or failed to open; return True if the prompt was
        cancelled."""
        is_cancelled = False
        while (opening := self._last.get(session_id)) is not None:
            is_cancelled = await opening.over(prompt) or is_cancelled
        return is_cancelled

    def cancel(self, session_id: str) -> None:
        """Cancel the prompts that wait for the session: `session/cancel` came."""
        if (opening := self._last.get(session_id)) is not None:
            opening.cancel()


OpenHere = Callable[[int | None], Awaitable[None]]
"""Opens a session in this process, given the epoch of a lease whose owner is silent. Raises
HeldElsewhereError, and LeaseLostError if the client has seen nothing of the session yet."""

OpenThere = Callable[[OwnerLine, int], Awaitable[None]]
"""Opens a session at its owner, which has it under this epoch."""


def next_step(
    held: errors.HeldElsewhereError, problem: errors.AcpholdError
) -> Literal["look again", "take over", "wait"]:
    """Return what to do about an owner that could not open a session for `problem`.

    An owner that was reached and then lost did nothing, and the session may have another one by
    now. One that cannot be reached loses the session only if it is known to be silent or to have
    ended. On this machine an owner without an answer hangs; elsewhere it may be the network's
    fault, and the journal knows.
    """
    if isinstance(problem, errors.OwnerLostError):
        return "look again"
    is_mute = isinstance(problem, errors.SilentPeerError)
    if is_mute and are_here(held.addresses):
        return "take over"
    has_ended = isinstance(problem, errors.EndedPeerError) or (
        held.is_gone and not is_mute and can_be_tried(held.addresses)
    )
    return "take over" if held.is_silent or has_ended else "wait"


class RemoteSessions:
    """See the module. `introduction` is the client's introduction to owners:
    `capabilities.told_owner`."""

    def __init__(self, hub: Hub, client: Client, limit: int, openings: Openings) -> None:
        self.introduction = b"{}"
        self._hub = hub
        self._client = client
        self._limit = limit
        self._openings = openings
        self._lines: dict[str, OwnerLine] = {}
        self._reaching = asyncio.Lock()
        self._tasks = EagerTasks()
        self._reopening: dict[str, tuple[asyncio.Task[None], Opened]] = {}
        self._ending = TaskSet()
        # Includes lost lines, as long as a prompt that was sent there is not answered.
        self._known: WeakSet[OwnerLine] = WeakSet()
        self._watching: asyncio.Task[None] | None = None
        self._is_over = False

    def line(self, session_id: str) -> OwnerLine | None:
        """Return the line to the owner of a session that the client has open there."""
        for line in self._lines.values():
            if session_id in line.opened:
                return line
        return None

    def cancel_prompts(self, session_id: str, sent_id: str | None = None) -> None:
        """Cancel the client's prompts in a session, wherever they are under way; or the one that it
        knows by an id."""
        for line in self._known:
            line.prompts.cancel(session_id, sent_id)

    # -- opening --------------------------------------------------------------------------

    async def open(self, session_id: str, here: OpenHere, there: OpenThere) -> None:
        """Open a session where it is live; here, if it is live nowhere or its owner is silent.

        For a line, HeldElsewhereError is raised if it is live elsewhere. Raises
        UnreachableOwnerError if its owner runs and cannot be reached from here.
        """
        over: int | None = None
        why = "it changes hands all the time"
        wait = 0.0
        began = asyncio.get_running_loop().time()
        for _ in range(bounds.OWNER_ATTEMPTS):
            try:
                await here(over)
                self._opened_at(None, session_id)
                return
            except errors.LeaseLostError as exc:
                # While it was opened; the client has seen nothing of it.
                if exc.deleted:
                    raise
                log.info("%s; its new owner is looked for", exc)
                continue
            except errors.HeldElsewhereError as exc:
                if self._client.offer.is_line:
                    raise
                held = exc
            problem: errors.AcpholdError
            try:
                line = await self._reach(held)
            except errors.ConnectionLostError as exc:
                problem = exc
            else:
                try:
                    await there(line, held.epoch)
                    return
                except errors.OwnerLostError as exc:  # it ended, or fell silent
                    problem = exc
            match next_step(held, problem):
                case "take over":
                    log.info("session %s is taken over: %s", session_id, problem)
                    over = held.epoch
                case "wait":
                    why = (
                        f"it is open in {held.where}, which cannot be reached from here: {problem}"
                    )
                    searched = asyncio.get_running_loop().time() - began
                    most = (
                        bounds.OWNER_SEARCH_SECONDS
                        if can_be_tried(held.addresses)
                        else bounds.UNSEEN_OWNER_SECONDS
                    )
                    if searched > most or (held.owner_id and not held.addresses):
                        break
                    if not wait:
                        log.info("session %s: %s", session_id, why)
                    await asyncio.sleep(wait)
                    wait = min(bounds.OWNER_WAIT_SECONDS, wait * 2 or 0.01)
        raise errors.UnreachableOwnerError(session_id, why)

    async def _reach(self, held: errors.HeldElsewhereError) -> OwnerLine:
        """Return a line to the owner. Raises SilentPeerError if it does not answer,
        ConnectionLostError if it listens nowhere."""
        async with self._reaching:
            line = self._lines.get(held.owner_id)
            if (
                line is not None
                and not line.peer.is_lost
                and await self._is_silent(held.owner_id, held.session_id, held.addresses)
            ):
                self._lost(line)  # the client's other sessions there are taken over, too
                raise errors.SilentPeerError("the process that has the session does not answer")
            if line is None or line.peer.is_lost:
                line = await line_to(held, self.introduction, self._client, self._limit, self._lost)
                self._lines[held.owner_id] = line
                self._known.add(line)
                if self._watching is None and not self._is_over:
                    self._watching = asyncio.create_task(self._look_on(), name="watch owners")
            return line

    async def _is_silent(self, owner_id: str, session_id: str, addresses: Sequence[str]) -> bool:
        """Return True if the owner of a session neither answers nor has ended."""
        try:
            return not await is_answering(addresses, bounds.OWNER_ANSWER_SECONDS)
        except errors.ConnectionLostError:
            # It listens nowhere just now; its next address will be asked.
            whose = await self._hub.whereabouts.owner(session_id)
            return isinstance(whose, Silent) and whose.owner.id == owner_id

    def open_here(self, conversation: Conversation, attachment: Attachment, setup: Setup) -> None:
        """Go live here: the client has the answer. If the session moves, the client follows it."""
        if not self._client.offer.is_line:
            session_id, lineage = conversation.id, conversation.session.lease.lineage

            def follow(told: int) -> None:
                opened = Opened(setup, told, lineage=lineage)
                opened.is_open = True
                self._begin(session_id, opened, self._go_there(session_id, opened))

            attachment.on_moved = follow
        conversation.open_to(attachment)

    async def _go_there(self, session_id: str, opened: Opened) -> None:
        try:
            followable = await self._hub.whereabouts.can_be_followed(session_id)
        except errors.AcpholdError as exc:
            log.warning("who owns session %s is not known: %s", session_id, exc)
            return
        if followable:  # else each of the two would take it from the other, for ever
            await self._take_back(session_id, opened)

    async def forward_opening(
        self, line: OwnerLine, request: Request, session_id: str, opening: Opened
    ) -> None:
        """Pass the request on that opens a session there."""

        # The replay comes before the answer, and has positions already.
        begun = line.opened.begin(session_id, opening)
        after = opening.position

        def opened(result: bytes) -> None:
            opening.is_open = True
            opening.lineage = told_lineage(result)
            self._opened_at(line, session_id)

        try:
            await line.forward(request, opened, may_ask_anew=lambda: opening.position == after)
        finally:
            begun.failed()  # no effect on a session that was opened

    def _opened_at(self, at: OwnerLine | None, session_id: str) -> None:
        """Note that it is open there, or here for None, and on no other line."""
        for line in self._lines.values():
            if line is not at:
                line.opened.pop(session_id, None)

    # -- leaving --------------------------------------------------------------------------

    async def _look_on(self) -> None:
        """Check for silent owners, and for sessions with another owner, which a stopped one cannot
        report."""
        while True:
            await asyncio.sleep(min(bounds.OWNER_CHECK_SECONDS, bounds.OWNER_ANSWER_SECONDS))
            for owner_id, line in tuple(self._lines.items()):
                if line.is_overdue and await self._has_fallen_silent(owner_id, line):
                    self._lost(line)
                elif waiting := [it for it in line.opened if line.prompts.ids(it)]:
                    await self._listen(line, waiting)
                for session_id, opened in tuple(line.opened.items()):
                    if opened.is_open:
                        await self._look_at(owner_id, line, session_id, opened.epoch)

    async def _listen(self, line: OwnerLine, waiting: Sequence[str]) -> None:
        """Tell a client that waits for an owner when that falls silent, and when it answers
        again."""
        was_mute, line.is_mute = line.is_mute, not await line.says_something(bounds.SILENCE_SECONDS)
        if line.is_mute != was_mute and not line.peer.is_lost:
            told = notice(MUTE, MUTE_HOW, "warning") if line.is_mute else notice(BACK, BACK_HOW)
            for session_id in waiting:
                self._tell(session_id, told)

    async def _has_fallen_silent(self, owner_id: str, line: OwnerLine) -> bool:
        for session_id in (*line.opened, line.made_for):
            try:
                whose = await self._hub.whereabouts.owner(session_id)
                owner = other_owner(whose)
                if owner is not None and owner.id == owner_id:
                    return await self._is_silent(owner_id, session_id, owner.addresses)
            except errors.AcpholdError as exc:
                log.info("who owns session %s is not known: %s", session_id, exc)
        return False

    async def look_at(self, session_id: str) -> None:
        """Check at once if a session that is open over a line has another owner."""
        for owner_id, line in tuple(self._lines.items()):
            if (opened := line.opened.get(session_id)) is not None:
                await self._look_at(owner_id, line, session_id, opened.epoch)

    async def _look_at(self, owner_id: str, line: OwnerLine, session_id: str, epoch: int) -> None:
        try:
            is_moved = (await self._hub.whereabouts.owner(session_id)).epoch != epoch
            # The client may have closed it meanwhile, or the line may have ended.
            is_here = self._lines.get(owner_id) is line and session_id in line.opened
            if is_moved and is_here:
                # The owner at this line has lost it, though it may have acquired it again.
                log.info("session %s has gone to another owner; it is opened there", session_id)
                self.reopen(session_id, line.opened.pop(session_id))
                line.prompts.lose(session_id)
                if not line.opened:
                    del self._lines[owner_id]
                    self._end(line.aclose())
        except errors.UnknownSessionError:
            # It was deleted. Its owner tells all its clients, if it can.
            is_told = await line.tell_of_change(session_id)
            self._hub.was_deleted(session_id)
            if line.opened.pop(session_id, None) is not None and not is_told:
                self._tell(session_id, DELETED_NOTICE)
        except errors.AcpholdError as exc:
            log.info("who owns session %s is not known: %s", session_id, exc)
        except Exception:  # nobody awaits this task, and it has to go on
            log.exception("session %s was not looked at", session_id)

    def _lost(self, line: OwnerLine) -> None:
        for owner_id, known in tuple(self._lines.items()):
            if known is line:
                del self._lines[owner_id]
        opened, line.opened = line.opened, OpenSessions()
        for session_id, each in opened.items():
            if each.is_open:  # else the client has been told to ask again
                self.reopen(session_id, each)
        self._end(line.peer.aclose())

    def _end(self, closing: Coroutine[None, None, None]) -> None:
        self._ending.start(closing, "end line")

    def reopen(self, session_id: str, opened: Opened) -> None:
        """Start to open a session again, as the client had it."""
        self._begin(session_id, opened, self._take_back(session_id, opened))

    def _begin(self, session_id: str, opened: Opened, work: Coroutine[None, None, None]) -> None:
        if self._is_over:
            work.close()
            return  # a client that has gone gets no session
        # At once: messages for the session from now on wait for it.
        task = self._tasks.begin(work, "reopen session")
        if task is None:
            return
        self._reopening[session_id] = (task, opened)

        def over(task: asyncio.Task[None]) -> None:
            if self._reopening.get(session_id) == (task, opened):
                del self._reopening[session_id]

        task.add_done_callback(over)

    async def reopen_no_more(self, session_id: str) -> Opened | None:
        """Stop opening a session again: the client itself opens, closes or deletes it.

        Return what was not open again yet, for `reopen` should the client's request fail.
        """
        task, opened = self._reopening.get(session_id, (None, None))
        await end(task)
        return opened

    async def _take_back(self, session_id: str, opened: Opened) -> None:
        is_away = asyncio.Event()

        def tell() -> None:
            is_away.set()
            self._tell(session_id, notice(AWAY, AWAY_HOW, "warning"))

        telling = asyncio.get_running_loop().call_later(bounds.SILENCE_SECONDS, tell)
        try:
            try:
                await self._open_again(session_id, opened)
            except errors.AcpholdError as exc:
                if exc.code != errors.INVALID_PARAMS:
                    raise
                # Another process had the session meanwhile, and settled it.
                log.warning("session %s: %s", session_id, exc)
                row = await self._hub.whereabouts.row(session_id)
                opened.position, opened.lineage = row.last_seq, row.lineage
                await self._open_again(session_id, opened)
                self._tell(session_id, notice(LEFT_OUT, GAP_HOW, "warning"))
            if is_away.is_set():
                self._tell(session_id, notice(BACK, BACK_HOW))
        except Exception as exc:  # nobody awaits this task; the client is told
            why = exc if isinstance(exc, errors.AcpholdError) else incident(exc)
            log.warning("session %s is not open any more: %s", session_id, why)
            self._tell(session_id, notice(NOT_OPEN, NOT_OPEN_HOW.format(why), "warning"))
        finally:
            telling.cancel()

    async def _open_again(self, session_id: str, opened: Opened) -> None:
        """Open a session as the client had it, here or at its owner; wait for problems that may
        pass."""

        async def here(over: int | None) -> None:
            setup, after, lineage = opened.setup, opened.position, opened.lineage
            conversation, attachment = await self._hub.resume(
                self._client, session_id, setup, over, after=after, lineage=lineage
            )
            self.open_here(conversation, attachment, setup)

        async def there(line: OwnerLine, epoch: int) -> None:
            def opened_there(result: bytes) -> None:
                line.opened[session_id] = opened
                opened.lineage = told_lineage(result)
                self._opened_at(line, session_id)

            opened.epoch = epoch
            known = [id_ for each in self._known for id_ in each.prompts.ids(session_id)]
            params = splice(opened.setup.params, {"sessionId": encode(session_id)})
            params = behind(params, opened.position or 0, known, opened.lineage)
            await line.call(RESUME_SESSION.name, params, opened_there)

        with self._openings.one(session_id) as before:
            if before is not None:
                # The client itself opens it, or has just done so; if that failed, this goes on.
                await before.ends()
                is_here = self._hub.holds(session_id) and self._hub.held(
                    session_id
                ).session.attachments.find(self._client)
                if is_here or self.line(session_id) is not None:
                    return
            for pause in bounds.REOPEN_PAUSES:
                try:
                    return await self.open(session_id, here, there)
                except errors.AcpholdError as exc:
                    is_deleted = isinstance(exc, errors.LeaseLostError) and exc.deleted
                    if (
                        is_deleted
                        or exc.code in FINAL
                        or isinstance(exc, errors.UnreachableOwnerError)
                    ):
                        raise  # its owner was waited for already
                    log.info("session %s is not open again yet: %s", session_id, exc)
                await asyncio.sleep(pause)
            await self.open(session_id, here, there)

    def _tell(self, session_id: str, update: bytes) -> None:
        """Send an update to the client alone; it is not journalled."""
        self._client.send(Frames(session_id, self._client.offer).aside(update))

    async def aclose(self) -> None:
        """End everything: the client has gone."""
        self._is_over = True
        await end(self._watching)
        await self.leave()
        self._tasks.close()

    async def leave(self) -> None:
        """Leave every owner."""
        # All are cancelled in one step: none may attach a client that has gone.
        await end(*(task for task, _ in self._reopening.values()))
        await self._ending.aclose(END_SECONDS)
        lines = tuple(self._lines.values())
        self._lines.clear()
        for line in lines:
            await line.aclose()
