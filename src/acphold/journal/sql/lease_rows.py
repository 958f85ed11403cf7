"""The tables of leases and owners, as far as both databases treat them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acphold.errors import LeaseLostError
from acphold.journal.journal import Lease
from acphold.journal.lineage import why_lost
from acphold.journal.sql.tables import Tables

NOBODY: Final = ""
"""The owner of a lease that was released."""


def require(tables: Tables, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease stands; it then stands until the transaction ends."""
    row = tables.execute(
        f"SELECT 1 FROM acphold.leases WHERE {tables.KEY} = %s AND epoch = %s"
        f"{tables.LOCKING_LEASE}",
        (tables.key(lease), lease.epoch),
    ).fetchone()
    if row is None:
        raise lost(tables, lease)


def release(tables: Tables, lease: Lease) -> None:
    """Release the session, unless the lease is lost."""
    tables.execute(
        f"UPDATE acphold.leases SET owner = %s WHERE {tables.KEY} = %s AND epoch = %s",
        (NOBODY, tables.key(lease), lease.epoch),
    )


def unregister(tables: Tables, owner_id: str) -> None:
    """Remove an owner that ends; its sessions are free."""
    tables.execute("DELETE FROM acphold.owners WHERE id = %s", (owner_id,))


def all_lost(tables: Tables, held: Sequence[Lease], *, whole: bool = False) -> list[LeaseLostError]:
    """The errors for leases that are lost. With `whole`, also for leases under which more was
    written than the journal has."""
    rows = tables.execute(
        f"SELECT sessions.session_id, epoch, {tables.LAST_SEQ if whole else 'NULL'}"
        f" FROM acphold.sessions JOIN acphold.leases ON leases.{tables.KEY} ="
        f" sessions.{tables.OWN_KEY} WHERE {tables.among(f'leases.{tables.KEY}', 'held')}",
        {"held": tables.array(tables.key(lease) for lease in held)},
    ).fetchall()
    stand = {session_id: (epoch, last) for session_id, epoch, last in rows}
    found = []
    for lease in held:
        epoch, last = stand.get(lease.session_id, (None, None))
        if epoch != lease.epoch or (last is not None and last < lease.next_seq - 1):
            found.append(lost(tables, lease))
    return found


def lost(tables: Tables, lease: Lease) -> LeaseLostError:
    """The error for a lost lease; raises NewerJournalError if a newer release has ended all leases
    of this one."""
    tables.refuse_newer()
    row = tables.execute(
        f"SELECT sessions.number, epoch, {tables.LAST_SEQ} FROM acphold.sessions"
        f" LEFT JOIN acphold.leases ON leases.{tables.KEY} = sessions.{tables.OWN_KEY}"
        " WHERE sessions.session_id = %s",
        (lease.session_id,),
    ).fetchone()
    deleted = tables.execute(
        f"SELECT 1 FROM acphold.{tables.DELETED} WHERE session_id = %s", (lease.session_id,)
    )
    number, epoch, last_seq = row or (None, None, 0)
    return why_lost(lease, number, epoch, last_seq, was_deleted=deleted.fetchone() is not None)
