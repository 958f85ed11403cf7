"""Text files inside the roots of a session: read whole or by lines, replaced in one step.

A file is written as a new one, which then takes the name: a reader sees either the old contents or
the new ones, never half. The new file first gets owner, group and mode of the old one, and on Linux
its POSIX ACL, its SELinux label and its `user.` attributes. Hard links stay with the old one.

If a new file cannot get all of these (another user's file), cannot be made (a folder only others
may write to) or cannot take the name (a mounted file), the old one is written in place. Then a
reader may see half of the contents, and so may everybody if the machine fails.

Source: ACP v1, file system.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from acp_wire import errors
from acp_wire.workspace import bounds
from acp_wire.workspace.regular_files import KINDS
from acp_wire.workspace.threads import Checkpoint, Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_wire.workspace.roots import Roots, Walk


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
        left = left[os.write(fd, left[: bounds.WRITTEN_BYTES]) :]


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


PROBE_BYTES = 8000
"""Bytes at the start of a file in which a NUL makes it a binary one; git checks as many."""


class Files:
    """Reads and writes text files inside `roots`, off the event loop.

    Errors of both methods: OutsideRootsError, MissingFileError, NotTextError (a folder, a device, a
    pipe, not UTF-8), FileAccessError (other system errors), InvalidParamsError. A relative path
    starts at the session's cwd. Links that stay inside the roots are followed.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self._threads = Threads(bounds.FILES_AT_ONCE)

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """Return `limit` lines from `line`, which counts from 1, with their original endings.

        By default to the end of the file; "" from beyond its end. Raises FileTooLargeError for more
        than MAX_READ bytes; in a file of any size a part can be read. (ACP v1, file system; a
        `line` of 0 reads as 1.)
        """
        for field, value in (("line", line), ("limit", limit)):
            if value is not None and value < 0:
                raise errors.InvalidParamsError(f"{field} is negative: {value}", field)
        first = max(line or 1, 1)

        def read(checkpoint: Checkpoint) -> str:
            with (
                _translate_errors("read", path),
                self.roots.walk(path) as way,
                _open_file(way, path, os.O_RDONLY) as fd,
            ):
                if fd is None:
                    raise errors.MissingFileError(f"there is no file {path!r}")
                size = os.fstat(fd).st_size
                if first == 1 and limit is None and size > bounds.MAX_READ:
                    raise _too_large(path, f"has {size} bytes")
                window = LineWindow(first, limit)
                is_beginning = True
                while not window.complete and (data := os.read(fd, bounds.PIECE_BYTES)):
                    if is_beginning:
                        refuse_binary(data, path)
                        is_beginning = False
                    window.feed(data)
                    if window.size > bounds.MAX_READ:
                        raise _too_large(path, "has more in these lines" if limit else "has more")
                    checkpoint()
                return decode_lines(window.lines(), first, path)

        return await self._threads.run_in_steps(read)

    async def write(self, path: str, content: str) -> None:
        """Make `content` the whole text of the file, in one step: all of it, or nothing.

        An existing file keeps owner, group, mode, POSIX ACL and user attributes; if a new file
        cannot be given the same ones, it is written in place (see `acp_wire.workspace.files`).
        It keeps its CRLF if all its lines end so. A new one is created, with missing folders.
        Cancelling leaves the file either unchanged or written.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise errors.InvalidParamsError(
                f"content for {path!r} has a lone surrogate, which UTF-8 cannot encode", "content"
            ) from None

        def write(checkpoint: Checkpoint) -> None:
            contents = data
            with _translate_errors("write", path), self.roots.walk(path) as way:
                if path.endswith("/"):
                    raise errors.NotTextError(f"{path!r} names a folder, not a file")
                way.make_folders()
                with _open_file(way, path, os.O_WRONLY) as old:  # raises if it is read-only
                    if old is not None and b"\n" in contents:
                        # If it may be written, but not read, its line ends are unknown.
                        with suppress(PermissionError), _open_file(way, path, os.O_RDONLY) as fd:
                            if fd is not None and has_crlf(os.read(fd, bounds.MAX_READ)):
                                contents = with_crlf(contents)
                    replace(way.fd, way.rest[0], contents, old, checkpoint)

        await self._threads.run_in_steps(write)


def text_of(roots: Roots, path: str, most: int) -> str | None:
    """Return the text of a file inside the roots, reached through no link; "" if there is none.

    None for anything else, such as a pipe, another encoding, or more than `most` bytes. Blocks as
    long as the disk takes.
    """
    try:
        with roots.walk_unlinked(path) as way, _open_file(way, path, os.O_RDONLY) as fd:
            if fd is None:
                return ""
            with open(fd, "rb", closefd=False) as file:
                data = file.read(most + 1)
    except (OSError, errors.AcpError):
        return None
    if len(data) > most or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _too_large(path: str, fact: str) -> errors.FileTooLargeError:
    return errors.FileTooLargeError(
        f"{path!r} {fact}, and one request reads at most {bounds.MAX_READ} bytes: "
        "ask for fewer lines with line and limit"
    )


@contextmanager
def _open_file(way: Walk, path: str, access: int) -> Iterator[int | None]:
    """Yield a descriptor of the regular file at the end of `way`, None if there is none; raises
    NotTextError, and OSError if it cannot be opened so."""
    if not way.rest:
        raise errors.NotTextError(f"{path!r} is a folder, not a file")
    status = None
    if len(way.rest) == 1:
        with suppress(FileNotFoundError):
            # Before opening it: opening some devices has effects.
            status = os.stat(way.rest[0], dir_fd=way.fd, follow_symlinks=False)
    if status is None:
        yield None
        return
    _refuse_special(status, path)
    try:
        fd = os.open(way.rest[0], access | SAFELY, dir_fd=way.fd)
    except OSError as error:
        if error.errno != errno.ETXTBSY:  # a running program may be replaced
            raise
        fd = os.open(way.rest[0], os.O_RDONLY | SAFELY, dir_fd=way.fd)
    try:
        _refuse_special(os.fstat(fd), path)  # once more: it may be another file by now
        yield fd
    finally:
        os.close(fd)


def _refuse_special(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it became a link meanwhile")
    if not stat.S_ISREG(status.st_mode):
        raise errors.NotTextError(
            f"{path!r} is {KINDS.get(stat.S_IFMT(status.st_mode))}, not a file"
        )


@contextmanager
def _translate_errors(verb: str, path: str) -> Iterator[None]:
    """Turn system errors into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise errors.MissingFileError(f"the file {path!r} no longer exists") from error
    except OSError as error:
        raise errors.FileAccessError(f"cannot {verb} {path!r}: {error.strerror}") from error


