"""Regular files, read within a bound: what else may have the name of one is refused.

A pipe that nobody writes to, a device without an end: neither is waited for or read, wherever a
link leads. An editor waits for `wrap NAME`, which reads its settings here, so nothing is imported.
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
"""What is no regular file."""


def contents(path: str | os.PathLike[str], limit: int) -> bytes:
    """All of a regular file; raises OSError, EINVAL for what is none, EFBIG beyond `limit` bytes.

    Their `strerror` says so.
    """
    descriptor = opened(path)
    try:
        data = b""
        while len(data) <= limit and (piece := os.read(descriptor, limit + 1 - len(data))):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit >> 10:,} KiB", os.fspath(path))
    return data


def opened(path: str | os.PathLike[str]) -> int:
    """A descriptor to read a regular file with; raises OSError, as above."""
    # A look before: to open a device may do something. And one behind: it may be another one now.
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
