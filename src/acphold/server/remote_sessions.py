"""The sessions that a client of this process has open in other processes, their owners.

A session has one owner. If a client opens a session that another process owns, its requests go
over a line to that owner. When the owner ends, this process opens the session again for the client:
itself, or at another process that was quicker to take the session. The client need not do anything.
The same happens when another process takes the session from an owner that was stopped.

A line always leads to the owner itself. A process that is asked over a line to open a session that
it does not own refuses, and the client's own process looks for the owner. Otherwise a prompt could
reach an owner by two ways.

The owner may change during this search: it has ended, or another process was quicker. An owner that
cannot be reached loses the session only if it is known to be silent or to have ended.
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
from acphold.server.positions import lineage_of_answer, resume_params
from acphold.tasks import END_SECONDS, TaskSet, end
from acphold.transports.addresses import are_here, can_be_tried

log = logging.getLogger(__name__)

MUTE = "The process that owns this session is not responding"
MUTE_HOW = (
    "It was stopped, or the connection to it is down. Your messages are waiting for it. To "
    "continue without it, cancel, and send them again."
)
AWAY = "This session cannot be reached at the moment"
AWAY_HOW = (
    "acphold is looking for the process that owns it, for up to a minute. Your messages wait. If "
    "that process has ended, the session continues without it."
)
BACK = "This session can be reached again"
BACK_HOW = "The updates that you missed follow."

GAP_HOW = (
    "This session has moved to another process, which has merged the updates that you had not "
    "received yet with earlier ones. To see them, load the session again."
)

NOT_OPEN = "This session is not open any more"
NOT_OPEN_HOW = (
    "The process that owned it no longer does, and it could not be opened again: {}. To continue, "
    "load the session again."
)


class Opening:
    """One opening of a session, in progress; `before` is an earlier one that has not ended."""

    def __init__(self, before: Opening | None) -> None:
        self._before = before
        self.done = asyncio.Event()
        self._waiting: set[Request] = set()
        self._cancelled: set[Request] = set()

    async def wait_with_earlier(self) -> None:
        """Wait until this one and all earlier ones have ended."""
        if self._before is not None:
            await self._before.wait_with_earlier()
        await self.done.wait()

    async def wait(self, prompt: Request | None) -> bool:
        """Wait until this one has ended; return True if the prompt was cancelled meanwhile."""
        if prompt is not None:
            self._waiting.add(prompt)
        await self.done.wait()
        return prompt in self._cancelled

    def cancel(self) -> None:
        """Cancel the waiting prompts: `session/cancel` has arrived."""
        self._cancelled |= self._waiting
        if self._before is not None:
            self._before.cancel()


class Openings:
    """The sessions that a client is opening, and its prompts that wait for them.

    A client can prompt before it has the answer to `session/load`: its messages for the session
    wait until the session is open, or failed to open. Several requests may be opening one session
    at once. The same applies to a session that is opened again because its owner has ended.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Opening] = {}

    @contextmanager
    def track(self, session_id: str) -> Iterator[Opening | None]:
        """Note that the block opens a session; yields an earlier opening that has not ended."""
        before = self._latest.get(session_id)
        opening = self._latest[session_id] = Opening(before)
        try:
            yield before
        finally:
            opening.done.set()
            if self._latest.get(session_id) is opening:
                del self._latest[session_id]

    def has(self, session_id: str) -> bool:
        """Return True if the session is being opened."""
        return session_id in self._latest

    async def wait(self, session_id: str, prompt: Request | None = None) -> bool:
        """Wait until the session is open, or failed to open; return True if the prompt was
        cancelled."""
        is_cancelled = False
        while (opening := self._latest.get(session_id)) is not None:
            is_cancelled = await opening.wait(prompt) or is_cancelled
        return is_cancelled

    def cancel(self, session_id: str) -> None:
        """Cancel the prompts that wait for the session: `session/cancel` has arrived."""
        if (opening := self._latest.get(session_id)) is not None:
            opening.cancel()


OpenLocally = Callable[[int | None], Awaitable[None]]
"""Opens a session in this process; the number is the epoch of a silent owner's lease to take over.
Raises HeldElsewhereError, and LeaseLostError if the client has seen nothing of the session yet."""

OpenAtOwner = Callable[[OwnerLine, int], Awaitable[None]]
"""Opens a session over the line to its owner, whose lease has this epoch."""


