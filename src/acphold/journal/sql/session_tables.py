"""The tables of sessions as both databases treat them alike: rows, leases, links and snapshots.

A field of SessionRow, RowChange or NewSession is the column of the same name. Its type tells how
it is kept: tuples and dicts are JSON, and a truth value may be a number. So a new field takes a
line in these classes and one in `journal.sql.schema`. Some fields of a row are no
columns: see `_select`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, get_origin

import msgspec
from msgspec.structs import asdict, fields

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.entries import FORGOTTEN_TEXT, Entry
from acphold.conversation.history.raw_update import storable
from acphold.conversation.history.timeline import turn_end
from acphold.conversation.history.titles import UNTITLED
from acphold.errors import HistoryLostError, LeaseLostError, SessionExistsError, UnknownSessionError
from acphold.journal import bounds, list_places
from acphold.journal.intentions import row_for
from acphold.journal.journal import Lease, Outcomes, Titled
from acphold.journal.lineage import lineage_of
from acphold.journal.rows import Listed, Marks, NewSession, RowChange, SessionRow
from acphold.journal.seams import TurnSnapshot
from acphold.journal.sql.tables import Key, Tables, batches, segment_of_row
from acphold.journal.stored_history import plain
from acphold.known_agents import keys_like

_FIELDS: Final = SessionRow.__struct_fields__
_TYPES: Final = [field.type for field in fields(SessionRow)]
_DECODED: Final = [
    (place, kind, msgspec.json.Decoder(type_, strict=False).decode)
    for place, type_ in enumerate(_TYPES)
    if (kind := get_origin(type_) or type_) in (bool, tuple, dict)
]
_encoded: Final = itemgetter(*(place for place, *_ in _DECODED))
_LAST, _PROMPTED, _MESSAGES, _FOLLOWERS, _LINEAGE = map(
    _FIELDS.index, ("last_seq", "prompted", "message_count", "followers", "lineage")
)

_SETTLED: Final = len(_FIELDS)
"""The column behind those of fields; the others that `_select` adds come after it."""

_in_order: Final = itemgetter(
    *(
        next((_SETTLED + 3 + n for n, (at, *_) in enumerate(_DECODED) if at == place), place)
        for place in range(_SETTLED)
    )
)
"""The values of the fields, of a row with what `_decode` makes of it behind it."""


@cache
def _select(tables: type[Tables]) -> str:
    """The statement that reads rows for `select_rows`; append a condition."""
    computed = {
        "last_seq": tables.last_seq(),
        "downstream_id": "(SELECT downstream_id FROM acphold.links"
        f" WHERE links.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" ORDER BY links.number DESC{tables.FIRST})",
        "shared_with": tables.SHARED_WITH,
        "lineage": tables.LINEAGE,
    }
    names = (*_FIELDS, "settled_through", "number", "ended")
    columns = [computed.get(name, f"sessions.{name}") for name in names]
    return f"SELECT {', '.join(columns)} FROM acphold.sessions"


def insert(tables: Tables, new: NewSession, now: int | None, **columns: object) -> int:
    """Insert a session without an owner, with more `columns` if the store has any; return its
    number. `now` is its time if it names none. Raises SessionExistsError."""
    created = now if new.created_at is None else new.created_at
    row = _columns(asdict(new) | {"created_at": created, "updated_at": created}) | columns
    times = dict.fromkeys(("created_at", "updated_at"), tables.TIME)
    found = tables.execute(
        f"INSERT INTO acphold.sessions ({', '.join(row)})"
        f" VALUES ({', '.join(times.get(name, '%s') for name in row)})"
        " ON CONFLICT DO NOTHING RETURNING number",
        [*row.values()],
    ).fetchone()
    if found is None:
        raise SessionExistsError(f"there is a session {new.session_id!r} already")
    return int(found[0])


def assignments(change: RowChange | None) -> tuple[list[str], list[Any]]:
    """The values set in `change`, as SQL assignments.

    A title is set only if no person gave one, or one took it out. Raises OverflowError for a number
    beyond 64 bits.
    """
    # Without what is UNSET.
    columns = {} if change is None else msgspec.to_builtins(change, builtin_types=(bytes,))
    is_given = "given" in columns
    if is_given:
        given = columns.pop("given")
        columns["renamed"] = given is not None
        if given is not None or "title" not in columns:
            columns["title"] = given
    columns = _columns(columns)
    for value in columns.values():
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise OverflowError(f"{value} is out of range for a time or a count")
    parts = [f"{name} = %s" for name in columns]
    if "agent" in columns or "origins" in columns:
        parts.append("summed_at = -1")  # the reports may be another agent's
    if "title" in columns and not is_given:
        place = [*columns].index("title")
        parts[place] = f"title = CASE WHEN renamed AND title <> '{UNTITLED}' THEN title ELSE %s END"
    return parts, [*columns.values()]


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """These values of fields as columns keep them."""
    columns = {
        name: msgspec.json.encode(value).decode() if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    if columns.get("title") is not None:
        # PostgreSQL keeps no NUL in a text.
        columns["title"] = storable(columns["title"]).replace("\0", "\ufffd")
    if "cwd" in columns:
        columns["folder"] = resolve_folder(columns["cwd"])
    return columns


NOBODY: Final = ""
"""The owner of a lease that was released."""


def require_lease(tables: Tables, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease stands; it then stands until the transaction ends."""
    row = tables.execute(
        f"SELECT 1 FROM acphold.leases WHERE {tables.KEY} = %s AND epoch = %s"
        f"{tables.LOCKING_LEASE}",
        (tables.key(lease), lease.epoch),
    ).fetchone()
    if row is None:
        raise loss(tables, lease)


