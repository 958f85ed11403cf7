"""The era of a journal in a file, and its identity: see `journal.lineage`.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

# See docs/decisions.md, 37.

from __future__ import annotations

import os
import sqlite3
from typing import Final

from acphold.record.journal.journal import Identity
from acphold.record.journal.lineage import mark_at, mark_with_place, new_era
from acphold.record.journal.sqlite import file_system
from acphold.record.journal.sqlite.connection import Connection, writing

RANDOM_BITS: Final = 20
"""The lower bits of an epoch are random, not part of the count."""


def went_back(connection: Connection, *, ever: bool = False) -> int:
    """Return the epoch that was noted before the file went back: it is an earlier copy of itself,
    or took another course since. 0 if it did not, since the boot of the machine or `ever`."""
    noted = file_system.read_note(connection.path, file_system.EPOCH, ever=ever)
    last = last_epoch(connection)  # read after the note: others grant an epoch, then note it
    # An equal count with other random bits: an earlier copy, which has granted epochs since.
    is_back = noted not in (0, last) and last >> RANDOM_BITS <= noted >> RANDOM_BITS
    return noted if is_back else 0


def identity(connection: Connection) -> Identity:
    """Like `Journal.identity`."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'cursor_secret'").fetchone()
    secret = bytes(row[0])
    kept, _, seen = _read_identity(connection).partition(",")
    place = file_system.place(connection.path)
    lost = went_back(connection, ever=True)
    if lost and str(lost) != seen:
        place = f"{place} {lost}"
    mark = mark_at(kept, secret, place)
    return Identity(secret, mark, mark == kept.partition(" ")[0])


def _read_identity(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    return "" if row is None else str(row[0])


def keep_identity(connection: Connection, mark: str) -> None:
    """Keep the identity with the place of the file, and with the epoch before it went back: that
    one counts until the next is noted."""
    lost = went_back(connection, ever=True)
    kept = mark_with_place(mark, file_system.place(connection.path)) + (f",{lost}" if lost else "")
    if kept != _read_identity(connection):
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', ?)", (kept,))


def last_epoch(connection: sqlite3.Connection) -> int:
    """The epoch that was granted last."""
    (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    return int(epoch)


def era(connection: Connection) -> str:
    """The era of the journal; begins a new one if the journal may have gone back."""
    here = f"{file_system.boot()} {os.stat(connection.path).st_ino}"
    row = connection.execute("SELECT value FROM meta WHERE name = 'era'").fetchone()
    found, _, where = ("", "", "") if row is None else row[0].partition(" ")
    if where != here:
        found = new_era()
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('era', ?)", (f"{found} {here}",))
    return str(found)


def keep_homes(connection: Connection) -> None:
    """After an upgrade to sessions with homes: the homes of those that were prompted here are here,
    if the file is where it was."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'era'").fetchone()
    if row is None or not row[0].endswith(f" {os.stat(connection.path).st_ino}"):
        return
    with writing(connection):
        keep_identity(connection, mark := identity(connection).mark)
        connection.execute("UPDATE sessions SET home = ? WHERE start IS NOT NULL", (mark,))


def renew_era(connection: sqlite3.Connection) -> None:
    """End the era, and the identity with it: the journal has gone back, or this is a copy.
    Positions given out before are void."""
    connection.execute("DELETE FROM meta WHERE name = 'era'")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', lower(hex(randomblob(8))))")
