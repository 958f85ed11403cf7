"""The tables of the database, for the statements that both databases understand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from acphold.errors import LeaseLostError
from acphold.history.entries import Segment
from acphold.journal.journal import Lease, NewSession
from acphold.journal.postgresql import leases, segments, session_rows
from acphold.journal.postgresql.migrations import Line
from acphold.journal.settlement import Settled, encode_settled
from acphold.journal.sql.tables import Found, Tables


class PostgresqlTables(Tables):
    """See `Tables`. The time is that of the database."""

    KEY = OWN_KEY = "session_id"
    SELECT_ROW = session_rows.SELECT_ROW
    LAST_OF_LINK = (
        f"LEFT JOIN LATERAL (SELECT {segments.COLUMNS} FROM acphold.segments"
        " WHERE segments.session_id = links.session_id ORDER BY last_seq DESC LIMIT 1"
        ") AS last ON true"
    )
    SEGMENT = segments.COLUMNS
    LOCKING_LEASE = " FOR SHARE OF leases"
    LOCKING_ROW = " FOR UPDATE"
    CHANGED = (leases.CHANGED,)
    TOLD = f"UPDATE acphold.sessions SET {leases.CHANGED} WHERE {OWN_KEY} = %s"

    def __init__(self, line: Line) -> None:
        self._line = line

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Found:
        return self._line.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        with self._line.cursor() as cursor:
            cursor.executemany(statement, rows)
            return cursor.rowcount

    def writing(self) -> AbstractContextManager[object]:
        return self._line.transaction()

    def now(self) -> int:
        row = self._line.execute(f"SELECT {segments.NOW_MS}").fetchone()
        assert row is not None
        return int(row[0])

    def own_key(self, session_id: str, number: int) -> str:
        return session_id

    def segments(self, key: str) -> segments.Of:
        return segments.Of(self._line, key)

    def segment(self, row: Sequence[Any]) -> Segment:
        return segments.of_row(*row)

    def keep_settled_state(self, key: str, settled: Settled) -> None:
        self._line.execute(
            "INSERT INTO acphold.summaries VALUES (%s, %s)"
            " ON CONFLICT (session_id) DO UPDATE SET summary = excluded.summary",
            (key, encode_settled(settled)),
        )

    def create(self, new: NewSession) -> str:
        row = self._line.execute("SELECT nextval('acphold.epochs')").fetchone()
        assert row is not None
        session_rows.create(self._line, new, row[0])
        return new.session_id

    def link(self, agent: str, downstream_id: str, key: str | None) -> None:
        self._line.execute(
            "INSERT INTO acphold.links (agent, downstream_id, session_id) VALUES (%s, %s, %s)"
            " ON CONFLICT (agent, downstream_id) DO UPDATE"
            " SET session_id = excluded.session_id, number = excluded.number",
            (agent, downstream_id, key),
        )

    def lost(self, lease: Lease) -> LeaseLostError:
        return leases.lost(self._line, lease)
