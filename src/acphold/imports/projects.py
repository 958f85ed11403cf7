"""Files that an agent keeps in the folders of projects, and in no folder of its own.

Projects lie anywhere. We look as deep below a home folder as people put them, level by level, at so
many folders and on the disk that it is on, and not where programs keep things: hidden folders,
packages, what a link leads to. `--from` names another folder to look below.

Who cloned a repository got what its people checked in. So a file that Git keeps counts only in a
folder that somebody named: what its people said to an agent are no words of whoever cloned it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.sources import Home, is_text, note
from acphold.workspace import regular_files

DEEPEST: Final = 4
"""How many folders above a project are looked through: `code/github.com/someone/project`."""

FOLDERS: Final = 5_000
"""How many folders are looked at, all in all: those that are not so deep come first."""

INDEX_BYTES: Final = 64 << 20
"""The largest index of a repository that is looked through."""

_PACKAGES: Final = frozenset({"Library", "__pycache__", "node_modules", "target", "venv"})


def files_of_projects(home: Home, name: str) -> Iterator[Path]:
    """The regular files of this name, or path below a project, of one's own projects."""
    for folder in _folders(home.path):
        path = folder / name
        try:
            # A link may lead to what somebody else wrote.
            is_there = path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
        except OSError as error:
            note(error)
            continue
        if is_there and (home.is_given or not _is_checked_in(folder, name)):
            yield path


def _folders(home: Path) -> Iterator[Path]:
    """The home folder and those below it, level by level."""
    try:
        disk = os.stat(home).st_dev
    except OSError:
        return
    level = [home]
    left = FOLDERS
    for _ in range(DEEPEST + 1):
        below: list[Path] = []
        for folder in level[:left]:
            yield folder
            below += _below(folder, disk)
        left -= len(level)
        level = below
        if left <= 0:
            return


def _below(folder: Path, disk: int) -> list[Path]:
    """The folders in this one that may hold projects, in the order of their names."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_hidden = entry.name.startswith(".") or entry.name in _PACKAGES
                if is_hidden or not is_text(entry.name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and entry.stat(follow_symlinks=False).st_dev == disk:
                    found.append(entry.path)
    except OSError:  # many a folder is another user's
        return []
    return [Path(path) for path in sorted(found)]


def _is_checked_in(folder: Path, name: str) -> bool:
    """Whether Git keeps the file, in this folder's repository or one that it is in."""
    for above in (folder, *folder.parents):
        index = above / ".git/index"
        try:
            named = os.path.relpath(folder / name, above)
            return os.fsencode(named) + b"\x00" in regular_files.contents(index, INDEX_BYTES)
        except FileNotFoundError:
            continue
        except OSError:  # too large, or not to be read: nobody knows
            return True
    return False
