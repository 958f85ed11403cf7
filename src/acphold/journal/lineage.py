"""The lineage of a session, which tells whether a position belongs to it; a journal's identity.

A position is the number of an entry, and numbers can repeat. A journal may go back: a standby that
lagged takes over, somebody restores a backup, or the power fails before SQLite's log reached the
disk. Then other entries get the numbers of the lost ones. A client that was sent the lost entries
would receive the rest with a gap that nobody sees. So positions travel with the lineage of their
session, and a position of another lineage is refused. Only if the journal has a prompt to which the
client has no answer yet, nothing before that is lost, and it is sent the turn.

A lineage is the *era* of the journal plus the number of the session, which no other session of that
era has. The era is renewed when the journal may have gone back since it began. Nobody has to report
this: the journal keeps, with the era, *where* it holds, and that differs afterwards. For SQLite it
is the boot of the machine (a killed process loses nothing, a power failure does) and the inode of
the file (`sqlite/file_system.py` detects an earlier copy under the same inode); a backup has no
era. For PostgreSQL it is the start time of the server (a promoted standby and a restored server
were each started themselves) and the file of a table, which differs in a restored dump. A restart
that lost nothing looks no different from a server whose files were restored from a copy: neither
its identifier nor its timeline changes. The error is on the safe side: after a clean restart, too,
a client has to load its session once.

The check is made by each new owner of a session, in the same transaction; appends cost nothing
more. While an owner lives it vouches for the positions it has given out: it appends only after the
entry that it believes to be the last one (`Entries.append`). If that entry is gone, the owner
writes it again, or gives the session up and renews the era.

The *identity* of a journal says whether what a person planned in it was planned here. It lasts
longer than an era: a reboot, a restart of PostgreSQL, and a failover that an owner of a session has
lived through without a loss leave it. It changes with the file or database that the journal is in,
and when the journal went back. The journal keeps the identity with its place. At another place it
counts as the one that follows from both, for all who look; the next owner of a session keeps that.
The place of a file is its inode and the birth of that inode; of a database the server's identifier,
the database, a table, and the timeline of the server.
"""

# See docs/decisions.md, 35 and 37.

from __future__ import annotations

import logging
import os

from acphold.errors import JournalError
from acphold.journal.journal import Journal
from acphold.machine.runtime_folder import machine_id


def new_era() -> str:
    """Return the mark of a new era."""
    return os.urandom(6).hex()


def lineage_of(era: str, number: int) -> str:
    """Return the lineage of the session with this number."""
    return f"{era}.{number:x}"


log = logging.getLogger(__name__)


async def identity(journal: Journal) -> str | None:
    """The identity of a journal, in a few letters; None if it cannot be determined."""
    try:
        return (await journal.identity()).mark
    except JournalError as exc:
        log.info("cannot determine the identity of the journal: %s", exc)
        return None


async def rule_place(journal: Journal) -> str:
    """Return the place where a standing answer holds, this machine and this journal; "" if it
    cannot be determined, and no rule holds.

    A journal may be copied, restored, moved, or shared by several machines. What a person allowed
    in one place, nobody has allowed in another.
    """
    machine, mark = machine_id(), await identity(journal)
    return f"{machine} {mark}" if machine and mark else ""


def mark_at(kept: str, secret: bytes, place: str) -> str:
    """Return the identity of a journal at this place; `kept` is its text of
    `mark_with_place`, "" if it has none yet."""
    mark, _, where = kept.partition(" ")
    return mark if where == place else digest(mark.encode() or secret, place.encode())


def mark_with_place(mark: str, place: str) -> str:
    """Return an identity as the journal keeps it, with its place."""
    return f"{mark} {place}"


async def family(journal: Journal) -> str:
    """Return an id that a journal shares with its copies, in a few letters: derived from its random
    secret, without revealing it. Raises JournalError."""
    return digest((await journal.identity()).secret)


def digest(secret: bytes, place: bytes = b"") -> str:
    """Return an id in a few letters, derived from both without revealing the secret."""
    from _blake2 import blake2b  # hashlib brings OpenSSL, for which an editor would wait

    return blake2b(secret + place, digest_size=8, person=b"identity").hexdigest()
