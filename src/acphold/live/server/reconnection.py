"""The connections of a line, one after the other, and the notices of a loss.

A lost connection is replaced at once if it held, and more slowly each time if not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from acp_wire.rpc import Transport
from acphold.errors import ConnectionLostError
from acphold.live.lines.line import FIRST_PAUSE, LONGEST_PAUSE
from acphold.live.server import bounds

log = logging.getLogger(__name__)

AWAY = "The connection to {} is lost"
AWAY_HOW = (
    "acphold is reconnecting, and your messages wait. If only the connection is lost, running "
    "turns go on."
)
BACK = "The connection to {} is back"
BACK_HOW = "Nothing is missing."
GAP_HOW = "Some updates from the meantime are not shown here: load the session to see all of them."

OpenTransport = Callable[[], Awaitable[Transport]]
"""Makes a connection. Raises ConnectionLostError if it may succeed later; any other AcpError ends
the line."""


class Notify(Protocol):
    """Shows the client a notice."""

    def __call__(self, title: str, description: str, severity: str = "info") -> None: ...


class Reconnection(Struct, eq=False):
    """See the module. `dial` connects to the process that is called `name`; `first` was made
    already. The client gets a notice if the connection stays lost for UNTOLD_SECONDS. `has_gap` is
    set for one without all updates from the meantime.
    """

    _dial: OpenTransport
    _name: str
    _first: Transport | None
    _notify: Notify
    has_gap: bool = False
    _is_reported: bool = False
    _away: asyncio.TimerHandle | None = None
    _pause: float = FIRST_PAUSE
    _tried: float = 0.0

    async def next(self) -> Transport:
        """Return the next connection, however long that takes."""
        made, self._first = self._first, None
        if made is not None:
            return made
        self.on_loss()
        now = asyncio.get_running_loop().time
        while True:
            # Measured from one start to the next: retry at once if the connection held, and slowly
            # if we are let in and cut off again and again.
            next_try = self._tried + self._pause * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(0.0, next_try - now()))
            self._tried = now()
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            try:
                return await self._dial()
            except ConnectionLostError as exc:
                log.info("%s", exc)

    def on_loss(self) -> None:
        """Note that it is lost, or was not made."""

        def report() -> None:
            self._is_reported = True
            self._notify(AWAY.format(self._name), AWAY_HOW, "warning")

        if self._away is None:
            loop = asyncio.get_running_loop()
            self._away = loop.call_later(bounds.UNTOLD_SECONDS, report)

    def on_return(self) -> None:
        """Note that it is there again, with its sessions."""
        self._pause = FIRST_PAUSE
        self.close()
        if self._is_reported or self.has_gap:
            self._notify(BACK.format(self._name), GAP_HOW if self.has_gap else BACK_HOW)
        self._is_reported = self.has_gap = False

    def close(self) -> None:
        """Report no loss any more."""
        if self._away is not None:
            self._away.cancel()
            self._away = None
