"""The journal's files as the operating system has them: their file system, bytes and notes.

The index of SQLite's log is shared memory, which no other machine sees (sqlite.org, Write-Ahead
Logging), and locks of a network file system hold on one machine, or nowhere.

SQLite uses POSIX locks: closing any descriptor of a file drops all locks that this process has on
it, whichever descriptor they were made with. Another process would then believe the journal unused
and start its log over while we write to it. So a descriptor opened here stays open until nothing in
this process has the journal open any more.

Sources: fcntl(2); sqlite.org, "How To Corrupt An SQLite Database File", 2.2.

Notes are numbers of the journal that only go up. They are not in the file, but in its extended
attributes (xattr(7)), and expose a file that went back: copying over it with `cp` replaces its
content and keeps its inode and attributes, and in an earlier copy of the journal the numbers are
lower. A file that replaces the journal, as `acphold journal restore` makes it, has no notes. On
systems without such attributes nothing is noticed. Notes hold until the next boot: a power failure
may take more from a file than its attributes. Only for the identity of the journal they hold
longer, as it changes whatever took the entries.

There, too, is the name by which the journal was opened last: SQLite's log goes by the name, so a
file with two of them (hard links) has two logs, and loses what is in one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from struct import unpack_from
from typing import Final

from msgspec import Struct

from acphold.journal import bounds

MOUNTS: Final = "/proc/self/mountinfo"
"""The mounts on Linux: proc(5)."""

NETWORK: Final = frozenset(
    (
        *("acfs", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)
"""Types of file systems on other machines. Not `9p`: sandboxes such as gVisor use it for their own
disk."""


def network_type(path: str) -> str | None:
    """The type of the file system on which `path` is or would be, if that is on a network.

    None for any other, and if the system does not tell.
    """
    try:
        while not os.path.lexists(path) and (above := os.path.dirname(path)) != path:
            path = above
        device = os.stat(path).st_dev
        if os.major(device):  # a disk of this machine
            return None
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return type_of(f"0:{os.minor(device)}", mounts.read())
    except OSError:
        return None


def type_of(device: str, mounts: str) -> str | None:
    """The type with which this device is mounted, if it is in NETWORK."""
    for line in mounts.splitlines():
        place, separator, file_system = line.partition(" - ")
        fields = place.split(" ")
        if separator and len(fields) > 2 and fields[2] == device:
            found = file_system.split(" ")[0]
            return found if found in NETWORK else None
    return None


Identity = tuple[int, int]
"""Device and inode of a file."""


class HeldJournal(Struct):
    """A journal that is open in this process: the count of `users`, `descriptors` for reading and
    `writable` ones, and the `births` of its files."""

    users: int = 0
    descriptors: dict[Identity, int] = {}
    writable: dict[Identity, int] = {}
    births: dict[Identity, str] = {}

    def read(self, file: str, identity: Identity, size: int) -> bytes:
        """The first `size` bytes of this file, which has just been found at this path; raises
        OSError."""
        with _changing:
            known = self.descriptors.get(identity)
            return os.pread(_descriptor(self, file) if known is None else known, size, 0)


_journals: dict[str, HeldJournal] = {}
_changing = threading.Lock()


def hold(path: str) -> HeldJournal:
    """Register a user that is about to open the journal at `path`."""
    with _changing:
        held = _journals.setdefault(os.path.realpath(path), HeldJournal())
        held.users += 1
        return held


def let_go(path: str) -> None:
    """Remove a user that has closed the journal; the last one closes the descriptors."""
    with _changing:
        key = os.path.realpath(path)
        journal = _journals[key]
        journal.users -= 1
        if not journal.users:
            del _journals[key]
            for descriptor in (*journal.descriptors.values(), *journal.writable.values()):
                os.close(descriptor)


def read_beside(path: str, size: int, suffix: str = "") -> bytes:
    """The first `size` bytes of a held journal's file, or of a file beside it; raises OSError."""
    with _changing:
        return os.pread(_descriptor(_journals[os.path.realpath(path)], path + suffix), size, 0)


def writable(path: str) -> int:
    """A descriptor of a held journal, for writing beside SQLite; raises OSError."""
    with _changing:
        return _descriptor(_journals[os.path.realpath(path)], path, writes=True)


def _descriptor(journal: HeldJournal, file: str, *, writes: bool = False) -> int:
    """Return a descriptor of a file of a held journal, opened if there is none yet."""
    found = os.stat(file)
    known = journal.writable if writes else journal.descriptors
    descriptor = known.get((found.st_dev, found.st_ino))
    if descriptor is None:
        # O_NONBLOCK: opening a pipe must not block.
        mode = os.O_RDWR if writes else os.O_RDONLY
        descriptor = os.open(file, mode | os.O_CLOEXEC | os.O_NONBLOCK)
        opened = os.fstat(descriptor)
        known[opened.st_dev, opened.st_ino] = descriptor
    return descriptor


def blank(descriptor: int, start: int, size: int) -> None:
    """Make this range of a file zeros, by returning it to the disk if the file system can do that;
    raises OSError."""
    if sys.platform == "linux":
        import ctypes  # late, for a quick start

        # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE. Source: fallocate(2).
        punch = getattr(ctypes.CDLL(None), "fallocate64", None)
        place, length = ctypes.c_int64(start), ctypes.c_int64(size)
        if punch is not None and not punch(descriptor, 0x1 | 0x2, place, length):
            return
    os.pwrite(descriptor, bytes(size), start)


# -- room for deleting on a full disk ----------------------------------------------------------


def is_nearly_full(path: str) -> bool:
    """True if the disk of the journal has no room to spare."""
    with suppress(OSError):
        return _free_bytes(path) < bounds.RESERVED_BYTES
    return False


