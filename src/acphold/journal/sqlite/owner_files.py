"""Locked files that show which owners live, for a journal that is a file.

Beside the journal is a folder with a file for each owner, named by its id. The owner keeps its file
locked (flock(2)) for as long as it lives. The kernel releases the lock when the process ends,
however it ends. No clock, host name, process number or runtime folder counts, and a container with
the same folder sees the same lock.

A process forked from an owner without executing another program would hold the lock, too; executed
programs do not get the descriptor.
"""

# See docs/decisions.md, 15.

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

from acphold.errors import JournalUnavailableError

SUFFIX: Final = "-owners"
"""The name of the folder is the name of the journal with this suffix."""

TRIES: Final = 100
"""Attempts to create a file that others keep locking or removing at that moment."""


class OwnerFile:
    """The file that shows this process lives, created and locked under a new id.

    Raises JournalUnavailableError if it cannot be made.
    """

    def __init__(self, journal: str) -> None:
        self.id: Final = os.urandom(12).hex()
        self._path = _path(journal, self.id)
        self._descriptor = _made(self._path)

    def keep(self) -> None:
        """Create the file again if somebody removed it or its folder; raises
        JournalUnavailableError."""
        if not _is_at(self._descriptor, self._path):
            before, self._descriptor = self._descriptor, _made(self._path)
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


def known(journal: str) -> list[str]:
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


def _made(path: str) -> int:
    """Create and lock the file; return its descriptor."""
    import fcntl

    for _ in range(TRIES):
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
    raise JournalUnavailableError(f"{path} is removed again and again by another program")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _unavailable(path: str, error: OSError) -> JournalUnavailableError:
    return JournalUnavailableError(
        f"cannot lock {path}: {error.strerror}; by that others see that the owner of a session "
        "lives. Put the journal on a file system that has locks"
    )
