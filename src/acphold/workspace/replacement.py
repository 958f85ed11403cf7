"""Replacement of a file's contents, or a new file, without a change in who can read it.

They are written to a new file, which then takes the name: a reader sees either the old contents or
the new ones, never half. The new file first gets owner, group and mode of the old one, and on Linux
its POSIX ACL, its SELinux label and its `user.` attributes. Hard links stay with the old one.

If a new file cannot get all of these (another user's file), cannot be made (a folder only others
may write to) or cannot take the name (a mounted file), the old one is written in place. Then a
reader may see half of the contents, and so may everybody if the machine fails.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acphold.workspace.threads import Checkpoint

PIECE_BYTES = 1024 * 1024
"""Bytes written between two checkpoints."""

SELF = "/proc/self/fd"
"""Linux's folder of paths for open files, by which they can be given a name."""

KEPT = ("user.", "system.posix_acl_access", "security.selinux")
"""Prefixes of the extended attributes that a file keeps; source: xattr(7)."""

IN_PLACE = frozenset((errno.EACCES, errno.EPERM, errno.EBUSY, errno.EINVAL, errno.ENOTSUP))
"""Errors of making a file like the old one, though the old one can be written."""

SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags for a file that may have become a link, a pipe or a terminal since it was checked."""


def replace(folder: int, name: str, data: bytes, old: int | None, checkpoint: Checkpoint) -> None:
    """Make `data` the contents of `name` in `folder`; `old` is a descriptor of the present file.

    Raises OSError, or the exception of `checkpoint`; then all is unchanged, unless a disk fails
    while it is written in place. The data is on the disk when this returns.
    """
    try:
        mode = 0o666 if old is None else 0o600  # less the umask; private until made alike
        fd, temporary = _open_temporary(folder, mode)
        try:
            if old is not None:
                _make_alike(fd, old)
            _write(fd, data, checkpoint)
            os.fsync(fd)
            checkpoint()
            if not temporary:
                temporary = _temporary_name()
                os.link(f"{SELF}/{fd}", temporary, dst_dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            temporary = ""
        finally:
            os.close(fd)
            if temporary:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
    except OSError as error:
        if old is None or error.errno not in IN_PLACE:
            raise
        checkpoint()
        _in_place(folder, name, data, old)


def _temporary_name() -> str:
    return f".{os.urandom(8).hex()}.acphold"


def _open_temporary(folder: int, mode: int) -> tuple[int, str]:
    """Return a new file in `folder` for writing, and its name, empty if it has none yet.

    Without a name it disappears if we are killed; not every file system supports that.
    """
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None and os.path.isdir(SELF):
        with suppress(OSError):
            return os.open(".", unnamed | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=folder), ""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    name = _temporary_name()
    return os.open(name, flags, mode, dir_fd=folder), name


def _write(fd: int, data: bytes, checkpoint: Checkpoint) -> None:
    left = memoryview(data)
    while left:
        checkpoint()
        left = left[os.write(fd, left[:PIECE_BYTES]) :]


def _make_alike(new: int, old: int) -> None:
    """Give both files the same permissions; raises OSError if that is impossible."""
    wanted, there = os.fstat(old), os.fstat(new)
    mode = wanted.st_mode & 0o777  # set-user-id goes, as with any write
    if (wanted.st_uid, wanted.st_gid) != (there.st_uid, there.st_gid):
        os.fchown(new, wanted.st_uid, wanted.st_gid)
    if sys.platform != "linux":
        os.fchmod(new, mode)
        return
    kept, inherited = _attributes(old), _attributes(new)
    for name in inherited.keys() - kept.keys():  # the default ACL of the folder
        os.removexattr(new, name)
    os.fchmod(new, mode)
    for name, value in kept.items():
        if inherited.get(name) != value:
            os.setxattr(new, name, value)


def _attributes(fd: int) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # the file system has none
            return {}
        raise
    return {name: os.getxattr(fd, name) for name in names if name.startswith(KEPT)}


def _in_place(folder: int, name: str, data: bytes, old: int) -> None:
    """Overwrite the file; once begun this cannot be cancelled."""
    fd = os.open(name, os.O_WRONLY | SAFELY, dir_fd=folder)
    try:
        if not os.path.sameopenfile(fd, old):
            raise OSError(errno.EAGAIN, "it became another file meanwhile")
        before = os.fstat(fd).st_size
        if len(data) > before and hasattr(os, "posix_fallocate"):
            # Reserve space, so that a full disk fails before anything is overwritten.
            try:
                os.posix_fallocate(fd, before, len(data) - before)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not all disks can
                    os.ftruncate(fd, before)
                    raise
        _write(fd, data, lambda: None)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)
