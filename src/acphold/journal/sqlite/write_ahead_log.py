"""The write-ahead log of the file: copied, started over and cut, without long waits of writers.

Whoever writes next starts the log over if all of it is in the file and nobody reads in it. It keeps
its length then, and has the words of earlier writes behind those of new ones, until it is cut.

Source: sqlite.org, WAL-mode File Format. The functions may raise sqlite3 errors and OSError.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from acphold.journal import bounds
from acphold.journal.sqlite import file_system
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.sqlite.file import LogIndex


def copy(connection: Connection, longer_than: int = -1) -> bool:
    """Copy the log into the file, while others read and write. True if it is longer than so many
    pages, all of it is copied, and few pages were written during the last pass.

    False, too, while another process copies it.
    """
    file = file_system.writable(connection.path)
    before = 0
    for _ in range(bounds.COPYING_PASSES):
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not longer_than < pages <= copied:
            return False
        # SQLite itself flushes the file behind the last page of the log, for which writers wait.
        os.fsync(file)
        if copied - before <= bounds.COPIED_PAGES:
            break
        before = copied
    return True


def start_over(connection: Connection) -> None:
    """Copy the rest of the log while nobody can write, and let the next write start it over. No
    reader is waited for: if one reads in the log, it goes on."""
    with connection.at_once():
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def cut(connection: Connection, kept: int) -> Iterator[None]:
    """Return the room to the disk that the log takes beyond `kept` bytes and what is in use, some
    MiB with each step: to free hundreds at once takes a disk a second, in which nobody can
    write."""
    # Alone it has the index in its memory. On a full disk there may be no room for a page.
    if connection.access.is_alone or file_system.is_nearly_full(connection.path):
        with connection.at_once():
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    file = os.open(f"{connection.path}-wal", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with writing(connection):
            # Writes a page, with which the log starts over if it may.
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {version}")
        while True:
            with writing(connection):
                index = LogIndex.of(connection.path)
                if index is None:
                    return
                in_use = _HEADER_BYTES + index.frames * (_FRAME_HEADER_BYTES + page_bytes)
                size = os.fstat(file).st_size
                end = max(kept, in_use, size - bounds.CUT_BYTES)
                if end >= size:
                    return
                os.ftruncate(file, end)
            yield
    finally:
        os.close(file)


_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
