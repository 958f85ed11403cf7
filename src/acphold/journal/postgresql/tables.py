"""The tables of the database, for the statements that both databases understand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, time
from typing import Any

from acphold.history.entries import Segment
from acphold.journal.journal import (
    ListFilter,
    ListKey,
    NewSession,
    SessionRow,
)
from acphold.journal.postgresql import leases, segments, session_rows
from acphold.journal.postgresql.migrations import Line, refuse_newer_by_now
from acphold.journal.settlement import Settled, encode_settled
from acphold.journal.sql.list_filters import walks
from acphold.journal.sql.session_rows import select
from acphold.journal.sql.tables import Found, LastOfTurns, Tables
from acphold.journal.usage_slots import SLOT_MS


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
    LAST_SEQ = f"coalesce({session_rows.LAST_SEQ}, 0)"
    DELETED = "gone"
    LOCKING_LEASE = " FOR SHARE OF leases"
    LOCKING_ROW = " FOR UPDATE"
    CHANGED = (leases.CHANGED,)
    TOLD = f"UPDATE acphold.sessions SET {leases.CHANGED} WHERE {OWN_KEY} = %s"

    def __init__(self, line: Line) -> None:
        self._line = line

    def refuse_newer(self) -> None:
        refuse_newer_by_now(self._line)

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Found:
        return self._line.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        with self._line.cursor() as cursor:
            cursor.executemany(statement, rows)
            return cursor.rowcount

    def among(self, column: str, name: str) -> str:
        return f"({column} = ANY(%({name})s))"

    def array(self, values: Iterable[int | str]) -> list[int | str]:
        return [*values]

    def day(self, wanted: str, values: dict[str, Any], names: dict[str, str]) -> str:
        # Slots with any report, even in sessions that are not asked for: excluding these takes
        # longer than adding up a few empty days.
        found = self._line.execute(
            "SELECT slot FROM acphold.usage_slots WHERE slot >= %(first)s"
            f" UNION SELECT updated_at / {SLOT_MS} FROM acphold.sessions WHERE {wanted}",
            values,
        ).fetchall()
        days = sorted({datetime.fromtimestamp(slot * SLOT_MS / 1000).date() for (slot,) in found})
        midnights = [int(datetime.combine(day, time()).timestamp() * 1000) for day in days]
        values["midnights"] = midnights
        names.update((str(place), day.isoformat()) for place, day in enumerate(days, 1))
        at = f"coalesce(slot * {SLOT_MS}, updated_at)"
        return f"width_bucket({at}, %(midnights)s::bigint[])::text"

    def writing(self) -> AbstractContextManager[object]:
        return self._line.transaction()

    def now(self) -> int:
        row = self._line.execute(f"SELECT {segments.NOW_MS}").fetchone()
        assert row is not None
        return int(row[0])

    def own_key(self, session_id: str, number: int) -> str:
        return session_id

    def segments(self, key: str) -> segments.PostgresqlSegments:
        return segments.PostgresqlSegments(self._line, key)

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

    def page(
        self, filter: ListFilter, after: ListKey | None, limit: int, *, counted: bool = True
    ) -> list[SessionRow]:
        limit = min(limit, 1 << 31)
        parts: list[str] = []
        values: list[Any] = []
        for walk in walks(filter, after):  # one statement merges them
            parts.append(
                f"(SELECT session_id, updated_at FROM acphold.sessions WHERE {walk.condition}"
                " ORDER BY updated_at DESC, session_id DESC LIMIT %s)"
            )
            values += (*walk.values, limit)
        return select(
            self,
            f"JOIN (SELECT session_id FROM ({' UNION ALL '.join(parts)}) AS found"
            " ORDER BY updated_at DESC, session_id DESC LIMIT %s) AS page USING (session_id)"
            " ORDER BY updated_at DESC, sessions.session_id DESC",
            (*values, limit),
            counted=counted,
        )

    def last_of_turns(self, session_ids: Sequence[str]) -> Iterable[LastOfTurns]:
        return session_rows.last_of_turns(self._line, session_ids)
