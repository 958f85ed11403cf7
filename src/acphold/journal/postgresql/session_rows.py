"""The tables of sessions and of links to the agents' own ids.

The functions run inside a transaction of the caller, or are one by themselves, and may raise
psycopg errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from acphold.errors import (
    AmbiguousIdError,
    RewrittenError,
    SessionExistsError,
    UnknownSessionError,
)
from acphold.history.entries import PROMPT, TURN_END, Entry
from acphold.history.fold import fold
from acphold.history.raw_update import storable
from acphold.journal import packing, settlement
from acphold.journal.journal import Listed, NewSession, Origin, RowChange, RowChanges, SessionRow
from acphold.journal.lineage import lineage_of
from acphold.journal.location import resolved_folder
from acphold.journal.postgresql import segments
from acphold.journal.postgresql.leases import CHANGED, ERA, HERE
from acphold.journal.postgresql.migrations import Line

UNSETTLED_BYTES: Final = 1 << 20
"""Bytes of an unsettled turn that are counted for the list, at most."""

_BEHIND_A_TURN: Final = 64
"""Segments that may follow the end of a turn: a title, usage, and updates from opening the
session."""

_LAST_SEQ: Final = (
    "(SELECT last_seq FROM acphold.segments WHERE segments.session_id = sessions.session_id"
    " ORDER BY last_seq DESC LIMIT 1)"
)

SELECT_ROW: Final = (
    "SELECT sessions.session_id, agent, cwd, additional_directories, title, created_at, updated_at,"
    f" message_count, prompted, coalesce({_LAST_SEQ}, 0), settled_through, archived, renamed,"
    " origins, followers, (SELECT downstream_id FROM acphold.links"
    " WHERE links.session_id = sessions.session_id ORDER BY links.number DESC LIMIT 1),"
    " unread, start, tenant, unseen, (SELECT json_object_agg(shares.tenant, prompts)::text"
    " FROM acphold.shares WHERE shares.session_id = sessions.session_id),"
    f" number, {ERA} FROM acphold.sessions"
)
"""The columns `session_row` reads."""

_decode_directories = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_origins = msgspec.json.Decoder(tuple[Origin, ...]).decode
_decode_shared = msgspec.json.Decoder(dict[str, bool]).decode


def session_row(line: Line, row: Sequence[Any], *, counted: bool = True) -> SessionRow:
    """Decode a row of SELECT_ROW; `counted` is as in `Journal.session`."""
    session_id, agent, cwd, directories, title, created, updated, messages = row[:8]
    prompted, last, settled, archived, renamed, origins, followers, known = row[8:16]
    unread, start, tenant, unseen, shared, number, era = row[16:]
    if counted and last > settled and prompted:
        messages += unsettled(line, session_id, settled)
    return SessionRow(
        session_id,
        agent,
        cwd,
        () if directories == "[]" else _decode_directories(directories),
        title,
        created,
        updated,
        messages,
        prompted,
        last,
        archived,
        renamed,
        () if origins == "[]" else _decode_origins(origins),
        followers if last > settled else 0,
        known,
        unread,
        start,
        tenant,
        unseen,
        {} if shared is None else _decode_shared(shared),
        "" if era is None else lineage_of(era, number),
    )


def find(line: Line, session_id: str, *, counted: bool) -> SessionRow:
    """Like `Journal.session`."""
    row = line.execute(f"{SELECT_ROW} WHERE session_id = %s", (session_id,)).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return session_row(line, row, counted=counted)


MATCHES: Final = 100
"""Sessions that are counted if a prefix fits several; a list looks up many short prefixes."""


def resolve(line: Line, prefix: str, cwd: str | None = None) -> SessionRow:
    """Like `Journal.resolve`; raises UnknownSessionError and AmbiguousIdError."""
    folder = None if cwd is None else resolved_folder(cwd)
    # A range, not LIKE: blind to wildcards, and a walk along the index.
    found = line.execute(
        "SELECT session_id FROM acphold.sessions WHERE session_id BETWEEN %s AND %s"
        " AND (%s::text IS NULL OR folder = %s) ORDER BY 1 LIMIT %s",
        (prefix, f"{prefix}\U0010ffff" if prefix else "", folder, folder, MATCHES + 1),
    ).fetchall()
    matches = tuple(match for (match,) in found)
    if not matches:
        raise UnknownSessionError(prefix, f"no session id begins with {prefix!r}")
    if len(matches) > 1 and matches[0] != prefix:  # an exact match sorts first
        raise AmbiguousIdError(prefix, matches[:MATCHES], more=len(matches) > MATCHES)
    return find(line, matches[0], counted=True)


def short_ids(line: Line, session_ids: Sequence[str], least: int) -> list[str]:
    """Like `Journal.short_ids`."""
    # The id with the longest common prefix is one of the two neighbours in sort order.
    rows = line.execute(
        "SELECT it, (SELECT max(session_id) FROM acphold.sessions"
        ' WHERE session_id < it COLLATE "C"), (SELECT min(session_id) FROM acphold.sessions'
        ' WHERE session_id > it COLLATE "C") FROM unnest(%s::text[]) AS wanted(it)',
        ([*session_ids],),
    ).fetchall()
    short = {}
    for session_id, *neighbours in rows:
        length = least
        for found in neighbours:
            if found is not None:
                shared = commonprefix((session_id, found))  # noqa: RUF071  by characters
                length = max(length, len(shared) + 1)
        short[session_id] = session_id[:length]
    return [short[session_id] for session_id in session_ids]


def settled_through(line: Line, session_id: str) -> int:
    """The last settled entry of a session; raises UnknownSessionError."""
    row = line.execute(
        "SELECT settled_through FROM acphold.sessions WHERE session_id = %s", (session_id,)
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return int(row[0])


def create(line: Line, new: NewSession, number: int) -> None:
    """Insert a session without an owner; raises SessionExistsError."""
    done = line.execute(
        "INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder,"
        " additional_directories, title, created_at, updated_at, renamed, origins, tenant)"
        f" VALUES (%s, %s, %s, %s, %s, %s, %s, coalesce(%s::bigint, {segments.NOW_MS}),"
        f" coalesce(%s::bigint, {segments.NOW_MS}), %s, %s, %s) ON CONFLICT DO NOTHING",
        (
            *(new.session_id, number, new.agent, new.cwd, resolved_folder(new.cwd)),
            _json(new.additional_directories),
            None if new.title is None else title(new.title),
            *(new.created_at, new.created_at, new.renamed, _json(new.origins), new.tenant),
        ),
    )
    if not done.rowcount:
        raise SessionExistsError(f"there is a session {new.session_id!r} already")
    line.execute("INSERT INTO acphold.leases VALUES (%s, '', 0, false)", (new.session_id,))


def enlist(line: Line, listed: Listed) -> None:
    """Add the row of a session that an import has listed, unless it is known or was deleted."""
    agent, downstream_id = listed.new.agent, listed.downstream_id
    if linked(line, agent, [downstream_id]):
        return
    row = line.execute("SELECT nextval('acphold.epochs')").fetchone()
    assert row is not None
    try:
        create(line, listed.new, row[0])
    except SessionExistsError:
        return
    line.execute(
        "UPDATE acphold.sessions SET prompted = true, updated_at = %s, unread = %s"
        " WHERE session_id = %s",
        (listed.updated_at, listed.source, listed.new.session_id),
    )
    link(line, agent, downstream_id, listed.new.session_id)


def title(text: str) -> str:
    """Return the title without characters that cannot be stored."""
    return storable(text).replace("\0", "\ufffd")


def assignments(change: RowChange | None) -> tuple[str, list[Any]]:
    """The values set in `change`, as SQL assignments; a title only if no person gave one."""
    columns = {
        name: value
        for name, value in (asdict(change) if change is not None else {}).items()
        if value is not UNSET
    }
    if not columns:
        return "", []
    given = columns.pop("given", UNSET)
    if isinstance(told := columns.get("title"), str):
        columns["title"] = title(told)
    if "cwd" in columns:
        columns["folder"] = resolved_folder(columns["cwd"])
    for name in ("additional_directories", "origins"):
        if name in columns:
            columns[name] = _json(columns[name])
    for value in columns.values():
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise OverflowError(f"{value} is no time and no count")
    if given is not UNSET:
        columns.pop("title", None)
        columns |= {"title": None if given is None else title(given), "renamed": given is not None}
        parts = [f"{name} = %s" for name in columns]
    else:
        parts = [_ASSIGNMENTS.get(name, f"{name} = %s") for name in columns]
    return ", ".join([*parts, CHANGED]), [*columns.values()]


_ASSIGNMENTS: Final = {"title": "title = CASE WHEN renamed THEN title ELSE %s END"}


def change_row(line: Line, session_id: str, change: RowChange) -> None:
    """Write the values set in `change`; raises UnknownSessionError."""
    parts, values = assignments(change)
    if parts:
        done = line.execute(
            f"UPDATE acphold.sessions SET {parts} WHERE session_id = %s", (*values, session_id)
        )
        if not done.rowcount:
            raise UnknownSessionError(session_id)
    else:
        settled_through(line, session_id)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- what is new ------------------------------------------------------------------------------


def changes(line: Line, after: int | None, limit: int) -> RowChanges:
    """Like `Journal.changes`.

    A change is numbered by its transaction, plus a mark of the server in the high bits: a server
    that replaces another repeats the numbers. Only changes below the oldest open transaction are
    returned. Otherwise a transaction with a lower number that commits later would be missed.
    """
    row = line.execute(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
        f" pg_snapshot_xmax(pg_current_snapshot())::text::bigint, {HERE}"
    ).fetchone()
    assert row is not None
    oldest, next_one, here = row
    mark = crc32(here) << _NUMBER_BITS
    if after is None:
        return RowChanges((), mark | oldest - 1)
    if after >> _NUMBER_BITS << _NUMBER_BITS != mark:
        raise RewrittenError("the database may have gone back since these changes were told")
    after -= mark
    rows = line.execute(
        "SELECT session_id, changed::text::bigint FROM ("
        " SELECT session_id, changed FROM acphold.sessions WHERE changed > %s::text::xid8"
        " UNION ALL"
        " SELECT session_id, changed FROM acphold.gone WHERE changed > %s::text::xid8"
        ") AS news WHERE changed < %s::text::xid8"
        " ORDER BY changed FETCH FIRST %s ROWS WITH TIES",
        (str(after), str(after), str(oldest), limit + 1),
    ).fetchall()
    is_more = len(rows) > limit
    if is_more:  # leave out a transaction of which only a part fits
        last = rows[limit][1]
        whole = [row for row in rows if row[1] < last]
        rows = whole or rows
    through = rows[-1][1] if is_more else max(after, oldest - 1)
    late = False
    if oldest < next_one:
        row = line.execute(
            "SELECT EXISTS (SELECT FROM acphold.sessions WHERE changed >= %s::text::xid8)"
            " OR EXISTS (SELECT FROM acphold.gone WHERE changed >= %s::text::xid8)",
            (str(oldest), str(oldest)),
        ).fetchone()
        late = row is not None and row[0]
    ids = [*dict.fromkeys(session_id for session_id, _ in rows)]
    return RowChanges(ids, mark | through, is_more, late)


_NUMBER_BITS: Final = 64
"""Bits of a transaction's number."""


