"""Room in the file that nothing takes any more: for what comes, or given back to the disk.

What is deleted leaves free pages. To give them back, the last pages of the file are moved into
them, so that it ends earlier: in pieces, beside whoever reads and writes, and some of it after each
turn. A file that an earlier release has made must be rewritten as a whole before it can do that,
and nobody else may have it open then.

Source: sqlite.org, PRAGMA auto_vacuum. The functions may raise sqlite3 errors.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from acphold.errors import JournalBusyError
from acphold.journal.sqlite.connection import Connection, connect, is_busy, writing
from acphold.journal.sqlite.file import FAULTS, failure

INCREMENTAL: Final = 2
"""What `PRAGMA auto_vacuum` says of a file that can give pages back in pieces."""

SPARE_BYTES: Final = 16 << 20
"""How much is left for what comes, unless all is asked for."""

AFTER_A_TURN_BYTES: Final = 4 << 20
"""How much is given back at a time that nobody waits for."""

PAGES_AT_ONCE: Final = 64
"""Pages that are moved in one transaction: some milliseconds."""


def can_give_back(connection: sqlite3.Connection) -> bool:
    """Whether this file can do it in pieces."""
    (way,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(way == INCREMENTAL)


def free_bytes(connection: sqlite3.Connection) -> int:
    """How much of the file nothing takes."""
    (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def size(connection: sqlite3.Connection) -> int:
    """How long the file is with all that is in the log."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_size)


def give_back(
    connection: Connection,
    spare: int = 0,
    most: int | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """Give back all but `spare` bytes, `most` of them if that is set, a piece with each step.

    `told` is called with the bytes of each piece. The file is shorter once the log is copied into
    it.
    """
    if not can_give_back(connection):
        return
    free = free_bytes(connection)
    least = spare if most is None else max(spare, free - most)
    while free > least:
        with writing(connection):
            before = size(connection)
            for _ in connection.while_there_is_time(deque(range(PAGES_AT_ONCE))):
                # One at a time: Python takes a single step of a statement without columns.
                connection.execute("PRAGMA incremental_vacuum(1)")
            given = before - size(connection)
        told(given)
        free = free_bytes(connection)
        yield


def give_back_some(connection: Connection) -> Iterator[None]:
    """Give back a little of what is more than comes to be used soon."""
    yield from give_back(connection, SPARE_BYTES, AFTER_A_TURN_BYTES)


def rewritten(path: str) -> None:
    """Rewrite a file as a whole, without what is free; from then on it gives back in pieces.

    It is the same file with the same content whatever happens meanwhile: a kill, a full disk.
    Raises JournalBusyError, with nothing done, while anybody has it open, and JournalError.
    """
    try:
        with closing(connect(path, 0.0)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            try:
                # Only who is alone can leave write-ahead logging, and nobody enters it meanwhile.
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise
                raise JournalBusyError(
                    f"the journal {path} was made by an earlier release, and has to be rewritten "
                    "once while nobody has it open; close the editors that use it, end what runs "
                    "in the background with `acphold stop --all`, and try again"
                ) from error
            # What it is to be is written out first: it may be more than there is memory.
            connection.execute("PRAGMA temp_store = FILE")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
    except FAULTS as error:
        raise failure(error, path) from error