def next_step(
    held: errors.HeldElsewhereError, problem: errors.AcpholdError
) -> Literal["look again", "take over", "wait"]:
    """Return what to do about an owner that could not open a session for `problem`.

    An owner that was reached and then lost did nothing, and the session may have another one by
    now. An owner that cannot be reached loses the session only if it is known to be silent or to
    have ended. If an owner on this machine does not answer, it hangs. On another machine the
    network may be the cause, so the journal decides.
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
    """See the module. `introduction` introduces the client to owners:
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
        # Includes a lost line until all prompts that were sent over it are answered.
        self._all_lines: WeakSet[OwnerLine] = WeakSet()
        self._watching: asyncio.Task[None] | None = None
        self._is_over = False

    def line(self, session_id: str) -> OwnerLine | None:
        """Return the line to the owner of a session that the client has open there."""
        for line in self._lines.values():
            if session_id in line.opened:
                return line
        return None

    def cancel_prompts(self, session_id: str, sent_id: str | None = None) -> None:
        """Cancel the client's prompts in a session, at every owner; or only the one with its own
        id."""
        for line in self._all_lines:
            line.prompts.cancel(session_id, sent_id)

    # -- opening --------------------------------------------------------------------------

    async def open(
        self, session_id: str, open_locally: OpenLocally, open_at_owner: OpenAtOwner
    ) -> None:
        """Open a session at its owner; in this process if it has none, or the owner is silent.

        If the client is a line itself, HeldElsewhereError names the owner instead. Raises
        UnreachableOwnerError if its owner runs and cannot be reached from here.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        silent_epoch: int | None = None
        why = "its owner keeps changing"
        pause = 0.0
        for _ in range(bounds.OWNER_ATTEMPTS):
            try:
                await open_locally(silent_epoch)
                self._drop_from_lines(session_id)
                return
            except errors.LeaseLostError as exc:
                # Lost while it was being opened; the client has seen nothing of it.
                if exc.deleted:
                    raise
                log.info("%s; looking for its new owner", exc)
                continue
            except errors.HeldElsewhereError as exc:
                if self._client.offer.is_line:
                    raise
                held = exc
            problem = await self._try_owner(held, open_at_owner)
            if problem is None:
                return
            step = next_step(held, problem)
            if step == "take over":
                log.info("taking over session %s: %s", session_id, problem)
                silent_epoch = held.epoch
            elif step == "wait":
                why = f"it is open in {held.where}, which cannot be reached from here: {problem}"
                limit = (
                    bounds.OWNER_SEARCH_SECONDS
                    if can_be_tried(held.addresses)
                    else bounds.UNSEEN_OWNER_SECONDS
                )
                if loop.time() - began > limit or (held.owner_id and not held.addresses):
                    break
                if not pause:
                    log.info("session %s: %s", session_id, why)
                await asyncio.sleep(pause)
                pause = min(bounds.OWNER_WAIT_SECONDS, pause * 2 or 0.01)
        raise errors.UnreachableOwnerError(session_id, why)

    async def _try_owner(
        self, held: errors.HeldElsewhereError, open_at_owner: OpenAtOwner
    ) -> errors.AcpholdError | None:
        """Open a session at its owner; return the problem if the owner cannot be reached, or is
        lost."""
        try:
            line = await self._reach(held)
        except errors.ConnectionLostError as exc:
            return exc
        try:
            await open_at_owner(line, held.epoch)
        except errors.OwnerLostError as exc:  # it has ended, or fallen silent
            return exc
        return None

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
                self.lost(line)  # the client's other sessions there are taken over, too
                raise errors.SilentPeerError("the process that owns the session does not answer")
            if line is None or line.peer.is_lost:
                line = await line_to(held, self.introduction, self._client, self._limit, self)
                self._lines[held.owner_id] = line
                self._all_lines.add(line)
                if self._watching is None and not self._is_over:
                    self._watching = asyncio.create_task(self._watch_owners(), name="watch owners")
            return line

    async def _is_silent(self, owner_id: str, session_id: str, addresses: Sequence[str]) -> bool:
        """Return True if the owner of a session neither answers nor has ended."""
        try:
            return not await is_answering(addresses, bounds.OWNER_ANSWER_SECONDS)
        except errors.ConnectionLostError:
            # It listens nowhere just now; its next address will be asked.
            whose = await self._hub.whereabouts.owner(session_id)
            return isinstance(whose, Silent) and whose.owner.id == owner_id

    def go_live(self, conversation: Conversation, attachment: Attachment, setup: Setup) -> None:
        """Let the client's attachment go live: it has the answer. If the session moves, the client
        follows it."""
        if not self._client.offer.is_line:
            session_id, lineage = conversation.id, conversation.session.lease.lineage

            def follow(told: int) -> None:
                opened = Opened(setup, told, lineage=lineage)
                opened.is_open = True
                self._start_reopening(session_id, opened, self._follow(session_id, opened))

            attachment.on_moved = follow
        conversation.open_to(attachment)

    async def _follow(self, session_id: str, opened: Opened) -> None:
        try:
            followable = await self._hub.whereabouts.can_be_followed(session_id)
        except errors.AcpholdError as exc:
            log.warning("cannot find the owner of session %s: %s", session_id, exc)
            return
        if followable:  # otherwise the two would take it from each other for ever
            await self._reopen_and_notify(session_id, opened)

    async def forward_opening(
        self, line: OwnerLine, request: Request, session_id: str, opening: Opened
    ) -> None:
        """Forward a client's request that opens a session to the owner."""

        # The replay comes before the answer, and has positions already.
        begun = line.opened.begin(session_id, opening)
        after = opening.position

        def on_opened(result: bytes) -> None:
            opening.is_open = True
            opening.lineage = lineage_of_answer(result)
            self._drop_from_lines(session_id, but=line)

        try:
            await line.forward(request, on_opened, may_retry=lambda: opening.position == after)
        finally:
            begun.failed()  # no effect on a session that was opened

    def _drop_from_lines(self, session_id: str, but: OwnerLine | None = None) -> None:
        """Forget the session on the lines where it is not open any more."""
        for line in self._lines.values():
            if line is not but:
                line.opened.pop(session_id, None)

    # -- leaving --------------------------------------------------------------------------

    async def _watch_owners(self) -> None:
        """Check regularly for silent owners, and for sessions that have another owner now: one that
        was stopped cannot report that it lost them."""
        while True:
            await asyncio.sleep(min(bounds.OWNER_CHECK_SECONDS, bounds.OWNER_ANSWER_SECONDS))
            for owner_id, line in tuple(self._lines.items()):
                if line.is_overdue and await self._has_fallen_silent(owner_id, line):
                    self.lost(line)
                elif waiting := [it for it in line.opened if line.prompts.ids(it)]:
                    await self._report_silence(line, waiting)
                for session_id, opened in tuple(line.opened.items()):
                    if opened.is_open:
                        await self._check_session(owner_id, line, session_id, opened.epoch)

    async def _report_silence(self, line: OwnerLine, waiting: Sequence[str]) -> None:
        """Notify a client whose prompts wait for an owner when that stops responding, and when it
        responds again."""
        was_mute = line.is_mute
        line.is_mute = not await line.is_responding(bounds.SILENCE_SECONDS)
        if line.is_mute != was_mute and not line.peer.is_lost:
            update = notice(MUTE, MUTE_HOW, "warning") if line.is_mute else notice(BACK, BACK_HOW)
            for session_id in waiting:
                self._notify(session_id, update)

    async def _has_fallen_silent(self, owner_id: str, line: OwnerLine) -> bool:
        for session_id in (*line.opened, line.made_for):
            try:
                whose = await self._hub.whereabouts.owner(session_id)
                owner = other_owner(whose)
                if owner is not None and owner.id == owner_id:
                    return await self._is_silent(owner_id, session_id, owner.addresses)
            except errors.AcpholdError as exc:
                log.info("cannot find the owner of session %s: %s", session_id, exc)
        return False

    async def check_owner(self, session_id: str) -> None:
        """Check at once if a session that is open over a line has another owner."""
        for owner_id, line in tuple(self._lines.items()):
            if (opened := line.opened.get(session_id)) is not None:
                await self._check_session(owner_id, line, session_id, opened.epoch)

    async def _check_session(
        self, owner_id: str, line: OwnerLine, session_id: str, epoch: int
    ) -> None:
        try:
            is_moved = (await self._hub.whereabouts.owner(session_id)).epoch != epoch
            # The client may have closed it meanwhile, or the line may have ended.
            is_here = self._lines.get(owner_id) is line and session_id in line.opened
            if is_moved and is_here:
                # The owner at this line has lost it, though it may have acquired it again.
                log.info("session %s has another owner now; opening it there", session_id)
                self.reopen(session_id, line.opened.pop(session_id))
                line.prompts.lose(session_id)
                if not line.opened:
                    del self._lines[owner_id]
                    self._ending.start(line.aclose(), "end line")
        except errors.UnknownSessionError:
            # It was deleted. Its owner notifies all its clients, if it can.
            is_reported = await line.report_change(session_id)
            self._hub.was_deleted(session_id)
            if line.opened.pop(session_id, None) is not None and not is_reported:
                self._notify(session_id, DELETED_NOTICE)
        except errors.AcpholdError as exc:
            log.info("cannot find the owner of session %s: %s", session_id, exc)
        except Exception:  # nobody awaits this task, and it has to go on
            log.exception("could not check the owner of session %s", session_id)

    def lost(self, line: OwnerLine) -> None:
        """See `server.owner_line.LineUser`."""
        for owner_id, known in tuple(self._lines.items()):
            if known is line:
                del self._lines[owner_id]
        opened, line.opened = line.opened, OpenSessions()
        for session_id, each in opened.items():
            if each.is_open:  # otherwise the request that opens it is sent again, or refused
                self.reopen(session_id, each)
        self._ending.start(line.peer.aclose(), "end line")

    def reopen(self, session_id: str, opened: Opened) -> None:
        """Start to open a session again, as the client had it."""
        self._start_reopening(session_id, opened, self._reopen_and_notify(session_id, opened))

    def _start_reopening(
        self, session_id: str, opened: Opened, work: Coroutine[None, None, None]
    ) -> None:
        if self._is_over:
            work.close()
            return  # the client has gone
        # In this step: from now on, messages for the session wait until it is open.
        task = self._tasks.begin(work, "reopen session")
        if task is None:
            return
        self._reopening[session_id] = (task, opened)

        def on_done(task: asyncio.Task[None]) -> None:
            if self._reopening.get(session_id) == (task, opened):
                del self._reopening[session_id]

        task.add_done_callback(on_done)

    async def stop_reopening(self, session_id: str) -> Opened | None:
        """Stop opening a session again: the client itself opens, closes or deletes it.

        Return the session if it is not open yet: if the client's request fails, pass it to
        `reopen`.
        """
        task, opened = self._reopening.get(session_id, (None, None))
        await end(task)
        return opened

    async def _reopen_and_notify(self, session_id: str, opened: Opened) -> None:
        is_reported = False

        def report_away() -> None:
            nonlocal is_reported
            is_reported = True
            self._notify(session_id, notice(AWAY, AWAY_HOW, "warning"))

        timer = asyncio.get_running_loop().call_later(bounds.SILENCE_SECONDS, report_away)
        try:
            try:
                await self._reopen(session_id, opened)
            except errors.AcpholdError as exc:
                if exc.code != errors.INVALID_PARAMS:
                    raise
                # Another process had the session meanwhile, and settled it.
                log.warning("session %s: %s", session_id, exc)
                row = await self._hub.whereabouts.row(session_id)
                opened.position, opened.lineage = row.last_seq, row.lineage
                await self._reopen(session_id, opened)
                self._notify(session_id, notice(LEFT_OUT, GAP_HOW, "warning"))
            if is_reported:
                self._notify(session_id, notice(BACK, BACK_HOW))
        except Exception as exc:  # nobody awaits this task; report it to the client
            why = exc if isinstance(exc, errors.AcpholdError) else incident(exc)
            log.warning("session %s is not open any more: %s", session_id, why)
            self._notify(session_id, notice(NOT_OPEN, NOT_OPEN_HOW.format(why), "warning"))
        finally:
            timer.cancel()

    async def _reopen(self, session_id: str, opened: Opened) -> None:
        """Open a session as the client had it, here or at its owner; try again if the problem may
        be temporary."""

        async def open_locally(silent_epoch: int | None) -> None:
            setup, after, lineage = opened.setup, opened.position, opened.lineage
            conversation, attachment = await self._hub.resume(
                self._client, session_id, setup, silent_epoch, after=after, lineage=lineage
            )
            self.go_live(conversation, attachment, setup)

        async def open_at_owner(line: OwnerLine, epoch: int) -> None:
            def on_opened(result: bytes) -> None:
                line.opened[session_id] = opened
                opened.lineage = lineage_of_answer(result)
                self._drop_from_lines(session_id, but=line)

            opened.epoch = epoch
            prompt_ids = [id_ for each in self._all_lines for id_ in each.prompts.ids(session_id)]
            params = splice(opened.setup.params, {"sessionId": encode(session_id)})
            params = resume_params(params, opened.position or 0, prompt_ids, opened.lineage)
            await line.call(RESUME_SESSION.name, params, on_opened)

        with self._openings.track(session_id) as before:
            if before is not None:
                # The client itself is opening it; if that fails, open it here.
                await before.wait_with_earlier()
                if self._is_open(session_id):
                    return
            for pause in bounds.REOPEN_PAUSES:
                try:
                    return await self.open(session_id, open_locally, open_at_owner)
                except errors.AcpholdError as exc:
                    if _is_final(exc):
                        raise
                    log.info("session %s is not open again yet: %s", session_id, exc)
                await asyncio.sleep(pause)
            await self.open(session_id, open_locally, open_at_owner)

    def _is_open(self, session_id: str) -> bool:
        """Return True if the client has the session open, here or at its owner."""
        if self.line(session_id) is not None:
            return True
        if not self._hub.holds(session_id):
            return False
        return self._hub.held(session_id).session.attachments.find(self._client) is not None

    def _notify(self, session_id: str, update: bytes) -> None:
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


def _is_final(error: errors.AcpholdError) -> bool:
    """Return True if further tries to open a session would fail, too."""
    if isinstance(error, errors.UnreachableOwnerError):
        return True  # `RemoteSessions.open` has waited for its owner already
    if isinstance(error, errors.LeaseLostError) and error.deleted:
        return True
    return error.code in (errors.INVALID_PARAMS, errors.RESOURCE_NOT_FOUND, errors.AUTH_REQUIRED)
