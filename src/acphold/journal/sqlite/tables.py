"""The tables of the file, for the statements that both databases understand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any
from zlib import crc32

from acphold.errors import LeaseLostError
from acphold.history.entries import Segment
from acphold.history.times import now_ms
from acphold.journal.journal import Lease, NewSession
from acphold.journal.settlement import Settled, encode_settled
from acphold.journal.sql.tables import Found, Tables
from acphold.journal.sqlite import leases, segments, session_rows
from acphold.journal.sqlite.connection import Connection, writing


@cache
def _native(statement: str) -> str:
    return statement.replace("acphold.", "").replace("%s", "?")


class SqliteTables(Tables):
    """See `Tables`. Triggers mark the rows that change."""

    KEY = "session"
    OWN_KEY = "number"
    SELECT_ROW = session_rows.SELECT_ROW
    LAST_OF_LINK = (
        f"LEFT JOIN segments ON segments.key = {session_rows.LAST_KEY.format('links.session')}"
    )
    SEGMENT = segments.COLUMNS
    TOLD = (
        "INSERT OR REPLACE INTO changes SELECT session_id,"
        f" (SELECT coalesce(max(revision), 0) + 1 FROM changes) FROM sessions WHERE {OWN_KEY} = %s"
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Found:
        return self._connection.execute(_native(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        return self._connection.executemany(_native(statement), rows).rowcount

    def writing(self) -> AbstractContextManager[object]:
        return writing(self._connection)

    def now(self) -> int:
        return now_ms()

    def own_key(self, session_id: str, number: int) -> int:
        return number

    def segments(self, key: int) -> segments.Of:
        return segments.Of(self._connection, key)

    def segment(self, row: Sequence[Any]) -> Segment:
        return segments.of_row(*row)

    def keep_settled_state(self, key: int, settled: Settled) -> None:
        summary = encode_settled(settled)
        self._connection.execute(
            "INSERT OR REPLACE INTO summaries (session, summary, checksum) VALUES (?, ?, ?)",
            (key, summary, crc32(summary)),
        )

    def create(self, new: NewSession) -> int:
        return session_rows.create(self._connection, new)

    def link(self, agent: str, downstream_id: str, key: int | None) -> None:
        # Replaced, not updated: a new row gets the highest number, which makes it the newest.
        self._connection.execute(
            "INSERT OR REPLACE INTO links (agent, downstream_id, session) VALUES (?, ?, ?)",
            (agent, downstream_id, key),
        )

    def lost(self, lease: Lease) -> LeaseLostError:
        return leases.lost(self._connection, lease)
