"""Snapshots of one store compared, and commits of a project read: which files differ, and how.

The commits of a project are read from a temporary git folder, with the project's objects beside it.
Nothing is written, and nothing of the project runs.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.checkouts import Checkout, commit_at, head, object_format
from acphold.safety.snapshots.git import Git, GitError, lines
from acphold.safety.snapshots.store import SnapshotStore

_FOUND = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (blob|tree|commit) [0-9]+$")
_COMMIT_NAME = re.compile(r"([^~^@{}:\s-][^~^@{}:\s]*|@)([~^][0-9]*)*", re.ASCII)
_HUNK = re.compile(rb"@@ -[0-9,]+ \+([0-9]+)(?:,([0-9]+))? @@")

NOTHING = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The tree without files, by the kind of ids."""


_AS_PATCH = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")


class FileChange(Struct, frozen=True):
    """A file that differs: `before` and `after` are the ids of its content, None where it is not
    there. `old_path` is its former name, the same if it has none. `mode` is that after, else
    before. `patch` is empty unless it was asked for."""

    path: str
    old_path: str
    before: str | None
    after: str | None
    mode: str
    patch: bytes = b""


class SnapshotReader:
    """Reads snapshots of one store; made by `reading`. All of it blocks, and raises GitError,
    TimeoutError, BufferError and OSError."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def changes(
        self, before: str, after: str, *, renames: bool = True, patches: bool = False
    ) -> list[FileChange]:
        """Return what differs between two trees, by path; with `renames`, former names too, and
        with `patches`, how it differs. Without `renames` a file that was moved is one that is gone,
        and a new one."""
        if before == after:
            return []
        moved = "-M" if renames else "--no-renames"
        words = ("diff-tree", "-r", moved, "-z", "--raw", "--no-abbrev")
        output = self._git.run(*words, *_AS_PATCH * patches, before, after)
        names, _, text = output.partition(b"\0\0")
        pieces: list[list[bytes]] = []
        heads: list[bytes] = []
        for line in text.split(b"\n")[:-1]:  # a "\r" ends no line
            if line.startswith(b"diff --git "):  # no line inside of a patch begins so
                if heads[-1:] == [line]:  # of another kind now: gone, and made anew
                    pieces[-1].append(line)
                    continue
                heads.append(line)
                pieces.append([])
            pieces[-1].append(line)
        changed_files: list[FileChange] = []
        parts = iter(names.split(b"\0"))
        for facts in parts:
            if not facts:
                continue
            old_mode, mode, old, new, status = facts.removeprefix(b":").decode().split()
            old_path = path = os.fsdecode(next(parts))
            if status[:1] in "RC":
                path = os.fsdecode(next(parts))
            changed_files.append(
                FileChange(
                    path,
                    old_path,
                    old if status[:1] != "A" else None,
                    new if status[:1] != "D" else None,
                    mode if status[:1] != "D" else old_mode,
                    b"\n".join([*pieces[len(changed_files)], b""]) if patches else b"",
                )
            )
        return changed_files

    def sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those of these contents that are there, by their ids."""
        if not (wanted := dict.fromkeys(blobs)):
            return {}
        found = self._git.objects(wanted).items()
        return {blob: size for blob, (kind, size) in found if kind == "blob"}

    def contents(self, blobs: Iterable[str], most: int = bounds.TEXT_BYTES) -> dict[str, bytes]:
        """Return files by the ids of their contents; without those that have more than `most`
        bytes, or are not there."""
        kept = [blob for blob, size in self.sizes(blobs).items() if size <= most]
        if not kept:
            return {}
        found: dict[str, bytes] = {}
        rest = memoryview(self._git.run("cat-file", "--batch", stdin=lines(kept)))
        for _ in kept:
            end = bytes(rest[:200]).index(b"\n")
            blob, _, size = bytes(rest[:end]).decode().split()
            found[blob] = bytes(rest[end + 1 : end + 1 + int(size)])
            rest = rest[end + int(size) + 2 :]
        return found

    def blobs(self, places: Sequence[tuple[str, str]]) -> list[str | None]:
        """Return the ids of the contents of files, each named by a tree and its path there; None
        where there is no file."""
        found: list[str | None] = []
        for begin in range(0, len(places), bounds.NAMES_AT_ONCE):
            named = [
                f"{tree}:{path}" for tree, path in places[begin : begin + bounds.NAMES_AT_ONCE]
            ]
            output = self._git.run("cat-file", "--batch-check", "-z", stdin=lines(named, "\0"))
            # A name that is not there is repeated, whatever is in it: only ids begin our lines.
            found_lines = [
                it for it in output.split(b"\n") if it.endswith(b" missing") or _FOUND.match(it)
            ]
            if len(found_lines) != len(named):
                raise GitError("git cannot read these names")
            found += [
                None if it.endswith(b" missing") or b" blob " not in it else it.split()[0].decode()
                for it in found_lines
            ]
        return found


