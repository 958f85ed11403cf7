"""The files and folders below a place inside the roots, without what .gitignore leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.agents.model.ignoring import Rules, glob_pattern, is_ignored, read_rules
from holdfast.errors import FileAccessError, MissingFileError
from holdfast.workspace.roots import Roots

SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link, a pipe or a device is not what is looked for, even if it has just become one."""

MAX_LISTED = 1000

MAX_RULES = 256 * 1024
"""Bytes of one .gitignore that are read."""


class Found(NamedTuple):
    """A file, or a folder if its `path` ends with "/"; the path is relative to the start.

    `folder` is a descriptor of the folder it is in, good until the next one is asked for.
    """

    path: str
    folder: int


class Listing(NamedTuple):
    """Paths relative to the folder that was listed, and whether there are more."""

    paths: list[str]
    more: bool


class Start(NamedTuple):
    """Where a walk begins: in an open folder, or at the one file `name` in it."""

    folder: int
    path: str
    name: str | None


def listed(roots: Roots, path: str, glob: str | None) -> Listing:
    """What is in the folder `path`, or the files below it that match `glob`; WorkspaceError."""
    wanted = None if glob is None else glob_pattern(glob)
    paths: list[str] = []
    try:
        with starting_at(roots, path) as start:
            for found in below(start, deep=wanted is not None):
                is_file = not found.path.endswith("/")
                if wanted is None or (is_file and wanted.fullmatch(found.path)):
                    paths.append(found.path)
                if len(paths) > MAX_LISTED:
                    return Listing(sorted(paths[:MAX_LISTED]), True)
    except OSError as error:
        raise FileAccessError(f"cannot list {path!r}: {error.strerror}") from error
    return Listing(sorted(paths), False)


@contextmanager
def starting_at(roots: Roots, path: str) -> Iterator[Start]:
    """Open `path`, a file or a folder; raises WorkspaceError. `Start.path` has no links in it."""
    with roots.walk(path) as way:
        if len(way.rest) > 1:
            raise MissingFileError(f"there is no {path!r}")
        if not way.rest:
            yield Start(way.fd, way.path, None)
            return
        name = way.rest[0]
        try:
            os.stat(name, dir_fd=way.fd, follow_symlinks=False)
        except FileNotFoundError:
            raise MissingFileError(f"there is no {path!r}") from None
        yield Start(way.fd, way.path, name)


def below(start: Start, *, deep: bool = True) -> Iterator[Found]:
    """Everything below `start`, or if not `deep` only what is in it; the names of a folder sorted.

    Links are found, and not followed.
    """
    if start.name is not None:
        yield Found(start.name, start.folder)
        return
    stack: dict[str, list[Rules]] = {"": [_rules(start.folder, "")]}
    for top, folders, files, fd in os.fwalk(".", dir_fd=start.folder, follow_symlinks=False):
        place = "" if top == "." else f"{top.removeprefix('./')}/"
        rules = stack.pop(place, [])
        folders[:] = _kept(place, sorted(folders), True, rules)
        for name in folders:
            inner = f"{place}{name}/"
            own = _rules_in(fd, name, inner)
            stack[inner] = [*rules, own] if own.rules else rules
            yield Found(inner, fd)
        for name in _kept(place, sorted(files), False, rules):
            yield Found(f"{place}{name}", fd)
        if not deep:
            return


def open_file(found: Found) -> int | None:
    """A descriptor to read a file; None for what is none, or cannot be read."""
    try:
        return os.open(found.path.rpartition("/")[2], SAFELY, dir_fd=found.folder)
    except OSError:
        return None


def _kept(place: str, names: Sequence[str], folders: bool, rules: Sequence[Rules]) -> list[str]:
    return [name for name in names if not is_ignored(f"{place}{name}", folders, rules)]


def _rules_in(parent: int, name: str, place: str) -> Rules:
    try:
        fd = os.open(name, SAFELY | os.O_DIRECTORY, dir_fd=parent)
    except OSError:
        return Rules(place, ())
    try:
        return _rules(fd, place)
    finally:
        os.close(fd)


def _rules(folder: int, place: str) -> Rules:
    fd = open_file(Found(".gitignore", folder))
    if fd is None:
        return Rules(place, ())
    try:
        return read_rules(place, os.read(fd, MAX_RULES).decode(errors="replace"))
    except OSError:  # a folder of that name
        return Rules(place, ())
    finally:
        os.close(fd)
