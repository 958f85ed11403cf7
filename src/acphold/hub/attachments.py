"""The clients of one session, attached or expected back; the rest after a turn, which awaits them.

A client that asks for positions resumes after its last one, also over a new connection. That is
exact as long as nothing after it was merged, and settling merges. So settling is put off: a little
while such a client is attached, for its connection may be dead unnoticed; longer once its
connection is lost; longest if that was in a turn. An owner that ends leaves the session unsettled
for such a client, and the next owner does the same.

What is committed is delivered to them all, in the order in which they came; the client that wrote
it comes first.
"""

# See docs/decisions.md, 11.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from acphold.agents.capabilities import QUEUE_METHOD
from acphold.errors import HistoryLostError, UnknownSessionError
from acphold.history import Segment
from acphold.history.prompt_queue import NO_QUEUE
from acphold.hub import bounds
from acphold.hub.annotations import notice
from acphold.hub.attachment import AttachedSession, Attachment, Client
from acphold.hub.publication import Publication
from acphold.newest import Newest
from acphold.schema import encode
from acphold.schema.updates import CHILD

if TYPE_CHECKING:  # only for types: making such classes would delay an editor's start

    class Settles(Protocol):
        """A session that can be settled."""

        async def settle(self) -> bool:
            """Do the work; return True if that was possible."""


log = logging.getLogger(__name__)


class Bookmark(Struct, frozen=True):
    """The position of a client: kept until `soon`, and until `late` if no turn begins after that.

    Both are times of the event loop.
    """

    soon: float
    late: float


