"""The folders of a session, and the resolution of paths inside them.

A root is an existing folder by its identity, not by its spelling: any path that leads there is
inside. The file opened is the one that was checked: nothing can be swapped in between. The system
resolves a path in one go and follows all links on it. Here each name is opened inside the folder
that is already open, and never through a link; a link is read, and its target walked in the same
way. So a folder we hold was reached by exactly the names in the trail, and special links of /proc
(`/proc/self/root`) count as their text.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from acp_wire import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Identity: TypeAlias = tuple[int, int]
"""Device and inode: the same folder under any name, including both spellings of é."""

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags to hold a folder. With O_PATH, if available, even one that may not be listed."""

MAX_LINKS = 40
"""Most links on one path, as in Linux; more is a loop."""

NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
"""Errors of opening a link or a file as a folder: Linux, macOS, FreeBSD."""

MAX_PATH = 4096
"""Longest path in bytes, as in Linux."""


class Roots:
    """`[cwd, *additional]`, the folders that files and terminals of a session may be in.

    Links in a root are resolved here, once: a later link cannot turn one into another folder.
    Raises InvalidParamsError for a root that is not an absolute path (ACP v1, session setup). A
    root need not exist; until it does, nothing is inside it.

    All methods access the file system, and block as long as that takes.
    """

    def __init__(self, cwd: str, additional: Sequence[str] = ()) -> None:
        self.cwd: str = _absolute(cwd, "cwd")
        self.additional: tuple[str, ...] = tuple(
            _absolute(path, f"additionalDirectories[{index}]")
            for index, path in enumerate(additional)
        )
        self._real = tuple(dict.fromkeys(os.path.realpath(path) for path in self.paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """The roots as they were given, `cwd` first."""
        return (self.cwd, *self.additional)

    def resolve(self, path: str) -> str:
        """Return the absolute path, without links, of an existing or possible file at `path`.

        For messages and for programs; it may change at any time, so use `walk` to open something.
        Raises OutsideRootsError, FileAccessError, InvalidParamsError.
        """
        with self.walk(path) as way:
            return way.path

    def resolve_keeping_links(self, path: str) -> str:
        """Return `path` checked like `resolve` and absolute, but as the client wrote it, with
        links.

        An editor knows its open buffers by such names. Only `..` is resolved.
        """
        resolved = self.resolve(path)
        names = os.path.join(self.cwd, path).split("/")
        if ".." in names:
            return resolved
        return "/" + "/".join(name for name in names if name not in ("", "."))

    def folder(self, path: str) -> str:
        """Do the same as `resolve` for an existing folder; raises MissingFileError, NotTextError
        too.
        """
        with self.walk(path) as way:
            if not way.rest:
                return way.path
            if len(way.rest) == 1:
                with suppress(OSError):
                    os.stat(way.rest[0], dir_fd=way.fd, follow_symlinks=False)
                    raise errors.NotTextError(f"{path!r} is not a folder")
            raise errors.MissingFileError(f"there is no folder {path!r}")

    @contextmanager
    def walk(self, path: str) -> Iterator[Walk]:
        """Yield the way to `path`, which is inside the roots; relative paths start at `cwd`.

        Raises OutsideRootsError, FileAccessError for an inaccessible path, MissingFileError if a
        root is missing, and InvalidParamsError for an impossible path.
        """
        _check(path, "path")
        with ExitStack() as stack:
            # Held open, so that none of their inodes is reused for another folder meanwhile. A root
            # that does not exist, or is another folder by now, is left out.
            identities: dict[str, Identity] = {}
            for root in self._real:
                to_root = stack.enter_context(Walk())
                with suppress(OSError):
                    if to_root.folder(root):
                        identities[root] = to_root.trail[-1].identity
            roots = set(identities.values())
            way = stack.enter_context(Walk())
            try:
                way.follow(os.path.join(self._real[0], path))
            except OSError as error:
                if way.passes(roots):
                    raise errors.FileAccessError(
                        f"cannot reach {path!r}: {error.strerror}"
                    ) from error
                raise errors.OutsideRootsError(path, path, self.paths) from None
            if not way.passes(roots):
                for root in self._real:
                    if root not in identities and f"{way.path}/".startswith(f"{root}/"):
                        why = f"the folder {root!r} of this session does not exist"
                        raise errors.MissingFileError(why)
                raise errors.OutsideRootsError(path, way.path, self.paths)
            yield way

    @contextmanager
    def walk_unlinked(self, path: str) -> Iterator[Walk]:
        """Yield the way to `path` like `walk`, unless there is a link on it below the root.

        The end of the way may be a link itself. Raises OutsideRootsError, OSError and
        InvalidParamsError.
        """
        _check(path, "path")
        whole = os.path.normpath(os.path.join(self.cwd, path))
        for root in (*self.paths, *self._real):
            below = os.path.relpath(whole, root)
            if below != os.pardir and not below.startswith(f"{os.pardir}/"):
                folder, name = os.path.split(below)
                with Walk() as way:
                    if way.folder(f"{os.path.realpath(root)}/{folder}"):
                        way.rest = [name]
                        yield way
                        return
        raise errors.OutsideRootsError(path, whole, self.paths)


class PathStep(NamedTuple):
    """A folder on the way, and the name it was reached by."""

    name: str
    identity: Identity


class Walk:
    """A way down from "/". Owns the one folder it stands in, `fd`, until it is closed.

    `rest` are the names after that folder: none if the path is that folder; one if it is a file
    there, or nothing yet; more if folders are missing as well.
    """

    def __init__(self) -> None:
        self.fd: int = os.open("/", FOLDER)
        self.trail: list[PathStep] = [PathStep("", _identity(self.fd))]
        self.rest: list[str] = []
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def path(self) -> str:
        """The absolute path without links, `.` or `..`."""
        return "/" + "/".join([*(step.name for step in self.trail[1:]), *self.rest])

    def passes(self, folders: set[Identity]) -> bool:
        """Return True if one of `folders` is on the way, or its end."""
        return any(step.identity in folders for step in self.trail)

    def follow(self, path: str) -> None:
        """Continue along `path`, through links; raises OSError, and stays where it happened."""
        pending = path.split("/")[::-1]
        while pending:
            match pending.pop():
                case "" | ".":
                    pass
                case ".." if self.rest:
                    self.rest.pop()
                case "..":
                    if len(self.trail) > 1:
                        self._stand_in(os.open("..", FOLDER, dir_fd=self.fd))
                        self.trail.pop()
                        if _identity(self.fd) != self.trail[-1].identity:
                            # The folder was moved while we stood in it, so the trail is wrong.
                            self.trail[-1] = PathStep(self.trail[-1].name, (0, 0))
                            raise OSError(errno.EAGAIN, "a folder on the way was moved meanwhile")
                case name if self.rest:
                    self.rest.append(name)  # nothing is below a missing name or a file
                case name:
                    target = self._down(name)
                    if target is None:
                        continue
                    self._links += 1
                    if self._links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    if target.startswith("/"):
                        self._stand_in(os.open("/", FOLDER))
                        del self.trail[1:]
                    pending += target.split("/")[::-1]

    def folder(self, path: str) -> bool:
        """Enter the folder `path`, through no links; False if it is no such folder."""
        for name in filter(None, path.split("/")):
            if self._down(name) is not None or self.rest:
                return False
        return True

    def make_folders(self) -> None:
        """Create the missing folders on the way to the last name; raises OSError."""
        while len(self.rest) > 1:
            name = self.rest[0]
            with suppress(FileExistsError):  # or it is a file: opening it will fail
                os.mkdir(name, dir_fd=self.fd)
            self._go(name, os.open(name, FOLDER, dir_fd=self.fd))
            del self.rest[0]

    def _down(self, name: str) -> str | None:
        """Enter `name`, or add it to the rest of the way; return the target if it is a link."""
        try:
            fd = os.open(name, FOLDER, dir_fd=self.fd)
        except FileNotFoundError:
            self.rest.append(name)
            return None
        except OSError as error:
            if error.errno not in NOT_A_FOLDER:
                raise
            try:
                return os.readlink(name, dir_fd=self.fd)
            except OSError:  # no link, or gone meanwhile
                self.rest.append(name)
                return None
        self._go(name, fd)
        return None

    def _go(self, name: str, fd: int) -> None:
        self._stand_in(fd)
        self.trail.append(PathStep(name, _identity(fd)))

    def _stand_in(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def _absolute(path: str, field: str) -> str:
    _check(path, field)
    if not path.startswith("/"):
        raise errors.InvalidParamsError(f"{field} is not an absolute path: {path!r}", field)
    return path


def _check(path: str, field: str) -> None:
    """Raise InvalidParamsError for a path that no system call would accept."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise errors.InvalidParamsError(
            f"{field} is not a valid path, it is not Unicode: {path!r}", field
        ) from None
    if b"\0" in raw:
        raise errors.InvalidParamsError(
            f"{field} is not a valid path, it contains a NUL: {path!r}", field
        )
    if len(raw) > MAX_PATH:
        raise errors.InvalidParamsError(f"{field} is longer than {MAX_PATH} bytes", field)


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
