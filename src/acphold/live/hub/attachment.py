"""One client on one session: a cursor into the journal, and what is due when it gets there.

Replay is an attachment that starts at 0; live is one that has reached the end; a slow client is
one that lags, and is fed from the journal instead of memory. One cursor serves all three, which
is why there is no gap, no duplicate and no queue that grows.

    state    what the client gets                       next
    -------  -----------------------------------------  ---------------------------------------
    HELD     what `replay` is asked for; nothing else,  LIVE or READING at `open`: it has the
             until it has the answer that opens it      answer
    LIVE     each segment as it is committed            READING when it lags
    READING  page by page what the journal has          LIVE at the end
    CLOSED   nothing                                    -
"""

# See docs/decisions.md, 2.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import Protocol, TypeAlias

from acphold.conversation.history.entries import PROMPT, TURN_END, Segment
from acphold.conversation.history.prompt_queue import PromptQueue
from acphold.errors import ConnectionLostError, LeaseLostError, UnknownSessionError
from acphold.journal.access import Scope
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.agents.terms import Terms
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.frames import Frames

log = logging.getLogger(__name__)

NOT_FED = notice(
    "Part of this session could not be read",
    "What you see of it is not all. Load the session again.",
    "warning",
)


class LineClient(Protocol):
    """A connected client, as its line to another process sees it (`server.far_line`)."""

    @property
    def offer(self) -> ClientOffer:
        """The capabilities and wishes from its `initialize`."""

    @property
    def is_lost(self) -> bool:
        """True once it has gone."""

    @property
    def buffered(self) -> int:
        """Bytes not yet sent to it."""

    def send(self, lines: bytes) -> None:
        """Queue framed lines."""

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError if it has gone."""

    async def ask(self, method: str, params: bytes) -> bytes:
        """Call a client method; cancelling this sends `$/cancel_request`."""

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification."""


class Client(LineClient, Protocol):
    """A connected client, as the hub sees it; fulfilled by `server`."""

    known_prompts: set[str]
    """The ids of prompts that it sent over an earlier connection."""

    aliases: dict[str, str]
    """The ids by which it knows sessions that became one with another, by session."""

    terms: dict[str, Terms]
    """Its own terms, by the key of the agent that they are for."""

    only_joins: bool
    """True if it came for sessions that are live, and for no agent."""

    @property
    def info(self) -> bytes:
        """`{"name": …, "version": …}` from its `initialize`, if it sent them, and the `user`, if
        they have a name; b"" without both."""

    @property
    def sees_all(self) -> bool:
        """True if it sees everybody's sessions."""

    def only_watches(self, session_id: str) -> bool:
        """Return True if it only watches this session, or all: it is asked nothing, and nobody
        counts on it."""

    def owns(self, tenant: str) -> bool:
        """Return True if the sessions of a tenant are its own, all of them: it is no guest."""

    def scopes_in(self, session_id: str) -> frozenset[Scope]:
        """Return its scopes in a session that it was let into, or with "" outside of sessions.

        Whoever may not prompt starts no agent: the journal answers them.
        """

    def part(self) -> None:
        """Leave, and answer nothing, if it goes on at the next owner: its sessions end here."""

    async def hang_up(self) -> None:
        """End its connection: what it came for is over."""


def not_open(session_id: str) -> UnknownSessionError:
    """Return the error for a client that has not opened a session, or a session that is not
    live."""
    reason = f"session {session_id!r} is not open; call session/load or session/resume first"
    return UnknownSessionError(session_id, reason)


class AttachedSession(Protocol):
    """The session that an attachment reads from."""

    @property
    def id(self) -> str:
        """The id that clients know."""

    @property
    def last_seq(self) -> int:
        """The end of what has been committed."""

    @property
    def queue(self) -> PromptQueue:
        """The queued prompts."""

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        """Return committed segments above `after`, at least one if there is any."""


class AttachmentState(Enum):
    """See the module."""

    HELD = "held"
    LIVE = "live"
    READING = "reading"
    CLOSED = "closed"


HELD, LIVE, READING, CLOSED = AttachmentState
"""The members by name: Python 3.11 takes 0.1 µs to look one up, and each step needs several."""


_NUMBERS = count(1)

Acts: TypeAlias = Sequence[Callable[[], None]]
"""Things to do in this order, such as to answer."""


