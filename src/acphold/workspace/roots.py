"""The folders of a session, and what a path means in them.

A root is an existing folder by its identity, not by its spelling: whichever way a path gets there,
it is inside; see `acphold.workspace.walk`. What is opened is what was checked.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from acphold.errors import (
    AcpholdError,
    FileAccessError,
    InvalidParamsError,
    MissingFileError,
    NotTextError,
    OutsideRootsError,
)
from acphold.workspace.walk import Identity, Walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

MAX_PATH = 4096
"""Bytes of a path, as Linux has it."""


class Roots:
    """`[cwd, *additional]`, the folders that files and terminals of a session may be in.

    Where a root leads through links is settled here, once: a link that is made later cannot turn
    one into another folder. Raises InvalidParamsError for a root that is not an absolute path
    (ACP v1, session setup). A root need not exist; while it does not, nothing is inside it.

    All methods ask the file system, and block as long as that takes.
    """

    def __init__(self, cwd: str, additional: Sequence[str] = ()) -> None:
        self.cwd = _absolute(cwd, "cwd")
        self.additional = tuple(
            _absolute(path, f"additionalDirectories[{index}]")
            for index, path in enumerate(additional)
        )
        self._real = tuple(dict.fromkeys(os.path.realpath(path) for path in self.paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """The roots as they were given, `cwd` first."""
        return (self.cwd, *self.additional)

    def resolve(self, path: str) -> str:
        """The absolute path, without links, of what is or could be at `path`.

        For messages and for programs; what is behind it may change at any time, so to open
        something use `walk`. Raises OutsideRootsError, FileAccessError, InvalidParamsError.
        """
        with self.walk(path) as way:
            return way.path

    def named(self, path: str) -> str:
        """`path` checked like `resolve`, but absolute in the words of the client, links kept.

        An editor knows its open buffers by such names. Only `..` is resolved.
        """
        resolved = self.resolve(path)
        names = os.path.join(self.cwd, path).split("/")
        if ".." in names:
            return resolved
        return "/" + "/".join(name for name in names if name not in ("", "."))

    def folder(self, path: str) -> str:
        """Like `resolve`, for a folder that exists; raises MissingFileError, NotTextError too."""
        with self.walk(path) as way:
            if not way.rest:
                return way.path
            if len(way.rest) == 1 and _exists(way.fd, way.rest[0]):
                raise NotTextError(f"{path!r} is not a folder")
            raise MissingFileError(f"there is no folder {path!r}")

    @contextmanager
    def walk(self, path: str) -> Iterator[Walk]:
        """The way to `path`, which is inside the roots; relative paths start at `cwd`.

        Raises OutsideRootsError, FileAccessError for a way that cannot be gone, MissingFileError
        if a root is, and InvalidParamsError for what no path can be.
        """
        _check(path, "path")
        with ExitStack() as held:
            # Held, so that no inode of theirs is given to another folder meanwhile.
            there = {root: found for root in self._real if (found := _hold(held, root))}
            roots = set(there.values())
            way = held.enter_context(Walk())
            try:
                way.follow(os.path.join(self._real[0], path))
            except OSError as error:
                if way.passes(roots):
                    raise FileAccessError(f"cannot reach {path!r}: {error.strerror}") from error
                raise OutsideRootsError(path, path, self.paths) from None
            if not way.passes(roots):
                raise self._refusal(path, way.path, there)
            yield way

    def _refusal(self, path: str, target: str, there: Collection[str]) -> AcpholdError:
        for root in self._real:
            if root not in there and f"{target}/".startswith(f"{root}/"):
                return MissingFileError(f"{root!r}, a folder of this session, does not exist")
        return OutsideRootsError(path, target, self.paths)


def _hold(held: ExitStack, root: str) -> Identity | None:
    """Keep the folder `root` open; None if it does not exist, or is another's by now."""
    way = held.enter_context(Walk())
    try:
        return way.trail[-1].identity if way.folder(root) else None
    except OSError:
        return None


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _absolute(path: str, field: str) -> str:
    _check(path, field)
    if not path.startswith("/"):
        raise InvalidParamsError(f"{field} is not an absolute path: {path!r}", field)
    return path


def _check(path: str, field: str) -> None:
    """Raise InvalidParamsError for what no system call would take as a path."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidParamsError(
            f"{field} is no path, it is not Unicode: {path!r}", field
        ) from None
    if b"\0" in raw:
        raise InvalidParamsError(f"{field} is no path, it has a NUL in it: {path!r}", field)
    if len(raw) > MAX_PATH:
        raise InvalidParamsError(f"{field} is longer than {MAX_PATH} bytes", field)
