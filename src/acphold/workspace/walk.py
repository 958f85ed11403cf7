"""Where a path leads, found one folder at a time, so that nothing can be swapped in between.

The system resolves a path in one go and follows whatever links it meets. Here each name is opened
inside the folder that is already open, and never through a link; a link is read, and its target
walked in the same way. So a folder we hold was reached by the names in the trail and by no others,
and links of /proc that are more than their text (`/proc/self/root`) are their text.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Self, TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode: the same folder by whatever name, also where é has two spellings."""

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""To hold a folder. With O_PATH, where there is it, one that may not be listed can be held too."""

MAX_LINKS = 40
"""Links on one way, as Linux has it; more is a loop."""

NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
"""What opening a link or a file as a folder fails with: Linux, macOS, FreeBSD."""


class Step(NamedTuple):
    """A folder on the way, and the name it was reached by."""

    name: str
    identity: Identity


class Walk:
    """A way down from "/". Owns the one folder it stands in, `fd`, until it is closed.

    `rest` are the names behind that folder: none if the path is that folder; one if it is a file
    there, or nothing yet; more if folders are missing as well.
    """

    def __init__(self) -> None:
        self.fd = os.open("/", FOLDER)
        self.trail = [Step("", _identity(self.fd))]
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
        """Whether one of `folders` is on the way, or its end."""
        return any(step.identity in folders for step in self.trail)

    def follow(self, path: str) -> None:
        """Go on along `path`, through links; raises OSError, and stands where it happened."""
        pending = path.split("/")[::-1]
        while pending:
            match pending.pop():
                case "" | ".":
                    pass
                case "..":
                    self._up()
                case name if self.rest:
                    self.rest.append(name)  # nothing below what is missing or no folder
                case name:
                    target = self._down(name)
                    if target is not None:
                        pending += self._through(target)

    def folder(self, path: str) -> bool:
        """Go to the folder `path`, through no links; False if it is not there as such."""
        for name in filter(None, path.split("/")):
            if self._down(name) is not None or self.rest:
                return False
        return True

    def make_folders(self) -> None:
        """Make the folders that are missing on the way to the last name; raises OSError."""
        while len(self.rest) > 1:
            name = self.rest[0]
            with suppress(FileExistsError):  # or it is a file: opening it will tell
                os.mkdir(name, dir_fd=self.fd)
            self._go(name, os.open(name, FOLDER, dir_fd=self.fd))
            del self.rest[0]

    def _down(self, name: str) -> str | None:
        """Enter `name`, or note it as the rest of the way; the target if it is a link."""
        try:
            fd = os.open(name, FOLDER, dir_fd=self.fd)
        except FileNotFoundError:
            self.rest.append(name)
            return None
        except OSError as error:
            if error.errno not in NOT_A_FOLDER:
                raise
            return self._read_link(name)
        self._go(name, fd)
        return None

    def _read_link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError:  # no link, or gone meanwhile
            self.rest.append(name)
            return None

    def _through(self, target: str) -> list[str]:
        """The names of a link's target, last first; from "/" if it says so."""
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            self._stand_in(os.open("/", FOLDER))
            del self.trail[1:]
        return target.split("/")[::-1]

    def _up(self) -> None:
        if self.rest:
            self.rest.pop()
        elif len(self.trail) > 1:
            self._stand_in(os.open("..", FOLDER, dir_fd=self.fd))
            self.trail.pop()
            if _identity(self.fd) != self.trail[-1].identity:
                # The folder was moved while we stood in it: we are not where the trail says.
                self.trail[-1] = Step(self.trail[-1].name, (0, 0))
                raise OSError(errno.EAGAIN, "a folder on the way was moved meanwhile")

    def _go(self, name: str, fd: int) -> None:
        self._stand_in(fd)
        self.trail.append(Step(name, _identity(fd)))

    def _stand_in(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
