"""One client on one session: a cursor into the journal, nothing else.

Replay is an attachment that starts at 0; live is one that has reached the end; a slow client is
one that lags, and is fed from the journal instead of memory. One cursor serves all three, which
is why there is no gap, no duplicate and no queue that grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from acphold.errors import ConnectionLostError
from acphold.hub.frames import Frames
from acphold.journal import Segment
from acphold.journal.replay import replay
from acphold.schema import ClientCapabilities

if TYPE_CHECKING:
    from acphold.hub.session import Session

log = logging.getLogger(__name__)

FIRST_PAGE = 16 * 1024
"""Bytes of the first read of a replay: small, so that the first line is there at once."""

PAGE = 1024 * 1024
"""Bytes of every further read."""

LAG = 1024 * 1024
"""Bytes a client may leave unread before it is fed from the journal."""


WORDS = 256
"""Notifications of an agent's own making that are kept for a client that lags."""


class Word(Struct, frozen=True):
    """A notification that is due behind entry `behind`."""

    behind: int
    method: str
    params: bytes


class Client(Protocol):
    """A connected client, as the hub sees it; fulfilled by `acphold.server`."""

    @property
    def capabilities(self) -> ClientCapabilities:
        """What it said at `initialize`."""

    @property
    def buffered(self) -> int:
        """Bytes on their way to it."""

    def send(self, lines: bytes) -> None:
        """Queue framed lines."""

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError when it has gone."""

    async def ask(self, method: str, params: bytes) -> bytes:
        """Call a client method; cancelling this sends `$/cancel_request`."""

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification."""


class Attachment:
    """See the module. `own` holds the entries this client wrote itself and is not told again.

    `opened` is True once the client has the answer that opens the session: questions wait for it.
    """

    def __init__(self, session: Session, client: Client, after: int) -> None:
        self.session = session
        self.client = client
        self.cursor = after
        self.own: set[int] = set()
        self.opened = False
        self._frames = Frames(session.id, client.capabilities)
        self._history = session.last_seq
        self._words: list[Word] = []
        self._catching: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._live = False
        self._closed = False

    def go_live(self) -> None:
        """Begin to send: first what is there already, then what comes."""
        if not self._live:
            self._live = True
            self.catch_up()

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on, behind the updates that came before it."""
        if self._live and self.cursor >= self.session.last_seq:
            self.client.tell(method, params)
        elif len(self._words) < WORDS:
            self._words.append(Word(self.session.last_seq, method, params))
        else:
            log.warning("session %s: %s dropped: a client lags", self.session.id, method)

    # -- live -----------------------------------------------------------------------------

    def deliver(self, segment: Segment) -> None:
        """Send what was just committed, unless this client lags: then it comes from the journal."""
        if self._catching is not None or self._closed or not self._live:
            return
        if self.cursor + 1 != segment.first_seq or self.client.buffered > LAG:
            self.catch_up()
            return
        if segment.last_seq in self.own:
            self.own.discard(segment.last_seq)
        elif lines := self._frames.live(segment):
            self.client.send(lines)
        self._advance(segment.last_seq)

    # -- replay and lag -------------------------------------------------------------------

    def catch_up(self) -> None:
        """Read on in the journal until the end is reached; live from there."""
        if self._catching is None and self._live and not self._closed:
            self._catching = asyncio.create_task(self._read_on(), name="attachment catches up")

    async def _read_on(self) -> None:
        size = FIRST_PAGE
        try:
            while self.cursor < self.session.last_seq:
                page = await self.session.read(self.cursor, size)
                for piece in self._between_words(page):
                    self._send_page(piece)
                size = PAGE
                # Also when there is room: a long replay lets the other sessions breathe.
                await asyncio.sleep(0)
                if self.client.buffered > LAG:
                    await self.client.drain()
            self._pass_on()
        except ConnectionLostError as exc:
            self._closed = True
            self._fail(exc)
        except Exception as exc:  # nobody awaits this task; who waits for the replay is told
            log.exception("session %s: a replay failed", self.session.id)
            self._fail(exc)
        finally:
            self._catching = None

    def _between_words(self, page: list[Segment]) -> list[list[Segment]]:
        """The page, cut where a notification is due."""
        pieces: list[list[Segment]] = []
        for word in self._words:
            size = sum(segment.last_seq <= word.behind for segment in page)
            pieces.append(page[:size])
            page = page[size:]
        return [piece for piece in (*pieces, page) if piece]

    def _send_page(self, page: Sequence[Segment]) -> None:
        told = [segment for segment in page if segment.last_seq not in self.own]
        self.own.difference_update(segment.last_seq for segment in page)
        past = [segment for segment in told if segment.last_seq <= self._history]
        lines = [self._frames.replayed(replay(past))]
        # What came since is sent as it would have been: a notice is still news.
        lines += [self._frames.live(segment) for segment in told[len(past) :]]
        if any(lines):
            self.client.send(b"".join(lines))
        self._advance(page[-1].last_seq)

    async def reached(self, seq: int) -> None:
        """Wait until everything up to `seq` has been sent; ConnectionLostError when detached."""
        if self.cursor >= seq:
            return  # also when it has been detached since: it was sent
        if self._closed:
            raise ConnectionLostError("the client was detached")
        arrival = asyncio.get_running_loop().create_future()
        self._waiting.append((seq, arrival))
        self.catch_up()
        await arrival

    def _advance(self, seq: int) -> None:
        self.cursor = seq
        if self._words:
            self._pass_on()
        if self._waiting:
            for goal, arrival in self._waiting:
                if goal <= seq and not arrival.done():
                    arrival.set_result(None)
            self._waiting = [item for item in self._waiting if not item[1].done()]

    def _pass_on(self) -> None:
        """Pass on the notifications whose turn it is."""
        while self._words and self._words[0].behind <= self.cursor:
            word = self._words.pop(0)
            self.client.tell(word.method, word.params)

    def _fail(self, exc: Exception) -> None:
        for _, arrival in self._waiting:
            if not arrival.done():
                arrival.set_exception(exc)
        self._waiting.clear()

    # -- the end --------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Send nothing more; whoever waits for this attachment is told."""
        self._closed = True
        if self._catching is not None:
            self._catching.cancel()
            await asyncio.wait([self._catching])
        self._fail(ConnectionLostError("the client was detached"))
