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
has the id of a deleted one. Only `whose` decides who owns a session.

The era and the identity of the journal are here, too: see `journal.lineage`. The functions run
inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Final, TypeVar

import msgspec

from acphold.conversation.history.entries import now_ms
from acphold.errors import HeldElsewhereError, JournalUnavailableError, UnknownSessionError
from acphold.journal import bounds, owners
from acphold.journal.journal import Identity, Lease
from acphold.journal.lineage import lineage_of, mark_at, mark_with_place, new_era
from acphold.journal.owners import Free, Here, Owner, Whose
from acphold.journal.sqlite import file_system
from acphold.journal.sqlite.connection import READ_ONLY, Connection, connect
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.machine.locked_file import hold, is_held

# See docs/decisions.md, 15 and 37.


T = TypeVar("T")

SUFFIX: Final = "-owners"
"""The name of the folder is the name of the journal with this suffix."""


class OwnerFile:
    """The file that shows this process lives, created and locked under a new id.

    Raises JournalUnavailableError if it cannot be made.
    """

    def __init__(self, journal: str) -> None:
        self.id: Final = os.urandom(12).hex()
        path = _path(journal, self.id)
        self._file = _until_true(path, lambda: hold(path))

    def keep(self) -> None:
        """Create the file again if somebody removed it or its folder; raises
        JournalUnavailableError, also if the folder of the journal has gone."""
        folder = os.path.dirname(os.path.dirname(self._file.path))
        if not os.path.isdir(folder):  # it was moved, say, and may be moved back
            raise JournalUnavailableError(f"the journal has gone with its folder, {folder}")
        _until_true(self._file.path, self._file.keep)

    def close(self) -> None:
        """End this owner: remove the file, and the folder if it is empty."""
        self._file.release()
        with suppress(OSError):
            os.rmdir(os.path.dirname(self._file.path))


def lives(journal: str, owner_id: str) -> bool:
    """True if the owner under this id lives; raises JournalUnavailableError."""
    if not owner_id.isalnum():  # it becomes part of a path, and the journal may be a stranger's
        return False
    path = _path(journal, owner_id)
    try:
        return is_held(path)
    except OSError as error:
        raise _unavailable(path, error) from error


def owner_ids(journal: str) -> list[str]:
    """The ids of all owners with a file, alive or not."""
    with suppress(OSError):
        return os.listdir(f"{journal}{SUFFIX}")
    return []


def remove(path: str) -> None:
    """Remove a file that others may be removing as well."""
    with suppress(OSError):  # it or its folder is gone; a file left over is unlocked, so harmless
        os.unlink(path)


def _path(journal: str, owner_id: str) -> str:
    return os.path.join(f"{journal}{SUFFIX}", owner_id)


def _until_true(path: str, holding: Callable[[], T | None]) -> T:
    """Return what is true of these results, of which one is not while somebody just tests the lock
    of the file at `path`; raises JournalUnavailableError."""
    try:
        for _ in range(bounds.OWNER_FILE_TRIES):
            if held := holding():
                return held
            time.sleep(0.001)
    except OSError as error:
        raise _unavailable(path, error) from error
    raise JournalUnavailableError(f"another program keeps {path} locked")


def _unavailable(path: str, error: OSError) -> JournalUnavailableError:
    return JournalUnavailableError(
        f"cannot lock {path}: {error.strerror}. The lock shows other processes that the owner of a "
        "session is alive. Put the journal on a file system that supports locks"
    )


def _clock_ms() -> int:
    """The clock of the machine since its start: all who share a file share it, and nobody sets
    it."""
    return time.monotonic_ns() // 1_000_000


# -- owners ---------------------------------------------------------------------------------------


def register(
    connection: Connection, owner_id: str, addresses: Sequence[str], *, retired: bool
) -> None:
    """Note that this process is the owner `owner_id`, that it is alive, and its addresses."""
    connection.execute(
        "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)",
        (
            *(owner_id, socket.gethostname(), os.getpid()),
            *(msgspec.json.encode(addresses).decode(), _clock_ms(), retired),
        ),
    )


def forget_dead(connection: Connection, owner_id: str) -> None:
    """Remove dead owners, with their files: their sessions are free."""
    known = connection.execute("SELECT id FROM owners WHERE id != ?", (owner_id,)).fetchall()
    dead = [row for row in known if not lives(connection.path, *row)]
    connection.executemany("DELETE FROM owners WHERE id = ?", dead)
    for id_ in owner_ids(connection.path):
        if id_ != owner_id and id_.isalnum() and not lives(connection.path, id_):
            remove(_path(connection.path, id_))


# -- leases ---------------------------------------------------------------------------------------


