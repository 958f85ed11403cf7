"""The tables of the database that keep sessions: rows, links and segments of entries.

The functions run inside a transaction of the caller, or are one by themselves, and may raise
psycopg errors.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, time
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from acphold.conversation.history.entries import AUTHOR, UPDATE, Segment, clamp_moment
from acphold.journal import bounds
from acphold.journal.access import AccessChanges
from acphold.journal.journal import Identity, Lease, Outcomes
from acphold.journal.postgresql import changes, leases
from acphold.journal.postgresql.leases import CHANGED, ERA
from acphold.journal.postgresql.migrations import Line, refuse_newer_by_now
from acphold.journal.rows import (
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    SessionRow,
)
from acphold.journal.sql import session_tables
from acphold.journal.sql.list_filters import TEXT, ListWalk, walks
from acphold.journal.sql.session_tables import select_rows
from acphold.journal.sql.tables import (
    Found,
    KeptSegments,
    Tables,
    batches,
    lone_chunk,
    segment_of_row,
)
from acphold.journal.stored_history import Settled, pack
from acphold.journal.token_reports import SLOT_MS

COLUMNS: Final = "last_seq, first_seq, at, kind, raw"

NOW_MS: Final = "(extract(epoch FROM now()) * 1000)::bigint"
"""The time of the transaction, by the clock of the database."""

_SIZE: Final = """
    CASE
        WHEN octet_length(raw) < 7 OR substr(raw, 1, 4) <> '\\x28b52ffd' THEN octet_length(raw)
        WHEN get_byte(substr(raw, 5, 1), 0) >> 5 = 3
            THEN 256 + get_byte(substr(raw, 6, 1), 0) + (get_byte(substr(raw, 7, 1), 0) << 8)
        ELSE octet_length(raw)
    END::bigint
"""
"""The unpacked bytes of a row; a packed one of up to 64 KiB has them in its header.

Source: RFC 8878, 3.1.1.1.
"""

_READ: Final = f"""
    SELECT {{columns}} FROM (
        SELECT *, sum(size) OVER (ORDER BY last_seq ROWS UNBOUNDED PRECEDING) - size AS before
        FROM (
            SELECT {COLUMNS}, {_SIZE} AS size FROM acphold.segments
            WHERE session_id = %(session)s AND last_seq > %(after)s AND last_seq <= %(through)s
            {{rest}} ORDER BY last_seq LIMIT {bounds.READ_ROWS}
        ) AS next_ones
    ) AS counted WHERE before < %(limit)s ORDER BY last_seq
"""
"""The next rows up to a number of bytes, without visiting the rows after them."""


_WITH: Final = f"""
    SELECT place, {COLUMNS}
    FROM unnest(%(places)s::bigint[], %(ids)s::text[], %(seqs)s::bigint[])
    AS wanted (place, id, seq) CROSS JOIN LATERAL (
        SELECT {COLUMNS} FROM acphold.segments
        WHERE session_id = id AND last_seq >= seq - 1 ORDER BY last_seq LIMIT 2
    ) AS found
    WHERE first_seq <= seq AND (last_seq >= seq OR kind = '{AUTHOR}') ORDER BY place, last_seq
