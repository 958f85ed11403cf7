"""A live session: what is published into it, who is attached, what waits for an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from time import time

from msgspec import UNSET

from acphold.agents import Agent
from acphold.errors import ConnectionLostError, JournalError, UnknownSessionError
from acphold.hub.attachment import WORDS, Attachment, Client
from acphold.hub.backing import Backing
from acphold.hub.questions import Questions
from acphold.hub.routes import Routes
from acphold.hub.turns import Turns
from acphold.hub.updates import update_in
from acphold.journal import Journal, Lease, RowChange, Segment, SessionRow, SessionState
from acphold.journal.raw_update import update_kind
from acphold.journal.standing import Standing, fold_settings, fold_update

log = logging.getLogger(__name__)

SETTLE_DELAY = 1.0
"""Seconds of rest after a turn before it is compacted and indexed: not between two quick turns."""

CLOSE_SETTLE = 1.0
"""Seconds for the same when the session is closed."""

TOUCH_MS = 1000
"""Milliseconds between two writes of the session's row: its indexes cost more than an entry."""

CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
"""Updates that change no setting: nearly all of them, so they are told apart first."""

CHUNK_STARTS = tuple(b'{"sessionUpdate":"%b"' % kind.encode() for kind in CHUNKS)
"""How most programs begin them: seen without decoding."""


