"""The table of links: the ids by which agents know our sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from acphold.errors import SessionExistsError
from acphold.history.entries import Entry
from acphold.journal.journal import Lease, Listed
from acphold.journal.sql import lease_rows
from acphold.journal.sql.tables import Key, Tables, batches


def _marks(ids: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(ids))


def link(tables: Tables, lease: Lease | None, agent: str, downstream_id: str) -> None:
    """Like `Links.link`."""
    if lease is not None:
        lease_rows.require(tables, lease)
    tables.link(agent, downstream_id, None if lease is None else tables.key(lease))


def linked(tables: Tables, agent: str, ids: Collection[str]) -> dict[str, str | None]:
    """Like `Links.linked`."""
    found: dict[str, str | None] = {}
    for some in batches(ids):
        rows = tables.execute(
            "SELECT downstream_id, sessions.session_id FROM acphold.links LEFT JOIN"
            f" acphold.sessions ON sessions.{tables.OWN_KEY} = links.{tables.KEY}"
            f" WHERE links.agent = %s AND downstream_id IN ({_marks(some)})",
            (agent, *some),
        )
        found.update(rows.fetchall())
    return found


def of(tables: Tables, session_id: str | None) -> list[tuple[str, str]]:
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
    found: dict[str, Entry | None] = {}
    for some in batches(ids):
        rows = tables.execute(
            f"SELECT downstream_id, {tables.SEGMENT} FROM acphold.links {tables.LAST_OF_LINK}"
            f" WHERE links.agent = %s AND downstream_id IN ({_marks(some)})"
            f" AND links.{tables.KEY} IS NOT NULL",
            (agent, *some),
        )
        for downstream_id, *row in rows.fetchall():
            is_empty = row[0] is None
            found[downstream_id] = None if is_empty else tables.segment(row).entries()[-1]
    return found


def used_later(tables: Tables, agent: str, times: Mapping[str, int]) -> dict[Key, int]:
    """The times of sessions whose ids the agent used later than the journal knows."""
    later: dict[Key, int] = {}
    for some in batches(times):
        rows = tables.execute(
            f"SELECT downstream_id, sessions.{tables.OWN_KEY}, updated_at FROM acphold.links"
            f" JOIN acphold.sessions ON sessions.{tables.OWN_KEY} = links.{tables.KEY}"
            f" WHERE links.agent = %s AND downstream_id IN ({_marks(some)})",
            (agent, *some),
        )
        for downstream_id, key, known in rows.fetchall():
            if (at := times[downstream_id]) > known:
                later[key] = max(at, later.get(key, at))
    return later


def move_up(tables: Tables, times: Mapping[Key, int]) -> None:
    """Set the last activity of sessions, unless it is later already."""
    later = ["updated_at = CASE WHEN updated_at < %s THEN %s ELSE updated_at END"]
    for key, at in sorted(times.items(), key=str):  # in one order, so that no two can deadlock
        tables.update(key, later, (at, at))


def enlist(tables: Tables, listed: Listed) -> None:
    """Add a session that an import has listed, unread, unless it is known or was deleted."""
    agent, downstream_id = listed.new.agent, listed.downstream_id
    if linked(tables, agent, [downstream_id]):
        return
    try:
        key = tables.create(listed.new)
    except SessionExistsError:
        return
    parts = ("prompted = %s", "updated_at = %s", "unread = %s")
    tables.update(key, parts, (True, listed.updated_at, listed.source))
    tables.link(agent, downstream_id, key)