"""


class PostgresqlSegments(KeptSegments):
    """The segments of one session."""

    def _next(
        self, after: int, limit_bytes: int, through: int, lone_chunks: bool, brief: int | None
    ) -> Iterator[Segment]:
        columns, made = self._columns(brief)
        rest = "" if lone_chunks else f"AND NOT ({self._tables.LONE_CHUNK})"
        read = _READ.format(columns=columns, rest=rest)
        while limit_bytes > 0:
            values = {
                "session": self._key,
                "after": after,
                "through": through,
                "limit": limit_bytes,
            }
            rows = self._tables.execute(read, values).fetchall()
            for row in rows:
                yield (segment := made(*row))
                limit_bytes -= len(segment.raw)
                after = segment.last_seq
            if len(rows) < bounds.READ_ROWS:
                break


# -- appending --------------------------------------------------------------------------------


HELD: Final = (
    "WITH held AS MATERIALIZED (SELECT session_id FROM acphold.leases"
    " WHERE session_id = %s AND epoch = %s AND (%s = 0::bigint OR EXISTS ("
    "SELECT FROM acphold.segments WHERE session_id = leases.session_id AND last_seq = %s))"
    " FOR SHARE)"
)
"""Selects the lease if it stands, and locks it until the transaction ends: a process that takes it
over waits for that, and later appends under it find that it is lost. It also selects nothing if the
entry before is missing, because the database has gone back. The primary key of the segments is the
second line of defence."""


@cache
def appending(number: int, assignments: str = "") -> str:
    """The statement that appends this many segments if the lease stands, and updates the session's
    row with them; it is a transaction by itself."""
    row = f"(%s::bigint, %s::bigint, {NOW_MS}, %s::text, %s::bytea)"
    changed = (
        f", changed AS (UPDATE acphold.sessions SET {assignments} FROM held"
        " WHERE sessions.session_id = held.session_id)"
    )
    return (
        f"{HELD}{changed if assignments else ''}"
        f" INSERT INTO acphold.segments (session_id, {COLUMNS})"
        " SELECT session_id, entries.*"
        f" FROM held CROSS JOIN (VALUES {', '.join([row] * number)}) AS entries RETURNING at"
    )


def append_statement(
    lease: Lease, segments: Sequence[Segment], change: RowChange | None
) -> tuple[str, list[Any]]:
    """The statement that appends new segments and changes the row, with its values. It returns the
    time (ms since the epoch), or no row if the lease is lost."""
    parts, values = session_tables.assignments(change)
    before = segments[0].first_seq - 1
    parameters = [lease.session_id, lease.epoch, before, before, *values]
    for one in segments:
        is_long = bounds.LONG_BYTES < len(one.raw) <= bounds.TOO_LONG_BYTES
        raw = pack(one.raw) if is_long else one.raw
        parameters += (one.last_seq, one.first_seq, one.kind, raw)
    assignments = ", ".join([*parts, CHANGED] if parts else [])
    return appending(len(segments), assignments), parameters


def is_written(tables: Tables, lease: Lease, segments: Sequence[Segment]) -> int | None:
    """The time at which exactly these segments were written under this lease; None if they were
    not."""
    rows = tables.execute(
        f"SELECT {COLUMNS} FROM acphold.segments WHERE session_id = %s AND last_seq >= %s"
        " AND EXISTS (SELECT FROM acphold.leases WHERE session_id = %s AND epoch = %s)"
        " ORDER BY last_seq LIMIT %s",
        (lease.session_id, segments[0].first_seq, lease.session_id, lease.epoch, len(segments)),
    ).fetchall()
    found = [segment_of_row(*row) for row in rows]
    wanted = [(one.first_seq, one.last_seq, one.kind, one.raw) for one in segments]
    if [(one.first_seq, one.last_seq, one.kind, one.raw) for one in found] != wanted:
        return None
    return found[0].at


def create(tables: Tables, new: NewSession, number: int) -> None:
    """Insert a session without an owner; raises SessionExistsError."""
    session_tables.insert(tables, new, None, number=number)
    tables.execute("INSERT INTO acphold.leases VALUES (%s, '', 0, false)", (new.session_id,))


_WITHOUT_SESSION: Final = """
    WITH RECURSIVE ids AS (
        (SELECT session_id FROM acphold.segments ORDER BY session_id LIMIT 1)
        UNION ALL
        SELECT (SELECT segments.session_id FROM acphold.segments
            WHERE segments.session_id > ids.session_id ORDER BY segments.session_id LIMIT 1)
        FROM ids WHERE ids.session_id IS NOT NULL
    )
    SELECT session_id FROM ids WHERE session_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM acphold.sessions WHERE sessions.session_id = ids.session_id)
    LIMIT 20