_LAST_OF_TURNS: Final = """
    SELECT sessions.session_id, settled_through, prompted, last.kind, last.raw
    FROM acphold.sessions LEFT JOIN LATERAL (
        SELECT kind, raw FROM (
            SELECT last_seq, kind, raw FROM acphold.segments
            WHERE segments.session_id = sessions.session_id ORDER BY last_seq DESC LIMIT %s
        ) AS behind WHERE kind IN (%s, %s) ORDER BY last_seq DESC LIMIT 1
    ) AS last ON true
    WHERE sessions.session_id = ANY(%s)
"""


def outcomes(line: Line, session_ids: Iterable[str]) -> dict[str, bytes | None]:
    """Like `Journal.outcomes`."""
    found: dict[str, bytes | None] = {}
    rows = line.execute(_LAST_OF_TURNS, (_BEHIND_A_TURN, PROMPT, TURN_END, [*session_ids]))
    for session_id, settled, prompted, kind, raw in rows.fetchall():
        if kind == TURN_END:
            found[session_id] = packing.plain(raw)
        elif prompted and segments.Of(line, session_id).read(settled, 1):
            found[session_id] = None  # unsettled, so not over; a settled turn is over in any case
    return found


# -- counting messages ------------------------------------------------------------------------


def unsettled(line: Line, session_id: str, settled: int) -> int:
    """The number of messages after `settled`: of a running turn, or of one that a crash cut off."""
    rows = segments.Of(line, session_id)
    before = settlement.context(rows.read_back(settled, settlement.CONTEXT_SEGMENTS))
    entries = (entry for one in rows.read(settled, UNSETTLED_BYTES) for entry in one.entries())
    return settlement.messages(fold(entries, before)) - settlement.messages(before)


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


