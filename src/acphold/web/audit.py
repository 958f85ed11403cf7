"""What those who come by `acphold serve` do, on its way to the journal: see `journal.access.Deed`.

Nobody waits for it: a turn is not to begin later because somebody writes down who began it. While
the journal cannot be written it is kept here, so much of it.

Who was refused is written down as well, and does not fill it: the same attempt is written when it
is made first and then once a minute, with how often it was; of different ones so many a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from acphold.errors import JournalError
from acphold.history.times import now_ms
from acphold.journal.access import Access, Deed

log = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Deeds that wait for the journal; beyond them the oldest go."""

GATHER_SECONDS: Final = 0.5
"""How long what was done waits for more of it: to write each by itself would cost every prompt a
transaction, and the thread of the journal beside it."""

AGAIN_SECONDS: Final = 1.0
"""When a journal that could not be written is tried again."""

LONGEST: Final = 100
"""Characters of a method's name: that of an extension is the client's own."""

REFUSED_SECONDS: Final = 60.0
"""How long the same attempt is counted before it is written down again."""

REFUSED: Final = 20
"""Attempts that are told apart in that time; those beyond are counted together."""


class Attempt(NamedTuple):
    """What somebody was refused; as `journal.access.Deed` has it."""

    wanted: str
    name: str
    token: str
    address: str
    transport: str


OTHERS: Final = Attempt("others", "", "", "", "")


class Audit:
    """See the module."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: deque[Deed] = deque(maxlen=WAITING)
        self._changed = asyncio.Event()
        self._refused: dict[Attempt, int] = {}
        self._summing: asyncio.TimerHandle | None = None

    def note(
        self,
        deed: str,
        session_id: str | None,
        *,
        name: str,
        token: str,
        address: str,
        transport: str,
    ) -> None:
        """Somebody does this, now."""
        self._waiting.append(
            Deed(
                at=now_ms(),
                deed=deed[:LONGEST],
                name=name,
                token=token,
                session_id=session_id and session_id[:LONGEST],
                address=address,
                transport=transport,
            )
        )
        self._changed.set()

    def refuse(
        self,
        wanted: str,
        session_id: str | None,
        *,
        name: str,
        token: str,
        address: str,
        transport: str,
    ) -> None:
        """Somebody was refused this, or because of this, now."""
        attempt = Attempt(wanted[:LONGEST], name, token, address, transport)
        if attempt not in self._refused and len(self._refused) >= REFUSED:
            attempt = OTHERS
        if self._summing is None:
            loop = asyncio.get_running_loop()
            self._summing = loop.call_later(REFUSED_SECONDS, self._sum_up)
        count = self._refused[attempt] = self._refused.get(attempt, 0) + 1
        if count == 1:
            self._note_refusal(attempt, "refused", session_id)

    def _sum_up(self) -> None:
        """Write down how often it was that was written down as refused."""
        refused, self._refused, self._summing = self._refused, {}, None
        for attempt, count in refused.items():
            if count > 1:
                self._note_refusal(attempt, f"refused {count - 1} times more", None)

    def _note_refusal(self, attempt: Attempt, how: str, session_id: str | None) -> None:
        wanted, name, token, address, transport = attempt
        self.note(
            f"{how}: {wanted}",
            session_id,
            name=name,
            token=token,
            address=address,
            transport=transport,
        )

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write down for the block what is noted, and at its end what is left."""
        keeping = asyncio.create_task(self._keep(), name="audit")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            if self._summing is not None:
                self._summing.cancel()
                self._sum_up()
            await self._write()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            if not await self._write():
                await asyncio.sleep(AGAIN_SECONDS)
                self._changed.set()

    async def _write(self) -> bool:
        """Whether all is written."""
        batch = [*self._waiting]
        if batch:
            try:
                await self._access.keep_deeds(batch)
            except JournalError as exc:
                log.error("what was done is not in the journal yet: %s", exc)
                return False
            for deed in batch:
                if self._waiting and self._waiting[0] is deed:
                    self._waiting.popleft()
        return True
