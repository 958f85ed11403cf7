"""The tables of sessions and of links to the agents' own ids.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import islice
from os.path import commonprefix
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from acphold.errors import AmbiguousIdError, SessionExistsError, UnknownSessionError
from acphold.history.entries import PROMPT, TURN_END, Entry
from acphold.history.fold import SessionState, fold
from acphold.history.raw_update import storable
from acphold.history.times import now_ms
from acphold.journal import packing, settlement
from acphold.journal.journal import NewSession, Origin, RowChange, RowChanges, SessionRow
from acphold.journal.lineage import lineage_of
from acphold.journal.location import resolved_folder
from acphold.journal.sqlite import segments
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

UNSETTLED_BYTES: Final = 1 << 20
"""Bytes of an unsettled turn that are counted for the list, at most."""

_BEHIND_A_TURN: Final = 64
"""Segments that may follow the end of a turn: a title, usage, and updates from opening the
session."""

_IDS_AT_ONCE: Final = 500
"""Ids in one statement: SQLite before 3.32 takes 999 parameters."""

_LAST_KEY: Final = (
    "(SELECT key FROM segments WHERE key BETWEEN ({0} << 32)"
    " AND ({0} << 32 | 4294967295) ORDER BY key DESC LIMIT 1)"
)
"""The last segment of a session; format it with the SQL of the session's number."""

SELECT_ROW: Final = (
    "SELECT session_id, agent, cwd, additional_directories, title, created_at, updated_at,"
    f" message_count, prompted, coalesce({_LAST_KEY.format('sessions.number')} & 4294967295, 0),"
    " number, settled_through, archived, renamed, origins,"
    " followers, (SELECT downstream_id FROM links WHERE session = sessions.number"
    " ORDER BY links.number DESC LIMIT 1), unread, start, tenant, unseen,"
    " (SELECT json_group_object(tenant, prompts) FROM shares"
    " WHERE shares.session_id = sessions.session_id),"
    " (SELECT value FROM meta WHERE name = 'era') FROM sessions"
)
"""The columns `session_row` reads."""

Row = tuple[
    *tuple[str, str, str, str, str | None, int, int, int, int, int, int, int, int, int, str, int],
    *tuple[str | None, bytes | None, str | None, str, int, str, str | None],
]

_decode_directories = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_shared = msgspec.json.Decoder(dict[str, bool], strict=False).decode
_decode_origins = msgspec.json.Decoder(tuple[Origin, ...]).decode


def session_row(connection: sqlite3.Connection, row: Row, *, counted: bool = True) -> SessionRow:
    """Decode a row of SELECT_ROW; `counted` is as in `Journal.session`."""
    session_id, agent, cwd, directories, title, created, updated, messages = row[:8]
    prompted, last, number, settled, archived, renamed, origins = row[8:15]
    followers, known, unread, start, tenant, unseen, shared, era = row[15:]
    if counted and last > settled and prompted:
        messages += unsettled(connection, number, settled)
    return SessionRow(
        session_id,
        agent,
        cwd,
        () if directories == "[]" else _decode_directories(directories),
        title,
        created,
        updated,
        messages,
        bool(prompted),
        last,
        bool(archived),
        bool(renamed),
        () if origins == "[]" else _decode_origins(origins),
        followers if last > settled else 0,
        known,
        unread,
        start,
        tenant,
        bool(unseen),
        {} if shared == "{}" else _decode_shared(shared),
        "" if era is None else lineage_of(era.partition(" ")[0], number),
    )


OF_AGENTS: Final = "(:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))"
"""True for sessions of the agents that `as_json` encoded."""


def as_json(agents: tuple[str, ...]) -> str | None:
    """The agents as a parameter for OF_AGENTS; None means all."""
    return _json(agents) if agents else None


SHARED_WITH: Final = "session_id IN (SELECT session_id FROM shares WHERE tenant = :tenant)"
"""Sessions that others share with a tenant, as SQL."""

