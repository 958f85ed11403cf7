"""The journal in which tokens and shares are good: the one where a person made or accepted them.

A copy of a journal, a restored one, and a database that lost entries have another identity
(`journal.lineage`), and nobody there has seen what the journal grants: maybe it was revoked since.
So `meta` has the identity under which access was last confirmed. Under another one all tokens and
shares of before are held, and open nothing, until a person accepts them. They are kept by the
identity under which they were good. If that returns, as after a failover that turns out to have
lost nothing, they are good again.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct, field

from acphold.errors import UnknownSessionError
from acphold.record.journal.access import Share
from acphold.record.journal.sql.tables import Tables


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
    good = _Grants([id_ for (id_,) in rows.fetchall() if id_ not in elsewhere], shares(tables))
    held = dict(before.held)
    if good.tokens or good.shares:
        held[before.mark] = good
    held.pop(identity.mark, None)
    return Confirmed(identity.mark, held), kept


def shares(tables: Tables) -> list[Share]:
    """Return the shares in the table, ordered by session and tenant."""
    rows = tables.execute(
        "SELECT session_id, tenant, prompts FROM acphold.shares ORDER BY session_id, tenant"
    )
    return [Share(id_, tenant, bool(prompts)) for id_, tenant, prompts in rows.fetchall()]


def is_current(tables: Tables) -> bool:
    """True if the tables have no access that has to be held."""
    now, kept = access_here(tables)
    return kept is not None and kept.mark == now.mark


def hold(tables: Tables) -> Confirmed:
    """Hold what was not confirmed here; return the access as it is now."""
    now, kept = access_here(tables, tables.LOCKING_ROW)
    if kept is not None and kept.mark == now.mark:
        return now
    if now.held:
        for share in shares(tables):
            delete_share(tables, share.session_id, share.tenant)
    if kept is not None and now.mark in kept.held:
        _add_shares(tables, kept.held[now.mark].shares)
    keep(tables, now)
    return now


def accept(tables: Tables) -> None:
    """Make all good that is held."""
    now = hold(tables)
    _add_shares(tables, now.held_shares())
    keep(tables, Confirmed(now.mark))


def keep(tables: Tables, now: Confirmed) -> None:
    """Keep access as it is now."""
    tables.execute(
        "INSERT INTO acphold.meta AS kept (name, value) VALUES ('access', %s)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (msgspec.json.encode(now),),
    )


def _add_shares(tables: Tables, held: list[Share]) -> None:
    """Add the shares of sessions that still exist, unless there are newer ones."""
    newer = {(it.session_id, it.tenant) for it in shares(tables)}
    for share in held:
        if (share.session_id, share.tenant) not in newer:
            with suppress(UnknownSessionError):
                add_share(tables, share)


def add_share(tables: Tables, share: Share) -> None:
    """Add a share, replacing an earlier one; raises UnknownSessionError."""
    tables.tell(share.session_id)
    delete_share(tables, share.session_id, share.tenant)
    tables.execute(
        "INSERT INTO acphold.shares (session_id, tenant, prompts) VALUES (%s, %s, %s)",
        (share.session_id, share.tenant, share.prompts),
    )


def delete_share(tables: Tables, session_id: str, tenant: str) -> bool:
    """Delete a share; False if there was none."""
    ended = tables.execute(
        "DELETE FROM acphold.shares WHERE session_id = %s AND tenant = %s", (session_id, tenant)
    )
    if ended.rowcount:
        with suppress(UnknownSessionError):
            tables.tell(session_id)
    return bool(ended.rowcount)