class Attachment:
    """See the module. `skipped` holds entries that this client knows already: its own words, say.

    `on_moved` is called with the cursor, and with what is due behind it, when another process has
    taken the session over: it was not sent yet what comes before. `before`
    is the client's previous attachment; the client gets it back if this one is never opened. Newer
    ones have higher numbers.

    `reading` reads on in the journal for a client that lags, or has done so.

    `terminals` maps the id of each terminal to the client that shows it, None for nobody.

    With `positions` each line carries the position from which its client can resume. Entries above
    `live_after` are sent as they would be live, notices included. Entries up to it are history and
    sent as a replay.
    """

    def __init__(
        self,
        source: AttachedSession,
        client: Client,
        after: int,
        live_after: int,
        terminals: Mapping[str, Client | None],
        *,
        positions: bool = False,
    ) -> None:
        self.client = client
        self.number = next(_NUMBERS)
        self.cursor = after
        self.positions = positions or client.offer.positions
        self.skipped: set[int] = set()
        self.state = HELD
        self._source = source
        self._frames = Frames(
            client.aliases.get(source.id, source.id),
            client.offer,
            positions=self.positions,
            terminals=terminals,
            client=client,
            sent=client.known_prompts,
            from_start=after == 0,
        )
        self._live_after = live_after
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._due_bytes = 0
        self.on_moved: Callable[[int, Acts], object] | None = None
        self.before: Attachment | None = None
        self._successor: Attachment | None = None
        self.reading: asyncio.Task[None] | None = None
        self._is_newest_due = False
        self._stops = 0  # how often reading was stopped: a read that began before is void

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return self._source.id

    @property
    def is_open(self) -> bool:
        """True once the client has the answer that opens the session."""
        return self.state in (LIVE, READING)

    @property
    def is_fed(self) -> bool:
        """True until it is closed; a client that could not be fed has to attach anew."""
        return self.state is not CLOSED

    @property
    def boundaries(self) -> set[int]:
        """Entries that must not be joined with those after them, for the sake of this client.

        These are its cursor, the entries where something is due, and both ends of entries it is not
        told.
        """
        due = (seq for seq, _ in self._due)
        return {self.cursor, *due, *self.skipped, *(seq - 1 for seq in self.skipped)}

    # -- held -----------------------------------------------------------------------------

    async def replay(self, through: int) -> None:
        """Send everything up to `through`; ConnectionLostError if detached."""
        size = bounds.FIRST_PAGE_BYTES
        while self.cursor < through and self.state is HELD:
            await self._read_page(size)
            size = bounds.PAGE_BYTES
        if self.state is CLOSED:
            raise ConnectionLostError("the client was detached")

    def open(self) -> None:
        """Go live after the cursor: the client has the answer that opens the session."""
        if self.state is HELD:
            self.state, self.before = LIVE, None
            self._run_due()
            self._catch_up()

    # -- live -----------------------------------------------------------------------------

    def deliver(self, segment: Segment) -> None:
        """Send a segment just committed; if this client lags, it will read it from the journal."""
        if self.state is not LIVE:
            return
        if self.cursor + 1 != segment.first_seq:
            self._catch_up()
            return
        if segment.last_seq in self.skipped:
            self.skipped.discard(segment.last_seq)
            if lines := self._frames.own(segment):
                self.client.send(lines)
        elif (buffered := self.client.buffered) > bounds.LAG_BYTES:
            self._catch_up()
            return
        elif lines := self._frames.live(segment):
            is_flood = segment.last_seq - segment.first_seq >= bounds.APART
            if buffered or is_flood or self.client.offer.in_frames:
                self.client.send(lines)
            else:  # one message per write: some clients merge or cut text when several updates
                # arrive in one read of a pipe
                send = self.client.send
                for line in lines[:-1].split(b"\n"):
                    send(line + b"\n")
        self._advance(segment.last_seq)

    def lines_of(self, segment: Segment) -> list[bytes]:
        """Return the lines of a segment just committed, to be sent together with those of other
        sessions.

        Nothing may be buffered for the client. [] if there is nothing to send or more to do than
        sending: then call `deliver`.
        """
        seq = segment.last_seq
        if (
            self.state is not LIVE
            or self.cursor + 1 != segment.first_seq
            or seq in self.skipped
            or self._due
        ):
            return []
        lines = self._frames.live(segment)
        if not lines:
            return []
        self.cursor = seq
        if segment.first_seq == seq:
            return [lines]
        return [line + b"\n" for line in lines[:-1].split(b"\n")]

    def when_reached(self, seq: int, act: Callable[[], None]) -> None:
        """Call `act` once everything up to `seq` has been sent, after all that is due already.

        Called at once if that has been sent, or if this client gets no more.
        """
        last = self._last
        if last._due:
            seq = max(seq, last._due[-1][0])
        if last.state is CLOSED or last._is_behind(seq):
            act()
        else:
            last._due.append((seq, act))

    def _is_behind(self, seq: int) -> bool:
        return self.is_open and self.cursor >= seq

    @property
    def _last(self) -> Attachment:
        """The attachment that replaced this one, if its client has attached anew."""
        last = self
        while last._successor is not None:
            last = last._successor
        return last

    def forget(self, act: Callable[[], None]) -> None:
        """Cancel an `act` given to `when_reached`."""
        due = self._last._due
        for each in due:
            if each[1] is act:
                due.remove(each)
                return

    @property
    def lags(self) -> bool:
        """True if it is open and some committed entries have not been sent."""
        return self.state is READING

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on, after the updates that arrived before it."""
        if not self.has_room:
            log.warning("session %s: %s dropped: a client lags", self._source.id, method)
            return

        def pass_on() -> None:
            self._due_bytes -= len(params)
            if self._last.state is not CLOSED:
                self.client.tell(method, params)

        self._due_bytes += len(params)
        self.when_reached(self._source.last_seq, pass_on)

    def notify_newest(self, method: str, newest: Callable[[], bytes]) -> None:
        """Pass on a state of which only the newest counts, after the updates that arrived before
        it; to a client that lags, once, when it has caught up."""
        if self._is_newest_due:
            return
        self._is_newest_due = True

        def notify() -> None:
            self._is_newest_due = False
            if self._last.state is not CLOSED:
                self.client.tell(method, newest())

        self.when_reached(self._source.last_seq, notify)

    @property
    def has_room(self) -> bool:
        """True if one more notification can be sent, or kept until the updates before it are
        sent."""
        if self._is_behind(self._source.last_seq):
            return self.client.buffered <= bounds.LAG_BYTES
        return len(self._due) < bounds.DUE and self._due_bytes < bounds.DUE_BYTES

    def tell_aside(self, update: bytes) -> None:
        """Send an update that is not journalled."""
        self.client.send(self._frames.aside(update))

    # -- reading --------------------------------------------------------------------------

    def _catch_up(self) -> None:
        if self.cursor < self._source.last_seq:
            self.state = READING
            self.reading = asyncio.create_task(self._read_on(), name="attachment reads on")

    async def _read_on(self) -> None:
        """Read on in the journal to its end, then go live."""
        try:
            size, stops = bounds.CATCH_UP_BYTES, self._stops
            while self._stops == stops and self.cursor < self._source.last_seq:
                await self._read_page(size)
                size = min(2 * size, bounds.PAGE_BYTES)
            if self._stops == stops:
                self.state = LIVE
        except (ConnectionLostError, LeaseLostError) as exc:
            log.info("session %s: a client gets no more: %s", self._source.id, exc)
            self.close()
        except Exception:  # nobody awaits this task; closing runs what is due
            log.exception("session %s: a client could not be fed", self._source.id)
            self.tell_aside(NOT_FED)
            self.close()

    async def _read_page(self, size: int) -> None:
        stops = self._stops
        page = await self._source.read(self.cursor, size)
        if self._stops != stops:
            return  # a database read ends after a detach, too: drop it, it counts as not sent
        # The journal may be ahead of `last_seq` until the publisher delivers: leave that to it.
        end = self._source.last_seq
        page = [segment for segment in page if segment.last_seq <= end]
        pieces: list[list[Segment]] = []  # cut where something is due
        for seq, _ in self._due:
            size = sum(segment.last_seq <= seq for segment in page)
            pieces.append(page[:size])
            page = page[size:]
        for piece in filter(None, (*pieces, page)):
            lines: list[bytes] = []
            past: list[Segment] = []
            for segment in piece:
                is_own = segment.last_seq in self.skipped
                if is_own and segment.kind not in (PROMPT, TURN_END):
                    continue
                if not is_own and segment.last_seq <= self._live_after:
                    past.append(segment)
                    continue
                lines.append(self._frames.history(past))
                past.clear()
                lines.append(self._frames.own(segment) if is_own else self._frames.live(segment))
            lines.append(self._frames.history(past))
            self.skipped.difference_update(segment.last_seq for segment in piece)
            if any(lines) and self.state is not CLOSED:
                self.client.send(b"".join(lines))
            self._advance(piece[-1].last_seq)
        # Also if the client has room: a long replay must not starve the other sessions.
        await asyncio.sleep(0)
        if self.client.buffered > bounds.LAG_BYTES:
            await self.client.drain()

    def _advance(self, seq: int) -> None:
        self.cursor = seq
        if self._due:
            self._run_due()

    def _run_due(self) -> None:
        """Run what is due at the cursor."""
        while self._due and self.is_open and self._due[0][0] <= self.cursor:
            self._due.popleft()[1]()

    # -- the end --------------------------------------------------------------------------

    def hand_over(self, other: Attachment) -> None:
        """Hand over what is due to `other`: the client attaches anew.

        History is sent there in full, including the client's own words.
        """
        other.before = self if self.is_open else self.before
        other.skipped |= {seq for seq in self.skipped if seq > other._live_after}
        self._pass_on_due(other)

    def take_back(self, other: Attachment) -> None:
        """Continue here, after the cursor: the attachment that replaced this one could not be
        opened."""
        self.state, self._successor = HELD, None
        self.skipped |= other.skipped
        other._pass_on_due(self)
        self.open()

    def _pass_on_due(self, other: Attachment) -> None:
        self.state, self._successor = CLOSED, other
        other._due.extend(self._due)
        self._due.clear()
        self._stop_reading()

    def move_away(self) -> None:
        """Send nothing more: the session continues in another process, and its client follows."""
        left = self if self.is_open else self.before
        if left is None or left.on_moved is None:
            self.close()
            return
        due = [act for _, act in self._due]
        self._due.clear()
        self.close()
        left.on_moved(left.cursor, due)

    def close(self) -> None:
        """Send nothing more, and run what is due: the client gets no more updates."""
        self.state = CLOSED
        self._stop_reading()
        while self._due:
            self._due.popleft()[1]()

    def _stop_reading(self) -> None:
        self._stops += 1
        if self.reading is not None and self.reading is not asyncio.current_task():
            self.reading.cancel()
        self.reading = None
