"""The clients that are attached to one session.

What is committed is delivered to them all, in the order in which they came; the client that wrote
it comes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from acp_wire.newest import Newest
from acp_wire.schema import encode
from acphold.conversation.history.entries import Segment
from acphold.conversation.history.prompt_queue import NO_QUEUE
from acphold.conversation.history.raw_update import CHILD
from acphold.errors import HistoryLostError
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import AttachedSession, Attachment, Client, not_open
from acphold.live.hub.publication import Publication

log = logging.getLogger(__name__)


DELETED_NOTICE = notice(
    "This session was deleted",
    "It was deleted elsewhere; what you see here is no longer stored.",
    "warning",
)

HISTORY_LOST = "Part of this session is lost"
HISTORY_LOST_HOW = (
    "The journal has gone back to an earlier state, for example because a backup or a lagging "
    "standby replaced it. It has nothing of this session after entry {}. What you see of that here "
    "is not stored anywhere else."
)


class Attachments:
    """The attached clients. They may come and go while one iterates over it."""

    def __init__(self, source: AttachedSession) -> None:
        self._source = source
        self._all: list[Attachment] = []
        self._terminals: Newest[str, Client | None] = Newest(bounds.TERMINAL_IDS)
        self._unsent: list[tuple[str, bytes]] = []

    def __iter__(self) -> Iterator[Attachment]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    # -- who is here ----------------------------------------------------------------------

    def attach(
        self, client: Client, after: int, live_after: int, *, positions: bool = False
    ) -> Attachment:
        """Return an attachment that is held until its client has the answer that opens the session.

        It replaces the client's present attachment in one step, so that no client ever has two.
        `after`, `live_after` and `positions` as in Attachment. A client that asked for it is told
        of the queued prompts, before its answer.
        """
        attachment = Attachment(
            self._source, client, after, live_after, self._terminals, positions=positions
        )
        for known in self:
            if known.client is client:
                self._all.remove(known)
                known.hand_over(attachment)
        self._all.append(attachment)
        if client.offer.queue and self._source.queue != NO_QUEUE:
            client.tell(QUEUE_METHOD, self._queue_news())
        return attachment

    def put_back(self, attachment: Attachment) -> bool:
        """Undo `attach`: the session could not be opened. False if the client had no attachment
        before."""
        if (before := attachment.before) is None or attachment not in self._all:
            return False
        self._all[self._all.index(attachment)] = before
        before.take_back(attachment)
        return True

    def open_to(self, attachment: Attachment) -> None:
        """Go live: the client has the answer that opens the session. Send it what was kept for
        it."""
        attachment.open()
        for method, params in self._unsent:
            attachment.tell(method, params)
        self._unsent.clear()

    def find(self, client: Client) -> Attachment | None:
        """Return the attachment of this client, if it has one."""
        for known in self._all:  # a loop: asked for several times in each turn
            if known.client is client and known.is_fed:
                return known
        return None

    def of(self, client: Client) -> Attachment:
        """Return the attachment of this client; UnknownSessionError if it has none."""
        if (attachment := self.find(client)) is None:
            raise not_open(self._source.id)
        return attachment

    def detach(self, attachment: Attachment) -> None:
        """End one attachment, if it has not been replaced since; the turn goes on."""
        if attachment in self._all:
            self._let_go(attachment)
            attachment.close()

    def _let_go(self, attachment: Attachment) -> None:
        self._all.remove(attachment)
        for terminal, owner in self._terminals.items():
            if owner is attachment.client:
                self._terminals[terminal] = None

    async def catch_up(self, seconds: float) -> None:
        """Wait until clients that lag have caught up, so long at most."""
        if reading := [known.reading for known in self if known.reading is not None]:
            await asyncio.wait(reading, timeout=seconds)

    def detach_all(self) -> None:
        """Send nothing more to any client."""
        for attachment in self:
            self.detach(attachment)

    def move(self) -> None:
        """Detach all clients: the session continues in another process, and those that have it open
        are to follow it."""
        moving = tuple(self)
        for attachment in moving:
            self._let_go(attachment)
        for attachment in moving:
            attachment.move_away()

    # -- what they are sent ---------------------------------------------------------------

    def deliver(self, publication: Publication, segment: Segment) -> None:
        """Deliver a committed segment to the clients."""
        author = publication.author
        if author is not None and not author.is_fed:  # its client may have attached anew
            author = self.find(author.client) or author
        if author is not None:  # before the others: a program may wait for the answer
            author.skipped.add(segment.last_seq)
            author.deliver(segment)
            if publication.then is not None:
                author.when_reached(segment.last_seq, publication.then)
        elif publication.then is not None:
            publication.then()
        audience = publication.audience
        for attachment in self:
            if attachment is author:
                continue
            if audience is not None and attachment.client is not audience.client:
                attachment.skipped.add(segment.last_seq)
            attachment.deliver(segment)

    def tell(self, method: str, params: bytes, *, about_child: bool = False) -> None:
        """Pass a notification that is no update to all clients; it is not journalled.

        If it is about a sub-agent, only clients that show sub-agents get it.
        """
        for attachment in self:
            if not (about_child and CHILD in attachment.client.offer.withheld):
                attachment.tell(method, params)
        if about_child or self._all:
            return
        # Right after the agent's answer to session/new nobody is attached yet.
        size = len(params) + sum(len(kept) for _, kept in self._unsent)
        if len(self._unsent) < bounds.DUE and size < bounds.DUE_BYTES:
            self._unsent.append((method, params))
        else:
            log.warning("session %s: %s dropped: nobody is attached", self._source.id, method)

    def queue_state(self) -> dict[str, object]:
        """Return the queue of prompts, and the entry that it is as of."""
        return {"queue": self._source.queue, "seq": self._source.last_seq}

    def _queue_news(self) -> bytes:
        return encode({"sessionId": self._source.id, **self.queue_state()})

    def notify_queue(self) -> None:
        """Send the queue, which has changed, to the clients that asked for it."""
        for attachment in self:
            if attachment.client.offer.queue:
                attachment.notify_newest(QUEUE_METHOD, self._queue_news)

    def note_terminal(self, terminal: str, owner: Client | None) -> None:
        """Note which client shows a terminal, None for this process: no other client can."""
        self._terminals[terminal] = owner

    def tell_deleted(self, but: Client | None = None) -> None:
        """Tell all clients but one that the session is gone for good."""
        self.tell_aside(DELETED_NOTICE, but)

    def tell_history_lost(self, error: HistoryLostError) -> None:
        """Tell all clients that the journal has gone back, and what it lacks now."""
        update = notice(HISTORY_LOST, HISTORY_LOST_HOW.format(error.last_seq), "warning")
        self.tell_aside(update)

    def tell_aside(self, update: bytes, but: Client | None = None) -> None:
        """Send an update that is not journalled to all clients but one."""
        for attachment in self:
            if attachment.is_open and attachment.client is not but:
                attachment.tell_aside(update)
