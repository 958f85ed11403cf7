"""The checkout of a repository that a folder lies in, read from its files.

No git runs for that: it would load the configuration of the repository, which may be anybody's.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from acphold.workspace.regular_files import contents

MOST = 16 << 20
"""Largest file that is read of a repository: a list of its references."""

LONGEST_PATH = 8 << 10
"""Largest file that is read for the path of a folder."""

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
        said = _text(place, LONGEST_PATH)
        if not said.startswith("gitdir:"):
            return None
        place = os.path.join(top, said.removeprefix("gitdir:").strip())
    if not os.path.lexists(os.path.join(place, "HEAD")):
        return None
    git_folder = os.path.realpath(place)
    shared = _text(os.path.join(git_folder, "commondir"), LONGEST_PATH).strip()
    if "\0" in shared:
        return None
    return Checkout(top, git_folder, os.path.realpath(os.path.join(git_folder, shared)))


def main_top(checkout: Checkout) -> str:
    """Return the top folder of a repository's main work tree; that of this one if the main one is
    not known, as in a bare repository."""
    above, name = os.path.split(checkout.common)
    first = checkout_at(above) if name == ".git" else None
    return above if first is not None and first.common == checkout.common else checkout.top


def head(checkout: Checkout) -> GitHead:
    """Return what is checked out; a repository whose references are kept otherwise has no commit
    that we know."""
    said = _text(os.path.join(checkout.git_folder, "HEAD")).strip()
    if not said.startswith("ref:"):
        return GitHead(said if COMMIT.fullmatch(said) else None, "")
    name = said.removeprefix("ref:").strip()
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


def _text(path: str, most: int = MOST) -> str:
    """The content of a regular file; "" if it cannot be read, or has more than `most` bytes."""
    with suppress(OSError, ValueError):
        return os.fsdecode(contents(path, most))
    return ""
