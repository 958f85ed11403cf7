"""The audit log of `acphold serve`, on its way to the journal: see `journal.access.Deed`.

Nothing waits for it: writing down who began a turn must not delay the turn. While the journal
cannot be written, up to WAITING_DEEDS deeds are kept here.

Refusals are logged too, but cannot flood the log: a repeated attempt is written the first time and
then once a minute with a count; the number of different ones a minute is limited.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from acp_wire.tasks import beside
from acphold.conversation.history.raw_update import storable
from acphold.journal.access import Access, Deed
from acphold.web import bounds

log = logging.getLogger(__name__)


def _excerpt(said: str) -> str:
    """So much of what a client has said as is kept. It can be kept: a deed that no journal takes
    would hold back all that are done behind it."""
    return storable(said[: bounds.DEED_CHARACTERS]).replace("\0", "\ufffd")


class Actor(Struct, frozen=True):
    """The sender of a request, for the audit log; fields as in `journal.access.Deed`."""

    name: str = ""
    token: str = ""
    address: str = ""
    transport: str = ""


class Attempt(NamedTuple):
    """A refused attempt."""

    wanted: str
    who: Actor


OTHERS: Final = Attempt("others", Actor())


class Audit:
    """The queue of deeds; see the module."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: deque[Deed] = deque(maxlen=bounds.WAITING_DEEDS)
        self._changed = asyncio.Event()
        self._refused: dict[Attempt, int] = {}
        self._summing: asyncio.TimerHandle | None = None

    def note(self, deed: str, session_id: str | None, *, who: Actor, at: int | None = None) -> None:
        """Log what somebody does, with the time `at` or the current one."""
        self._waiting.append(
            Deed(
                at=self._access.now_ms() if at is None else at,
                deed=_excerpt(deed),
                session_id=session_id and _excerpt(session_id),
                **asdict(who),
            )
        )
        self._changed.set()

    def refuse(
        self, wanted: str, session_id: str | None, *, who: Actor, at: int | None = None
    ) -> None:
        """Log that somebody was refused this, or refused because of it; `at` as in `note`."""
        attempt = Attempt(wanted[: bounds.DEED_CHARACTERS], who)
        if attempt not in self._refused and len(self._refused) >= bounds.DIFFERENT_ATTEMPTS:
            attempt = OTHERS
        if self._summing is None:
            loop = asyncio.get_running_loop()
            self._summing = loop.call_later(bounds.ATTEMPT_SECONDS, self._sum_up)
        count = self._refused[attempt] = self._refused.get(attempt, 0) + 1
        if count == 1:
            self.note(f"refused: {attempt.wanted}", session_id, who=attempt.who, at=at)

    def _sum_up(self) -> None:
        """Log how often each attempt was repeated."""
        refused, self._refused, self._summing = self._refused, {}, None
        for attempt, count in refused.items():
            if count > 1:
                times = f"refused {count - 1} times more"
                self.note(f"{times}: {attempt.wanted}", None, who=attempt.who)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write deeds in the background for the block, and the rest at its end."""

        async def keep() -> None:
            while True:
                await self._changed.wait()
                await asyncio.sleep(bounds.DEED_GATHER_SECONDS)
                self._changed.clear()
                if not await self._write():
                    await asyncio.sleep(bounds.RETRY_SECONDS)
                    self._changed.set()

        try:
            async with beside(keep(), "audit"):
                yield
        finally:
            if self._summing is not None:
                self._summing.cancel()
                self._sum_up()
            await self._write()

    async def _write(self) -> bool:
        """Write the waiting deeds; return True if all are written."""
        batch = [*self._waiting]
        if batch:
            try:
                await self._access.keep_deeds(batch)
            except Exception as exc:  # a full journal, or a machine without threads: tried again
                log.error("cannot write the audit log to the journal: %r", exc)
                return False
            for deed in batch:
                if self._waiting and self._waiting[0] is deed:
                    self._waiting.popleft()
        return True
