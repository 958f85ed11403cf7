"""The same project on another machine: found by its first commits and its remotes.

A path tells nothing: the clone there may be anywhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from acphold.errors import AgentStartError
from acphold.processes.program_group import ProgramGroup
from acphold.snapshots.checkouts import COMMIT, Checkout, checkout_of, main_top
from acphold.snapshots.git import HARMLESS, Git, GitError, program

SECONDS = 20.0
"""Seconds that looking at repositories may take."""

MOST_PROJECTS = 50
"""Repositories that are looked at."""

MOST_MARKS = 20
"""First commits and remotes of one project that are told."""

USER = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?", re.IGNORECASE)


class ProjectMarks(Struct, frozen=True):
    """Marks of a project that its clones share: the ids of its first commits, and the places of
    its remotes, without users and passwords."""

    roots: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()


def marks(checkout: Checkout) -> ProjectMarks:
    """Return the marks of a project; blocks. What cannot be read in time is left out."""
    roots: Sequence[str] = ()
    remotes: Sequence[str] = ()
    if program() is None or not checkout.is_repository:
        return ProjectMarks()
    try:
        with ProgramGroup(time.monotonic() + SECONDS) as group:
            git = Git(group, None, home=os.devnull)
            remotes = _remotes(git, checkout.top)
            found = git.run("-C", checkout.top, *HARMLESS, "rev-list", "--max-parents=0", "HEAD")
            roots = found.decode().split()
    except (GitError, TimeoutError, BufferError, AgentStartError):
        pass  # no commit yet, or too many
    return ProjectMarks(tuple(roots[:MOST_MARKS]), tuple(remotes[:MOST_MARKS]))


def same_project(folders: Iterable[str], wanted: ProjectMarks, commit: str | None) -> str:
    """Return the top folder of the first of these that is a clone of the project, preferably one
    that has the commit; "" if none is. Blocks."""
    roots = [root for root in wanted.roots[:MOST_MARKS] if COMMIT.fullmatch(root)]
    remotes = {*wanted.remotes[:MOST_MARKS]}
    if program() is None or not (roots or remotes):
        return ""
    clones: dict[str, str] = {}
    for folder in folders:
        checkout = checkout_of(folder)
        if checkout is not None and len(clones) < MOST_PROJECTS:
            clones.setdefault(checkout.common, main_top(checkout))
    second = ""
    try:
        with ProgramGroup(time.monotonic() + SECONDS) as group:
            git = Git(group, None, home=os.devnull)
            for top in clones.values():
                is_same = any(_has(git, top, root) for root in roots)
                if is_same or (not roots and remotes & {*_remotes(git, top)}):
                    if commit is None or _has(git, top, commit):
                        return top
                    second = second or top
    except (TimeoutError, BufferError, AgentStartError):
        pass  # what was found until then
    return second


def _has(git: Git, top: str, commit: str) -> bool:
    if not COMMIT.fullmatch(commit):
        return False
    try:
        git.run("-C", top, *HARMLESS, "cat-file", "-e", f"{commit}^{{commit}}")
    except GitError:
        return False
    return True


def _remotes(git: Git, top: str) -> list[str]:
    """The places of the remotes, as `host/path`."""
    try:
        said = git.run(
            *("-C", top, *HARMLESS, "config", "--local", "--no-includes"),
            *("-z", "--get-regexp", r"^remote\..*\.url$"),
        )
    except GitError:  # it has none
        return []
    urls = [line.partition("\n")[2] for line in said.decode(errors="replace").split("\0") if line]
    return [place_of_remote(url) for url in urls]


def place_of_remote(url: str) -> str:
    """Return `host/path` of a remote: the same for ssh and https, without user and `.git`."""
    host, _, path = USER.sub("", url.strip(), count=1).replace(":", "/", 1).partition("/")
    return f"{host.lower()}/{path.strip('/').removesuffix('.git')}"
