"""Leases: which process may write to a session, proved by a locked file of each owner.

Beside the journal is a folder with a file for each owner, named by its id; a process that may come
to own sessions has one from when it opens the journal. The owner keeps its file locked (flock(2))
for as long as it lives. The kernel releases the lock when the process ends,
however it ends. No clock, host name, process number or runtime folder counts, and a container with
the same folder sees the same lock.

A process forked from an owner without executing another program would hold the lock, too; executed
programs do not get the descriptor.

    granted ──acquire by anybody──▶ granted to them, with a higher epoch
    granted ──release───────────▶ nobody's: writes under it are taken until somebody acquires
    granted ──delete────────────▶ gone: nothing under it is written any more

Epochs come from one counter of the journal, so none is granted twice, not even to a session that
has the id of a deleted one. Only `whose` decides who owns a session. The functions run inside a
transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from acphold.errors import (
    HeldElsewhereError,
    JournalUnavailableError,
    UnknownSessionError,
)
from acphold.record.history.entries import now_ms
from acphold.record.journal import bounds, owners
from acphold.record.journal.journal import Lease
from acphold.record.journal.lineage import lineage_of
from acphold.record.journal.owners import Free, Owner, Whose
from acphold.record.journal.sqlite.connection import Connection
from acphold.record.journal.sqlite.eras import (
    era,
    identity,
    keep_identity,
    last_epoch,
    renew_era,
    went_back,
)
from acphold.record.journal.sqlite.session_rows import update_to_last_entry

# See docs/decisions.md, 15.


SUFFIX: Final = "-owners"
"""The name of the folder is the name of the journal with this suffix."""


class OwnerFile:
    """The file that shows this process lives, created and locked under a new id.

    Raises JournalUnavailableError if it cannot be made.
    """

    def __init__(self, journal: str) -> None:
        self.id: Final = os.urandom(12).hex()
        self._path = _path(journal, self.id)
        self._descriptor = _create(self._path)

    def keep(self) -> None:
        """Create the file again if somebody removed it or its folder; raises
        JournalUnavailableError."""
        if not _is_at(self._descriptor, self._path):
            before, self._descriptor = self._descriptor, _create(self._path)
            os.close(before)

    def close(self) -> None:
        """End this owner: remove the file, and the folder if it is empty."""
        remove(self._path)
        os.close(self._descriptor)
        with suppress(OSError):
            os.rmdir(os.path.dirname(self._path))


def lives(journal: str, owner_id: str) -> bool:
    """True if the owner under this id lives; raises JournalUnavailableError."""
    import fcntl  # late, for a quick start

    if not owner_id.isalnum():  # it becomes part of a path, and the journal may be a stranger's
        return False
    path = _path(journal, owner_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unavailable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise _unavailable(path, error) from error
    finally:
        os.close(descriptor)
    return False


def owner_ids(journal: str) -> list[str]:
    """The ids of all owners with a file, alive or not."""
    with suppress(OSError):
        return os.listdir(f"{journal}{SUFFIX}")
    return []


def forget(journal: str, owner_id: str) -> None:
    """Remove the file of a dead owner."""
    if owner_id.isalnum():
        remove(_path(journal, owner_id))


def remove(path: str) -> None:
    """Remove a file that others may be removing as well."""
    with suppress(OSError):  # it or its folder is gone; a file left over is unlocked, so harmless
        os.unlink(path)


def _path(journal: str, owner_id: str) -> str:
    return os.path.join(f"{journal}{SUFFIX}", owner_id)


def _create(path: str) -> int:
    """Create and lock the file; return its descriptor."""
    import fcntl

    for _ in range(bounds.OWNER_FILE_TRIES):
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            continue  # the folder was removed again
        except OSError as error:
            raise _unavailable(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            time.sleep(0.001)  # somebody is just testing the lock
        except OSError as error:
            os.close(descriptor)
            raise _unavailable(path, error) from error
        os.close(descriptor)
    raise JournalUnavailableError(f"another program keeps removing {path}")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _unavailable(path: str, error: OSError) -> JournalUnavailableError:
    return JournalUnavailableError(
        f"cannot lock {path}: {error.strerror}. The lock shows other processes that the owner of a "
        "session is alive. Put the journal on a file system that supports locks"
    )


Lives = Callable[[str], bool]
"""True if the owner of this id lives."""


def _clock_ms() -> int:
    """The clock of the machine since its start: all who share a file share it, and nobody sets
    it."""
    return time.monotonic_ns() // 1_000_000


# -- owners ---------------------------------------------------------------------------------------


def register(
    connection: sqlite3.Connection,
    owner_id: str,
    addresses: Sequence[str],
    lives: Lives,
    *,
    retired: bool,
) -> None:
    """Note that this process is the owner `owner_id`, and remove dead owners: their sessions are
    free."""
    known = connection.execute("SELECT id FROM owners WHERE id != ?", (owner_id,)).fetchall()
    dead = [id_ for (id_,) in known if not lives(id_)]
    connection.executemany("DELETE FROM owners WHERE id = ?", [(id_,) for id_ in dead])
    connection.execute(
        "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)",
        (owner_id, socket.gethostname(), os.getpid(), _json(addresses), _clock_ms(), retired),
    )


def renew(
    connection: sqlite3.Connection, owner_id: str, addresses: Sequence[str], *, retired: bool
) -> bool:
    """Note that the owner is still alive, and its addresses; False if the owner is not
    registered."""
    done = connection.execute(
        "UPDATE owners SET renewed_at = ?, addresses = ?, retired = ? WHERE id = ?",
        (_clock_ms(), _json(addresses), retired, owner_id),
    )
    return done.rowcount == 1


def _json(addresses: Sequence[str]) -> str:
    return msgspec.json.encode(addresses).decode()


# -- leases ---------------------------------------------------------------------------------------


def grant(
    connection: Connection,
    session_id: str,
    number: int,
    owner_id: str,
    seen: int | None = None,
    *,
    yields: bool = False,
) -> Lease:
    """Give the session to an owner, whoever had it.

    Raises HeldElsewhereError if `seen` is given but is no longer the epoch of the lease: somebody
    was quicker.
    """
    if seen is not None:
        (epoch,) = connection.execute(
            "SELECT coalesce(max(epoch), 0) FROM leases WHERE session = ?", (number,)
        ).fetchone()
        if epoch != seen:
            raise HeldElsewhereError(session_id, "another acphold process", epoch)
    mark = identity(connection).mark
    if went_back(connection):
        renew_era(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('went_back_at', ?)", (now_ms(),))
    keep_identity(connection, mark)
    # The lower bits are random, so that no epoch is granted twice even in a file that goes back.
    connection.execute(
        "UPDATE meta SET value = (((value >> 20) + 1) << 20) | (random() & 1048575)"
        " WHERE name = 'epoch'"
    )
    epoch = last_epoch(connection)
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", (number, owner_id, epoch, yields)
    )
    next_seq = update_to_last_entry(connection, number) + 1
    lineage = lineage_of(era(connection), number)
    return Lease(session_id, number, epoch, next_seq, lineage, mark)


def whose(
    connection: sqlite3.Connection, session_id: str, own_id: str | None, lives: Lives
) -> Whose:
    """The owner of a session, as seen by the owner `own_id`; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT owner, coalesce(epoch, 0), yields OR retired, host, pid, addresses, renewed_at"
        " FROM sessions LEFT JOIN leases ON session = number LEFT JOIN owners ON id = owner"
        " WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    id_, epoch, yields, host, pid, addresses, renewed_at = row
    if host is None or (id_ != own_id and not lives(id_)):
        return Free(epoch)
    return owners.whose(
        owners.owner_of_row(id_, host, pid, addresses),
        epoch,
        (_clock_ms() - renewed_at) / 1000,
        own_id,
        yields=bool(yields),
        is_proved=True,
    )


def all_owners(connection: sqlite3.Connection, lives: Lives) -> list[Owner]:
    """The live owners with addresses."""
    rows = connection.execute(
        "SELECT id, host, pid, addresses FROM owners WHERE addresses <> '[]' ORDER BY id"
    ).fetchall()
    return [owners.owner_of_row(*row) for row in rows if lives(row[0])]
