"""Regular files, read up to a limit; anything else with the name of one is refused.

A pipe that nobody writes to or an endless device is neither waited for nor read, wherever a link
leads. An editor waits for `wrap NAME`, which reads its settings here, so nothing is imported.
"""

from __future__ import annotations

import errno
import os
import stat

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Names of files that are not regular."""


def contents(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return a regular file's contents; raises OSError, EINVAL if not regular, EFBIG over `limit`
    bytes.

    Their `strerror` says so.
    """
    with open(open_fd(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit >> 10:,} KiB", os.fspath(path))
    return data


def open_fd(path: str | os.PathLike[str]) -> int:
    """Return a descriptor to read a regular file; raises OSError, as above."""
    # Check before, as opening a device may have effects; and after, as it may be another file now.
    _refuse_others(os.stat(path), path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_others(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_others(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
