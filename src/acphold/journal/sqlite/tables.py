"""The tables of the file, for the statements that both databases understand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any
from zlib import crc32

import msgspec

from acphold.history.entries import Segment
from acphold.history.times import now_ms
from acphold.journal.journal import (
    ListFilter,
    ListKey,
    NewSession,
    SessionRow,
)
from acphold.journal.settlement import Settled, encode_settled
from acphold.journal.sql.session_rows import select
from acphold.journal.sql.tables import Found, LastOfTurns, Tables
from acphold.journal.sqlite import segments, session_rows
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.usage_slots import SLOT_MS


@cache
def _native(statement: str) -> str:
    plain = statement.replace("acphold.", "").replace("%s", "?")
    return re.sub(r"%\((\w+)\)s", r":\1", plain)


_DAY = "date({}, 'unixepoch', 'localtime')"


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
    LAST_SEQ = session_rows.LAST_SEQ
    DELETED = "changes"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refuse_newer(self) -> None:
        self._connection.refuse_newer()

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Found:
        return self._connection.execute(_native(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        return self._connection.executemany(_native(statement), rows).rowcount

    def among(self, column: str, name: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(%({name})s))"

    def array(self, values: Iterable[int | str]) -> str:
        return msgspec.json.encode([*values]).decode()

    def day(self, wanted: str, values: dict[str, Any], names: dict[str, str]) -> str:
        slot, row = _DAY.format(f"slot * {SLOT_MS // 1000}"), _DAY.format("updated_at / 1000")
        return f"coalesce({slot}, {row})"

    def writing(self) -> AbstractContextManager[object]:
        return writing(self._connection)

    def now(self) -> int:
        return now_ms()

    def own_key(self, session_id: str, number: int) -> int:
        return number

    def segments(self, key: int) -> segments.SqliteSegments:
        return segments.SqliteSegments(self._connection, key)

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

    # These are imported late, for a quick start.

    def page(
        self, filter: ListFilter, after: ListKey | None, limit: int, *, counted: bool = True
    ) -> list[SessionRow]:
        from acphold.journal.sql.list_filters import walks

        found = [
            select(
                self,
                # The index is named: without statistics the planner may choose another and sort.
                f"{'' if walk.by_id else f'INDEXED BY {_index(filter)}'} WHERE {walk.condition}"
                " ORDER BY updated_at DESC, session_id DESC LIMIT %s",
                (*walk.values, limit),
                counted=counted,
            )
            for walk in walks(filter, after)
        ]
        if len(found) == 1:
            return found[0]
        return sorted((row for rows in found for row in rows), key=lambda row: row.key)[:limit]

    def last_of_turns(self, session_ids: Sequence[str]) -> Iterable[LastOfTurns]:
        return session_rows.last_of_turns(self._connection, session_ids)


def _index(filter: ListFilter) -> str:
    """The index of the list to walk."""
    if filter.tenant:
        return f"listed_tenant{'_unread' * filter.unread}"
    if filter.queued:
        return "with_queue"
    if filter.unread:
        return "listed_unread"
    if filter.agents:
        return "listed_agent" if filter.cwd is None else "listed_both"
    return "listed" if filter.cwd is None else "listed_folder"
