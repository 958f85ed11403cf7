"""Sessions that another machine takes away, with a token: `acphold resume --from URL`.

    /moves/ID   the frames of `hub.move_frames` over a WebSocket, this server being the giver

A move takes the session away from here, so it needs the scope manage; its files need files, too.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from acphold.errors import AcpholdError, ForbiddenError, MoveRefusedError
from acphold.hub.move_frames import MoveLine
from acphold.hub.move_giver import give
from acphold.journal import Journal
from acphold.reading.neighbours import let_go
from acphold.rpc import Transport
from acphold.server.principals import Principal

log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Most moves at the same time: each may read and send gigabytes."""

LARGEST: Final = 1 << 20

MOVE: Final = "move"
"""The deed in the audit log."""


class ServedMoves:
    """Serves machines that take a session; a `web.endpoints.Attending` by the session's id."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._under_way = 0

    def limit(self, name: str) -> int:
        """Return the longest frame of a taker, in bytes."""
        return LARGEST

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Give the session with the id `name` to the taker at the other end, or say why not."""
        try:
            why_no_files = await self._permitted(name, principal)
        except AcpholdError as error:
            await MoveLine(transport).refuse(str(error))
            return

        def has_gone() -> None:  # also if the connection breaks behind it
            principal.note(MOVE, name)
            log.info("session %s has gone to %s", name, principal.name)

        self._under_way += 1
        try:
            await let_go(self._journal, name)
            await give(
                *(self._journal, transport, name), why_no_files=why_no_files, has_gone=has_gone
            )
        except AcpholdError as error:  # the taker was told
            log.info("a move of session %s ended: %s", name, error)
        finally:
            self._under_way -= 1

    async def _permitted(self, session_id: str, principal: Principal) -> str:
        """Return the reason for keeping its files here, "" if they may go; raises ForbiddenError,
        UnknownSessionError, and MoveRefusedError while too many sessions move."""
        row = await self._journal.session(session_id)
        principal.check_in(row, MOVE)
        if self._under_way >= AT_ONCE:
            raise MoveRefusedError("too many sessions are moving from this server; try again later")
        if "files" in principal.scopes_in(row):
            return ""
        return f"{ForbiddenError('taking its files', 'files')}; --no-files leaves them there"