def release_lease(tables: Tables, lease: Lease) -> None:
    """Release the session, unless the lease is lost."""
    tables.execute(
        f"UPDATE acphold.leases SET owner = %s WHERE {tables.KEY} = %s AND epoch = %s",
        (NOBODY, tables.key(lease), lease.epoch),
    )


def unregister(tables: Tables, owner_id: str) -> None:
    """Remove an owner that ends; its sessions are free."""
    tables.execute("DELETE FROM acphold.owners WHERE id = %s", (owner_id,))


def granted(tables: Tables, session_ids: Collection[str]) -> set[str]:
    """Return those of these sessions whose owner may live."""
    rows = tables.execute(
        "SELECT sessions.session_id FROM acphold.sessions JOIN acphold.leases"
        f" ON leases.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" WHERE {tables.among('sessions.session_id', 'ids')}"
        " AND owner IN (SELECT id FROM acphold.owners)",
        {"ids": tables.array(session_ids)},
    )
    return {session_id for (session_id,) in rows.fetchall()}


def all_lost(tables: Tables, held: Sequence[Lease], *, whole: bool = False) -> list[LeaseLostError]:
    """The errors for leases that are lost. With `whole`, also for leases under which more was
    written than the journal has."""
    rows = tables.execute(
        f"SELECT sessions.session_id, epoch, {tables.last_seq() if whole else 'NULL'}"
        f" FROM acphold.sessions JOIN acphold.leases ON leases.{tables.KEY} ="
        f" sessions.{tables.OWN_KEY} WHERE {tables.among(f'leases.{tables.KEY}', 'held')}",
        {"held": tables.array(tables.key(lease) for lease in held)},
    ).fetchall()
    stand = {session_id: (epoch, last) for session_id, epoch, last in rows}
    found = []
    for lease in held:
        epoch, last = stand.get(lease.session_id, (None, None))
        if epoch != lease.epoch:
            found.append(loss(tables, lease))
        elif last is not None and last < lease.next_seq - 1:
            # Another thread of ours may have written again what was missing a moment ago.
            error = loss(tables, lease)
            if error.deleted or isinstance(error, HistoryLostError):
                found.append(error)
    return found


def loss(tables: Tables, lease: Lease) -> LeaseLostError:
    """The error for a lost lease: another process holds the session, or it was deleted, or the
    journal has gone back and lost entries of it. Raises NewerJournalError if a newer release has
    ended all leases of this one."""
    tables.refuse_newer()
    row = tables.execute(
        f"SELECT sessions.number, epoch, {tables.last_seq()} FROM acphold.sessions"
        f" LEFT JOIN acphold.leases ON leases.{tables.KEY} = sessions.{tables.OWN_KEY}"
        " WHERE sessions.session_id = %s",
        (lease.session_id,),
    ).fetchone()
    deleted = tables.execute(
        f"SELECT 1 FROM acphold.{tables.DELETED} WHERE session_id = %s", (lease.session_id,)
    )
    number, epoch, last_seq = row or (None, None, 0)
    if number is None and deleted.fetchone() is None:
        return HistoryLostError(lease.session_id, 0)
    if number != lease.number:
        return LeaseLostError(lease.session_id, deleted=True)
    # Epochs only grow, and a new version of the journal sets them to 0.
    is_behind = epoch == lease.epoch and last_seq < lease.next_seq - 1
    if is_behind or 0 < (epoch or 0) < lease.epoch:
        return HistoryLostError(lease.session_id, last_seq)
    return LeaseLostError(lease.session_id)


