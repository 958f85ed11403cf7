"""Leases, in the records of their sessions; and owners: the processes that hold them.

An owner lives as long as it reports, by the clock of the journal. One that is late is *gone*, and
may come back; one that has been silent for long is replaced for somebody who wants its sessions.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from acphold.errors import HeldElsewhereError, LeaseLostError
from acphold.journal.journal import Lease, RowChange
from acphold.journal.lineage import why_lost
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
from acphold.journal.records import session_records
from acphold.journal.records.draft import OWNERS, Draft, key
from acphold.journal.records.session_records import KeptSession

FORGOTTEN_SECONDS: Final = 24 * 3600
"""The record of an owner that has not reported for this long is removed."""


class KeptOwner(Struct):
    """An owner; `renewed_at` (ms) is the time of its last report."""

    id: str
    addresses: tuple[str, ...]
    renewed_at: int
    retired: bool = False
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)

    def owner(self) -> Owner:
        return Owner(self.id, self.host, self.pid, self.addresses)


def register(draft: Draft, owner: KeptOwner) -> None:
    """Note that an owner lives, and forget those that have not reported for long."""
    for it, record in draft.walk(OWNERS):
        known = msgspec.msgpack.decode(record, type=KeptOwner)
        if owner.renewed_at - known.renewed_at > FORGOTTEN_SECONDS * 1000:
            draft.remove(it)
    draft.put(key(OWNERS, owner.id), owner)


def unregister(draft: Draft, owner_id: str) -> None:
    """Remove an owner that ends; its sessions are free."""
    draft.remove(key(OWNERS, owner_id))


def grant(draft: Draft, kept: KeptSession, owner: KeptOwner, *, yields: bool) -> Lease:
    """Give a session to an owner, whoever had it."""
    if draft.get(key(OWNERS, owner.id), KeptOwner) is None:
        register(draft, owner)
    kept.owner, kept.epoch, kept.yields = owner.id, draft.next_number(), yields
    row = kept.row
    for last in kept.segments(draft).read_back(row.last_seq, 1):
        # The last owner may have died before it updated the row.
        kept.row = msgspec.structs.replace(row, updated_at=max(row.updated_at, last.at))
    session_records.keep(draft, kept)
    return Lease(row.session_id, kept.number, kept.epoch, row.last_seq + 1, row.lineage)


def acquire(
    draft: Draft, session_id: str, owner: KeptOwner, seen: int | None, *, yields: bool
) -> Lease:
    """Like `Journal.acquire`."""
    kept = session_records.find(draft, session_id)
    if seen is not None and kept.epoch != seen:
        raise HeldElsewhereError(session_id, "another acphold process", kept.epoch)
    return grant(draft, kept, owner, yields=yields)


def held(draft: Draft, lease: Lease, *, whole: bool = False) -> KeptSession:
    """Return the session of a lease; raises LeaseLostError. With `whole`, it has all entries that
    were written under the lease, and no others."""
    kept = session_records.look(draft, lease.session_id)
    if kept is None:
        was_deleted = session_records.was_there(draft, lease.session_id)
        raise why_lost(lease, None, None, 0, was_deleted=was_deleted)
    last_seq = kept.row.last_seq
    if (kept.number, kept.epoch) != (lease.number, lease.epoch) or (
        whole and last_seq != lease.next_seq - 1
    ):
        raise why_lost(lease, kept.number, kept.epoch, last_seq, was_deleted=False)
    return kept


def release(draft: Draft, lease: Lease) -> None:
    """Release the session, unless the lease is lost."""
    if error(draft, lease) is None:
        kept = session_records.find(draft, lease.session_id)
        kept.owner = ""
        session_records.keep(draft, kept)


def change(draft: Draft, session: Lease | str, change: RowChange) -> None:
    """Like `Sessions.change`."""
    if isinstance(session, str):
        kept = session_records.find(draft, session)
    else:
        kept = held(draft, session)
    kept.row = session_records.changed(kept.row, change)
    session_records.keep(draft, kept)


def link(draft: Draft, lease: Lease | None, agent: str, downstream_id: str) -> None:
    """Like `Links.link`."""
    kept = None if lease is None else held(draft, lease)
    session_records.link(draft, agent, downstream_id, kept)


def error(draft: Draft, lease: Lease) -> LeaseLostError | None:
    """The error if the lease is lost."""
    try:
        held(draft, lease)
    except LeaseLostError as lost:
        return lost
    return None


def whose(draft: Draft, session_id: str, own_id: str, now: int) -> Whose:
    """The owner of a session, as seen by the owner `own_id`; raises UnknownSessionError."""
    kept = session_records.find(draft, session_id)
    known = draft.get(key(OWNERS, kept.owner), KeptOwner)
    if known is None:  # never owned, released, or of an owner that has ended
        return Free(kept.epoch)
    yields = kept.yields or known.retired
    if known.id == own_id:
        return Here(kept.epoch, yields)
    silent = (now - known.renewed_at) / 1000
    if silent > SILENT_SECONDS:
        return Silent(known.owner(), kept.epoch, yields, silent)
    return (Gone if silent > LATE_SECONDS else At)(known.owner(), kept.epoch, yields)


def owners(draft: Draft, now: int) -> Iterator[Owner]:
    """Yield the live owners with addresses."""
    for _, record in draft.walk(OWNERS):
        known = msgspec.msgpack.decode(record, type=KeptOwner)
        if known.addresses and now - known.renewed_at <= SILENT_SECONDS * 1000:
            yield known.owner()