class Rest:
    """The rest of a session between turns, in which it is settled, and the bookmarks that put this
    off.

    It is settled once at a time. That waits for `room`, shared with other sessions: hundreds may
    come to rest at one moment.
    """

    def __init__(self, session: Settles, room: asyncio.Semaphore) -> None:
        self._session = session
        self._room = room
        self._failed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._bookmarks: list[Bookmark] = []
        self._settling: asyncio.Task[bool] | None = None
        self._compacted = asyncio.Event()
        self._compacted.set()
        self._settles_again = False
        self._reads = 0
        self._all_read = asyncio.Event()

    def begin(self, *, positions: bool) -> None:
        """Start resting after the last turn; `positions` says that an attached client asks for
        them."""
        # One timer serves many turns: setting and cancelling it is expensive beside a short turn.
        loop = asyncio.get_running_loop()
        delay = bounds.UNNOTICED_SECONDS if positions else bounds.REST_SECONDS
        until = loop.time() + delay
        if self._bookmarks:
            self._bookmarks = [mark for mark in self._bookmarks if mark.late > loop.time()]
            until = max([until, *(mark.late for mark in self._bookmarks)])
        self._until = until
        if self._timer is not None and self._timer.when() > until:
            self._timer.cancel()  # it was to wait for a client that has come back
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(until, self._over)

    def end(self) -> None:
        """Stop resting: a turn begins."""
        self._until = None
        if self._bookmarks:
            now = asyncio.get_running_loop().time()
            self._bookmarks = [mark for mark in self._bookmarks if mark.soon > now]

    def _over(self) -> None:
        self._timer = None
        if self._until is None:
            return  # a turn runs; its end begins the next rest
        loop = asyncio.get_running_loop()
        if self._until > loop.time():
            self._timer = loop.call_at(self._until, self._over)
        elif self._settling is None:
            self.settle_now()
        else:
            self._settles_again = True

    # -- bookmarks ------------------------------------------------------------------------

    @property
    def bookmarks(self) -> int:
        """Number of clients that may come back to their position."""
        now = asyncio.get_running_loop().time()
        return sum(mark.late > now for mark in self._bookmarks)

    def leave_bookmark(self, *, in_turn: bool = False, ago: float = 0.0) -> None:
        """Keep the position of a client whose connection was lost `ago` seconds before."""
        lost = asyncio.get_running_loop().time() - ago
        late = lost + (bounds.BOOKMARK_IN_TURN_SECONDS if in_turn else bounds.BOOKMARK_SECONDS)
        self._bookmarks.append(Bookmark(lost + bounds.BOOKMARK_SECONDS, late))
        if self._until is not None:
            self._until = max(self._until, late)

    def take_bookmark(self) -> None:
        """Drop the oldest bookmark: a client that asks for positions has come."""
        if self._bookmarks:
            self._bookmarks.pop(0)
            if self._until is not None:
                self.begin(positions=True)

    # -- settling -------------------------------------------------------------------------

    def settle_now(self) -> None:
        """Settle in a task."""

        async def settle() -> bool:
            async with self._room:
                self._compacted.clear()  # not earlier: readers need not wait for other sessions
                while self._reads:  # let readers move on first
                    self._all_read.clear()
                    await self._all_read.wait()
                return await self._session.settle()

        if self._settling is None:
            self._settling = asyncio.create_task(settle(), name="settle")
            self._settling.add_done_callback(self._settled)

    def end_compaction(self) -> None:
        """Note that compaction is over: the rest of settling changes no rows."""
        self._compacted.set()

    def _settled(self, settling: asyncio.Task[bool]) -> None:
        self._settling = None
        self._compacted.set()
        could = not settling.cancelled() and settling.exception() is None and settling.result()
        self._failed = 0 if could else self._failed + 1
        if self._settles_again:  # it came to rest meanwhile
            self._settles_again = False
            if self._timer is None:
                self._over()
        elif self._failed and self._until is not None and self._timer is None:
            # Try again after a full disk, say: there may be no further turn whose end starts a
            # rest.
            doubled = bounds.REST_SECONDS * 2 ** min(self._failed, 30)  # else no float holds it
            delay = min(doubled, bounds.UNNOTICED_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self._over)

    async def compaction_ends(self) -> None:
        """Wait until no compaction runs."""
        while not self._compacted.is_set():  # another may have begun before this continues
            await self._compacted.wait()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """A block without compaction; entered when none runs."""
        await self.compaction_ends()
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1
            if not self._reads:
                self._all_read.set()

    def stop(self) -> None:
        """Start nothing more."""
        self._until = None
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self, seconds: float) -> None:
        """Settle now; leave the rest for another time after so many seconds.

        Does not settle while a client may come back to its position.
        """
        self.stop()
        if not self.bookmarks:
            self.settle_now()
        if (settling := self._settling) is not None:
            await asyncio.wait({settling}, timeout=seconds)
            settling.cancel()  # it ends after its present piece
            await asyncio.wait({settling}, timeout=seconds)


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
        self._terminals: Newest[str, Client | None] = Newest(bounds.TERMINAL_OWNERS)
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
                known.replaced_by(attachment)
        self._all.append(attachment)
        if client.offer.queue and self._source.queue != NO_QUEUE:
            client.tell(QUEUE_METHOD, self._queue_params())
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
        if (attachment := self.find(client)) is not None:
            return attachment
        session_id = self._source.id
        raise UnknownSessionError(
            session_id,
            f"session {session_id!r} is not open here; call session/load or session/resume",
        )

    def detach(self, attachment: Attachment) -> None:
        """End one attachment, if it has not been replaced since; the turn goes on."""
        if attachment in self._all:
            self._all.remove(attachment)
            for terminal, owner in self._terminals.items():
                if owner is attachment.client:
                    self._terminals[terminal] = None
            attachment.close()

    def detach_all(self) -> None:
        """Send nothing more to any client."""
        for attachment in self:
            self.detach(attachment)

    def move(self) -> None:
        """Detach all clients: the session continues in another process, and those that have it open
        are to follow it."""
        open_ = [known if known.is_open else known.before for known in self._all]
        self.detach_all()
        for attachment in open_:
            if attachment is not None:
                attachment.moved()

    # -- what they are sent ---------------------------------------------------------------

    def deliver(self, publication: Publication, segment: Segment) -> None:
        """Deliver a committed segment to the clients."""
        author = publication.author
        if author is not None:  # its client may have attached anew
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

    def _queue_params(self) -> bytes:
        return encode({"sessionId": self._source.id, "queue": self._source.queue})

    def notify_queue(self) -> None:
        """Send the queue of prompts to the clients that asked for it."""
        for attachment in self:
            if attachment.client.offer.queue:
                attachment.notify_newest(QUEUE_METHOD, self._queue_params)

    def made_terminal(self, terminal: str, owner: Client | None) -> None:
        """Note which client shows a terminal, None for this process: no other client can."""
        self._terminals[terminal] = owner

    def tell_deleted(self, but: Client | None = None) -> None:
        """Tell all clients but one that the session is gone for good."""
        self.tell_last(DELETED_NOTICE, lambda client: client is but)

    def tell_history_lost(self, error: HistoryLostError) -> None:
        """Tell all clients that the journal has gone back, and what it lacks now."""
        update = notice(HISTORY_LOST, HISTORY_LOST_HOW.format(error.last_seq), "warning")
        self.tell_last(update, lambda _: False)

    def tell_last(self, update: bytes, knows: Callable[[Client], bool]) -> None:
        """Send an update that is not journalled to all clients that do not know it; nothing follows
        it."""
        for attachment in self:
            if attachment.is_open and not knows(attachment.client):
                attachment.tell_last(update)
