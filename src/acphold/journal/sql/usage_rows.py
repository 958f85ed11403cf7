"""The rows of reports on tokens and cost, and the sums of their increases.

The rows keep the reports as they were. The increases that they tell are added up for each session
by quarter of an hour (UTC), agent, model and currency, when a turn is settled. `summed_at` in the
row of the session is the time of its last activity up to which that was done, or one of these:

    UNSUMMED    never, or another agent has it now: added up from the beginning, the next time
    COPIED      a reply in it has copies in other sessions, or a figure is beyond all measure
    OPEN        a report stands behind the end of the last turn: its model is not known yet

The reports of such sessions, and those of a turn that runs, are looked at when somebody asks. See
`journal.token_reports`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple

from acphold.conversation.history.entries import TURN_END, clamp_moment
from acphold.journal import bounds
from acphold.journal.seams import Tokens
from acphold.journal.sql.tables import Key, Tables
from acphold.journal.stored_history import END
from acphold.journal.token_reports import (
    COUNTS,
    SLOT_MS,
    Report,
    Reported,
    UsageReport,
    holders,
    increases,
    models_since,
)

COLUMNS: Final = f"seq, at, by_turn, cost, currency, {', '.join(COUNTS)}"
"""The columns that `report` reads."""

SESSION: Final = 2
"""The value of the column `by_turn` for a report with `so_far`; for others it is 1 or 0."""


def keep(tables: Tables, key: Key, found: Sequence[Report]) -> None:
    """Write the rows of new reports."""
    marks = ", ".join(["%s"] * (6 + len(COUNTS)))
    tables.executemany(
        f"INSERT INTO acphold.usage ({tables.KEY}, {COLUMNS}) VALUES ({marks})"
        " ON CONFLICT DO NOTHING",
        [
            (
                *(key, report.seq, report.at),
                SESSION if report.so_far else int(report.by_turn),
                # PostgreSQL keeps no NUL in a text.
                *(report.cost, report.currency.replace("\0", "")),
                *(getattr(report.tokens, name, None) for name in COUNTS),
            )
            for report in found
        ],
    )
    if replies := [(key, report.seq, report.reply) for report in found if report.reply]:
        tables.executemany(
            f"INSERT INTO acphold.replies ({tables.KEY}, seq, reply) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            replies,
        )
        _note_copies(tables, key, min(seq for _, seq, _ in replies))


def drop(tables: Tables, key: Key, spans: Sequence[tuple[int, int]]) -> None:
    """Delete the rows of reports in entries with these numbers, and add the others up again."""
    for table in ("usage", "replies"):
        tables.executemany(
            f"DELETE FROM acphold.{table} WHERE {tables.KEY} = %s AND seq BETWEEN %s AND %s",
            [(key, first, last) for first, last in spans],
        )
    tables.execute(f"DELETE FROM acphold.usage_folds WHERE {tables.KEY} = %s", (key,))
    _mark(tables, key, str(UNSUMMED))


def _note_copies(tables: Tables, key: Key, first_seq: int) -> None:
    """Mark the session as COPIED if another one has a reply of its entries from this one on, and
    such another.

    One for each reply is enough: where two have a reply, both are marked, or not added up yet.
    """
    found = tables.execute(
        f"SELECT DISTINCT (SELECT {tables.KEY} FROM acphold.replies"
        f" WHERE reply = own.reply AND {tables.KEY} <> %(key)s LIMIT 1) FROM (SELECT DISTINCT reply"
        f" FROM acphold.replies WHERE {tables.KEY} = %(key)s AND seq >= %(first)s) AS own",
        {"key": key, "first": first_seq},
    ).fetchall()
    others = [other for (other,) in found if other is not None]
    for its in sorted([key, *others], key=str) if others else ():
        marked = tables.execute(
            f"UPDATE acphold.sessions SET summed_at = {COPIED}"
            f" WHERE {tables.OWN_KEY} = %s AND summed_at <> {COPIED}",
            (its,),
        )
        if marked.rowcount:
            tables.execute(tables.TOLD, (its,))  # sums of many sessions no longer have this one


# -- sums -----------------------------------------------------------------------------------------

UNSUMMED: Final = -1
COPIED: Final = -2
OPEN: Final = -3
"""Values of `summed_at`: see the module."""


def _mark(tables: Tables, key: Key, value: str) -> None:
    # No list shows it: not by `update`, which would tell the followers of the list.
    tables.execute(
        f"UPDATE acphold.sessions SET summed_at = {value} WHERE {tables.OWN_KEY} = %s", (key,)
    )


def keep_time(tables: Tables, key: Key) -> None:
    """Note that sums, if they held, hold for the last activity, which has changed."""
    _mark(tables, key, "CASE WHEN summed_at < 0 THEN summed_at ELSE updated_at END")


class _Fold(Struct, array_like=True):
    """The reports up to the entry `through` are in the sums, if the session is still `whose`,
    its agent and origins."""

    whose: tuple[str, str]
    through: int = 0
    reported: Reported = field(default_factory=Reported)


def add_up(tables: Tables, key: Key, *, has_news: bool) -> None:
    """Add the reports that are settled by now to the sums of a session; `has_news` if some were
    just kept. Its row must be locked against others who do so."""
    summed_at, session_id, agent, origins = tables.execute(
        "SELECT summed_at, session_id, agent, origins FROM acphold.sessions"
        f" WHERE {tables.OWN_KEY} = %s",
        (key,),
    ).fetchone()
    if summed_at == COPIED:
        return
    if summed_at < 0 or has_news:
        row = tables.execute(
            f"SELECT fold FROM acphold.usage_folds WHERE {tables.KEY} = %s", (key,)
        ).fetchone()
        kept = None if row is None else msgspec.msgpack.decode(row[0], type=_Fold)
        if kept is None or kept.whose != (agent, origins):
            tables.execute(f"DELETE FROM acphold.usage_sums WHERE {tables.KEY} = %s", (key,))
            kept = _Fold((agent, origins))
            _note_copies(tables, key, 0)
        summed_at = _add_reports(tables, key, kept, holders(session_id, agent, origins))
    is_settled = f"settled_through >= {tables.last_seq()}"
    value = (
        str(summed_at) if summed_at < 0 else f"CASE WHEN {is_settled} THEN updated_at ELSE 0 END"
    )
    _mark(tables, key, f"CASE WHEN summed_at = {COPIED} THEN summed_at ELSE {value} END")


def _add_reports(tables: Tables, key: Key, kept: _Fold, held_by: list[tuple[float, str]]) -> int:
    """Add the reports behind a fold to the sums; return 0, or why they are not in them."""
    behind = f"WHERE {tables.KEY} = %s AND seq > %s", (key, kept.through)
    replies = tables.execute(f"SELECT seq, reply FROM acphold.replies {behind[0]}", behind[1])
    its = dict(replies.fetchall())
    rows = tables.execute(
        f"SELECT {COLUMNS} FROM acphold.usage {behind[0]} ORDER BY seq", behind[1]
    )
    found = [report(*row, reply=its.get(row[0], 0)) for row in rows.fetchall()]
    if not found:
        return 0
    if any(map(_is_beyond_measure, found)):
        return COPIED
    answered = models_since(
        found, tables.segments(key).backwards(END, [TURN_END]), min(one.at for one in found)
    )
    last_end = answered[-1][0] if answered else 0
    over = [one for one in found if one.seq <= last_end]
    sums: dict[tuple[int, str, str, str], list[UsageReport]] = {}
    # All first: with its agent's costs, if these are in one currency, one row tells both.
    for one in [*increases(over, held_by, answered, kept.reported)]:
        paid = [currency for agent, currency in kept.reported.costs if agent == one.agent]
        currency = one.currency if one.cost is not None else paid[0] if len(paid) == 1 else ""
        sums.setdefault(
            (clamp_moment(one.at) // SLOT_MS, one.agent, one.model, currency), []
        ).append(one)
    if len(kept.reported.costs) > bounds.FEW_CURRENCIES:
        return COPIED
    columns = (tables.KEY, "slot", "agent", "model", "currency", *_SUMMED)
    tables.executemany(
        f"INSERT INTO acphold.usage_sums AS kept ({', '.join(columns)})"
        f" VALUES ({', '.join(['%s'] * len(columns))})"
        f" ON CONFLICT ({', '.join(columns[:5])}) DO UPDATE SET "
        + ", ".join(
            f"{it} = coalesce(kept.{it} + excluded.{it}, kept.{it}, excluded.{it})"
            for it in _SUMMED
        ),
        [(key, *its, *_sums(some)) for its, some in sums.items()],
    )
    if over:
        kept.through = over[-1].seq
        tables.execute(
            f"INSERT INTO acphold.usage_folds ({tables.KEY}, fold) VALUES (%s, %s)"
            f" ON CONFLICT ({tables.KEY}) DO UPDATE SET fold = excluded.fold",
            (key, msgspec.msgpack.encode(kept)),
        )
    return OPEN if len(over) < len(found) else 0


_SUMMED: Final = ("told", "by_request", "cost", *COUNTS)


def _sums(some: Sequence[UsageReport]) -> list[float | None]:
    """The values of _SUMMED for increases."""
    told = [one.tokens for one in some if one.tokens is not None]
    costs = [one.cost for one in some if one.cost is not None]
    columns = zip(*map(astuple, told), strict=True) if told else [()] * len(COUNTS)
    known = ([count for count in column if count is not None] for column in columns)
    counts = [sum(counted) if counted else None for counted in known]
    by_request = sum(not one.by_turn for one in some)
    return [len(told), by_request, sum(costs) if costs else None, *counts]


def _is_beyond_measure(one: Report) -> bool:
    """True if sums of such figures may be no numbers any more."""
    counts = () if one.tokens is None else filter(None, astuple(one.tokens))
    return any(abs(it) > bounds.MEASURED for it in (*counts, one.cost or 0))


def add_up_next(tables: Tables) -> bool:
    """Add up one of the sessions that an earlier release has left; False if there is none left.

    They are gone through by their ids, backwards; `meta` has how far.
    """
    found = tables.execute("SELECT value FROM acphold.meta WHERE name = 'added_up'").fetchone()
    if found is not None and not found[0]:
        return False
    with tables.writing():
        before = "" if found is None else " AND session_id < %s"
        row = tables.execute(
            f"SELECT session_id, {tables.OWN_KEY} FROM acphold.sessions"
            f" WHERE summed_at = {UNSUMMED}{before}"
            f" ORDER BY session_id DESC LIMIT 1{tables.LOCKING_ROW}",
            () if found is None else (bytes(found[0]).decode(),),
        ).fetchone()
        if row is not None:
            add_up(tables, row[1], has_news=False)
        tables.execute(
            "INSERT INTO acphold.meta AS kept (name, value) VALUES ('added_up', %s)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (b"" if row is None else row[0].encode(),),
        )
    return row is not None


def report(
    seq: int,
    at: int,
    by_turn: int,
    cost: float | None,
    currency: str,
    *counts: int | None,
    reply: int,
) -> Report:
    """The report in the COLUMNS of a row."""
    tokens = Tokens(*counts) if counts.count(None) < len(counts) else None
    return Report(seq, at, tokens, by_turn == 1, cost, currency, by_turn == SESSION, reply)
