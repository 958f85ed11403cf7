"""The files of a work tree that go into a snapshot, of those that git has listed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.secret_names import may_hold_secret

Cause: TypeAlias = Literal["folder", "home", "slow", "full", "passing", "git", "given up"]


NAMES_OF_GIT = re.compile(r"(?:^|[/\\])(?:\.git|git~1)[. ]*(?:\Z|[/\\:])", re.IGNORECASE | re.ASCII)
"""Paths that git refuses: its own name, as some disk may see it. Source: git, `is_ntfs_dotgit`."""


class LeftOut(Struct, frozen=True):
    """A file that is not in a snapshot, or its staged content, in words, and why."""

    path: str
    why: str


class Sifted(Struct):
    """Names that leave our index, names to read into it with their bytes, and files left out."""

    removed: list[str] = []
    added: list[str] = []
    left_out: list[LeftOut] = []
    sizes: dict[str, int] = {}

    @property
    def size(self) -> int:
        return sum(self.sizes[name] for name in self.added)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget what is removed and added but these."""
        self.removed = [name for name in self.removed if name in names]
        self.added = [name for name in self.added if name in names]


class RefusedSnapshotError(Exception):
    """No snapshot can be taken now; ends in NotTaken."""

    def __init__(self, reason: str, cause: Cause = "folder") -> None:
        super().__init__(reason)
        self.cause: Cause = cause


class Sieve:
    """Looks at the files of the work tree at `top`; `own` are paths of ours, never taken."""

    def __init__(self, top: str, limits: bounds.SnapshotLimits, own: Iterable[str]) -> None:
        self._top = top
        self._limits = limits
        self._own = tuple(os.path.relpath(path, top) for path in map(os.path.realpath, own))
        self._behind = {"": False}

    def sift(
        self, candidates: Collection[str], is_tracked: Callable[[str], bool], ours: Collection[str]
    ) -> Sifted:
        """Look at each name. Raises RefusedSnapshotError beyond the limits."""
        sifted = Sifted()
        untracked = size = 0
        for name in sorted(candidates):
            if self.is_behind_link(name):
                sifted.removed.append(name)
                continue
            if any(name == path or name.startswith(f"{path}/") for path in self._own):
                continue
            try:
                status = os.lstat(os.path.join(self._top, name))
            except OSError as error:
                sifted.removed.append(name)
                if not isinstance(error, FileNotFoundError | NotADirectoryError):
                    sifted.left_out.append(LeftOut(as_text(name), "cannot be read"))
                continue
            if stat.S_ISDIR(status.st_mode):
                sifted.removed.append(name)
                continue
            why = self._reason_to_leave_out(name, status, is_tracked)
            if why is not None:
                sifted.removed.append(name)
                sifted.left_out.append(LeftOut(as_text(name), why))
                continue
            sifted.added.append(name)
            sifted.sizes[name] = status.st_size
            untracked += name not in ours
            size += status.st_size
            if size > (most := self._limits.new_bytes):  # before the others are looked at
                raise RefusedSnapshotError(f"more than {most >> 20:,} MB are new")
        if untracked > self._limits.new_files:
            added = [name for name in sifted.added if name not in ours]
            self.refuse_many(sum(not is_tracked(name) for name in added))
        sifted.removed = [name for name in sifted.removed if name in ours]
        return sifted

    def refuse_many(self, untracked: int) -> None:
        if untracked > (most := self._limits.new_files):
            raise RefusedSnapshotError(
                f"{untracked:,} new files are not ignored; at most {most:,} are allowed"
            )

    def _reason_to_leave_out(
        self, name: str, status: os.stat_result, is_tracked: Callable[[str], bool]
    ) -> str | None:
        """The reason to leave a file out; None if it is taken."""
        if NAMES_OF_GIT.search(name):
            return "git takes no file with such a name"
        if stat.S_ISLNK(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        most = self._limits.untracked_file
        if status.st_size > most and is_tracked(name):
            most = self._limits.tracked_file
        if status.st_size > most:
            return f"larger than {most >> 20} MB"
        if may_hold_secret(name) and not is_tracked(name):
            return "may contain a secret"
        if not os.access(os.path.join(self._top, name), os.R_OK):
            return "cannot be read"
        return None

    def is_behind_link(self, name: str) -> bool:
        """True if a file in the work tree is reached through a link."""
        folder, unknown = os.path.dirname(name), []
        while folder not in self._behind:
            unknown.append(folder)
            folder = os.path.dirname(folder)
        is_behind = self._behind[folder]
        for below in reversed(unknown):
            is_behind = is_behind or os.path.islink(os.path.join(self._top, below))
            self._behind[below] = is_behind
        return is_behind


def as_text(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")
