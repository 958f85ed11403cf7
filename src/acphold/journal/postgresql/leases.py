"""Leases: which process may write to a session; and the processes that have some, the owners.

    granted ──acquire by anybody──▶ granted to them, with a higher epoch
    granted ──release───────────▶ nobody's: it still counts until somebody acquires
    granted ──delete────────────▶ gone: nothing under it is written any more

Epochs come from a sequence, so none is given out twice. Who owns a session is told by `whose`
alone, and whether an owner lives by its connection of *presence*, which holds a lock for as long as
the process lives: the server lets go of it when that ends, however it ends. Connections are lost by
living owners, too, which make new ones when they tell next that they are there: so who has none
that was heard not long ago is *gone*, and may come back. Where none can be held (behind a pooler),
or where it was lost with all others because another server is asked, or this one was started again,
an owner lives as long as it tells so, and is gone as soon as it is late with that. All by the clock
of the database.

The functions run inside a transaction of the caller's and may raise psycopg errors.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from acphold.errors import HeldElsewhereError, LeaseLostError, UnknownSessionError
from acphold.journal.journal import Lease
from acphold.journal.owners import (
    LATE_SECONDS,
    SILENT_SECONDS,
    At,
    Free,
    Gone,
    Here,
    Owner,
    Silent,
    Whose,
)
from acphold.journal.postgresql.migrations import Line

NOBODY: Final = ""
"""The owner of a lease that was released."""

FORGOTTEN_SECONDS: Final = 24 * 3600
"""After how long without a word the row of an owner goes."""

CHANGED: Final = "changed = pg_current_xact_id()"
"""What is written with everything that a list shows of a session."""


# -- owners -----------------------------------------------------------------------------------


def register(
    line: Line, owner_id: str, addresses: Sequence[str], presence: int | None, *, retired: bool
) -> None:
    """Note that this process is the owner `owner_id`, that it is there still, and where.

    `presence` is the key of the lock by which it lives, None where it holds none.
    """
    line.execute(
        "INSERT INTO acphold.owners"
        " (id, host, pid, addresses, renewed_at, retired, presence, present_at)"
        " VALUES (%(id)s, %(host)s, %(pid)s, %(addresses)s, now(), %(retired)s, %(presence)s,"
        " pg_postmaster_start_time()) ON CONFLICT (id) DO UPDATE SET"
        " addresses = excluded.addresses, renewed_at = excluded.renewed_at,"
        " retired = excluded.retired, presence = excluded.presence,"
        " present_at = excluded.present_at",
        {
            "id": owner_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "addresses": msgspec.json.encode(addresses).decode(),
            "retired": retired,
            "presence": presence,
        },
    )


def forget_dead(line: Line) -> None:
    """Remove the rows of owners that have told nothing for long."""
    line.execute(
        "DELETE FROM acphold.owners WHERE renewed_at < now() - make_interval(secs => %s)",
        (FORGOTTEN_SECONDS,),
    )


def unregister(line: Line, owner_id: str) -> None:
    """The owner ends: what it has is free."""
    line.execute("DELETE FROM acphold.owners WHERE id = %s", (owner_id,))


# -- leases -----------------------------------------------------------------------------------


def next_epoch(line: Line) -> int:
    """An epoch that no lease has had."""
    row = line.execute("SELECT nextval('acphold.epochs')").fetchone()
    assert row is not None
    return int(row[0])


def grant(
    line: Line,
    session_id: str,
    owner_id: str,
    epoch: int,
    seen: int | None = None,
    *,
    yields: bool = False,
) -> Lease:
    """Give the session to an owner, whoever had it; raises UnknownSessionError.

    HeldElsewhereError when `seen` is given and not the epoch of the lease any more: somebody was
    quicker.
    """
    done = line.execute(
        "UPDATE acphold.leases SET owner = %s, epoch = %s, yields = %s"
        " WHERE session_id = %s AND (%s::bigint IS NULL OR epoch = %s)",
        (owner_id, epoch, yields, session_id, seen, seen),
    )
    if done.rowcount == 0:
        row = line.execute(
            "SELECT epoch, owner, yields FROM acphold.leases WHERE session_id = %s", (session_id,)
        ).fetchone()
        if row is None:
            raise UnknownSessionError(session_id)
        raise HeldElsewhereError(session_id, "another acphold process", row[0])
    row = line.execute(
        "SELECT number, last_seq, at FROM acphold.sessions LEFT JOIN LATERAL ("
        " SELECT last_seq, at FROM acphold.segments WHERE session_id = %s"
        " ORDER BY last_seq DESC LIMIT 1) AS last ON true WHERE session_id = %s",
        (session_id, session_id),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    number, last_seq, at = row
    if last_seq is not None:  # its last owner may have died before it touched the row
        line.execute(
            f"UPDATE acphold.sessions SET updated_at = %s, {CHANGED}"
            " WHERE session_id = %s AND updated_at < %s",
            (at, session_id, at),
        )
    return Lease(session_id, number, epoch, (last_seq or 0) + 1)


_IS_PRESENT: Final = "presence IS NOT NULL AND present_at = pg_postmaster_start_time()"
"""Whether the owner of a row lives by a lock."""

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
"""Whether the owner of a row lives. The key of a lock stands in two columns.

