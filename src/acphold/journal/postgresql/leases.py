"""Leases: which process may write to a session; and owners: the processes that hold leases.

    granted ──acquire by anybody──▶ granted to them, with a higher epoch
    granted ──release───────────▶ nobody's: writes under it are taken until somebody acquires
    granted ──delete────────────▶ gone: nothing under it is written any more

Epochs come from a sequence, so none is granted twice. Only `whose` decides who owns a session.

An owner shows that it lives by its connection of *presence*, which holds a lock for as long as the
process lives: the server releases the lock when the process ends, however it ends. Living owners
lose connections, too, and open new ones when they next report. So an owner without one, but heard
from recently, is *gone*, and may come back: its sessions are free if nobody serves at its addresses
any more. Some owners cannot hold such a connection (behind a pooler), or lost it with all others
because another server answers or this one was restarted. Such an owner lives as long as it reports,
and is gone as soon as it is late. All times are by the clock
of the database.

The functions run inside a transaction of the caller and may raise psycopg errors. One that locks
the row of an owner does so before it locks a lease.
"""

# See docs/decisions.md, 17.

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from acphold.errors import HeldElsewhereError, UnknownSessionError
from acphold.journal import bounds, owners
from acphold.journal.journal import Identity, Lease
from acphold.journal.lineage import lineage_of, mark_at, mark_with_place, new_era
from acphold.journal.owners import At, Free, Here, Owner, Whose
from acphold.journal.sql.session_tables import NOBODY
from acphold.journal.sql.tables import Tables

CHANGED: Final = "changed = pg_current_xact_id()"
"""Written with every change to a session that the list shows."""


HERE: Final = (
    "convert_to(concat(extract(epoch FROM pg_postmaster_start_time()), ' ',"
    " pg_relation_filenode('acphold.leases')), 'UTF8')"
)
"""The place where an era holds: see `journal.lineage`."""

_TIMELINE: Final = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"

# -- owners -----------------------------------------------------------------------------------


def register(
    tables: Tables, owner_id: str, addresses: Sequence[str], presence: int | None, *, retired: bool
) -> tuple[bytes, str, int]:
    """Note that this process is the owner `owner_id`, that it is alive, and its addresses; return
    the `server`, its timeline, which is another one after a failover, and its time in ms.

    `presence` is the key of the lock that shows it lives; None if it holds none.
    """
    done = tables.execute(
        "INSERT INTO acphold.owners"
        " (id, host, pid, addresses, renewed_at, retired, presence, present_at)"
        " VALUES (%(id)s, %(host)s, %(pid)s, %(addresses)s, now(), %(retired)s, %(presence)s,"
        " pg_postmaster_start_time()) ON CONFLICT (id) DO UPDATE SET"
        " addresses = excluded.addresses, renewed_at = excluded.renewed_at,"
        " retired = excluded.retired, presence = excluded.presence,"
        f" present_at = excluded.present_at RETURNING {HERE}, {_TIMELINE},"
        " (extract(epoch FROM now()) * 1000)::bigint",
        {
            "id": owner_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "addresses": msgspec.json.encode(addresses).decode(),
            "retired": retired,
            "presence": presence,
        },
    )
    here, timeline, at = done.fetchone()
    return bytes(here), str(timeline), int(at)


def forget_dead(tables: Tables) -> None:
    """Remove the rows of owners that have not reported for long."""
    tables.execute(
        "DELETE FROM acphold.owners WHERE renewed_at < now() - make_interval(secs => %s)",
        (bounds.FORGOTTEN_SECONDS,),
    )


# -- leases -----------------------------------------------------------------------------------


def next_epoch(tables: Tables) -> int:
    """Return an epoch that no lease has had; raises NewerJournalError."""
    tables.refuse_newer()
    # The lower bits are random, so that no epoch is granted twice even if a database goes back.
    row = tables.execute(
        "SELECT nextval('acphold.epochs') << 20 | floor(random() * 1048576)::bigint"
    ).fetchone()
    return int(row[0])