def select_rows(
    tables: Tables,
    rest: str,
    values: Sequence[Any],
    outcomes: Outcomes | None = None,
    *,
    counted: bool,
) -> list[SessionRow]:
    """The rows that a condition in SQL finds, with unsettled messages if `counted`; `outcomes` gets
    what `Journal.outcomes` tells of them."""
    found: list[SessionRow] = []
    unknown: list[str] = []
    for row in tables.execute(f"{_select(type(tables))} {rest}", values).fetchall():
        kept = [*_in_order((*row, *_decode(_encoded(row))))]
        settled, number, ended = row[_SETTLED:]
        if kept[_LAST] <= settled:
            kept[_FOLLOWERS] = 0
        elif counted and kept[_PROMPTED]:
            segments = tables.segments(tables.own_key(kept[0], number))
            kept[_MESSAGES] += segments.messages_after(settled)
        if outcomes is not None:
            if ended and kept[_LAST] <= settled:
                outcomes[kept[0]] = ended
            elif kept[_LAST]:
                unknown.append(kept[0])
        era = kept[_LINEAGE]
        kept[_LINEAGE] = "" if era is None else lineage_of(era, number)
        found.append(SessionRow(*kept))
    if unknown and outcomes is not None:
        outcomes |= outcomes_of(tables, unknown)
    if any(map(attrgetter("queued"), found)):
        journal = tables.identity().mark
        return [row_for(row, journal) for row in found]
    return found


