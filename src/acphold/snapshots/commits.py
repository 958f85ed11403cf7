"""Commits of a project, read without its configuration: by a folder of our own, with the project's
objects beside it. Nothing is written, and nothing of the project runs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from acphold.processes.program_group import ProgramGroup
from acphold.snapshots.checkouts import Checkout, commit_at, head, object_format
from acphold.snapshots.comparison import NOTHING, SnapshotReader
from acphold.snapshots.git import Git, GitError

_NAME = re.compile(r"([^~^@{}:\s-][^~^@{}:\s]*|@)([~^][0-9]*)*", re.ASCII)
_HUNK = re.compile(rb"@@ -[0-9,]+ \+([0-9]+)(?:,([0-9]+))? @@")


class AddedLines(Struct, frozen=True):
    """The lines that a commit added to a file, numbered from 1, and the file's content."""

    path: str
    blob: str
    lines: tuple[int, ...]


@contextmanager
def bare_folder(kind: str = "sha1", prefix: str = "acphold-why-", at: str = "") -> Iterator[str]:
    """Make a temporary bare git folder for the block, private and without a person's configuration;
    `kind` is its kind of ids, `at` the folder to make it in."""
    config = (
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
        f"[extensions]\n\tobjectFormat = {kind}\n"
    )
    with tempfile.TemporaryDirectory(prefix=prefix, dir=at or None) as folder:
        for name in ("objects/info", "objects/pack", "refs/heads"):
            os.makedirs(os.path.join(folder, name))
        for name, text in (("config", config), ("HEAD", "ref: refs/heads/none\n")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        yield folder


class CommitReader:
    """Reads the commits of a project; blocks, and raises as SnapshotReader does."""

    def __init__(self, group: ProgramGroup, checkout: Checkout, folder: str) -> None:
        self._checkout = checkout
        objects = os.path.join(checkout.common, "objects")
        self._git = Git(group, folder, home=folder, objects=objects)
        self.files = SnapshotReader(self._git)

    def named(self, name: str) -> str:
        """Return the id of the commit with this name: an id or the beginning of one, HEAD, a
        branch or a tag, with `~2` or `^` behind it. Raises GitError if there is none."""
        if _NAME.fullmatch(name):
            base = re.split("[~^]", name, maxsplit=1)[0]
            rest = name[len(base) :]
            found: str | None = base if re.fullmatch("[0-9a-f]{4,64}", base) else None
            if base in ("HEAD", "@"):
                found = head(self._checkout).commit
            for kind in ("refs/heads/", "refs/tags/", "refs/remotes/", ""):
                found = commit_at(self._checkout, kind + base) or found
            if found is not None:
                said = self._git.run(
                    "rev-parse", "--verify", "--quiet", f"{found}{rest}^{{commit}}"
                )
                return said.decode().strip()
        raise GitError(f"no commit {name!r}")

    def added(self, commit: str) -> list[AddedLines]:
        """Return the lines that a commit added, against its first parent."""
        said = self._git.run("rev-list", "--parents", "-n", "1", commit).decode().split()
        before = said[1] if len(said) > 1 else NOTHING[object_format(self._checkout)]
        found = []
        for change in self.files.changes(before, commit, renames=False):
            if change.after is None or change.mode not in ("100644", "100755"):
                continue
            found.append((change.path, change.after))
        patches = self._git.run(
            *("diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-ext-diff", "--no-textconv"),
            *("--no-color", "--src-prefix=a/", "--dst-prefix=b/", before, commit, "--"),
            *(path for path, _ in found),
        )
        if not found:
            return []
        lines: list[list[int]] = []
        was = b""
        is_of_file = False
        for line in patches.split(b"\n"):
            if line.startswith(b"diff --git "):
                if line != was:
                    lines.append([])
                was = line
                is_of_file = True
            elif is_of_file and (hunk := _HUNK.match(line)):
                first, count = int(hunk[1]), int(hunk[2] or 1)
                lines[-1] += range(first, first + count)
        return [
            AddedLines(path, blob, tuple(its))
            for (path, blob), its in zip(found, lines, strict=True)
        ]