"""
"""Jumps from one session to the next: one step each, however many entries it has."""


def without_session(tables: Tables) -> list[str]:
    """Some of the ids that have entries but no session."""
    return [session_id for (session_id,) in tables.execute(_WITHOUT_SESSION).fetchall()]


# -- deleting ---------------------------------------------------------------------------------


def lock(tables: Tables, session_ids: Sequence[str], idle_since: int | None) -> list[str]:
    """Lock sessions against changes until the transaction ends; return those that exist.

    With `idle_since`, only those last active by then.
    """
    # First the leases, then the rows, as appends do; both sorted by id. So two deletions cannot
    # deadlock.
    asked = {"ids": [*session_ids], "since": idle_since}
    tables.execute(
        "SELECT FROM acphold.leases WHERE session_id = ANY(%(ids)s) ORDER BY session_id FOR UPDATE",
        asked,
    )
    rows = tables.execute(
        "SELECT session_id FROM acphold.sessions WHERE session_id = ANY(%(ids)s)"
        " AND (%(since)s::bigint IS NULL OR updated_at <= %(since)s)"
        " ORDER BY session_id FOR UPDATE",
        asked,
    )
    return [session_id for (session_id,) in rows.fetchall()]


def delete(tables: Tables, session_ids: Sequence[str], *, as_if_never: bool) -> None:
    """Delete all rows of sessions; their links stay as tombstones unless `as_if_never`."""
    its, which = {"ids": [*session_ids]}, "{} = ANY(%(ids)s)"
    tables.execute(
        "INSERT INTO acphold.access_changes (kind, subject) SELECT DISTINCT 'tenant', tenant"
        " FROM acphold.shares WHERE session_id = ANY(%(ids)s) ORDER BY tenant"
        " ON CONFLICT (kind, subject) DO UPDATE SET changed = excluded.changed, at = excluded.at",
        its,
    )
    tables.execute(_ENDING_BLOCKS, its)
    for table in ("segments", "documents", "shares"):
        tables.execute(f"DELETE FROM acphold.{table} WHERE session_id = ANY(%(ids)s)", its)
    tables.execute(_UNDESCRIBED, its)
    session_tables.delete(tables, which, its, as_if_never=as_if_never)
    tables.execute("INSERT INTO acphold.gone (session_id) SELECT unnest(%(ids)s::text[])", its)
    for statement in _FORGETTING_GONE:  # last: others wait for who writes the mark of an hour
        tables.execute(statement)


_ENDING_BLOCKS: Final = """
    WITH found AS (
        INSERT INTO acphold.usage_ends
        SELECT number FROM acphold.sessions WHERE session_id = ANY(%(ids)s) RETURNING number
    )
    DELETE FROM acphold.usage_blocks WHERE highest IN (
        SELECT highest FROM acphold.usage_blocks
        WHERE EXISTS (SELECT FROM found WHERE number BETWEEN lowest AND highest)
        FOR UPDATE SKIP LOCKED
    )
"""
"""End blocks of sums of usage, and take away their content, but for those that somebody else is
taking away: see `usage_blocks`."""

_UNDESCRIBED: Final = """
    DELETE FROM acphold.described WHERE session_id IN (
        SELECT session_id FROM acphold.described WHERE session_id = ANY(%(ids)s)
        FOR UPDATE SKIP LOCKED
    )
