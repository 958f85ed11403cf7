"""The checkout of a repository that a folder lies in, and the same project on another machine.

No git runs to find a checkout: it would load the configuration of the repository, which may be
anybody's. Another machine may have its clone anywhere, so a project is known by its marks, which
git reads with harmless options.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from acp_wire.workspace.regular_files import contents
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.git import Git, GitError

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

SHA256 = re.compile(r"^[ \t]*objectformat[ \t]*=[ \t]*\"?sha256\b", re.IGNORECASE | re.MULTILINE)


class Checkout(Struct, frozen=True):
    """The work tree at `top`, without links; `git_folder` is its own, `common` that of all work
    trees of the repository. Both are "" for a folder outside of any repository."""

    top: str
    git_folder: str = ""
    common: str = ""

    @property
    def index(self) -> str:
        """The path of its index."""
        return os.path.join(self.git_folder, "index")

    @property
    def is_repository(self) -> bool:
        return bool(self.git_folder)


class GitHead(Struct, frozen=True):
    """The commit that is checked out, None before the first; and its branch, "" if there is
    none. Bytes of its name that are not UTF-8 are replaced."""

    commit: str | None
    branch: str


def checkout_of(folder: str) -> Checkout | None:
    """Return the checkout that `folder` lies in; None if there is none."""
    try:
        top = os.path.realpath(folder)
    except ValueError:
        return None
    while True:
        if (found := checkout_at(top)) is not None:
            return found
        if (above := os.path.dirname(top)) == top:
            return None
        top = above


def checkout_at(top: str) -> Checkout | None:
    """Return the checkout whose top folder this is; None if it is none."""
    place = os.path.join(top, ".git")
    if not os.path.isdir(place):
        content = _text(place, bounds.PATH_BYTES)
        if not content.startswith("gitdir:"):
            return None
        place = os.path.join(top, content.removeprefix("gitdir:").strip())
    if not os.path.lexists(os.path.join(place, "HEAD")):
        return None
    git_folder = os.path.realpath(place)
    shared = _text(os.path.join(git_folder, "commondir"), bounds.PATH_BYTES).strip()
    if "\0" in shared:
        return None
    return Checkout(top, git_folder, os.path.realpath(os.path.join(git_folder, shared)))


def main_top(checkout: Checkout) -> str:
    """Return the top folder of a repository's main work tree; that of this one if the main one is
    not known, as in a bare repository."""
    above, name = os.path.split(checkout.common)
    first = checkout_at(above) if name == ".git" else None
    return above if first is not None and first.common == checkout.common else checkout.top


def work_trees(checkout: Checkout) -> list[str]:
    """Return the top folders of the work trees that a repository knows, the main one first. Some
    may be gone."""
    linked = os.path.join(checkout.common, "worktrees")
    names = sorted(os.listdir(linked))[: bounds.WORK_TREES] if os.path.isdir(linked) else []
    places = [_text(os.path.join(linked, name, "gitdir"), bounds.PATH_BYTES) for name in names]
    return [main_top(checkout)] + [
        # It may be relative (git 2.48).
        os.path.dirname(os.path.normpath(os.path.join(linked, name, place.strip())))
        for name, place in zip(names, places, strict=True)
        if "\0" not in place
    ]


def in_other_work_trees(folder: str) -> tuple[str, ...]:
    """Return the same folder in the other work trees of its repository, where it is there."""
    if (checkout := checkout_of(folder)) is None or not checkout.is_repository:
        return ()
    inner = os.path.relpath(os.path.realpath(folder), checkout.top)
    return tuple(
        os.path.normpath(os.path.join(top, inner))
        for top in dict.fromkeys(work_trees(checkout))
        if top != checkout.top
        and (found := checkout_at(top)) is not None
        and found.common == checkout.common
        and os.path.isdir(os.path.join(top, inner))
    )


def in_main_work_tree(folder: str) -> str:
    """Return the same folder in the main work tree of its repository, whether it is there or not;
    the folder itself, if it lies in no other work tree."""
    if (checkout := checkout_of(folder)) is None or not checkout.is_repository:
        return folder
    if (top := main_top(checkout)) == checkout.top:
        return folder
    return os.path.normpath(
        os.path.join(top, os.path.relpath(os.path.realpath(folder), checkout.top))
    )


def head(checkout: Checkout) -> GitHead:
    """Return what is checked out; a repository whose references are kept otherwise has no commit
    that we know."""
    content = _text(os.path.join(checkout.git_folder, "HEAD")).strip()
    if not content.startswith("ref:"):
        return GitHead(content if COMMIT.fullmatch(content) else None, "")
    name = content.removeprefix("ref:").strip()
    if not name.startswith("refs/") or ".." in name.split("/"):
        return GitHead(None, "")
    branch = name.removeprefix("refs/heads/")
    shown = os.fsencode(branch).decode(errors="replace")
    return GitHead(commit_at(checkout, name), shown)


def commit_at(checkout: Checkout, name: str) -> str | None:
    """Return the object that a reference with this whole name leads to; None if there is none."""
    if not name.startswith("refs/") or ".." in name.split("/") or "\0" in name:
        return None
    commit = _text(os.path.join(checkout.common, name)).strip()
    if not commit:
        for line in _text(os.path.join(checkout.common, "packed-refs")).splitlines():
            found, _, its_name = line.partition(" ")
            if its_name == name:
                commit = found
    return commit if COMMIT.fullmatch(commit) else None


def object_format(checkout: Checkout) -> Literal["sha1", "sha256"]:
    """Return the kind of ids that a repository has."""
    config = _text(os.path.join(checkout.common, "config"))
    return "sha256" if SHA256.search(config) is not None else "sha1"


def _text(path: str, most: int = bounds.REFERENCES_BYTES) -> str:
    """The content of a regular file; "" if it cannot be read, or has more than `most` bytes."""
    with suppress(OSError, ValueError):
        return os.fsdecode(contents(path, most))
    return ""


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
    if not checkout.is_repository:
        return ProjectMarks()
    # No git, no commit yet, or too many.
    with suppress(GitError, TimeoutError, BufferError), _looking() as group:
        git = Git.reading(group, checkout.top, os.devnull)
        remotes = _remotes(git)
        roots = git.run("rev-list", "--max-parents=0", "HEAD").decode().split()
    return ProjectMarks(
        tuple(roots[: bounds.PROJECT_MARKS]), tuple(remotes[: bounds.PROJECT_MARKS])
    )


def same_project(folders: Iterable[str], wanted: ProjectMarks, commit: str | None) -> str:
    """Return the top folder of the first of these that is a clone of the project, preferably one
    that has the commit; "" if none is. Blocks."""
    roots = [root for root in wanted.roots[: bounds.PROJECT_MARKS] if COMMIT.fullmatch(root)]
    remotes = {*wanted.remotes[: bounds.PROJECT_MARKS]}
    if not (roots or remotes):
        return ""
    clones: dict[str, str] = {}
    for folder in folders:
        checkout = checkout_of(folder)
        if checkout is not None and len(clones) < bounds.PROJECTS:
            clones.setdefault(checkout.common, main_top(checkout))
    fallback = ""
    # If it takes too long, what was found until then; without git, nothing.
    with suppress(GitError, TimeoutError, BufferError), _looking() as group:
        for top in clones.values():
            git = Git.reading(group, top, os.devnull)
            has_root = any(_has(git, root) for root in roots)
            if has_root or (not roots and remotes & {*_remotes(git)}):
                if commit is None or _has(git, commit):
                    return top
                fallback = fallback or top
    return fallback


def _looking() -> ProgramGroup:
    return ProgramGroup(time.monotonic() + bounds.PROJECTS_SECONDS)


def _has(git: Git, commit: str) -> bool:
    with suppress(GitError):
        if COMMIT.fullmatch(commit):
            git.run("cat-file", "-e", f"{commit}^{{commit}}")
            return True
    return False


def _remotes(git: Git) -> list[str]:
    """The places of the remotes, as `host/path`."""
    try:
        names = ("-z", "--get-regexp", r"^remote\..*\.url$")
        output = git.run("config", "--local", "--no-includes", *names)
    except GitError:  # it has none
        return []
    urls = [line.partition("\n")[2] for line in output.decode(errors="replace").split("\0") if line]
    return [place_of_remote(url) for url in urls]


def place_of_remote(url: str) -> str:
    """Return `host/path` of a remote: the same for ssh and https, without user and `.git`."""
    host, _, path = USER.sub("", url.strip(), count=1).replace(":", "/", 1).partition("/")
    return f"{host.lower()}/{path.strip('/').removesuffix('.git')}"