@contextmanager
def reading(
    store: SnapshotStore, seconds: float = bounds.COMPARISON_SECONDS
) -> Iterator[SnapshotReader]:
    """Read snapshots of a store for a block, which may last so many seconds."""
    deadline = time.monotonic() + seconds
    with store.used(deadline), ProgramGroup(deadline) as group:
        yield SnapshotReader(store.git(group))


class LineCommit(Struct, frozen=True):
    """The commit that a line came with: times in seconds, persons as `Name <mail>`."""

    id: str
    author: str
    committer: str
    committed_at: int
    subject: str


def blame(git: Git, commit: str, path: str, lines: Sequence[int]) -> dict[int, LineCommit]:
    """Ask git with which commit each of these lines of a file, as it is in `commit`, came; raises
    what `Git.run` raises."""
    asked = [f"-L{first},{last}" for first, last in ranges(lines)]
    asked = asked if len(asked) <= 100 else []  # then of the whole file
    output = git.run("blame", "--porcelain", *asked, commit, "--", path)
    commits: dict[bytes, dict[bytes, str]] = {}
    found: dict[int, bytes] = {}
    at, its = 0, b""
    for line in output.split(b"\n"):
        name, _, value = line.partition(b" ")
        if line.startswith(b"\t"):
            found[at] = its
        elif len(name) in (40, 64) and value.count(b" ") >= 1:
            its, at = name, int(value.split(b" ")[1])
        else:
            commits.setdefault(its, {})[name] = value.decode(errors="replace")

    def facts(commit: bytes) -> LineCommit:
        said = commits[commit]
        author, committer = (
            f"{said.get(who, '')} {said.get(who + b'-mail', '')}"
            for who in (b"author", b"committer")
        )
        at = int(said.get(b"committer-time", "0"))
        return LineCommit(commit.decode(), author, committer, at, said.get(b"summary", ""))

    known = {commit: facts(commit) for commit in commits}
    return {line: known[found[line]] for line in lines if line in found}


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] + 1 == number:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


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

    def resolve(self, name: str) -> str:
        """Return the id of the commit with this name: an id or the beginning of one, HEAD, a
        branch or a tag, with `~2` or `^` behind it. Raises GitError if there is none."""
        if _COMMIT_NAME.fullmatch(name):
            base = re.split("[~^]", name, maxsplit=1)[0]
            rest = name[len(base) :]
            found: str | None = base if re.fullmatch("[0-9a-f]{4,64}", base) else None
            if base in ("HEAD", "@"):
                found = head(self._checkout).commit
            for kind in ("refs/heads/", "refs/tags/", "refs/remotes/", ""):
                found = commit_at(self._checkout, kind + base) or found
            if found is not None:
                output = self._git.run(
                    "rev-parse", "--verify", "--quiet", f"{found}{rest}^{{commit}}"
                )
                return output.decode().strip()
        raise GitError(f"no commit {name!r}")

    def additions(self, commit: str) -> list[AddedLines]:
        """Return the lines that a commit added, against its first parent."""
        output = self._git.run("rev-list", "--parents", "-n", "1", commit).decode().split()
        before = output[1] if len(output) > 1 else NOTHING[object_format(self._checkout)]
        found = [
            (change.path, change.after)
            for change in self.files.changes(before, commit, renames=False)
            if change.after is not None and change.mode in ("100644", "100755")
        ]
        if not found:
            return []
        patches = self._git.run(
            *("diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-ext-diff", "--no-textconv"),
            *("--no-color", "--src-prefix=a/", "--dst-prefix=b/", before, commit, "--"),
            *(path for path, _ in found),
        )
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
