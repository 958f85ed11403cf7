"""Files that an agent keeps in project folders, and not in a folder of its own.

Projects may be anywhere. We search below a home folder as deep as people put them, level by level,
up to a number of folders, on the same disk only, and skip folders of programs: hidden folders,
packages, symlinks. `--from` names another folder to search.

A cloned repository contains files its authors checked in. So a file tracked by Git counts only in a
folder named with `--from`: its authors' words to an agent are not those of this user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.sources import Home, is_text, note
from acphold.workspace import regular_files

DEEPEST: Final = 4
"""Folder levels searched above a project: `code/github.com/someone/project`."""

FOLDERS: Final = 5_000
"""Most folders searched in total, the shallow ones first."""

INDEX_BYTES: Final = 64 << 20
"""Largest repository index that is read."""

_PACKAGES: Final = frozenset({"Library", "__pycache__", "node_modules", "target", "venv"})


def files_of_projects(home: Home, name: str) -> Iterator[Path]:
    """Yield regular files of this name, or path below a project, in the user's projects."""
    for folder in _folders(home.path):
        path = folder / name
        try:
            # A link may lead to a file of somebody else.
            is_there = path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
        except OSError as error:
            note(error)
            continue
        if is_there and (home.is_given or not _is_checked_in(folder, name)):
            yield path


def _folders(home: Path) -> Iterator[Path]:
    """Yield the home folder and those below it, level by level."""
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
    """Return subfolders that may hold projects, ordered by name."""
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
    except OSError:  # many folders belong to other users
        return []
    return [Path(path) for path in sorted(found)]


def _is_checked_in(folder: Path, name: str) -> bool:
    """Return True if Git tracks the file, in this folder's repository or an enclosing one."""
    for above in (folder, *folder.parents):
        index = above / ".git/index"
        try:
            named = os.path.relpath(folder / name, above)
            return os.fsencode(named) + b"\x00" in regular_files.contents(index, INDEX_BYTES)
        except FileNotFoundError:
            continue
        except OSError:  # too large or unreadable: assume it is
            return True
    return False
