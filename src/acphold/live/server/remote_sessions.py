"""The sessions that a client of this process has open in other processes, their owners.

If a client opens a session that another process owns, its requests go over a line to that owner
(`server.session_opener`). Here the lines are kept, and watched: when an owner ends, or another
process takes a session from one that was stopped, the session is opened again for the client.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from acp_wire.tasks import END_SECONDS, TaskSet, end
from acphold import errors
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import Client
from acphold.live.hub.attachments import DELETED_NOTICE
from acphold.live.hub.desk import Desk
from acphold.live.hub.frames import Frames
from acphold.live.reading.neighbours import is_answering
from acphold.live.server import bounds
from acphold.record.journal import Silent
from acphold.record.journal.owners import other_owner

if TYPE_CHECKING:  # late below: an editor waits for the start, and few sessions are live elsewhere
    from acphold.live.server.owner_line import Opened, OwnerLine

log = logging.getLogger(__name__)

MUTE = "The process that owns this session is not responding"
MUTE_HOW = (
    "It was stopped, or the connection to it is down. Your messages are waiting for it. To "
    "continue without it, cancel, and send them again."
)
BACK = "This session can be reached again"
BACK_HOW = "The updates that you missed follow."


class RemoteSessions:
    """See the module. `introduction` introduces the client to owners:
    `capabilities.introduction_for_owner`; `reopen` starts to open a session again,
    as the client had it."""

    def __init__(
        self, desk: Desk, client: Client, limit: int, reopen: Callable[[str, Opened], None]
    ) -> None:
        self.introduction = b"{}"
        self.is_over = False
        self._reopen = reopen
        self._desk = desk
        self._client = client
        self._limit = limit
        self._lines: dict[str, OwnerLine] = {}
        self._reaching = asyncio.Lock()
        self._ending = TaskSet()
        # Includes a lost line until all prompts that were sent over it are answered.
        self._all_lines: WeakSet[OwnerLine] = WeakSet()
        self._watching: asyncio.Task[None] | None = None

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

    def prompts(self, session_id: str) -> list[str]:
        """Return the ids of the client's prompts in a session, at every owner."""
        return [id_ for line in self._all_lines for id_ in line.prompts.ids(session_id)]

    async def reach(self, held: errors.HeldElsewhereError) -> OwnerLine:
        """Return a line to the owner. Raises SilentPeerError if it does not answer,
        ConnectionLostError if it listens nowhere."""
        from acphold.live.server.owner_line import line_to

        async with self._reaching:
            line = self._lines.get(held.owner_id)
            if (
                line is not None
                and not line.peer.is_lost
                and await self._is_silent(held.owner_id, held.session_id, held.addresses)
            ):
                self.on_lost(line)  # the client's other sessions there are taken over, too
                raise errors.SilentPeerError("the process that owns the session does not answer")
            if line is None or line.peer.is_lost:
                line = await line_to(held, self.introduction, self._client, self._limit, self)
                self._lines[held.owner_id] = line
                self._all_lines.add(line)
                if self._watching is None and not self.is_over:
                    self._watching = asyncio.create_task(self._watch_owners(), name="watch owners")
            return line

    async def _is_silent(self, owner_id: str, session_id: str, addresses: Sequence[str]) -> bool:
        """Return True if the owner of a session neither answers nor has ended."""
        try:
            return not await is_answering(addresses, bounds.OWNER_ANSWER_SECONDS)
        except errors.ConnectionLostError:
            # It listens nowhere just now; its next address will be asked.
            whose = await self._desk.hub.whereabouts.owner(session_id)
            return isinstance(whose, Silent) and whose.owner.id == owner_id

    def forget(self, session_id: str, but: OwnerLine | None = None) -> None:
        """Forget the session on the lines where it is not open any more."""
        for line in self._lines.values():
            if line is not but:
                line.opened.pop(session_id, None)

    # -- watching -------------------------------------------------------------------------

    async def _watch_owners(self) -> None:
        """Check regularly for silent owners, and for sessions that have another owner now: one that
        was stopped cannot report that it lost them."""
        while True:
            await asyncio.sleep(min(bounds.OWNER_CHECK_SECONDS, bounds.OWNER_ANSWER_SECONDS))
            for owner_id, line in tuple(self._lines.items()):
                if line.is_overdue and await self._has_fallen_silent(owner_id, line):
                    self.on_lost(line)
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
                self.notify(session_id, update)

    async def _has_fallen_silent(self, owner_id: str, line: OwnerLine) -> bool:
        for session_id in (*line.opened, line.made_for):
            try:
                whose = await self._desk.hub.whereabouts.owner(session_id)
                owner = other_owner(whose)
                if owner is not None and owner.id == owner_id:
                    return await self._is_silent(owner_id, session_id, owner.addresses)
            except errors.AcpError as exc:
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
            is_moved = (await self._desk.hub.whereabouts.owner(session_id)).epoch != epoch
            # The client may have closed it meanwhile, or the line may have ended.
            is_here = self._lines.get(owner_id) is line and session_id in line.opened
            if is_moved and is_here:
                # The owner at this line has lost it, though it may have acquired it again.
                log.info("session %s has another owner now; opening it there", session_id)
                self._reopen(session_id, line.opened.pop(session_id))
                line.prompts.lose(session_id)
                if not line.opened:
                    del self._lines[owner_id]
                    self._ending.start(line.aclose(), "end line")
        except errors.UnknownSessionError:
            # It was deleted. Its owner notifies all its clients, if it can.
            is_reported = await line.report_change(session_id)
            self._desk.hub.was_deleted(session_id)
            if line.opened.pop(session_id, None) is not None and not is_reported:
                self.notify(session_id, DELETED_NOTICE)
        except errors.AcpError as exc:
            log.info("cannot find the owner of session %s: %s", session_id, exc)
        except Exception:  # nobody awaits this task, and it has to go on
            log.exception("could not check the owner of session %s", session_id)

    def on_lost(self, line: OwnerLine) -> None:
        """See `server.owner_line.LineUser`."""
        for owner_id, known in tuple(self._lines.items()):
            if known is line:
                del self._lines[owner_id]
        for session_id, each in line.take_opened().items():
            if each.is_open:  # otherwise the request that opens it is sent again, or refused
                self._reopen(session_id, each)
        self._ending.start(line.peer.aclose(), "end line")

    def notify(self, session_id: str, update: bytes) -> None:
        """Send an update to the client alone; it is not journalled."""
        self._client.send(Frames(session_id, self._client.offer).aside(update))

    async def stop(self) -> None:
        """Start nothing more: the client has gone."""
        self.is_over = True
        await end(self._watching)

    async def leave(self) -> None:
        """Leave every owner."""
        await self._ending.aclose(END_SECONDS)
        lines = tuple(self._lines.values())
        self._lines.clear()
        for line in lines:
            await line.aclose()
