"""The latest appends of this process, to write again if the database has gone back.

A standby that takes over may lack acknowledged writes, unless its server waits for it
(`synchronous_commit`). An append requires the entry before it (see `segments.HELD`), so the owner
of a session notices: with its next append, or when it reports to another server. It writes again
the entries that it still has here. Other entries are lost, and positions behind them are void
(`acphold.journal.lineage`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from acphold.errors import HistoryLostError, LeaseLostError
from acphold.history.entries import Segment
from acphold.journal.journal import Lease, RowChange
from acphold.journal.postgresql import leases, segments, session_rows
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.tables import PostgresqlTables
from acphold.journal.sql.lease_rows import all_lost

log = logging.getLogger(__name__)

KEPT_BYTES: Final = 16 << 20
"""Bytes kept over all sessions, the newest; a standby lags by less, or its administrator knows."""

_BYTES_OF_ONE: Final = 300
"""Bytes needed to remember one append, beside its content."""


class RecentAppends:
    """See the module. Call `note` in the thread of the loop, the others in a worker thread."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, Sequence[Segment], RowChange | None, int]] = deque()
        self._bytes = 0
        self._server: bytes | None = None

    def note(self, lease: Lease, made: Sequence[Segment], change: RowChange | None) -> None:
        """Remember segments that were just appended."""
        size = _BYTES_OF_ONE + sum(len(one.raw) for one in made)
        self._kept.append((lease.session_id, made, change, size))
        self._bytes += size
        while self._bytes > KEPT_BYTES:
            self._bytes -= self._kept.popleft()[3]

    def write_again(self, line: Line, lease: Lease, lost: LeaseLostError) -> bool:
        """Write the entries that a database lacks after going back; True if it is whole now.

        If it is not, the era of the journal ends.
        """
        if not isinstance(lost, HistoryLostError):
            return False
        through, end = lost.last_seq, lease.next_seq - 1
        due = []
        for session_id, made, change, _ in self._kept.copy():
            if session_id == lease.session_id and made[0].first_seq == through + 1:
                due.append((made, change))
                through = made[-1].last_seq
        if through == end:
            for made, change in due:
                statement = segments.appended(lease, made, *session_rows.assignments(change))
                if line.execute(*statement, binary=True).fetchone() is None:
                    break
            else:
                log.warning(
                    "the journal has gone back: entries %d to %d of session %s are written again",
                    lost.last_seq + 1,
                    end,
                    lease.session_id,
                )
                return True
        leases.renew_era(line)
        return False

    def look(self, line: Line, held: Iterable[Lease]) -> list[LeaseLostError]:
        """Return the lost leases, after writing missing entries again where possible.

        If another server answers than last time, also checks that no entries are missing.
        """
        wanted = [*held]
        server, was = leases.server(line), self._server
        lost = all_lost(PostgresqlTables(line), wanted, whole=server != was)
        self._server = server
        by_id = {lease.session_id: lease for lease in wanted}
        return [it for it in lost if not self.write_again(line, by_id[it.session_id], it)]
