"""The tables of tokens, shares, deeds and rules; see `journal.access`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from acphold.record.journal import bounds
from acphold.record.journal.access import KINDS, AccessToken, Deed, Share
from acphold.record.journal.sql import access_places
from acphold.record.journal.sql.tables import Tables

if TYPE_CHECKING:  # imported late: most processes never see a rule
    from acphold.record.standing import RuleChange, StandingRule

_TOKEN = tuple(name for name in AccessToken.__struct_fields__ if name != "is_held")
_DEED = Deed.__struct_fields__


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO acphold.{table} AS kept ({', '.join(columns)}) VALUES ({marks})"


def tokens(tables: Tables) -> list[AccessToken]:
    """All tokens, oldest first."""
    rows = tables.execute(
        f"SELECT {', '.join(_TOKEN)} FROM acphold.access_tokens ORDER BY created_at, id"
    )
    held = access_places.access_here(tables)[0].held_tokens()
    found = []
    for row in rows.fetchall():
        values = dict(zip(_TOKEN, row, strict=True))
        values["scopes"] = tuple(scope for scope in KINDS if scope in values["scopes"].split())
        found.append(AccessToken(**values, is_held=values["id"] in held))
    return found


def keep_token(tables: Tables, token: AccessToken) -> None:
    """Add a token, or note its use or its end; a token revoked meanwhile stays revoked."""
    if token.used_at is None and token.revoked_at is None:
        access_places.hold(tables)
    values = {name: getattr(token, name) for name in _TOKEN} | {"scopes": " ".join(token.scopes)}
    tables.execute(
        f"{_insert('access_tokens', _TOKEN)} ON CONFLICT (id) DO UPDATE SET"
        " used_at = coalesce(excluded.used_at, kept.used_at),"
        " revoked_at = coalesce(kept.revoked_at, excluded.revoked_at)",
        [*values.values()],
    )


def shares(tables: Tables) -> list[Share]:
    """All shares, ordered by session and tenant."""
    now, kept = access_places.access_here(tables)
    good = access_places.shares(tables)
    if kept is None or kept.mark != now.mark:
        good = kept.held[now.mark].shares if kept and now.mark in kept.held else []
    held = [replace(it, is_held=True) for it in now.held_shares()]
    return sorted([*good, *held], key=lambda it: (it.session_id, it.tenant))


def keep_share(tables: Tables, share: Share) -> None:
    """Like `Access.keep_share`."""
    now = access_places.hold(tables)
    access_places.add_share(tables, share)
    if now.without(share.session_id, share.tenant):
        access_places.keep(tables, now)


def end_share(tables: Tables, session_id: str, tenant: str) -> bool:
    """Like `Access.end_share`."""
    now = access_places.hold(tables)
    if was_held := now.without(session_id, tenant):
        access_places.keep(tables, now)
    return access_places.delete_share(tables, session_id, tenant) or was_held


def deeds(tables: Tables, since: int, limit: int) -> list[Deed]:
    """The last `limit` deeds since `since`, oldest first."""
    rows = tables.execute(
        f"SELECT {', '.join(_DEED)} FROM acphold.deeds WHERE at >= %s"
        " ORDER BY at DESC, id DESC LIMIT %s",
        (since, limit),
    ).fetchall()
    return [Deed(**dict(zip(_DEED, row, strict=True))) for row in reversed(rows)]


def keep_deeds(tables: Tables, deeds: Sequence[Deed]) -> None:
    """Add deeds, and forget those beyond the limits."""
    rows = [[getattr(it, name) for name in _DEED] for it in deeds]
    tables.executemany(_insert("deeds", _DEED), rows)
    for token in {it.token for it in deeds}:
        tables.execute(
            "DELETE FROM acphold.deeds WHERE token = %s AND id <= (SELECT id FROM acphold.deeds"
            " WHERE token = %s ORDER BY id DESC LIMIT 1 OFFSET %s)",
            (token, token, bounds.KEPT_DEEDS),
        )
    newest = max(it.at for it in deeds)
    tables.execute("DELETE FROM acphold.deeds WHERE at < %s", (newest - bounds.KEPT_DEEDS_MS,))


def rules(tables: Tables, person: str | None) -> list[StandingRule]:
    """Like `Access.rules`."""
    whose = "" if person is None else " AND person = %s"
    rows = tables.execute(
        f"SELECT rule FROM acphold.rules WHERE number > 0{whose} ORDER BY person, number",
        () if person is None else (person,),
    ).fetchall()
    if not rows:
        return []
    from acphold.record.standing import StandingRule

    return [msgspec.json.decode(raw, type=StandingRule) for (raw,) in rows]


def add_rule(tables: Tables, rule: StandingRule) -> StandingRule:
    """Like `Access.add_rule`."""
    _lock_rules(tables, rule.person)
    row = tables.execute(
        "SELECT max(number) + 1 FROM acphold.rules WHERE person = %s", (rule.person,)
    ).fetchone()
    numbered = replace(rule, number=row[0])
    tables.execute(
        _insert("rules", ("person", "number", "rule")),
        (rule.person, numbered.number, msgspec.json.encode(numbered)),
    )
    return numbered


def _lock_rules(tables: Tables, person: str) -> None:
    """Make other changes to the rules of a person wait, by locking a separate row, number 0."""
    tables.execute(
        _insert("rules", ("person", "number", "rule"))
        + " ON CONFLICT (person, number) DO UPDATE SET rule = excluded.rule",
        (person, 0, b""),
    )


def change_rules(
    tables: Tables, person: str, numbers: Collection[int] | None, change: RuleChange
) -> list[StandingRule]:
    """Like `Access.change_rules`."""
    _lock_rules(tables, person)
    changed = [
        change.apply_to(rule)
        for rule in rules(tables, person)
        if numbers is None or rule.number in numbers
    ]
    for rule in changed:
        tables.execute(
            "UPDATE acphold.rules SET rule = %s WHERE person = %s AND number = %s",
            (msgspec.json.encode(rule), person, rule.number),
        )
    return changed