def without_session(line: Line) -> list[str]:
    """Some of the ids that have entries but no session."""
    return [session_id for (session_id,) in line.execute(_WITHOUT_SESSION).fetchall()]


# -- links ------------------------------------------------------------------------------------


def link(line: Line, agent: str, downstream_id: str, session_id: str | None) -> None:
    """Make `downstream_id` the newest id of a session; None makes a tombstone."""
    line.execute(
        "INSERT INTO acphold.links (agent, downstream_id, session_id) VALUES (%s, %s, %s)"
        " ON CONFLICT (agent, downstream_id) DO UPDATE"
        " SET session_id = excluded.session_id, number = excluded.number",
        (agent, downstream_id, session_id),
    )


def last_entries(line: Line, agent: str, ids: Iterable[str]) -> dict[str, Entry | None]:
    """The last entry of each session behind these ids of the agent; None if it is empty."""
    found: dict[str, Entry | None] = {}
    rows = line.execute(
        f"SELECT downstream_id, {segments.COLUMNS} FROM acphold.links LEFT JOIN LATERAL ("
        f" SELECT {segments.COLUMNS} FROM acphold.segments"
        " WHERE segments.session_id = links.session_id ORDER BY last_seq DESC LIMIT 1"
        ") AS last ON true"
        " WHERE agent = %s AND downstream_id = ANY(%s) AND links.session_id IS NOT NULL",
        (agent, [*ids]),
    )
    for downstream_id, *row in rows.fetchall():
        found[downstream_id] = None if row[0] is None else segments.of_row(*row).entries()[-1]
    return found