"""
"""Take away what lists are searched for; what the upkeep is writing at this moment, it takes away
itself: see `described`."""

_KEPT_MS: Final = bounds.KEPT_CHANGES_SECONDS * 1000

_FORGETTING_GONE: Final = (
    "DELETE FROM acphold.gone WHERE (session_id, changed) IN (SELECT session_id, changed"
    " FROM acphold.gone WHERE changed <= (SELECT max(changed) FROM acphold.access_changes"
    f" WHERE kind = 'hour' AND at < {NOW_MS} - {_KEPT_MS}) FOR UPDATE SKIP LOCKED)",
    f"DELETE FROM acphold.access_changes WHERE kind = 'hour' AND at < {NOW_MS} - 2 * {_KEPT_MS}",
    "INSERT INTO acphold.access_changes (kind, subject)"
    f" VALUES ('hour', ({NOW_MS} / {_KEPT_MS})::text) ON CONFLICT DO NOTHING",
)
"""Forget deleted sessions of which no follower has to hear any more: those before a mark that is
old enough. The log of changes has one for each hour in which something was deleted."""


_HAS_WORD: Final = f"(strpos(lower({TEXT}), %s) > 0 OR octet_length({TEXT}) <> char_length({TEXT}))"
"""A condition for words of a list. The server folds letters by its locale, so its reader looks at
all that has others than ASCII."""


class PostgresqlTables(Tables):
    """See `Tables`. The time is that of the database."""

    KEY = OWN_KEY = "session_id"
    PLACE = ("session_id", "last_seq")
    END = ORDER = "last_seq"
    IN_SPAN = "session_id = %s AND last_seq BETWEEN %s AND %s"
    OF_SESSION = "segments.session_id = sessions.session_id"
    SHARED_WITH = (
        "(SELECT coalesce(json_object_agg(shares.tenant, prompts)::text, '{}')"
        " FROM acphold.shares WHERE shares.session_id = sessions.session_id)"
    )
    LINEAGE = ERA
    LAST_OF_LINK = (
        f"LEFT JOIN LATERAL (SELECT {COLUMNS} FROM acphold.segments"
        " WHERE segments.session_id = links.session_id ORDER BY last_seq DESC LIMIT 1"
        ") AS last ON true"
    )
    LONE_CHUNK = lone_chunk(f"'{UPDATE}'", END, r"'\x{}'")
    DELETED = "gone"
    LOCKING_LEASE = " FOR SHARE OF leases"
    LOCKING_LEASE_ALONE = " FOR UPDATE OF leases"
    LOCKING_ROW = " FOR UPDATE"
    CHANGED = (leases.CHANGED,)
    TIME = f"coalesce(%s::bigint, {NOW_MS})"
    SESSIONS_AT_ONCE = 1  # two imports that add the same in another order would deadlock
    TOLD = f"UPDATE acphold.sessions SET {leases.CHANGED} WHERE {OWN_KEY} = %s"
    NOTED = (
        "INSERT INTO acphold.access_changes (kind, subject) VALUES (%s, %s)"
        " ON CONFLICT (kind, subject) DO UPDATE SET changed = excluded.changed, at = excluded.at"
    )

    def __init__(self, line: Line, *, prepare: bool | None = None) -> None:
        self._line = line
        self._prepare = prepare  # None: what is asked twice

    def refuse_newer(self) -> None:
        refuse_newer_by_now(self._line)

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Found:
        return self._line.execute(statement, values, prepare=self._prepare, binary=True)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        if not (every := [*rows]):
            return 0  # psycopg would wait for the server all the same
        with self._line.cursor() as cursor:
            cursor.executemany(statement, every)
            return cursor.rowcount

    def among(self, column: str, name: str) -> str:
        return f"({column} = ANY(%({name})s))"

    def each(self, name: str) -> str:
        return f"SELECT unnest(%({name})s::text[]) AS it"

    def array(self, values: Iterable[int | str]) -> list[int | str]:
        return [*values]

    def identity(self) -> Identity:
        return leases.identity(self)

    def access_changes(self, after: str | None) -> AccessChanges:
        return changes.access_changes(self, after)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._line.transaction():
            self._line.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    def writing(self) -> AbstractContextManager[object]:
        return self._line.transaction()

    @contextmanager
    def upkeep(self, table: str, *, sees_one_moment: bool = True) -> Iterator[None]:
        """A transaction that writes, one at a time for a table, which others read and write
        meanwhile; raises LockNotAvailable."""
        with self._line.transaction():
            if sees_one_moment:
                self._line.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # Before the moment, which is that of the first query: the one before us is seen.
            self._line.execute(f"LOCK acphold.{table} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
            yield

    def now(self) -> int:
        return int(self.execute(f"SELECT {NOW_MS}").fetchone()[0])

    def own_key(self, session_id: str, number: int) -> str:
        return session_id

    def day(self, wanted: str, values: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        # Slots with any report, even in sessions that are not asked for: excluding these takes
        # longer than adding up a few empty days, unless a time, span or folder is asked for.
        asked = f"SELECT session_id FROM acphold.sessions WHERE {wanted}"
        is_part = values["since"] or values.keys() & {"lowest", "folder"}
        its = f" AND session_id = ANY(ARRAY({asked}))" if is_part else ""
        found = self.execute(
            f"SELECT DISTINCT slot FROM acphold.usage_sums WHERE slot >= %(first)s{its}"
            f" UNION SELECT greatest(updated_at, 0) / {SLOT_MS} FROM acphold.sessions"
            f" WHERE {wanted}",
            values,
        ).fetchall()
        days = sorted(
            {datetime.fromtimestamp(clamp_moment(it * SLOT_MS) / 1000).date() for (it,) in found}
        )
        values["midnights"] = [int(datetime.combine(it, time()).timestamp() * 1000) for it in days]
        at = f"coalesce(slot * {SLOT_MS}, greatest(updated_at, 0))"
        names = {str(place): day.isoformat() for place, day in enumerate(days, 1)}
        return f"width_bucket({at}, %(midnights)s::bigint[])::text", names

    def place(self, key: str, seq: int) -> tuple[str, int]:
        return key, seq

    def span(self, key: str, first: int, last: int) -> tuple[str, int, int]:
        return key, first, last

    def segments(self, key: str) -> PostgresqlSegments:
        return PostgresqlSegments(self, key)

    def rows_with(
        self, places: Sequence[tuple[str, int]]
    ) -> Generator[tuple[Any, ...], None, None]:
        for some in batches(enumerate(places)):  # the server sorts them
            wanted = {
                "places": [place for place, _ in some],
                "ids": [session_id for _, (session_id, _) in some],
                "seqs": [seq for _, (_, seq) in some],
            }
            with self._line.cursor() as cursor:
                yield from cursor.stream(_WITH, wanted, binary=True)

    def keep_settled_state(self, key: str, settled: Settled) -> None:
        self.execute(
            "INSERT INTO acphold.summaries VALUES (%s, %s)"
            " ON CONFLICT (session_id) DO UPDATE SET summary = excluded.summary",
            (key, msgspec.msgpack.encode(settled)),
        )

    def create(self, new: NewSession) -> str:
        (number,) = self.execute("SELECT nextval('acphold.epochs')").fetchone()
        create(self, new, number)
        return new.session_id

    def link(self, agent: str, downstream_id: str, key: str | None) -> None:
        self.execute(
            "INSERT INTO acphold.links (agent, downstream_id, session_id) VALUES (%s, %s, %s)"
            " ON CONFLICT (agent, downstream_id) DO UPDATE"
            " SET session_id = excluded.session_id, number = excluded.number",
            (agent, downstream_id, key),
        )

    def page(
        self,
        filter: ListFilter,
        after: ListKey | None,
        limit: int,
        outcomes: Outcomes | None = None,
        *,
        counted: bool = True,
    ) -> list[SessionRow]:
        # Where the best index depends on the values, no plan is kept. Else one is: but for a limit
        # that it does not know, the server would plan each page anew.
        depends = (filter.tenant or filter.unread) and (filter.cwd or filter.agents)
        tables = PostgresqlTables(self._line, prepare=False) if depends else self
        newest = f"ORDER BY updated_at DESC, session_id DESC LIMIT {min(limit, 1 << 31)}"

        def read(more: str = "", more_values: Sequence[object] = ()) -> list[SessionRow]:
            those = [*walks(filter, after, _HAS_WORD)]
            if len(those) == 1:
                rest = f"WHERE {those[0].condition}{more} {newest}"
                values = [*those[0].values, *more_values]
            else:
                found, values = _merged(those, newest, more, more_values)
                rest = (
                    f"WHERE session_id = ANY(ARRAY(SELECT session_id FROM {found} {newest}))"
                    " ORDER BY updated_at DESC, sessions.session_id DESC"
                )
            return select_rows(tables, rest, values, outcomes, counted=counted)

        if not filter.words:
            return read()
        # Common words are found among the newest sessions, rare ones by an index.
        all_, values = _merged(
            walks(replace(filter, words=()), after, _HAS_WORD),
            f"ORDER BY updated_at DESC, session_id DESC OFFSET {bounds.WALKED_SESSIONS} LIMIT 1",
        )
        (bound,) = tables.execute(f"SELECT max(updated_at) FROM {all_}", values).fetchone()
        if bound is None:
            return read()
        rows = read(" AND updated_at > %s", [bound])
        if len(rows) == limit:
            return rows
        from acphold.journal.postgresql import described  # late: few lists have words

        return read(*(described.candidates(tables, filter) or ()))


def _merged(
    walks: Iterable[ListWalk], order: str, more: str = "", more_values: Sequence[object] = ()
) -> tuple[str, list[object]]:
    """The union of some walks, each in this order, of rows that meet `more` conditions; with its
    values."""
    parts: list[str] = []
    values: list[object] = []
    for walk in walks:
        parts.append(
            "(SELECT session_id, updated_at FROM acphold.sessions"
            f" WHERE {walk.condition}{more} {order})"
        )
        values += (*walk.values, *more_values)
    return f"({' UNION ALL '.join(parts)}) AS found", values