class LineWindow:
    """Cuts `limit` lines out of bytes that come in pieces, from line `first` (1 is the first).

    A line ends after its newline. None for `limit` takes all lines to the end.
    """

    def __init__(self, first: int = 1, limit: int | None = None) -> None:
        self._skip = first - 1
        self._left = limit
        self._kept: list[bytes] = []
        self.size: int = 0

    @property
    def complete(self) -> bool:
        """True if further pieces would change nothing."""
        return self._left == 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._skip:
            data, self._skip = _behind(data, self._skip)
        if self._left is not None:
            rest, self._left = _behind(data, self._left)
            data = data[: len(data) - len(rest)]
        self._kept.append(data)
        self.size += len(data)

    def lines(self) -> bytes:
        """Return the lines cut out so far."""
        return b"".join(self._kept)


def _behind(data: bytes, lines: int) -> tuple[bytes, int]:
    """Return the bytes after `lines` newlines in `data`, and the number of missing newlines."""
    there = data.count(b"\n")
    if there < lines:
        return b"", lines - there
    return data.split(b"\n", lines)[-1] if lines else data, 0


def decode_lines(data: bytes, first: int, path: str) -> str:
    """Return the text of lines that begin with line `first` of `path`; raises NotTextError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise errors.NotTextError(
            f"{path!r} is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}"
        ) from None


def refuse_binary(beginning: bytes, path: str) -> None:
    """Raise NotTextError if a file with this beginning is not text."""
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise errors.NotTextError(f"{path!r} is not UTF-8 text: it looks like UTF-16")
    if b"\0" in beginning[:PROBE_BYTES]:
        raise errors.NotTextError(f"{path!r} is a binary file, not text")


def has_crlf(text: bytes) -> bool:
    """Return True if there are lines, and each of them ends with CR LF."""
    return 0 < text.count(b"\n") == text.count(b"\r\n")


def with_crlf(text: bytes) -> bytes:
    """Return `text` with CR LF at the end of each line, including those that have it already."""
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
