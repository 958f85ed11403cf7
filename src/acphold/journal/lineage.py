"""The lineage of a session, which tells whether a position belongs to it; a journal's identity.

A position is the number of an entry, and numbers can repeat. A journal may go back: a standby that
lagged takes over, somebody restores a backup, or the power fails before SQLite's log reached the
disk. Then other entries get the numbers of the lost ones. A client that was sent the lost entries
would receive the rest with a gap that nobody sees. So positions travel with the lineage of their
session, and a position of another lineage is refused.

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
"""

from __future__ import annotations

import logging
import os
import socket
from zlib import adler32, crc32

from acphold.errors import HistoryLostError, JournalError, LeaseLostError
from acphold.journal.journal import Journal, Lease


def new_era() -> str:
    """Return the mark of a new era."""
    return os.urandom(6).hex()


def lineage_of(era: str, number: int) -> str:
    """Return the lineage of the session with this number."""
    return f"{era}.{number:x}"


def why_lost(
    lease: Lease, number: int | None, epoch: int | None, last_seq: int, *, was_deleted: bool
) -> LeaseLostError:
    """The error for a lost lease: another process holds the session, or it was deleted, or the
    journal has gone back and lost entries of it.

    `number`, `epoch` and `last_seq` are of the session with this id that there is now; the number
    is None if there is none. `was_deleted` is True if one was deleted.
    """
    if number is None and not was_deleted:
        return HistoryLostError(lease.session_id, 0)
    if number != lease.number:
        return LeaseLostError(lease.session_id, deleted=True)
    # Epochs only grow, and a new version of the journal sets them to 0.
    is_behind = epoch == lease.epoch and last_seq < lease.next_seq - 1
    if is_behind or 0 < (epoch or 0) < lease.epoch:
        return HistoryLostError(lease.session_id, last_seq)
    return LeaseLostError(lease.session_id)


log = logging.getLogger(__name__)


async def identity(journal: Journal) -> str | None:
    """The identity of a journal, in a few letters; None if it cannot be determined.

    A copy is another journal: in a file it is the identity of the file, otherwise it is derived
    from the `family` and the place of the journal.
    """
    if journal.file is None:
        try:
            its = await journal.identity()
            return _digest(its.secret, its.place.encode())
        except JournalError as exc:
            log.info("cannot determine the identity of the journal: %s", exc)
            return None
    try:
        found = os.stat(journal.file.path)
    except OSError:
        return None
    place = f"{socket.gethostname()} {found.st_dev} {found.st_ino}".encode()
    return f"{crc32(place):08x}{adler32(place):08x}"


async def family(journal: Journal) -> str:
    """Return an id that a journal shares with its copies, in a few letters: derived from its random
    secret, without revealing it. Raises JournalError."""
    return _digest((await journal.identity()).secret)


def _digest(secret: bytes, place: bytes = b"") -> str:
    from hashlib import blake2b  # late, for a quick start: most journals are in files

    return blake2b(secret + place, digest_size=8, person=b"identity").hexdigest()
