"""A file gets its new contents in one step: a reader sees the old ones or the new, never half."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acphold.workspace.threads import Checkpoint

PIECE_BYTES = 1024 * 1024
"""What is written between two checkpoints."""

SELF = "/proc/self/fd"
"""Where Linux gives an open file a path, by which it can be given a name."""


def replace(
    folder: int, name: str, data: bytes, old: os.stat_result | None, checkpoint: Checkpoint
) -> None:
    """Make `data` the contents of `name` in `folder`, with owner and mode of `old` if it exists.

    Raises OSError, or what `checkpoint` raises; then all is as it was. The data is on the disk
    before it gets the name. Hard links and extended attributes of the old file stay with it.
    """
    temporary = f".{os.urandom(8).hex()}.acphold"
    mode = 0o666 if old is None else 0o600  # less the umask; and no eyes on it before `old`'s
    fd, named = _open_temporary(folder, temporary, mode)
    try:
        _write(fd, data, checkpoint)
        if old is not None:
            _keep_owner_and_mode(fd, old)
        os.fsync(fd)
        checkpoint()
        if not named:
            os.link(f"{SELF}/{fd}", temporary, dst_dir_fd=folder)
            named = True
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        named = False
    finally:
        os.close(fd)
        if named:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)


def _open_temporary(folder: int, name: str, mode: int) -> tuple[int, bool]:
    """A new file in `folder` for writing, and whether it is called `name` or nothing yet.

    Without a name it is gone when we are killed; not every file system can do that.
    """
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None and os.path.isdir(SELF):
        with suppress(OSError):
            return os.open(".", unnamed | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=folder), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, mode, dir_fd=folder), True


def _write(fd: int, data: bytes, checkpoint: Checkpoint) -> None:
    left = memoryview(data)
    while left:
        checkpoint()
        left = left[os.write(fd, left[:PIECE_BYTES]) :]


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):  # then it is ours, as if we had made it
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, old.st_mode & 0o777)  # set-user-id goes, as with any write