def _free_bytes(path: str) -> int:
    found = os.statvfs(os.path.dirname(path))
    return found.f_bavail * found.f_frsize


def keep_reserve(path: str) -> None:
    """Set room for a deletion aside in a file beside the journal, a tenth of the free one at most.

    Never more than twice what the journal takes: a deletion needs no more.
    """
    reserve = f"{path}{_RESERVE}"
    with suppress(OSError):
        log = f"{path}-wal"  # a young journal is all in it
        taken = sum(os.stat(it).st_size for it in (path, log) if os.path.exists(it))
        most = min(bounds.RESERVED_BYTES, 2 * taken)
        wanted = min(most, _free_bytes(path) // 10)
        has = os.stat(reserve).st_size if os.path.exists(reserve) else 0
        if has >= wanted // 2 or wanted < min(most, bounds.RESERVED_BYTES // 32):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(reserve, flags, 0o600)
        try:
            if sys.platform == "linux":
                os.posix_fallocate(file, 0, wanted)
            else:  # not zeros, which take no room on some file systems
                os.pwrite(file, os.urandom(wanted), 0)
        finally:
            os.close(file)


def release_reserve(path: str) -> None:
    """Give that room to a deletion, if there is no other."""
    if is_nearly_full(path):
        with suppress(OSError):
            os.unlink(f"{path}{_RESERVE}")


_RESERVE: Final = "-reserve"

_GENERATION: Final = 0x80087601 if sys.maxsize > 1 << 32 else 0x80047601
"""FS_IOC_GETVERSION: ioctl_iflags(2)."""


def place(path: str) -> str:
    """Return the place of a held journal: its inode, and the birth of that inode.

    A file system gives the inode of a deleted file to the next one, so the number alone tells too
    little; the device is left out, since its number may change at a boot.
    """
    with _changing:
        journal = _journals[os.path.realpath(path)]
        descriptor = _descriptor(journal, path)
        found = os.fstat(descriptor)
        own = found.st_dev, found.st_ino
        if own not in journal.births:
            journal.births[own] = _birth(path, descriptor, found)
        return f"{found.st_ino}.{journal.births[own]}"


def _birth(path: str, descriptor: int, found: os.stat_result) -> str:
    """Return a mark that the next file with the same inode does not have; "" if the system gives
    none."""
    if sys.platform != "linux":
        return str(getattr(found, "st_birthtime", ""))
    import fcntl  # late, for a quick start

    with suppress(OSError):
        raw = fcntl.ioctl(descriptor, _GENERATION, bytes(8))
        if any(raw):
            return raw.rstrip(b"\0").hex()
    import ctypes  # late: only for file systems without generations

    # The time at which the file was made. Source: statx(2).
    ask = getattr(ctypes.CDLL(None), "statx", None)
    told = ctypes.create_string_buffer(256)
    wanted = 0x800  # STATX_BTIME
    at_folder = -100  # AT_FDCWD
    if ask is None or ask(at_folder, os.fsencode(path), 0, wanted, told):
        return ""
    mask, seconds, nanoseconds = unpack_from("=I76xqI", told.raw)
    return f"{seconds}.{nanoseconds}" if mask & wanted else ""


EPOCH: Final = "user.acphold.epoch"
"""The last epoch that was granted."""

CHANGES: Final = "user.acphold.changes"
"""SQLite's change counter in the header of the file."""


def note(path: str, name: str, number: int) -> None:
    """Note a number. Undoing the change in the file afterwards would make it look like an earlier
    copy."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(path, name, f"{number} {boot()}".encode())


def read_note(path: str, name: str, *, ever: bool = False) -> int:
    """The number noted since the machine was started, or `ever`; 0 if there is none."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            number, _, when = os.getxattr(path, name).decode().partition(" ")
            return int(number) if ever or when == boot() else 0
    return 0


_NAME: Final = "user.acphold.name"


def other_name(path: str) -> str:
    """Return another name of this file, under which it was opened to be written, "" if there is
    none."""
    with suppress(OSError):
        if sys.platform == "linux" and (found := os.stat(path)).st_nlink > 1:
            noted = os.fsdecode(os.getxattr(path, _NAME))
            is_there = os.path.samestat(found, os.stat(noted))
            return noted if is_there and _log_of(noted) != _log_of(path) else ""
    return ""


def keep_name(path: str) -> None:
    """Note the name under which a held journal is opened to be written, unless it has another; call
    `other_name` afterwards. One at a time does this: of two names the first one stays."""
    if sys.platform == "linux":
        with suppress(OSError), _alone(path):
            name = os.fsencode(os.path.realpath(path))
            is_noted = _NAME in os.listxattr(path) and os.getxattr(path, _NAME) == name
            if not (is_noted or other_name(path)):
                os.setxattr(path, _NAME, name)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Lock a held journal for the block with flock(2), of which SQLite's locks know nothing; go on
    without if another program keeps it locked. Raises OSError."""
    import fcntl  # late, for a quick start

    with _changing:
        descriptor = _descriptor(_journals[os.path.realpath(path)], path)
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.001)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_TRIES: Final = 1000
"""Most tries to lock it, a millisecond apart."""


def _log_of(path: str) -> tuple[Identity, str]:
    """The place of a file's log: a folder may be mounted elsewhere, too."""
    folder, name = os.path.split(os.path.realpath(path))
    found = os.stat(folder)
    return (found.st_dev, found.st_ino), name


@cache
def boot() -> str:
    """An id of this boot of the machine; "" if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as linux:
            return linux.read().strip()
    except OSError:
        import ctypes  # late, for a quick start: not needed on Linux

    buffer, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    # Source: macOS, sysctlbyname(3). Elsewhere boots cannot be told apart.
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0):
        return ""
    return buffer.value.decode(errors="replace")
