"""The files that a rule for edits reaches: those of the commit that is checked out, and new ones of
an ending that is committed in the rule's folder.

Names under which programs and agents load a file by themselves cannot be listed completely. The
files that a person has committed can: git lists them, with nothing but that commit as its input.
Between this look and the edit the agent may change the repository.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import os
import time
from collections import Counter
from functools import lru_cache
from typing import Final

from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import Checkout, head
from acphold.safety.snapshots.git import Git, GitError
from acphold.safety.standing.folders import EDITABLE, ending, is_in, name_flaw, real
from acphold.safety.standing.repositories import git_folders

LIST_SECONDS: Final = 2.0
"""Seconds in which git has to list the files of a commit."""

FOLDERS: Final = 3
"""Folders that are named in place of the whole project."""

FILE: Final = "100644"
LINKED_COMMIT: Final = "160000"


class UncommittedError(Exception):
    """Nothing is known to be committed here; the text is the reason."""


def why_uncommitted(path: str, folder: str, below: str) -> str:
    """Return the reason why this file is neither committed nor new among such; "" if it is.

    `folder` is that of the session, `below` the folder or file in it that the rule is for; both
    without links. Raises nothing.
    """
    found = real(os.path.join(folder, path))
    try:
        checkout = _checkout(folder)
        if _checkout(os.path.dirname(found)) != checkout:
            return f"{path} is in another repository than the session's folder"
        names, modules = _committed(checkout, below)
    except UncommittedError as error:
        return str(error)
    name = os.path.relpath(found, checkout.top)
    if any(is_in(name, module) for module in modules):
        return f"{path} is in a submodule"
    if name in names:
        return ""
    like = (it for it in names if ending(it) == ending(name))
    if any(not name_flaw(it.split("/")) for it in like):
        return ""
    return f"{path} is not committed, and no file with its ending is, in the folder of the rule"


def places_for_edits(folder: str) -> list[str]:
    """Return the folders in a session's folder that have its committed sources and documents, those
    with most of them first; where there are none, some of these files; [] without any."""
    try:
        folder = real(folder)
        checkout = _checkout(folder)
        names, _ = _committed(checkout, folder)
    except UncommittedError:
        return []
    start = os.path.relpath(folder, checkout.top)
    inner = [name if start == "." else name[len(start) + 1 :] for name in names]
    sources = [name for name in inner if ending(name) in EDITABLE]
    tops = Counter(name.partition("/")[0] for name in sources if "/" in name)
    ordered = sorted(tops, key=lambda top: (-tops[top], top))
    found = [top for top in ordered if not name_flaw([top])]
    return (found or sorted(name for name in sources if not name_flaw([name])))[:FOLDERS]


def _checkout(folder: str) -> Checkout:
    """Return the repository that git would take here; raises UncommittedError."""
    try:
        found = git_folders(folder)
    except (OSError, ValueError) as error:
        raise UncommittedError("the repository here cannot be read") from error
    if found is None:
        raise UncommittedError("there is no git repository that shows which files are sources")
    top, *places = found
    git_folder, common = map(real, places)
    # A `.git` file must not lead to a folder that rules for edits reach.
    if any(is_in(it, top) and not is_in(it, f"{top}/.git") for it in (git_folder, common)):
        raise UncommittedError("the repository here is in one of its own folders")
    return Checkout(top, git_folder, common)


def _committed(checkout: Checkout, below: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the regular files, no programs, that are committed in a folder of a
    checkout, and of its submodules. Raises UncommittedError."""
    commit = head(checkout).commit
    if commit is None:
        raise UncommittedError("no commit is checked out that shows which files are sources")
    try:
        return _listed(checkout.git_folder, commit, os.path.relpath(below, checkout.top))
    except (GitError, TimeoutError, BufferError) as error:
        raise UncommittedError(f"the files of the last commit cannot be listed: {error}") from error


@lru_cache(maxsize=4)  # a commit never changes
def _listed(git_folder: str, commit: str, name: str) -> tuple[frozenset[str], frozenset[str]]:
    with ProgramGroup(time.monotonic() + LIST_SECONDS) as group:
        git = Git(group, git_folder, home=os.devnull)
        within = [] if name == "." else ["--", name]
        listed = git.names("ls-tree", "-r", "-z", "--full-tree", commit, *within)
        lines = [line.split("\t", 1) for line in listed]
    return (
        frozenset(name for kind, name in lines if kind.startswith(f"{FILE} ")),
        frozenset(name for kind, name in lines if kind.startswith(f"{LINKED_COMMIT} ")),
    )