def grant(
    tables: Tables,
    session_id: str,
    owner_id: str,
    epoch: int,
    seen: Whose | None = None,
    *,
    yields: bool = False,
) -> Lease:
    """Give the session to an owner, whoever had it; raises UnknownSessionError.

    Raises HeldElsewhereError if `seen` is given but is no longer so: somebody was quicker.
    """
    known = None if seen is None else seen.epoch
    if isinstance(seen, Free) and seen.is_silent:
        tables.execute(  # its next report waits for us, or we for this one
            "SELECT FROM acphold.owners WHERE id ="
            " (SELECT owner FROM acphold.leases WHERE session_id = %s) FOR SHARE",
            (session_id,),
        )
        owners.refuse_held(session_id, whose(tables, session_id, owner_id))
    done = tables.execute(
        "UPDATE acphold.leases SET owner = %s, epoch = %s, yields = %s"
        " WHERE session_id = %s AND (%s::bigint IS NULL OR epoch = %s)",
        (owner_id, epoch, yields, session_id, known, known),
    )
    if done.rowcount == 0:
        row = tables.execute(
            "SELECT epoch, owner, yields FROM acphold.leases WHERE session_id = %s", (session_id,)
        ).fetchone()
        if row is None:
            raise UnknownSessionError(session_id)
        raise HeldElsewhereError(session_id, "another acphold process", row[0])
    row = tables.execute(
        f"SELECT number, last_seq, at, {ERA}, {_IS_HERE}, {_IDENTITY}"
        " FROM acphold.sessions LEFT JOIN LATERAL ("
        " SELECT last_seq, at FROM acphold.segments WHERE session_id = %s"
        " ORDER BY last_seq DESC LIMIT 1) AS last ON true WHERE session_id = %s",
        (session_id, session_id),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    number, last_seq, at, era, is_here, *of_identity = row
    mark, place = _identify(tables, *of_identity)
    if mark_with_place(mark, place) != of_identity[1]:  # it is the same for all who come to it now
        _keep(tables, mark, place)
    if not is_here:  # begin a new era, unless somebody else has just done so
        tables.execute(
            f"INSERT INTO acphold.meta VALUES ('era', convert_to(%s, 'UTF8') || {HERE})"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            " WHERE substr(meta.value, 14) <> substr(excluded.value, 14)",
            (f"{new_era()} ",),
        )
        row = tables.execute(f"SELECT {ERA}").fetchone()
        era = str(row[0])
    if last_seq is not None:  # the last owner may have died before it updated the row
        tables.execute(
            f"UPDATE acphold.sessions SET updated_at = %s, {CHANGED}"
            " WHERE session_id = %s AND updated_at < %s",
            (at, session_id, at),
        )
    return Lease(session_id, number, epoch, (last_seq or 0) + 1, lineage_of(era, number), mark)


def take_again(tables: Tables, lease: Lease, seen: int | None, owner_id: str) -> None:
    """Give the owner a lease again that it had, if the database has gone back to the one before,
    whose epoch it had `seen`."""
    tables.execute(
        "UPDATE acphold.leases SET owner = %s, epoch = %s, yields = false"
        " WHERE session_id = %s AND epoch = %s",
        (owner_id, lease.epoch, lease.session_id, seen),
    )


_IS_HERE: Final = (
    f"coalesce((SELECT substr(value, 14) = {HERE} FROM acphold.meta WHERE name = 'era'), false)"
)

ERA: Final = (
    "(SELECT convert_from(substr(value, 1, 12), 'UTF8') FROM acphold.meta WHERE name = 'era')"
)
"""The era of the journal; NULL before the first one."""


def server(tables: Tables) -> bytes:
    """An identity of the server that answers."""
    row = tables.execute(f"SELECT {HERE}").fetchone()
    return bytes(row[0])


_IDENTITY: Final = (
    "(SELECT value FROM acphold.meta WHERE name = 'cursor_secret'),"
    " (SELECT convert_from(value, 'UTF8') FROM acphold.meta WHERE name = 'identity'),"
    " (SELECT oid FROM pg_database WHERE datname = current_database())::text"
    " || '.' || 'acphold.meta'::regclass::oid,"
    # A server that replays another's log has no file of its own for what comes next.
    f" CASE WHEN NOT pg_is_in_recovery() THEN {_TIMELINE} END,"
    " has_function_privilege('pg_control_system()', 'execute')"
)
"""The values of `_identify`. A standby and a restarted server share the database and the table with
the one before; neither a restored dump nor a copy within the server does."""


def identity(tables: Tables) -> Identity:
    """Like `Journal.identity`."""
    secret, kept, *values = tables.execute(f"SELECT {_IDENTITY}").fetchone()
    mark, place = _identify(tables, secret, kept, *values)
    before, _, where = (kept or "").partition(" ")
    has_failed_over = where != place and where.split(" ")[0] == place.split(" ")[0]
    return Identity(bytes(secret), mark, mark == before, has_failed_over)


def _identify(
    tables: Tables, secret: bytes, kept: str | None, table: str, timeline: str | None, may_ask: bool
) -> tuple[str, str]:
    """Return the identity of the journal, and its place, in which the timeline is last."""
    kept, server = kept or "", ""
    if may_ask:
        row = tables.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        server = str(row[0])
    place = f"{server}.{table} {timeline or kept.rpartition(' ')[2]}"
    return mark_at(kept, bytes(secret), place), place


def _keep(tables: Tables, mark: str, place: str) -> None:
    tables.execute(
        "INSERT INTO acphold.meta VALUES ('identity', convert_to(%s, 'UTF8'))"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (mark_with_place(mark, place),),
    )


def vouch(tables: Tables, mark: str) -> None:
    """Keep the identity on another timeline: an owner that knew it lived through the change, and
    has found nothing lost."""
    values = tables.execute(f"SELECT {_IDENTITY}").fetchone()
    _, place = _identify(tables, *values)
    before, _, where = (values[1] or "").partition(" ")
    if before == mark and where.split(" ")[0] == place.split(" ")[0] and where != place:
        _keep(tables, mark, place)


def renew_era(tables: Tables) -> None:
    """End the era, and the identity with it: the journal has gone back, and positions given out
    before are void."""
    tables.execute("DELETE FROM acphold.meta WHERE name = 'era'")
    _keep(tables, os.urandom(8).hex(), "")


_IS_PRESENT: Final = "presence IS NOT NULL AND present_at = pg_postmaster_start_time()"
"""True if the owner of a row lives by a lock."""

_LIVES: Final = f"""
    CASE
        WHEN owners.id IS NULL THEN false
        WHEN {_IS_PRESENT}
            THEN EXISTS (
                SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND classid = (presence >> 32)::oid AND objid = (presence & 4294967295)::oid
            )
        ELSE true
    END
"""
"""True if the owner of a row lives. The key of a lock is split over two columns.

Source: PostgreSQL, pg_locks.
"""

LIVE_OWNERS: Final = (
    f"SELECT host, pid FROM acphold.owners WHERE CASE WHEN {_IS_PRESENT} THEN {_LIVES}"
    " ELSE renewed_at > now() - make_interval(secs => %s) END ORDER BY host, pid"
)
"""The processes that own sessions, by a lock or by what they told last."""


class Gone(At, frozen=True):
    """An owner that has lost the connection which shows that it lives, or has none and is late."""


def whose(tables: Tables, session_id: str, own_id: str | None, own: Sequence[str] = ()) -> Whose:
    """The owner of a session, as seen by the owner `own_id` at the addresses `own`; raises
    UnknownSessionError."""
    row = tables.execute(
        f"SELECT owner, epoch, yields OR coalesce(retired, false), {_LIVES}, host, pid, addresses,"
        f" extract(epoch FROM now() - renewed_at)::float8, {_IS_PRESENT}"
        " FROM acphold.leases LEFT JOIN acphold.owners ON id = owner WHERE session_id = %s",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    id_, epoch, yields, lives, host, pid, addresses, silent, is_present = row
    if id_ == own_id and id_ != NOBODY:
        return (Free if yields else Here)(epoch)
    if yields or silent is None:
        return Free(epoch)
    owner = owners.owner_of_row(id_, host, pid, addresses)
    if not (lives and is_present) and not {*own}.isdisjoint(owner.addresses):
        return Free(epoch)  # we have its place, which has one holder at a time
    found = owners.owned_by(owner, epoch, silent)
    is_late = silent > bounds.LATE_SECONDS and not is_present
    if isinstance(found, At) and (is_late or not lives):
        return Gone(found.owner, found.epoch, found.until)
    return found


OURS: Final = "SELECT epoch, yields FROM acphold.leases WHERE session_id = %s AND owner = %s"
"""An owner's check of a session before each prompt: finds a row if the session is its own."""


def all_owners(tables: Tables) -> list[Owner]:
    """The owners with addresses that live, or have only just lost what shows it."""
    rows = tables.execute(
        "SELECT id, host, pid, addresses FROM acphold.owners WHERE addresses <> '[]'"
        f" AND ({_LIVES} OR renewed_at > now() - make_interval(secs => %s)) ORDER BY id",
        (bounds.LATE_SECONDS,),
    ).fetchall()
    return [owners.owner_of_row(*row) for row in rows]


def sessions_with_owner(tables: Tables, session_ids: Sequence[str]) -> set[str]:
    """The sessions among these whose owner lives, or may come back."""
    rows = tables.execute(
        "SELECT session_id FROM acphold.leases JOIN acphold.owners ON id = owner"
        " WHERE session_id = ANY(%s)"
        f" AND ({_LIVES} OR renewed_at > now() - make_interval(secs => %s))",
        ([*session_ids], bounds.SILENT_SECONDS),
    )
    return {session_id for (session_id,) in rows.fetchall()}