Source: PostgreSQL, pg_locks."""


def whose(line: Line, session_id: str, own_id: str | None) -> Whose:
    """Who owns a session, as seen by the owner `own_id`; raises UnknownSessionError."""
    row = line.execute(
        f"SELECT owner, epoch, yields OR coalesce(retired, false), {_LIVES}, host, pid, addresses,"
        f" extract(epoch FROM now() - renewed_at)::float8, {_IS_PRESENT}"
        " FROM acphold.leases LEFT JOIN acphold.owners ON id = owner WHERE session_id = %s",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    id_, epoch, yields, lives, host, pid, addresses, silent, is_present = row
    if id_ == own_id and id_ != NOBODY:
        return Here(epoch, yields)
    if not lives and (silent is None or silent > SILENT_SECONDS):
        return Free(epoch)
    owner = Owner(id_, host, pid, msgspec.json.decode(addresses, type=tuple[str, ...]))
    if not lives:
        return Gone(owner, epoch, yields)
    if silent > SILENT_SECONDS:
        return Silent(owner, epoch, yields, silent)
    if silent > LATE_SECONDS and not is_present:
        return Gone(owner, epoch, yields)
    return At(owner, epoch, yields)


OURS: Final = "SELECT epoch, yields FROM acphold.leases WHERE session_id = %s AND owner = %s"
"""What one owner asks of a session before each prompt: a row if it is theirs."""


def ours(row: Sequence[bytes | None], *, retired: bool) -> Here:
    """What the row of OURS says, in binary; `retired` is whether this owner is about to end."""
    epoch, yields = row
    return Here(int.from_bytes(epoch or b"", "big"), retired or yields == b"\1")


def owners(line: Line) -> list[Owner]:
    """Those that live and have addresses."""
    rows = line.execute(
        "SELECT id, host, pid, addresses FROM acphold.owners"
        f" WHERE addresses <> '[]' AND {_LIVES} ORDER BY id"
    ).fetchall()
    return [
        Owner(id_, host, pid, msgspec.json.decode(addresses, type=tuple[str, ...]))
        for id_, host, pid, addresses in rows
    ]


def is_free(line: Line, session_id: str) -> bool:
    """Whether nobody owns it who lives, or may come back."""
    row = line.execute(
        f"SELECT {_LIVES} OR coalesce(renewed_at > now() - make_interval(secs => %s), false)"
        " FROM acphold.leases LEFT JOIN acphold.owners ON id = owner WHERE session_id = %s",
        (SILENT_SECONDS, session_id),
    ).fetchone()
    return row is None or not row[0]


def release(line: Line, lease: Lease) -> None:
    """Make it nobody's, unless it is lost."""
    line.execute(
        "UPDATE acphold.leases SET owner = %s WHERE session_id = %s AND epoch = %s",
        (NOBODY, lease.session_id, lease.epoch),
    )


def require(line: Line, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease stands; it does until the transaction ends then."""
    row = line.execute(
        "SELECT 1 FROM acphold.leases WHERE session_id = %s AND epoch = %s FOR SHARE",
        (lease.session_id, lease.epoch),
    ).fetchone()
    if row is None:
        raise lost(line, lease)


def all_lost(line: Line, held: Iterable[Lease]) -> list[LeaseLostError]:
    """What is to be told of those that stand no more."""
    wanted = [*held]
    if not wanted:
        return []
    stand: dict[str, int] = dict(
        line.execute(
            "SELECT session_id, epoch FROM acphold.leases WHERE session_id = ANY(%s)",
            ([lease.session_id for lease in wanted],),
        ).fetchall()
    )
    return [lost(line, it) for it in wanted if stand.get(it.session_id) != it.epoch]


def lost(line: Line, lease: Lease) -> LeaseLostError:
    """Who holds the session instead: another process, or nobody, for it was deleted."""
    row = line.execute(
        "SELECT 1 FROM acphold.sessions WHERE session_id = %s AND number = %s",
        (lease.session_id, lease.number),
    ).fetchone()
    return LeaseLostError(lease.session_id, deleted=row is None)