@lru_cache(1000)
def _decode(encoded: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of the columns _DECODED; most sessions have the same, and these go by C."""
    return tuple(
        text == 1 if kind is bool else kind() if len(text) == 2 else decode(text)  # [] or {}
        for text, (_, kind, decode) in zip(encoded, _DECODED, strict=True)
    )


def outcomes_of(tables: Tables, session_ids: Sequence[str]) -> Outcomes:
    """Like `Journal.outcomes`."""
    rows = tables.execute(
        f"SELECT session_id, {tables.OWN_KEY}, settled_through, prompted, {tables.last_end()}"
        f" FROM acphold.sessions WHERE {tables.among('session_id', 'ids')}",
        {"ids": tables.array(session_ids)},
    )
    ends: Outcomes = {}
    for session_id, key, settled, prompted, end in rows.fetchall():
        if end is not None:
            ends[session_id] = turn_end(plain(end), 0).outcome
        elif prompted and tables.segments(key).read(settled, 1):
            ends[session_id] = None  # unsettled entries: the last turn has not ended
    return ends


def find(tables: Tables, session_id: str, *, counted: bool = False) -> SessionRow:
    """Like `Journal.session`."""
    for row in select_rows(tables, "WHERE session_id = %s", (session_id,), counted=counted):
        return row
    raise UnknownSessionError(session_id)


def agents(tables: Tables) -> list[str]:
    """Like `Journal.agents`."""
    return [agent for (agent,) in tables.execute(_AGENTS).fetchall()]


_AGENTS: Final = """
    WITH RECURSIVE found(agent) AS (
        SELECT min(agent) FROM acphold.sessions UNION ALL
        SELECT (SELECT min(agent) FROM acphold.sessions WHERE agent > found.agent)
        FROM found WHERE found.agent IS NOT NULL
    ) SELECT agent FROM found WHERE agent IS NOT NULL
"""
"""From each to the next along an index: DISTINCT reads all sessions."""


def count(tables: Tables) -> int:
    """The number of sessions."""
    return int(tables.execute("SELECT count(*) FROM acphold.sessions").fetchone()[0])


def count_unindexed(tables: Tables, cwd: str | None = None) -> int:
    """The number of sessions, in a folder or in all, that are not fully indexed."""
    of_folder = "" if cwd is None else " AND folder = %s"
    rows = tables.execute(
        "SELECT count(*) FROM acphold.sessions WHERE indexed_through < settled_through" + of_folder,
        () if cwd is None else (resolve_folder(cwd),),
    )
    return int(rows.fetchone()[0])


def resolve(tables: Tables, prefix: str, cwd: str | None = None) -> SessionRow:
    """Like `Journal.resolve`."""
    of_folder = "" if cwd is None else " AND folder = %s"
    folders = () if cwd is None else (resolve_folder(cwd),)

    def find_ids(prefix: str) -> list[str]:
        rows = tables.execute(
            f"SELECT session_id FROM acphold.sessions WHERE session_id BETWEEN %s AND %s{of_folder}"
            " ORDER BY 1 LIMIT %s",
            (*list_places.span(prefix), *folders, bounds.AMBIGUOUS_IDS + 1),
        )
        return [match for (match,) in rows.fetchall()]

    try:
        return find(tables, list_places.only_one(prefix, find_ids), counted=True)
    except UnknownSessionError:
        rows = tables.execute(
            "SELECT DISTINCT sessions.session_id FROM acphold.links JOIN acphold.sessions ON"
            f" sessions.{tables.OWN_KEY} = links.{tables.KEY} WHERE downstream_id = %s{of_folder}",
            (prefix, *folders),
        ).fetchall()
        if len(rows) != 1:
            raise
        return find(tables, rows[0][0], counted=True)


def short_ids(tables: Tables, session_ids: Sequence[str], least: int) -> list[str]:
    """Like `Journal.short_ids`."""
    longer: dict[str, str] = {}
    here: set[str] = set()
    mains = {it: it.partition("~")[0] for it in session_ids if "~" in it}
    for some in batches([*session_ids, *mains.values()]):
        rows = tables.execute(
            "SELECT it, (SELECT max(session_id) FROM acphold.sessions WHERE session_id < it),"
            " (SELECT min(session_id) FROM acphold.sessions WHERE session_id > it"
            " AND session_id NOT BETWEEN it || '~' AND it || '~􏿿'),"
            " EXISTS (SELECT 1 FROM acphold.sessions WHERE session_id = it)"
            f" FROM ({tables.each('ids')}) AS wanted"
            # Most are the only ones that begin with their first letters: one walk instead of two.
            " WHERE EXISTS (SELECT 1 FROM acphold.sessions WHERE session_id <> it AND session_id"
            f" BETWEEN substr(it, 1, {least}) AND substr(it, 1, {least}) || '􏿿')",
            {"ids": tables.array(some)},
        )
        for session_id, *neighbours, is_here in rows.fetchall():
            longer[session_id] = list_places.shortest(session_id, neighbours, least)
            here |= {session_id} if is_here else set()
    for session_id, main in mains.items():
        if main in here:
            longer[session_id] = longer[main] + longer[session_id][len(main) :]
    return [longer.get(session_id, session_id[:least]) for session_id in session_ids]


def change(tables: Tables, session: Lease | str, change: RowChange) -> None:
    """Like `Journal.change`."""
    if isinstance(session, Lease):
        require_lease(tables, session)
        key = tables.key(session)
    else:
        key, _ = tables.find_settled(session)
    change_row(tables, key, change)


def mark(tables: Tables, session_id: str, marks: Marks) -> RowChange:
    """Like `Journal.mark`."""
    key, _ = tables.find_settled(session_id)
    its = f"WHERE sessions.{tables.OWN_KEY} = %s"
    tables.execute(f"SELECT 1 FROM acphold.sessions {its}{tables.LOCKING_ROW}", (key,)).fetchone()
    (row,) = select_rows(tables, its, (key,), counted=False)
    changed = marks.on(row)
    change_row(tables, key, changed)
    return changed


def repeated_titles(tables: Tables, among: Collection[Titled], least: int) -> frozenset[Titled]:
    """Like `Journal.repeated_titles`."""
    values = {
        "folders": tables.array({resolve_folder(cwd) for _, cwd, _ in among}),
        "titles": tables.array({title for *_, title in among}),
        "least": least,
    }
    rows = tables.execute(
        "SELECT tenant, cwd, title FROM acphold.sessions"
        f" WHERE {tables.among('folder', 'folders')} AND {tables.among('title', 'titles')}"
        f" AND {MAY_REPEAT} GROUP BY tenant, cwd, title HAVING count(*) >= %(least)s",
        values,
    )
    return frozenset(titled for titled in map(tuple, rows.fetchall()) if titled in among)


MAY_REPEAT: Final = (
    f"title IS NOT NULL AND message_count <= {bounds.SHORT_SESSION}"
    " AND NOT renamed AND tags = '[]' AND pins = '[]' AND origins = '[]'"
)
"""A condition for sessions whose titles count for `repeated_titles`."""


def change_row(tables: Tables, key: Key, change: RowChange) -> None:
    """Set the values in `change`."""
    tables.update(key, *assignments(change))


OF_A_SESSION: Final = (
    *("leases", "summaries", "usage", "usage_sums", "usage_folds", "replies", "snapshots"),
)
"""The tables with rows of sessions, beside those of entries, words, links and shares."""


def delete(tables: Tables, which: str, values: Mapping[str, Any], *, as_if_never: bool) -> None:
    """Delete all rows of sessions in the tables that both stores have, but not their entries and
    shares. Their links stay as tombstones unless `as_if_never`.

    `which` is a condition for their keys, with {} in the place of the column.
    """
    its, own = which.format(tables.KEY), which.format(tables.OWN_KEY)
    if as_if_never:
        tables.execute(f"DELETE FROM acphold.links WHERE {its}", values)
    else:
        tables.execute(f"UPDATE acphold.links SET {tables.KEY} = NULL WHERE {its}", values)
    for table in OF_A_SESSION:
        tables.execute(f"DELETE FROM acphold.{table} WHERE {its}", values)
    tables.execute(f"DELETE FROM acphold.sessions WHERE {own}", values)


def link(tables: Tables, lease: Lease | None, agent: str, downstream_id: str) -> None:
    """Like `Links.link`."""
    if lease is not None:
        require_lease(tables, lease)
    tables.link(agent, downstream_id, None if lease is None else tables.key(lease))


def sessions_of(tables: Tables, agent: str, ids: Collection[str]) -> dict[str, str | None]:
    """Like `Links.sessions_of`."""
    rows = tables.execute(
        f"SELECT {_OWN_LAST}, downstream_id, sessions.session_id FROM acphold.links LEFT JOIN"
        f" acphold.sessions ON sessions.{tables.OWN_KEY} = links.{tables.KEY}"
        f" WHERE {_among_links(tables)} ORDER BY 1",
        _link_values(tables, agent, ids),
    )
    return {downstream_id: session_id for _, downstream_id, session_id in rows.fetchall()}


_OWN_LAST: Final = (
    "CASE WHEN sessions.session_id IS NULL THEN 0 WHEN links.agent = %(agent)s THEN 2 ELSE 1 END"
)
"""Orders links: a session goes before a tombstone, and the agent's present name before others."""


def _among_links(tables: Tables) -> str:
    """The condition for `_link_values`: ids that the agent gave, under any of its names."""
    return f"{tables.among('links.agent', 'agents')} AND {tables.among('downstream_id', 'ids')}"


def _link_values(tables: Tables, agent: str, ids: Collection[str]) -> dict[str, object]:
    agents = tables.array(keys_like(agent))
    return {"agent": agent, "agents": agents, "ids": tables.array(ids)}


def links_of(tables: Tables, session_id: str | None) -> list[tuple[str, str]]:
    """Like `Links.of`."""
    its = f"(SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE session_id = %s)"
    which, values = ("IS NULL", []) if session_id is None else (f"= {its}", [session_id])
    return tables.execute(
        f"SELECT agent, downstream_id FROM acphold.links WHERE {tables.KEY} {which}"
        " ORDER BY number",
        values,
    ).fetchall()


def last_entries(tables: Tables, agent: str, ids: Collection[str]) -> dict[str, Entry | None]:
    """Like `Links.last_entries`."""
    rows = tables.execute(
        f"SELECT downstream_id, {tables.segment()} FROM acphold.links {tables.LAST_OF_LINK}"
        f" WHERE {_among_links(tables)} AND links.{tables.KEY} IS NOT NULL"
        " ORDER BY links.agent = %(agent)s",
        _link_values(tables, agent, ids),
    )
    return {
        downstream_id: None if row[0] is None else segment_of_row(*row).entries()[-1]
        for downstream_id, *row in rows.fetchall()
    }


def later_uses(tables: Tables, agent: str, times: Mapping[str, int]) -> dict[Key, int]:
    """The times of sessions whose ids the agent used later than the journal knows."""
    later: dict[Key, int] = {}
    rows = tables.execute(
        f"SELECT downstream_id, sessions.{tables.OWN_KEY}, updated_at FROM acphold.links"
        f" JOIN acphold.sessions ON sessions.{tables.OWN_KEY} = links.{tables.KEY}"
        f" WHERE {_among_links(tables)}",
        _link_values(tables, agent, times),
    )
    for downstream_id, key, known in rows.fetchall():
        if (at := times[downstream_id]) > known:
            later[key] = max(at, later.get(key, at))
    return later


def move_up(tables: Tables, times: Mapping[Key, int]) -> None:
    """Set the last activity of sessions, unless it is later already."""
    later = [
        "updated_at = CASE WHEN updated_at < %s THEN %s ELSE updated_at END",
        # Sums that hold go on doing so.
        "summed_at = CASE WHEN summed_at = updated_at AND updated_at < %s THEN %s"
        " ELSE summed_at END",
    ]
    for key, at in sorted(times.items(), key=str):  # in one order, so that no two can deadlock
        tables.update(key, later, (at, at, at, at))


def forgotten_texts(tables: Tables) -> frozenset[str]:
    """The marks of the texts that a person had removed."""
    rows = tables.execute(
        "SELECT downstream_id FROM acphold.links WHERE agent = %s", (FORGOTTEN_TEXT,)
    )
    return frozenset(mark for (mark,) in rows.fetchall())


def enlist(tables: Tables, found: Sequence[Listed]) -> None:
    """Like `Links.enlist`; sessions that were deleted are left out, too."""
    parts = ("prompted = %s", "updated_at = %s", "unread = %s")
    for some in batches(found, tables.SESSIONS_AT_ONCE):
        with tables.writing():
            for listed in some:
                agent, downstream_id = listed.new.agent, listed.downstream_id
                if sessions_of(tables, agent, [downstream_id]):
                    continue
                with suppress(SessionExistsError):
                    key = tables.create(listed.new)
                    tables.update(key, parts, (True, listed.updated_at, listed.source))
                    tables.link(agent, downstream_id, key)


_ENCODER: Final = msgspec.json.Encoder()

_ORDER: Final = "turn, is_end, root"


def keep_snapshots(tables: Tables, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.keep`."""
    key = tables.tell(session_id)
    drop_snapshots(tables, session_id, taken)
    tables.executemany(
        f"INSERT INTO acphold.snapshots ({tables.KEY}, {_ORDER}, facts)"
        " VALUES (%s, %s, %s, %s, %s)",
        [(key, one.turn, int(one.edge == "end"), one.root, _ENCODER.encode(one)) for one in taken],
    )


def snapshots_of(tables: Tables, session_id: str) -> list[TurnSnapshot]:
    """Like `Snapshots.of`."""
    rows = tables.execute(
        f"SELECT facts FROM acphold.snapshots WHERE {tables.KEY} ="
        f" (SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE session_id = %s)"
        f" ORDER BY {_ORDER}",
        (session_id,),
    )
    return [_snapshot(facts) for (facts,) in rows.fetchall()]


def _snapshot(facts: Any) -> TurnSnapshot:
    return msgspec.json.decode(bytes(facts), type=TurnSnapshot)


def newest_snapshots(tables: Tables, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
    """Like `Snapshots.newest`."""
    rows = tables.execute(
        "SELECT sessions.session_id, (SELECT facts FROM acphold.snapshots"
        f" WHERE snapshots.{tables.KEY} = sessions.{tables.OWN_KEY}"
        " ORDER BY turn DESC, is_end DESC, root DESC LIMIT 1)"
        " FROM (SELECT 1 FROM acphold.snapshots LIMIT 1) AS any_at_all CROSS JOIN acphold.sessions"
        f" WHERE {tables.among('session_id', 'ids')}",
        {"ids": tables.array(session_ids)},
    )
    return {its: _snapshot(facts) for its, facts in rows.fetchall() if facts is not None}


def all_snapshots(tables: Tables) -> list[tuple[str, TurnSnapshot]]:
    """Like `Snapshots.of_all`."""
    rows = tables.execute(
        "SELECT sessions.session_id, facts FROM acphold.snapshots JOIN acphold.sessions"
        f" ON snapshots.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" ORDER BY sessions.session_id, {_ORDER}"
    )
    return [(its, _snapshot(facts)) for its, facts in rows.fetchall()]


def drop_snapshots(tables: Tables, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.drop`."""
    tables.executemany(
        f"DELETE FROM acphold.snapshots WHERE {tables.KEY} ="
        f" (SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE session_id = %s)"
        " AND turn = %s AND is_end = %s AND root = %s",
        [(session_id, one.turn, int(one.edge == "end"), one.root) for one in taken],
    )
