"""The words that lists are searched for, in an index: of title, folder and tags of each session.
Beside them the titles that may be repeated.

A word is found within longer ones, too. So the index has the text from each of its letters on, a
few letters each, and is asked for the pieces of the word.

Whoever changes a session does not write to it. The upkeep of one process at a time does; `meta` has
the position in the log of changes that it has come to. Sessions that have changed since are few,
and looked at themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from acphold.errors import RewrittenError
from acphold.journal import bounds
from acphold.journal.journal import Titled
from acphold.journal.postgresql import changes
from acphold.journal.rows import ListFilter
from acphold.journal.sql import session_tables
from acphold.journal.sql.list_filters import TEXT, ways_of
from acphold.journal.sql.session_tables import MAY_REPEAT
from acphold.journal.sql.tables import Tables

_PIECE: Final = 6
"""Letters in a piece of text. Fewer make longer lists of sessions, more a larger index."""

_MOST: Final = 4_000
"""Letters of a text, at most: the server does not notice that pieces of more than 1 MiB do not fit
into a value, and mixes them up. Whoever has more is looked at, whatever the words."""

_MORE: Final = "has more"
"""Stands for them: no piece is as long."""

_ASKED: Final = 50
"""Pieces of a word that are asked for; a query has not room for those of any word."""


class _Progress(Struct, array_like=True):
    """All sessions are described as they were at a position, or up to the id `through` if the
    first look at them is not over."""

    position: str
    through: str | None = ""


def _progress(tables: Tables) -> _Progress | None:
    row = tables.execute("SELECT value FROM acphold.meta WHERE name = 'described'").fetchone()
    return None if row is None else msgspec.msgpack.decode(row[0], type=_Progress)


# -- keeping it -------------------------------------------------------------------------------


def describe_next(tables: Tables) -> bool:
    """Describe some sessions as they are now; False if no more are left. Runs in a transaction that
    has the table for itself."""
    progress = _progress(tables)
    ids: Sequence[str] = ()
    is_more = True
    try:
        after = None if progress is None else progress.position
        news = changes.changes(tables, after, bounds.DESCRIBED_AT_ONCE, forgetting=False)
    except RewrittenError:
        progress, news = None, changes.changes(tables, None)
    if progress is None:
        progress = _Progress(news.last)
    if progress.through is None:
        ids, is_more, progress.position = news.session_ids, news.more, news.last
    else:
        rows = tables.execute(
            "SELECT session_id FROM acphold.sessions WHERE session_id > %s"
            " ORDER BY session_id LIMIT %s",
            (progress.through, bounds.DESCRIBED_AT_ONCE),
        )
        ids = [session_id for (session_id,) in rows.fetchall()]
        progress.through = ids[-1] if ids else None
    _describe(tables, ids)
    tables.execute(
        "INSERT INTO acphold.meta (name, value) VALUES ('described', %s)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (msgspec.msgpack.encode(progress),),
    )
    return is_more


def _describe(tables: Tables, ids: Sequence[str]) -> None:
    rows = tables.execute(
        f"SELECT session_id, {TEXT}, CASE WHEN {MAY_REPEAT} THEN {_TITLED} END"
        " FROM acphold.sessions WHERE session_id = ANY(%s) ORDER BY session_id",
        ([*ids],),
    ).fetchall()
    tables.executemany(
        "INSERT INTO acphold.described AS kept (session_id, words, titled)"
        " VALUES (%s, array_to_tsvector(%s::text[]), %s) ON CONFLICT (session_id)"
        " DO UPDATE SET words = excluded.words, titled = excluded.titled"
        " WHERE kept.words <> excluded.words OR kept.titled IS DISTINCT FROM excluded.titled",
        [(session_id, _pieces(text.casefold()), titled) for session_id, text, titled in rows],
    )
    if gone := {*ids}.difference(session_id for session_id, *_ in rows):
        tables.execute("DELETE FROM acphold.described WHERE session_id = ANY(%s)", ([*gone],))


def _pieces(text: str) -> list[str]:
    """The pieces of the text from each of its letters on."""
    if len(text) > _MOST:
        return [_MORE]
    return [*{text[at : at + _PIECE] for at in range(len(text))}]


_TITLED: Final = "hashtextextended(concat_ws(chr(1), tenant, cwd, title), 0)"
"""The hash of a title: the same in all versions of PostgreSQL, which divide tables by it."""


# -- asking it --------------------------------------------------------------------------------


def candidates(tables: Tables, filter: ListFilter) -> tuple[str, list[Any]] | None:
    """A further condition with its values, which all sessions meet that have the words of a filter,
    and few others; None if there is nothing better than to look at all."""
    words = [word for word, agents, _ in filter.words if word and not agents]
    if not words or (changed := _changed(tables)) is None:
        return None
    named = {session_id for _, _, ids in filter.words for session_id in ids}
    return (
        " AND session_id = ANY(ARRAY(SELECT session_id FROM acphold.described"
        " WHERE words @@ %s::tsquery) || %s::text[])",
        [f"({' & '.join(map(_query, words))}) | '{_MORE}'", [*named.union(changed)]],
    )


def _query(word: str) -> str:
    """The query for texts with the pieces of a word, in any of its ways."""
    return f"({' | '.join(map(_pieces_query, ways_of(word)))})"


def _pieces_query(word: str) -> str:
    """The query for texts with the pieces of a word; the last ones overlap."""
    quoted = [
        "'{}'".format(word[at : at + _PIECE].replace("\\", "\\\\").replace("'", "''"))
        for at in sorted({*range(0, len(word) - _PIECE, _PIECE), max(0, len(word) - _PIECE)})[
            :_ASKED
        ]
    ]
    return f"({' & '.join(quoted)}{':*' * (len(word) < _PIECE)})"


def _changed(tables: Tables) -> Sequence[str] | None:
    """The sessions that have changed since they were described, and some that are deleted; None if
    not all are described."""
    progress = _progress(tables)
    if progress is not None and progress.through is None:
        with suppress(RewrittenError):
            news = changes.changes(tables, progress.position, 1 << 31, forgetting=False)
            return news.session_ids
    return None


def repeated_titles(tables: Tables, among: Collection[Titled], least: int) -> frozenset[Titled]:
    """Like `Journal.repeated_titles`."""
    if (changed := _changed(tables)) is None:
        return session_tables.repeated_titles(tables, among, least)
    asked = [*among]
    values = {
        **{"changed": [*changed], "least": least},
        **{name: [it[place] for it in asked] for place, name in enumerate(_NAMES)},
    }
    rows = tables.execute(_AS_DESCRIBED, values).fetchall()
    counts = Counter({(tenant, cwd, title): number for tenant, cwd, title, number in rows})
    new = tables.execute(
        f"SELECT tenant, cwd, title FROM acphold.sessions WHERE {MAY_REPEAT}"
        " AND session_id = ANY(%(changed)s)",
        values,
    )
    counts.update((tenant, cwd, title) for tenant, cwd, title in new.fetchall())
    return frozenset(titled for titled in asked if counts[titled] >= least)


_NAMES: Final = ("tenants", "folders", "titles")

_AS_DESCRIBED: Final = f"""
    SELECT tenant, cwd, title, (SELECT count(*) FROM (
        SELECT 1 FROM acphold.described
        WHERE titled = {_TITLED} AND session_id <> ALL(%(changed)s::text[]) LIMIT %(least)s
    ) AS found)
    FROM unnest({", ".join(f"%({name})s::text[]" for name in _NAMES)})
    AS wanted (tenant, cwd, title)
"""
"""Counts the sessions with each title that have not changed since, up to as many as matter."""
