"""Paths that stay in a folder.

The only module of the room that looks at the disk. Between the look and the agent's use of a path
there is time.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final

_PIECES: Final = re.compile(r"[=:,]+")


def is_in(path: str, folder: str) -> bool:
    """True if `path` is `folder` or below it, by their names alone."""
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def real(path: str) -> str:
    """The path without links and `..`; what does not exist stays as it is."""
    return os.path.realpath(path)


def paths_outside_rules(home: str, journal: str) -> tuple[str, ...]:
    """Paths that must not lie in a session's folder for rules to count there: the person's `home`,
    and the file of the journal, if it is one."""
    return (home, journal) if journal else (home,)


def leads_out(word: str, cwd: str, folder: str) -> bool:
    """True if an argument of a program may name something outside of `folder`.

    `cwd` is the folder that the program stands in; both are without links. Parts of the word are
    looked at as well: `--option=path`, `file::test`, `a:b`.
    """
    pieces = {word, *_PIECES.split(word)} if _PIECES.search(word) else (word,)
    return any(_leads_out(piece, cwd, folder) for piece in pieces)


def _leads_out(piece: str, cwd: str, folder: str) -> bool:
    if piece.startswith("~"):
        return True
    if piece.startswith("/") or ".." in piece.split("/"):
        return not is_in(real(os.path.join(cwd, piece)), folder)
    place = cwd
    for name in piece.split("/"):
        if name in ("", "."):
            continue
        place = f"{place}/{name}"
        try:
            mode = os.lstat(place).st_mode
        except (OSError, ValueError):
            return False  # not there, so nothing below it is
        if stat.S_ISLNK(mode):
            return not is_in(real(os.path.join(cwd, piece)), folder)
    return False