THERE_FOR: Final = f"(tenant = :tenant OR {SHARED_WITH})"
"""`SessionRow.is_there_for` a tenant, as SQL: for checking a row, not for finding rows."""


def find(connection: sqlite3.Connection, session_id: str, *, counted: bool) -> SessionRow:
    """Like `Journal.session`."""
    row = connection.execute(f"{SELECT_ROW} WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return session_row(connection, row, counted=counted)


MATCHES: Final = 100
"""Sessions that are counted if a prefix fits several; a list looks up many short prefixes."""


def resolve(connection: sqlite3.Connection, prefix: str, cwd: str | None = None) -> SessionRow:
    """Like `Journal.resolve`; raises UnknownSessionError and AmbiguousIdError."""
    folder = None if cwd is None else resolved_folder(cwd)
    # A range, not LIKE: exact in case, blind to wildcards, and a walk along the index.
    found = connection.execute(
        "SELECT session_id FROM sessions WHERE session_id BETWEEN ?1 AND ?2"
        " AND (?3 IS NULL OR folder = ?3) ORDER BY 1 LIMIT ?4",
        (prefix, f"{prefix}\U0010ffff" if prefix else "", folder, MATCHES + 1),
    )
    matches = tuple(match for (match,) in found)
    if not matches:
        raise UnknownSessionError(prefix, f"no session id begins with {prefix!r}")
    if len(matches) > 1 and matches[0] != prefix:  # an exact match sorts first
        raise AmbiguousIdError(prefix, matches[:MATCHES], more=len(matches) > MATCHES)
    return find(connection, matches[0], counted=True)


_NEIGHBOURS: Final = (
    "SELECT (SELECT max(session_id) FROM sessions WHERE session_id < ?1),"
    " (SELECT min(session_id) FROM sessions WHERE session_id > ?1)"
)


def short_id(connection: sqlite3.Connection, session_id: str, least: int) -> str:
    """The shortest unambiguous prefix of an id, at least `least` characters long."""
    neighbours = connection.execute(_NEIGHBOURS, (session_id,)).fetchone()
    # The id with the longest common prefix is one of the two neighbours in sort order. Most
    # neighbours already differ within `least` characters.
    length, short = least, session_id[:least]
    for found in neighbours:
        if found is not None and found.startswith(short):
            shared = commonprefix((session_id, found))  # noqa: RUF071  by characters
            length = max(length, len(shared) + 1)
    return session_id[:length]


def number_of(connection: sqlite3.Connection, session_id: str) -> int:
    """The journal's own key of a session; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT number FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return int(row[0])


def create(connection: sqlite3.Connection, new: NewSession) -> int:
    """Insert a session and return its number; raises SessionExistsError."""
    created = now_ms() if new.created_at is None else new.created_at
    directories = _json(new.additional_directories)
    title = None if new.title is None else storable(new.title)
    folder = resolved_folder(new.cwd)
    try:
        number = connection.execute(
            "INSERT INTO sessions (session_id, agent, cwd, folder, additional_directories, title,"
            " created_at, updated_at, renamed, origins, tenant)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(new.session_id, new.agent, new.cwd, folder, directories, title),
                *(created, created, new.renamed, _json(new.origins), new.tenant),
            ),
        ).lastrowid
    except sqlite3.IntegrityError as error:
        raise SessionExistsError(f"there is a session {new.session_id!r} already") from error
    assert number is not None
    return number


def change_row(connection: sqlite3.Connection, number: int, change: RowChange) -> None:
    """Write the values set in `change`; a title only if no person gave one."""
    columns = {name: value for name, value in asdict(change).items() if value is not UNSET}
    if not columns:
        return
    given = columns.pop("given", UNSET)
    if isinstance(title := columns.get("title"), str):
        columns["title"] = storable(title)
    if "cwd" in columns:
        columns["folder"] = resolved_folder(columns["cwd"])
    for name in ("additional_directories", "origins"):
        if name in columns:
            columns[name] = _json(columns[name])
    names = ", ".join(_ASSIGNMENTS.get(name, f"{name} = ?") for name in columns)
    if columns:
        values = (*columns.values(), number)
        connection.execute(f"UPDATE sessions SET {names} WHERE number = ?", values)
    if given is not UNSET:
        connection.execute(
            "UPDATE sessions SET title = ?, renamed = ? WHERE number = ?",
            (None if given is None else storable(given), given is not None, number),
        )


_ASSIGNMENTS: Final = {"title": "title = CASE WHEN renamed THEN title ELSE ? END"}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def updated_by_last_entry(connection: sqlite3.Connection, number: int) -> int:
    """Return the last seq of a session, and bring the row's time up to it: its last owner may have
    died before updating the row."""
    last = connection.execute(
        "SELECT key, at FROM segments WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << SEQ_BITS, number << SEQ_BITS | SEQ_MASK),
    ).fetchone()
    if last is None:
        return 0
    key, at = last
    connection.execute(
        "UPDATE sessions SET updated_at = ? WHERE number = ? AND updated_at < ?", (at, number, at)
    )
    return int(key) & SEQ_MASK


def last_seq(connection: sqlite3.Connection, number: int) -> int:
    """The last seq of a session; 0 if it has no entries."""
    (key,) = connection.execute(f"SELECT {_LAST_KEY.format('?1')}", (number,)).fetchone()
    return 0 if key is None else int(key) & SEQ_MASK


def was_there(connection: sqlite3.Connection, session_id: str) -> bool:
    """True if the journal has known this session, even if it was deleted since."""
    row = connection.execute("SELECT 1 FROM changes WHERE session_id = ?", (session_id,))
    return row.fetchone() is not None


# -- what is new ------------------------------------------------------------------------------


def count(connection: sqlite3.Connection) -> int:
    """The number of sessions."""
    (found,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    return int(found)


def changes(connection: sqlite3.Connection, after: int | None, limit: int) -> RowChanges:
    """Like `Journal.changes`."""
    if after is None:
        (last,) = connection.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        return RowChanges((), last)
    rows = connection.execute(
        "SELECT session_id, revision FROM changes WHERE revision > ? ORDER BY revision LIMIT ?",
        (after, limit + 1),
    ).fetchall()
    shown = rows[:limit]
    last = shown[-1][1] if shown else after
    return RowChanges([session_id for session_id, _ in shown], last, len(rows) > limit)


_LAST_OF_TURNS: Final = (
    "SELECT kind, raw FROM (SELECT key, kind, raw FROM segments"
    " WHERE key BETWEEN ?1 << 32 AND (?1 << 32 | 4294967295) ORDER BY key DESC LIMIT ?2)"
    f" WHERE kind IN ({segments.CODES[PROMPT]}, {segments.CODES[TURN_END]})"
    " ORDER BY key DESC LIMIT 1"
)


def outcomes(connection: sqlite3.Connection, session_ids: Iterable[str]) -> dict[str, bytes | None]:
    """Like `Journal.outcomes`."""
    found: dict[str, bytes | None] = {}
    for session_id in session_ids:
        row = connection.execute(
            "SELECT number, settled_through, prompted FROM sessions WHERE session_id = ?",
            (session_id,),
        ).fetchone()
        if row is None:
            continue
        number, settled, prompted = row
        last = connection.execute(_LAST_OF_TURNS, (number, _BEHIND_A_TURN)).fetchone()
        if last is not None and last[0] == segments.CODES[TURN_END]:
            found[session_id] = packing.plain(last[1])
        elif prompted and segments.read(connection, number, settled, 1):
            found[session_id] = None  # unsettled, so not over; a settled turn is over in any case
    return found


# -- counting messages ------------------------------------------------------------------------


def context(connection: sqlite3.Connection, session: int, settled: int) -> SessionState:
    """The state just before `settled`: a late chunk may belong to a message that is already
    counted."""
    return settlement.context(
        segments.read_back(connection, session, settled, settlement.CONTEXT_SEGMENTS)
    )


def unsettled(connection: sqlite3.Connection, session: int, settled: int) -> int:
    """The number of messages after `settled`: of a running turn, or of one that a crash cut off."""
    found = segments.read(connection, session, settled, UNSETTLED_BYTES)
    before = context(connection, session, settled)
    entries = (entry for segment in found for entry in segment.entries())
    return settlement.messages(fold(entries, before)) - settlement.messages(before)


# -- links ------------------------------------------------------------------------------------


def link(
    connection: sqlite3.Connection, agent: str, downstream_id: str, session: int | None
) -> None:
    """Make `downstream_id` the newest id of a session, by its number; None makes a tombstone."""
    # Replaced, not updated: a new row gets the highest number, which makes it the newest.
    connection.execute(
        "INSERT OR REPLACE INTO links (agent, downstream_id, session) VALUES (?, ?, ?)",
        (agent, downstream_id, session),
    )


def last_entries(
    connection: sqlite3.Connection, agent: str, ids: Iterable[str]
) -> dict[str, Entry | None]:
    """The last entry of each session behind these ids of the agent; None if it is empty."""
    found: dict[str, Entry | None] = {}
    remaining = iter(ids)
    while some := tuple(islice(remaining, _IDS_AT_ONCE)):
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            f"SELECT downstream_id, {segments.COLUMNS} FROM links"
            f" LEFT JOIN segments ON segments.key = {_LAST_KEY.format('links.session')}"
            f" WHERE links.agent = ? AND downstream_id IN ({marks}) AND session IS NOT NULL",
            (agent, *some),
        )
        for downstream_id, *row in rows:
            last = None if row[0] is None else segments.of_row(*row)
            found[downstream_id] = None if last is None else last.entries()[-1]
    return found


def linked(connection: sqlite3.Connection, agent: str, ids: Iterable[str]) -> dict[str, str | None]:
    """Map the known ids to their sessions; None for a tombstone."""
    found: dict[str, str | None] = {}
    remaining = iter(ids)
    while some := tuple(islice(remaining, _IDS_AT_ONCE)):
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT downstream_id, session_id FROM links"
            " LEFT JOIN sessions ON sessions.number = links.session"
            f" WHERE links.agent = ? AND downstream_id IN ({marks})",
            (agent, *some),
        )
        found.update(rows.fetchall())
    return found


def links_of(connection: sqlite3.Connection, session_id: str | None) -> list[tuple[str, str]]:
    """Like `Journal.links_of`."""
    which = (
        "session IS NULL"
        if session_id is None
        else "session = (SELECT number FROM sessions WHERE session_id = :id)"
    )
    return connection.execute(
        f"SELECT agent, downstream_id FROM links WHERE {which} ORDER BY number", {"id": session_id}
    ).fetchall()


def used_later(
    connection: sqlite3.Connection, agent: str, times: Mapping[str, int]
) -> list[tuple[int, int]]:
    """The times and numbers of sessions whose ids the agent used later than the journal knows."""
    found: list[tuple[int, int]] = []
    remaining = iter(times)
    while some := tuple(islice(remaining, _IDS_AT_ONCE)):
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT downstream_id, sessions.number, updated_at FROM links"
            " JOIN sessions ON sessions.number = links.session"
            f" WHERE links.agent = ? AND downstream_id IN ({marks})",
            (agent, *some),
        )
        found += [(times[key], number) for key, number, known in rows if times[key] > known]
    return found


def move_up(connection: sqlite3.Connection, times: Iterable[tuple[int, int]]) -> None:
    """Set the last activity of sessions, by their numbers, unless it is later already."""
    connection.executemany(
        "UPDATE sessions SET updated_at = max(updated_at, ?) WHERE number = ?", times
    )