def grant(
    connection: Connection,
    session_id: str,
    number: int,
    owner_id: str,
    seen: Whose | None = None,
    *,
    yields: bool = False,
) -> Lease:
    """Give the session to an owner, whoever had it.

    Raises HeldElsewhereError if `seen` is given but is no longer so: somebody was quicker.
    """
    if isinstance(seen, Free) and seen.is_silent:
        owners.refuse_held(session_id, whose(connection, session_id, owner_id))
    if seen is not None:
        (epoch,) = connection.execute(
            "SELECT coalesce(max(epoch), 0) FROM leases WHERE session = ?", (number,)
        ).fetchone()
        if epoch != seen.epoch:
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
    key, at = connection.execute(
        "SELECT key, at FROM segments WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << SEQ_BITS, number << SEQ_BITS | SEQ_MASK),
    ).fetchone() or (0, 0)
    # The last owner may have died before it updated the row.
    connection.execute(
        "UPDATE sessions SET updated_at = ? WHERE number = ? AND updated_at < ?", (at, number, at)
    )
    lineage = lineage_of(era(connection), number)
    return Lease(session_id, number, epoch, (key & SEQ_MASK) + 1, lineage, mark)


def whose(connection: Connection, session_id: str, own_id: str | None) -> Whose:
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
    if host is None or yields or (id_ != own_id and not lives(connection.path, id_)):
        return Free(epoch)
    if id_ == own_id:
        return Here(epoch)
    owner = owners.owner_of_row(id_, host, pid, addresses)
    return owners.owned_by(owner, epoch, (_clock_ms() - renewed_at) / 1000)


def all_owners(connection: Connection) -> list[Owner]:
    """The live owners with addresses."""
    rows = connection.execute(
        "SELECT id, host, pid, addresses FROM owners WHERE addresses <> '[]' ORDER BY id"
    ).fetchall()
    return [owners.owner_of_row(*row) for row in rows if lives(connection.path, row[0])]


# -- era and identity ----------------------------------------------------------------------------

RANDOM_BITS: Final = 20
"""The lower bits of an epoch are random, not part of the count."""


def meta(connection: sqlite3.Connection, name: str) -> Any:
    """A value that the journal keeps under this name; None if it has none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def went_back(connection: Connection, *, ever: bool = False) -> int:
    """Return the epoch that was noted before the file went back: it is an earlier copy of itself,
    or took another course since. 0 if it did not, since the boot of the machine or `ever`."""
    noted = file_system.read_note(connection.path, file_system.EPOCH, ever=ever)
    last = last_epoch(connection)  # read after the note: others grant an epoch, then note it

    def is_back() -> bool:
        # An equal count with other random bits: an earlier copy, which has granted epochs since.
        return noted not in (0, last) and last >> RANDOM_BITS <= noted >> RANDOM_BITS

    if is_back():  # or this read began before another process granted that epoch
        with (
            suppress(sqlite3.Error),
            closing(connect(connection.path, 0.0, access=READ_ONLY)) as anew,
        ):
            last = last_epoch(anew)
    return noted if is_back() else 0


def identity(connection: Connection) -> Identity:
    """Like `Journal.identity`."""
    secret = bytes(meta(connection, "cursor_secret"))
    kept, _, seen = (meta(connection, "identity") or "").partition(",")
    place = file_system.place(connection.path)
    lost = went_back(connection, ever=True)
    if lost and str(lost) != seen:
        place = f"{place} {lost}"
    mark = mark_at(kept, secret, place)
    return Identity(secret, mark, mark == kept.partition(" ")[0])


def keep_identity(connection: Connection, mark: str) -> None:
    """Keep the identity with the place of the file, and with the epoch before it went back: that
    one counts until the next is noted."""
    lost = went_back(connection, ever=True)
    kept = mark_with_place(mark, file_system.place(connection.path)) + (f",{lost}" if lost else "")
    if kept != meta(connection, "identity"):
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', ?)", (kept,))


def last_epoch(connection: sqlite3.Connection) -> int:
    """The epoch that was granted last."""
    return int(meta(connection, "epoch"))


def era(connection: Connection) -> str:
    """The era of the journal; begins a new one if the journal may have gone back."""
    here = f"{file_system.boot()} {os.stat(connection.path).st_ino}"
    found, _, where = (meta(connection, "era") or "").partition(" ")
    if where != here:
        found = new_era()
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('era', ?)", (f"{found} {here}",))
    return str(found)


def renew_era(connection: sqlite3.Connection) -> None:
    """End the era, and the identity with it: the journal has gone back, or this is a copy.
    Positions given out before are void."""
    connection.execute("DELETE FROM meta WHERE name = 'era'")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', lower(hex(randomblob(8))))")
