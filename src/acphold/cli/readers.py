"""The source that a command reads sessions from: the journal here, or a server far away."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from acphold.cli.journals import opened
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, visible
from acphold.reading.local_reader import LocalReader

if TYPE_CHECKING:
    from acphold.cli.servers import FarServer
    from acphold.errors import ConnectionLostError
    from acphold.journal import SessionRow
    from acphold.origins.origin_readers import OriginReader
    from acphold.reading.session_reader import SessionReader

CATCH_UP_SECONDS = 1.0
"""A search first spends at most this long on making everything searchable."""


def described(row: SessionRow) -> str:
    """Return the text in which words of a list are looked for: title, agent and folder as shown."""
    return f"{row.title}\0{agent_name(row.agent)}\0{folder(row.cwd)}"


@asynccontextmanager
async def reading(server: FarServer | None, journal: str | None) -> AsyncIterator[SessionReader]:
    """Read a server, or else a journal, for the block; the errors of `opened` and `paired`."""
    if server is None:
        async with opened(journal) as found:
            yield LocalReader(found, said=described, index_seconds=CATCH_UP_SECONDS)
        return
    from acphold.cli.remote import SECONDS, paired  # late: it brings HTTP
    from acphold.reading.server_reader import ServerReader

    token, away = await paired(server), Away()
    there = ServerReader(server.url, token, seconds=SECONDS, ca=server.ca, on_away=away)
    away.origin = there.origin
    async with there:
        yield there


def origins_at(reader: SessionReader) -> OriginReader:
    """Return the reader of changes and origins at the same place."""
    from acphold.origins.origin_readers import LocalOrigins, ServerOrigins  # late: few need them

    if isinstance(reader, LocalReader):
        return LocalOrigins(reader.journal)
    from acphold.reading.server_reader import ServerReader

    assert isinstance(reader, ServerReader), "there is no third kind"
    return ServerOrigins(reader)


class Away:
    """Reports on stderr that a server is offline, and that it is back."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin
        self._is_told = False

    def __call__(self, error: ConnectionLostError | None) -> None:
        """Take the reason why it cannot be reached; None when it can."""
        if error is not None and not self._is_told:
            print(visible(f"{error}; trying again"), file=sys.stderr)
        elif error is None and self._is_told:
            print(f"The connection to {self.origin} is back.", file=sys.stderr)
        self._is_told = error is not None