class Session:
    """One conversation while somebody holds it.

    `settings` is the small part of its state, kept live; the whole is folded from the journal
    when it is needed. `last_seq` is the end of what has been committed; `untitled` is True until
    the session has had a title.
    """

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        row: SessionRow,
        settings: Standing,
        agent: Agent,
        routes: Routes,
        *,
        cancel_grace: float,
    ) -> None:
        self.id = row.session_id
        self.cwd = row.cwd
        self.row = row
        self.settings = settings
        self.last_seq = lease.next_seq - 1
        self.attachments: list[Attachment] = []
        self.questions = Questions(self)
        self.backing = Backing(self, agent, journal, routes)
        self.turns = Turns(self, self.backing, cancel_grace)
        self._journal = journal
        self._lease = lease
        self._writing = asyncio.Lock()
        self.untitled = not row.prompted and settings.title is None
        self._active = 0
        self._touched = 0
        self._untold: list[tuple[str, bytes]] = []
        self._resting: asyncio.TimerHandle | None = None
        self._compacting: asyncio.Task[None] | None = None

    # -- writing --------------------------------------------------------------------------

    async def publish(
        self, kind: str, raws: Sequence[bytes], author: Attachment | None = None
    ) -> Segment:
        """Commit, fold, deliver; in this order, so that nobody sees what a crash could unsay.

        `author` wrote these entries and is not told of them. Raises JournalError, and then
        nothing was delivered.
        """
        async with self._writing:
            segment = await self._journal.append(self._lease, kind, raws)
            self.last_seq = segment.last_seq
            if author is not None:
                author.own.add(segment.last_seq)
            await self._fold(kind, raws)
            for attachment in tuple(self.attachments):
                attachment.deliver(segment)
            return segment

    async def _fold(self, kind: str, raws: Sequence[bytes]) -> None:
        title = self.settings.title
        if kind in ("update", "params"):
            for raw in raws if kind == "update" else map(update_in, raws):
                if raw.startswith(CHUNK_STARTS):
                    continue
                if (update := update_kind(raw)) not in CHUNKS:
                    self.settings = fold_update(self.settings, update, raw)
        elif kind == "settings":
            for raw in raws:
                self.settings = fold_settings(self.settings, raw)
        if self.settings.title != title:
            self.untitled = False
            await self._journal.touch(self._lease, RowChange(title=self.settings.title))

    async def prompted(self, at: int | None = None, title: str | None = None) -> None:
        """A prompt came: the session is worth listing, and first in the list.

        `at` is when, in ms since the epoch, None for now. Not written at every prompt: within a
        second of the last one `rest` does it. `title` stands in the list until a turn is over.
        """
        self._active = now() if at is None else at
        if self._touched + TOUCH_MS < self._active:
            self._touched = self._active
            shown = UNSET if title is None or not self.untitled else title
            change = RowChange(title=shown, updated_at=self._active, prompted=True)
            await self._journal.touch(self._lease, change)

    def turn_over(self) -> None:
        """The last turn of the queue has ended."""
        self._active = now()
        self.rest()

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        """Committed segments above `after`, at least one if there is any."""
        if self._compacting is not None:
            # Rows are being rewritten: read before or after it, never some of each.
            await asyncio.wait({self._compacting})
        return await self._journal.read(self.id, after, limit_bytes)

    async def state(self, *, through: int) -> SessionState:
        """All entries up to `through`, folded."""
        return await self._journal.state(self.id, through)

    async def open_tools(self) -> tuple[str, ...]:
        """The tool calls that are neither completed nor failed."""
        return (await self._journal.summary(self.id)).open_tools

    async def link(self, agent: str, downstream_id: str) -> None:
        """Note that the agent knows this session as `downstream_id`."""
        await self._journal.link(self._lease, agent, downstream_id)

    async def renew(self) -> None:
        """Hold on to the lease; LeaseLostError when another process has taken the session."""
        await self._journal.renew(self._lease)

    # -- clients --------------------------------------------------------------------------

    async def attach(self, client: Client, after: int, *, live: bool = True) -> Attachment:
        """Let `client` see everything above `after`; what it has already is replaced.

        With live=False nothing is sent before `go_live`.
        """
        await self.detach(client)
        attachment = Attachment(self, client, after)
        self.attachments.append(attachment)
        if live:
            attachment.go_live()
        return attachment

    def open_to(self, attachment: Attachment) -> None:
        """Its client has the answer that opens the session: tell it what is new, ask it."""
        attachment.go_live()
        attachment.opened = True
        for method, params in self._untold:
            attachment.tell(method, params)
        self._untold.clear()
        self.questions.put_to(attachment.client)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification that is no update to all clients; not kept in the journal."""
        for attachment in self.attachments:
            attachment.tell(method, params)
        if not self.attachments and len(self._untold) < WORDS:
            # Right behind the agent's answer to session/new nobody is attached yet.
            self._untold.append((method, params))

    def attachment_of(self, client: Client) -> Attachment:
        """The attachment of this client; UnknownSessionError when it has none."""
        for attachment in self.attachments:
            if attachment.client is client:
                return attachment
        raise UnknownSessionError(
            self.id, f"session {self.id!r} is not open here; call session/load or session/resume"
        )

    async def delivered(self, client: Client, seq: int) -> None:
        """Wait until this client has been sent everything up to `seq`, or has been detached."""
        seen: Attachment | None = None
        with suppress(UnknownSessionError):
            while (attachment := self.attachment_of(client)) is not seen:
                seen = attachment
                with suppress(ConnectionLostError):  # it may have attached anew meanwhile
                    await attachment.reached(seq)

    async def detach(self, client: Client) -> None:
        """Take `client` off this session; the turn goes on."""
        for attachment in tuple(self.attachments):
            if attachment.client is client:
                await self.drop(attachment)

    async def drop(self, attachment: Attachment) -> None:
        """End one attachment, if it has not been replaced since."""
        if attachment in self.attachments:
            self.attachments.remove(attachment)
            self.questions.withdraw(attachment.client)
            await attachment.aclose()

    # -- rest -----------------------------------------------------------------------------

    def rest(self) -> None:
        """Compact and index what has come, unless a turn begins at once."""
        self.wake()
        self._resting = asyncio.get_running_loop().call_later(SETTLE_DELAY, self._settle_now)

    def wake(self) -> None:
        """A turn begins: what waits to settle waits on."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _settle_now(self) -> None:
        if self._compacting is None:
            self._compacting = asyncio.create_task(self._settle(), name="settle")
            self._compacting.add_done_callback(self._settled)

    def _settled(self, _: asyncio.Task[None]) -> None:
        self._compacting = None

    async def _settle(self) -> None:
        if any(attachment.cursor < self.last_seq for attachment in self.attachments):
            return  # somebody reads inside it; the next rest covers it too
        try:
            if self._active > self._touched:
                self._touched = self._active
                await self._journal.touch(self._lease, RowChange(updated_at=self._active))
            await self._journal.settle(self._lease, self.last_seq)
        except JournalError:
            log.warning("session %s could not be compacted", self.id, exc_info=True)

    async def aclose(self) -> None:
        """End the turn, detach everybody, let go of the lease."""
        await self.turns.aclose()
        for attachment in tuple(self.attachments):
            await self.detach(attachment.client)
        self.questions.close()
        self.wake()
        self._settle_now()
        if (compacting := self._compacting) is not None:
            # A long history is compacted another time: who closes it does not wait for that.
            await asyncio.wait({compacting}, timeout=CLOSE_SETTLE)
            compacting.cancel()
        await self._journal.release(self._lease)


def now() -> int:
    """Milliseconds since the epoch."""
    return int(time() * 1000)
