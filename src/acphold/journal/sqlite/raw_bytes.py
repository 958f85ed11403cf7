"""Read bytes of a journal's files beside SQLite, without harming its locks.

SQLite uses POSIX locks: closing any descriptor of a file drops all locks that this process has on
it, whichever descriptor they were made with. Another process would then believe the journal unused
and start its log over while we write to it. So a descriptor opened here stays open until nothing in
this process has the journal open any more.

Sources: fcntl(2); sqlite.org, "How To Corrupt An SQLite Database File", 2.2.
"""

from __future__ import annotations

import os
import threading

Identity = tuple[int, int]
"""Device and inode of a file."""


class _Journal:
    """A journal that is open in this process: the count of `users`, and `descriptors` for
    reading."""

    def __init__(self) -> None:
        self.users = 0
        self.descriptors: dict[Identity, int] = {}


_journals: dict[str, _Journal] = {}
_changing = threading.Lock()


def hold(path: str) -> None:
    """Register a user that is about to open the journal at `path`."""
    with _changing:
        _journals.setdefault(os.path.realpath(path), _Journal()).users += 1


def let_go(path: str) -> None:
    """Remove a user that has closed the journal; the last one closes the descriptors."""
    with _changing:
        key = os.path.realpath(path)
        journal = _journals[key]
        journal.users -= 1
        if not journal.users:
            del _journals[key]
            for descriptor in journal.descriptors.values():
                os.close(descriptor)


def read(path: str, size: int, suffix: str = "") -> bytes:
    """The first `size` bytes of a held journal's file, or of a file beside it; raises OSError."""
    with _changing:
        journal = _journals[os.path.realpath(path)]
        file = path + suffix
        found = os.stat(file)
        descriptor = journal.descriptors.get((found.st_dev, found.st_ino))
        if descriptor is None:
            # O_NONBLOCK: opening a pipe must not block.
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            opened = os.fstat(descriptor)
            journal.descriptors[opened.st_dev, opened.st_ino] = descriptor
        return os.pread(descriptor, size, 0)
