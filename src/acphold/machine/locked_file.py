"""A file that one process holds: locked (flock(2)) until that process ends, however it ends.

No clock, host name or process number counts, and a container that has the same folder sees the same
lock. A file that its holder removes, or somebody else, is nobody's: whoever locks it looks if the
name still leads to it. A note in it names the file as its holder does: it says nothing in a copy or
a file that was moved, and the same by whatever other name the file is reached. A process forked
from a holder without executing another program would hold the lock, too; executed programs do not
get the descriptor. Nothing is imported that takes time: an editor waits for a front, which looks at
such a file.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import os
import stat
import time
from errno import EBUSY, EINVAL

TRIES = 100
"""Most tries to make a file that others keep removing."""

NOTE_BYTES = 4096
"""Most bytes of a note."""


class LockedFile:
    """A file that this process holds."""

    __slots__ = ("_before", "_descriptor", "_is_due", "_text", "mark", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        found = os.fstat(descriptor)
        self.mark = f"{found.st_dev:x}-{found.st_ino:x}"
        """A name of the file that was held first; no other has it as long as this is held."""
        self._descriptor = descriptor
        self._before: list[int] = []
        self._text = ""
        self._is_due = False

    def note(self, text: str) -> None:
        """Write a text into the file, which others can read; raises OSError, and then `keep` tries
        it again."""
        self._text, self._is_due = text, True
        raw = os.fsencode(f"{text}\n{self.path}")
        os.pwrite(self._descriptor, raw, 0)
        os.ftruncate(self._descriptor, len(raw))
        self._is_due = False

    @property
    def is_there(self) -> bool:
        """True if its name leads to it; raises OSError if that cannot be found out."""
        return is_at(self._descriptor, self.path)

    def keep(self) -> bool:
        """Make the file again if somebody removed it or its folder; return False if another process
        holds it by now. Raises OSError. One that was moved stays held, too."""
        if self.is_there:
            if self._is_due:
                self.note(self._text)
            return True
        if (again := hold(self.path)) is None:
            return False
        try:
            again.note(self._text)
        except OSError:  # without its note it would lead nobody to us, and keep others from asking
            again.release()
            raise
        self._before.append(self._descriptor)
        self._descriptor, self._is_due = again._descriptor, False
        return True

    def release(self) -> None:
        """Remove the file if the name still leads to it, and hold it no more."""
        try:
            if self.is_there:
                os.unlink(self.path)
        except OSError:
            pass  # it is unlocked, so harmless
        for descriptor in (*self._before, self._descriptor):
            os.close(descriptor)


def hold(path: str) -> LockedFile | None:
    """Make the file and its folder if need be, and hold it; None if another process does.

    Raises OSError.
    """
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(TRIES):
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:  # its folder is not there, or was removed again
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(descriptor, path):
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(EINVAL, "it is no file", path)
                return LockedFile(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(0.001)
    raise OSError(EBUSY, "another program keeps removing it", path)


def is_held(path: str) -> bool:
    """Return True if a process holds this file; raises OSError if that cannot be found out."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_note(path: str) -> str:
    """Return the text that was noted in the file; "" if there is none, or that is of a file
    at another place, of which this is a copy."""
    try:
        # Of a pipe that somebody put there, nobody waits for the other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            text, _, name = os.fsdecode(os.pread(descriptor, NOTE_BYTES, 0)).partition("\n")
            return text if os.path.samestat(os.stat(name), os.fstat(descriptor)) else ""
        finally:
            os.close(descriptor)
    except (OSError, ValueError):  # a path with a zero in it
        return ""


def holder(path: str) -> int | None:
    """Return the process that holds this file, as the kernel says; None if it does not say, or if
    the process has no number here."""
    try:
        looked = os.stat(path)
        with open("/proc/locks") as file:  # proc_locks(5)
            rows = [line.split() for line in file]
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (row for row in rows if row[1] != "->"):
        # Some file systems have another device there than stat(2) tells.
        is_it = kind == "FLOCK" and place.rpartition(":")[2] == str(looked.st_ino)
        if is_it and pid.isdecimal() and _has_open(int(pid), looked):
            return int(pid)
    return None


def is_at(descriptor: int, path: str) -> bool:
    """Return True if this name leads to the open file; raises OSError if that cannot be found
    out."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _has_open(pid: int, looked: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                if os.path.samestat(os.stat(os.path.join(folder, name)), looked):
                    return True
            except FileNotFoundError:
                pass  # closed meanwhile
    except OSError:  # it has ended
        pass
    return False
