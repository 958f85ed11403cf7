"""The tables of the file that keep sessions: rows, links and segments of entries.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final
from zlib import crc32

import msgspec

from acphold.conversation.history.entries import AUTHOR, LATEST_MS, UPDATE, Segment, now_ms
from acphold.errors import RewrittenError
from acphold.journal import bounds
from acphold.journal.access import AccessChanges
from acphold.journal.journal import Identity, Outcomes
from acphold.journal.rows import ListFilter, ListKey, NewSession, RowChanges, SessionRow
from acphold.journal.sql import session_tables
from acphold.journal.sql.session_tables import select_rows
from acphold.journal.sql.tables import (
    CODES,
    Found,
    KeptSegments,
    Tables,
    lone_chunk,
)
from acphold.journal.sqlite.connection import Connection, reading, writing
from acphold.journal.sqlite.leases import identity
from acphold.journal.sqlite.migrations import NOTED, SEQ_BITS, SEQ_MASK
from acphold.journal.stored_history import Settled
from acphold.journal.token_reports import SLOT_MS

# See docs/decisions.md, 10.


class SqliteSegments(KeptSegments):
    """The segments of one session, by its number."""

    def _next(
        self, after: int, limit_bytes: int, through: int, lone_chunks: bool, brief: int | None
    ) -> Iterator[Segment]:
        columns, made = self._columns(brief)
        order = f"{'' if lone_chunks else f' AND NOT ({self._tables.LONE_CHUNK})'} ORDER BY key"
        # An unfinished statement would keep the write-ahead log from starting over.
        with closing(self._select(columns, after + 1, through, order)) as rows:
            for row in rows:
                yield (segment := made(*row))
                limit_bytes -= len(segment.raw)
                if limit_bytes <= 0:
                    break


def extent(
    connection: sqlite3.Connection, session: int, after: int, limit_bytes: int
) -> tuple[int, int]:
    """The end of the next rows above `after`, and their bytes: about `limit_bytes` of them.

    (0, 0) if there are none.
    """
    rows = connection.execute(
        "SELECT key & 4294967295, length(raw) FROM segments WHERE key BETWEEN ? AND ? ORDER BY key",
        (session << SEQ_BITS | after + 1, session << SEQ_BITS | SEQ_MASK),
    )
    through = size = 0
    for last, length in rows:
        through, size = last, size + length
        if size >= limit_bytes:
            break
    rows.close()
    return through, size


# -- what is new ------------------------------------------------------------------------------


def forgotten(connection: sqlite3.Connection) -> int:
    """The number up to which the log of changes has no deleted sessions any more."""
    row = connection.execute(
        "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'forgotten'"
    ).fetchone()
    return 0 if row is None else int(row[0])


def changes(connection: sqlite3.Connection, after: str | None, limit: int) -> RowChanges:
    """Like `Journal.changes`."""
    if after is None:
        (last,) = connection.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        return RowChanges((), str(last))
    rows = connection.execute(
        "SELECT session_id, revision FROM changes WHERE revision > ? ORDER BY revision LIMIT ?",
        (int(after), limit + 1),
    ).fetchall()
    # Read last: another process may forget some meanwhile.
    if int(after) < forgotten(connection):
        raise RewrittenError("these changes were read too long ago: some are forgotten since")
    shown = rows[:limit]
    last = str(shown[-1][1]) if shown else after
    return RowChanges([session_id for session_id, _ in shown], last, len(rows) > limit)


def access_changes(connection: Connection, mark: str, after: str | None) -> AccessChanges:
    """Like `Access.changes`. A position has the identity `mark` of the journal, a number, and
    the time in seconds since the epoch."""
    now = now_ms() // 1000
    if after is None:
        (last,) = connection.execute(
            "SELECT coalesce(max(changed), 0) FROM access_changes"
        ).fetchone()
        return AccessChanges(f"{mark} {last} {now}")
    was, last, at = after.split(" ")
    # Also if the clock was set back: rows may be gone that are newer than it.
    if was != mark or abs(now - int(at)) > bounds.KEPT_CHANGES_SECONDS // 2:
        raise RewrittenError("the journal is another one, or these changes were read too long ago")
    rows = connection.execute(
        "SELECT kind, subject, changed FROM access_changes WHERE changed > ?"
        " ORDER BY changed LIMIT ?",
        (int(last), bounds.ACCESS_CHANGES + 1),
    ).fetchall()
    found = [(kind, subject) for kind, subject, _ in rows]
    position = f"{mark} {rows[-1][2] if rows else last} {now}"
    return AccessChanges.of(found, position, len(rows) > bounds.ACCESS_CHANGES)


@lru_cache(1000)
def _native(statement: str) -> str:
    plain = statement.replace("acphold.", "").replace("%s", "?")
    return re.sub(r"%\((\w+)\)s", r":\1", plain)


_ALL: Final = f"key BETWEEN ({{0}} << {SEQ_BITS}) AND ({{0}} << {SEQ_BITS} | {SEQ_MASK})"
"""A condition for the segments of a session, with the SQL of its number."""


class SqliteTables(Tables):
    """See `Tables`. Triggers mark the rows that change."""

    KEY = "session"
    OWN_KEY = "number"
    PLACE = ("key",)
    END = f"key & {SEQ_MASK}"
    ORDER = "key"
    IN_SPAN = "key BETWEEN %s AND %s"
    OF_SESSION = _ALL.format("sessions.number")
    CODES = CODES
    FIRST = ""  # as it is anyway; said, it costs four steps more
    LONE_CHUNK = lone_chunk(CODES[UPDATE], END, "x'{}'")
    SHARED_WITH = (
        # Asked once for all rows: in most journals nothing is shared.
        "iif(EXISTS (SELECT 1 FROM shares WHERE session_id > ''),"
        " (SELECT json_group_object(tenant, prompts) FROM shares"
        " WHERE shares.session_id = sessions.session_id), '{}')"
    )
    LINEAGE = "(SELECT substr(value, 1, instr(value, ' ') - 1) FROM meta WHERE name = 'era')"
    HANDED_ON = "origins <> '[]'"
    LAST_OF_LINK = (
        "LEFT JOIN segments ON segments.key = (SELECT key FROM segments"
        f" WHERE {_ALL.format('links.session')} ORDER BY key DESC LIMIT 1)"
    )
    TOLD = (
        "INSERT OR REPLACE INTO changes SELECT session_id,"
        f" (SELECT coalesce(max(revision), 0) + 1 FROM changes) FROM sessions WHERE {OWN_KEY} = %s"
    )
    NOTED = NOTED.format("%s", "%s")
    DELETED = "changes"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def refuse_newer(self) -> None:
        self.connection.refuse_newer()

    def identity(self) -> Identity:
        return identity(self.connection)

    def access_changes(self, after: str | None) -> AccessChanges:
        return access_changes(self.connection, self.identity().mark, after)

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Found:
        return self.connection.execute(_native(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        return self.connection.executemany(_native(statement), rows).rowcount

    def among(self, column: str, name: str) -> str:
        return f"{column} IN ({self.each(name)})"

    def each(self, name: str) -> str:
        # SQLite cuts a text of JSON at a NUL.
        text = "replace(replace(value, '~0', char(0)), '~1', '~')"
        return f"SELECT iif(instr(value, '~'), {text}, value) AS it FROM json_each(%({name})s)"

    def array(self, values: Iterable[int | str]) -> str:
        listed = [*values]
        found = msgspec.json.encode(listed).decode()
        if "~" in found or "\\u0000" in found:  # in a text
            escaped = [str(it).replace("~", "~1").replace("\0", "~0") for it in listed]
            found = msgspec.json.encode(escaped).decode()
        return found

    def reading(self) -> AbstractContextManager[object]:
        return reading(self.connection)

    def writing(self) -> AbstractContextManager[object]:
        return writing(self.connection)

    def now(self) -> int:
        return now_ms()

    def own_key(self, session_id: str, number: int) -> int:
        return number

    def day(self, wanted: str, values: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        at = f"min(max(updated_at, 0), {LATEST_MS - 1})"
        seconds = f"coalesce(slot * {SLOT_MS // 1000}, {at} / 1000)"
        return f"date({seconds}, 'unixepoch', 'localtime')", {}

    def place(self, key: int, seq: int) -> tuple[int]:
        return (key << SEQ_BITS | seq,)

    def span(self, key: int, first: int, last: int) -> tuple[int, int]:
        # Whatever the numbers are, that of a session: beyond its own keys are those of others.
        begin, end = min(max(first, 0), SEQ_MASK + 1), min(last, SEQ_MASK)
        return (key << SEQ_BITS) + begin, (key << SEQ_BITS) + end

    def segments(self, key: int) -> SqliteSegments:
        return SqliteSegments(self, key)

    def rows_with(
        self, places: Sequence[tuple[int, int]]
    ) -> Generator[tuple[Any, ...], None, None]:
        found = (
            f"SELECT %s, {self.segment()} FROM segments WHERE {self.IN_SPAN}"
            f" AND ({self.END} >= %s OR kind = {CODES[AUTHOR]}) ORDER BY key"
        )
        for place, (key, seq) in enumerate(places):
            values = (place, *self.span(key, seq - 1, SEQ_MASK), seq)
            with closing(self.execute(found, values)) as rows:
                for row in rows:
                    yield row
                    if row[1] >= seq:
                        break

    def keep_settled_state(self, key: int, settled: Settled) -> None:
        summary = msgspec.msgpack.encode(settled)
        self.connection.execute(
            "INSERT OR REPLACE INTO summaries (session, summary, checksum) VALUES (?, ?, ?)",
            (key, summary, crc32(summary)),
        )

    def create(self, new: NewSession) -> int:
        return session_tables.insert(self, new, now_ms())

    def link(self, agent: str, downstream_id: str, key: int | None) -> None:
        # Replaced, not updated: a new row gets the highest number, which makes it the newest.
        self.connection.execute(
            "INSERT OR REPLACE INTO links (agent, downstream_id, session) VALUES (?, ?, ?)",
            (agent, downstream_id, key),
        )

    # These are imported late, for a quick start.

    def page(
        self,
        filter: ListFilter,
        after: ListKey | None,
        limit: int,
        outcomes: Outcomes | None = None,
        *,
        counted: bool = True,
    ) -> list[SessionRow]:
        from acphold.journal.sql.list_filters import walks
        from acphold.journal.sqlite import row_texts

        some: set[int] | None = None
        if filter.words:
            self.connection.create_function("casefolded", 1, str.casefold, deterministic=True)
            some = row_texts.having(self, filter.words)
        # The index is named: without statistics the planner may choose another and sort.
        if filter.tenant:
            index = f"listed_tenant{'_unread' * filter.unread}"
        elif filter.queued:
            index = "with_queue"
        elif filter.unread:
            index = "listed_unread"
        elif filter.agents:
            index = "listed_agent" if filter.cwd is None else "listed_both"
        else:
            index = "listed" if filter.cwd is None else "listed_folder"
        order = "ORDER BY updated_at DESC, session_id DESC"
        found: list[list[SessionRow]] = []
        for walk in walks(filter, after, row_texts.HAS_WORD):
            values = (*walk.values, limit)
            if some is None:
                # A view has none: see `migrations.complete`.
                by = "" if walk.by_id or self.connection.older else f"INDEXED BY {index}"
                rest = f"{by} WHERE {walk.condition} {order} LIMIT %s"
            else:
                rest = (
                    "WHERE number IN (SELECT number FROM json_each(%s) AS one CROSS JOIN sessions"
                    f" ON number = one.value WHERE {walk.condition} {order} LIMIT %s) {order}"
                )
                values = (self.array(some), *values)
            found.append(select_rows(self, rest, values, outcomes, counted=counted))
        if len(found) == 1:
            return found[0]
        newest = attrgetter("updated_at", "session_id")  # as ListKey has it
        return sorted(chain.from_iterable(found), key=newest, reverse=True)[:limit]