def linked(line: Line, agent: str, ids: Iterable[str]) -> dict[str, str | None]:
    """Map the known ids to their sessions; None for a tombstone."""
    rows = line.execute(
        "SELECT downstream_id, session_id FROM acphold.links"
        " WHERE agent = %s AND downstream_id = ANY(%s)",
        (agent, [*ids]),
    )
    return dict(rows.fetchall())


def links_of(line: Line, session_id: str | None) -> list[tuple[str, str]]:
    """Like `Journal.links_of`."""
    which = "IS NULL" if session_id is None else "= %(id)s"
    return line.execute(
        f"SELECT agent, downstream_id FROM acphold.links WHERE session_id {which} ORDER BY number",
        {"id": session_id},
    ).fetchall()


def went_on(line: Line, agent: str, times: Mapping[str, int]) -> None:
    """Like `Journal.went_on`."""
    line.execute(
        f"UPDATE acphold.sessions SET updated_at = later.at, {CHANGED}"
        " FROM (SELECT session_id, max(used.at) AS at FROM acphold.links"
        " JOIN unnest(%s::text[], %s::bigint[]) AS used(id, at) ON used.id = downstream_id"
        " WHERE agent = %s AND session_id IS NOT NULL GROUP BY session_id) AS later"
        " WHERE sessions.session_id = later.session_id AND updated_at < later.at",
        ([*times], [*times.values()], agent),
    )


# -- deleting ---------------------------------------------------------------------------------

OF_A_SESSION: Final = (
    "leases",
    "segments",
    "summaries",
    "documents",
    "usage",
    "usage_slots",
    "usage_costs",
    "shares",
    "sessions",
)
"""The tables whose rows are deleted with a session."""


DELETED_AT_ONCE: Final = 50
"""Sessions deleted in one transaction: anybody who opens one of them waits for it."""


def lock(line: Line, session_ids: Sequence[str], idle_since: int | None) -> list[str]:
    """Lock sessions against changes until the transaction ends; return those that exist.

    With `idle_since`, only those last active by then.
    """
    # First the leases, then the rows, as appends do; both sorted by id. So two deletions cannot
    # deadlock.
    asked = {"ids": [*session_ids], "since": idle_since}
    line.execute(
        "SELECT FROM acphold.leases WHERE session_id = ANY(%(ids)s) ORDER BY session_id FOR UPDATE",
        asked,
    )
    rows = line.execute(
        "SELECT session_id FROM acphold.sessions WHERE session_id = ANY(%(ids)s)"
        " AND (%(since)s::bigint IS NULL OR updated_at <= %(since)s)"
        " ORDER BY session_id FOR UPDATE",
        asked,
    )
    return [session_id for (session_id,) in rows.fetchall()]


def delete(line: Line, session_ids: Sequence[str], *, as_if_never: bool) -> None:
    """Delete all rows of sessions; their links stay as tombstones unless `as_if_never`."""
    its = ([*session_ids],)
    if as_if_never:
        line.execute("DELETE FROM acphold.links WHERE session_id = ANY(%s)", its)
    else:
        line.execute("UPDATE acphold.links SET session_id = NULL WHERE session_id = ANY(%s)", its)
    for table in OF_A_SESSION:
        line.execute(f"DELETE FROM acphold.{table} WHERE session_id = ANY(%s)", its)
    line.execute("INSERT INTO acphold.gone (session_id) SELECT unnest(%s::text[])", its)
