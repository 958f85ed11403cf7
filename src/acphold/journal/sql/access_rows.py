"""The tables of tokens, shares, deeds and rules; see `journal.access`.

Tokens and shares are good in the journal where a person made or accepted them.
A copy of a journal, a restored one, and a database that lost entries have another identity
(`journal.lineage`), and nobody there has seen what the journal grants: maybe it was revoked since.
So `meta` has the identity under which access was last confirmed. Under another one all tokens and
shares of before are held, and open nothing, until a person accepts them. They are kept by the
identity under which they were good. If that returns, as after a failover that turns out to have
lost nothing, they are good again.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acphold.errors import UnknownSessionError
from acphold.journal import bounds
from acphold.journal.access import BROWSER, KINDS, AccessToken, Deed, Share
from acphold.journal.sql.tables import Tables

if TYPE_CHECKING:  # imported late: most processes never see a rule
    from acphold.safety.standing.decision import RuleChange, StandingRule

_TOKEN = tuple(name for name in AccessToken.__struct_fields__ if name != "is_held")
_DEED = Deed.__struct_fields__


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO acphold.{table} AS kept ({', '.join(columns)}) VALUES ({marks})"


def note(tables: Tables, kind: str, subjects: Iterable[str] = ("",)) -> None:
    """Write rows of the log of changes, one for each of these."""
    tables.executemany(tables.NOTED, sorted((kind, subject) for subject in subjects))


def tokens(tables: Tables, ids: Sequence[str] | None = None) -> list[AccessToken]:
    """Like `Access.tokens`."""
    which = "" if ids is None else f" WHERE {tables.among('id', 'ids')}"
    rows = tables.execute(
        f"SELECT {', '.join(_TOKEN)} FROM acphold.access_tokens{which} ORDER BY created_at, id",
        {} if ids is None else {"ids": tables.array(ids)},
    )
    held = access_here(tables)[0].held_tokens()
    found = []
    for row in rows.fetchall():
        values = dict(zip(_TOKEN, row, strict=True))
        values["scopes"] = tuple(scope for scope in KINDS if scope in values["scopes"].split())
        found.append(AccessToken(**values, is_held=values["id"] in held))
    return found


def keep_token(tables: Tables, token: AccessToken) -> None:
    """Add a token, or note its use or its end; a token revoked meanwhile stays revoked."""
    if token.used_at is None and token.revoked_at is None:
        hold(tables)
    values = {name: getattr(token, name) for name in _TOKEN} | {"scopes": " ".join(token.scopes)}
    tables.execute(
        f"{_insert('access_tokens', _TOKEN)} ON CONFLICT (id) DO UPDATE SET"
        " used_at = coalesce(excluded.used_at, kept.used_at),"
        " revoked_at = coalesce(kept.revoked_at, excluded.revoked_at)",
        [*values.values()],
    )
    note(tables, "token", [token.id])


def forget_ended(tables: Tables) -> None:
    """Like `Access.forget_ended`."""
    before = (now := tables.now()) - bounds.ENDED_TOKEN_MS
    ended = tables.execute(
        "DELETE FROM acphold.access_tokens WHERE revoked_at < %s OR expires_at < %s"
        f" OR (scopes LIKE '%%{BROWSER}%%' AND coalesce(used_at, created_at) < %s)"
        " RETURNING id, name",
        (before, before, before - bounds.BROWSER_MS),
    ).fetchall()
    if ended:
        note(tables, "token", [id_ for id_, _ in ended])
        deeds = [Deed(at=now, deed="forget token", name=name, token=id_) for id_, name in ended]
        keep_deeds(tables, deeds)
    # The last one stays, so that numbers in a file go on behind it.
    tables.execute(
        "DELETE FROM acphold.access_changes WHERE at < %s AND kind <> 'hour'"
        " AND changed < (SELECT max(changed) FROM acphold.access_changes)",
        (now - bounds.KEPT_CHANGES_SECONDS * 1000,),
    )


def shares(tables: Tables) -> list[Share]:
    """All shares, ordered by session and tenant."""
    now, kept = access_here(tables)
    good = _good_shares(tables)
    if kept is None or kept.mark != now.mark:
        good = kept.held[now.mark].shares if kept and now.mark in kept.held else []
    held = [replace(it, is_held=True) for it in now.held_shares()]
    return sorted([*good, *held], key=lambda it: (it.session_id, it.tenant))


def keep_share(tables: Tables, share: Share) -> None:
    """Like `Access.keep_share`."""
    now = hold(tables)
    _add_share(tables, share)
    if now.without(share.session_id, share.tenant):
        _keep(tables, now)


def end_share(tables: Tables, session_id: str, tenant: str) -> bool:
    """Like `Access.end_share`."""
    now = hold(tables)
    if was_held := now.without(session_id, tenant):
        _keep(tables, now)
    return _delete_share(tables, session_id, tenant) or was_held


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
    # The last ones by their numbers stay whatever the clock says: it may be wrong.
    newest = max(it.at for it in deeds)
    tables.execute(
        "DELETE FROM acphold.deeds WHERE at < %s AND id + 0 <= (SELECT id FROM acphold.deeds"
        " ORDER BY id DESC LIMIT 1 OFFSET %s)",
        (newest - bounds.KEPT_DEEDS_MS, bounds.KEPT_DEEDS),
    )


def rules(tables: Tables, person: str | None) -> list[StandingRule]:
    """Like `Access.rules`."""
    whose = "" if person is None else " AND person = %s"
    rows = tables.execute(
        f"SELECT rule FROM acphold.rules WHERE number > 0{whose} ORDER BY person, number",
        () if person is None else (person,),
    ).fetchall()
    if not rows:
        return []
    from acphold.safety.standing.decision import StandingRule

    return [msgspec.json.decode(raw, type=StandingRule) for (raw,) in rows]


def add_rule(tables: Tables, rule: StandingRule) -> StandingRule:
    """Like `Access.add_rule`."""
    _lock_rules(tables, rule.person)
    number, raw = tables.execute(
        "SELECT number, rule FROM acphold.rules WHERE person = %s ORDER BY number DESC LIMIT 1",
        (rule.person,),
    ).fetchone()
    numbered = replace(rule, number=number)
    if raw == msgspec.json.encode(numbered):  # added before: the answer to that was lost
        return numbered
    numbered = replace(rule, number=number + 1)
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


# -- the journal in which they are good --------------------------------------------------


class _Grants(Struct):
    """The ids of `tokens`, and shares."""

    tokens: list[str] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)


class Confirmed(Struct):
    """Access as it is good under the identity `mark`: in the tables, but for what is `held`, by the
    identity under which it was good."""

    mark: str
    held: dict[str, _Grants] = field(default_factory=dict)

    def held_tokens(self) -> set[str]:
        """Return the ids of the tokens that are held."""
        return {id_ for grants in self.held.values() for id_ in grants.tokens}

    def held_shares(self) -> list[Share]:
        """Return the shares that are held."""
        return [share for grants in self.held.values() for share in grants.shares]

    def without(self, session_id: str, tenant: str) -> bool:
        """Forget held shares of a session with a tenant; False if there were none."""
        before = len(self.held_shares())
        for grants in self.held.values():
            grants.shares = [
                it for it in grants.shares if (it.session_id, it.tenant) != (session_id, tenant)
            ]
        return len(self.held_shares()) < before


def access_here(tables: Tables, locking: str = "") -> tuple[Confirmed, Confirmed | None]:
    """Return access as it is here, and as the journal keeps it; None if it keeps nothing.

    A journal of an earlier release keeps nothing: its access is good if an owner of a session has
    found the journal to be at this place. `locking` is appended to the query.
    """
    row = tables.execute(
        f"SELECT value FROM acphold.meta WHERE name = 'access'{locking}"
    ).fetchone()
    identity = tables.identity()
    if row is None:
        kept, before = None, Confirmed(identity.mark if identity.is_kept else "")
    else:
        kept = before = msgspec.json.decode(row[0], type=Confirmed)
    if before.mark == identity.mark:
        return before, kept
    rows = tables.execute("SELECT id FROM acphold.access_tokens WHERE revoked_at IS NULL")
    elsewhere = before.held_tokens()
    good = _Grants(
        [id_ for (id_,) in rows.fetchall() if id_ not in elsewhere], _good_shares(tables)
    )
    held = dict(before.held)
    if good.tokens or good.shares:
        held[before.mark] = good
    held.pop(identity.mark, None)
    return Confirmed(identity.mark, held), kept


def _good_shares(tables: Tables) -> list[Share]:
    """Return the shares in the table, ordered by session and tenant."""
    rows = tables.execute(
        "SELECT session_id, tenant, prompts FROM acphold.shares ORDER BY session_id, tenant"
    )
    return [Share(id_, tenant, bool(prompts)) for id_, tenant, prompts in rows.fetchall()]


def held(tables: Tables) -> tuple[int, int]:
    """Like `Access.held`."""
    here, now = access_here(tables)[0], tables.now()
    found = tokens(tables, [*ids]) if (ids := here.held_tokens()) else []
    return sum(not token.is_over(now) for token in found), len(here.held_shares())


def is_current(tables: Tables) -> bool | None:
    """Like `Access.is_current`."""
    now, kept = access_here(tables)
    if kept is not None and kept.mark == now.mark:
        return True
    return None if tables.identity().has_failed_over else False


def hold(tables: Tables) -> Confirmed:
    """Hold what was not confirmed here; return the access as it is now."""
    now, kept = access_here(tables, tables.LOCKING_ROW)
    if kept is not None and kept.mark == now.mark:
        return now
    if now.held:
        shared = "session_id IN (SELECT session_id FROM acphold.shares)"
        rows = tables.execute(
            f"SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE {shared} ORDER BY 1"
        )
        tables.executemany(tables.TOLD, rows.fetchall())
        tables.execute("DELETE FROM acphold.shares")
    if kept is not None and now.mark in kept.held:
        _add_shares(tables, kept.held[now.mark].shares)
    _keep(tables, now)
    return now


def accept(tables: Tables) -> None:
    """Make all good that is held."""
    now = hold(tables)
    _add_shares(tables, now.held_shares())
    _keep(tables, Confirmed(now.mark))


def _keep(tables: Tables, now: Confirmed) -> None:
    """Keep access as it is now."""
    tables.execute(
        "INSERT INTO acphold.meta AS kept (name, value) VALUES ('access', %s)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (msgspec.json.encode(now),),
    )
    note(tables, "all")


def _add_shares(tables: Tables, held: list[Share]) -> None:
    """Add the shares of sessions that still exist, unless there are newer ones."""
    newer = {(it.session_id, it.tenant) for it in _good_shares(tables)}
    for share in held:
        if (share.session_id, share.tenant) not in newer:
            with suppress(UnknownSessionError):
                _add_share(tables, share)


def _add_share(tables: Tables, share: Share) -> None:
    """Add a share, replacing an earlier one; raises UnknownSessionError."""
    tables.tell(share.session_id)
    tables.execute(
        f"{_insert('shares', ('session_id', 'tenant', 'prompts'))}"
        " ON CONFLICT (session_id, tenant) DO UPDATE SET prompts = excluded.prompts",
        (share.session_id, share.tenant, share.prompts),
    )
    if not share.prompts:  # there may have been one with prompts
        note(tables, "tenant", [share.tenant])


def _delete_share(tables: Tables, session_id: str, tenant: str) -> bool:
    """Delete a share; False if there was none."""
    ended = tables.execute(
        "DELETE FROM acphold.shares WHERE session_id = %s AND tenant = %s", (session_id, tenant)
    )
    if ended.rowcount:
        note(tables, "tenant", [tenant])
        with suppress(UnknownSessionError):
            tables.tell(session_id)
    return bool(ended.rowcount)
