"""The index of a project: read without its configuration, kept with a snapshot, laid out again.

A snapshot is a tree of the store. If the index differed from the commit that was checked out, or
had marks, it is a commit with that tree, whose parent has these files:

    list    the differences, each ended with NUL: MODE ID STAGE<tab>PATH. The mode is 0 for a file
            that is not in the index, N for one marked with `git add -N`, A for one that is assumed
            to be unchanged, and S for one that is to be absent, or a folder with all in it
    ID      one for each staged content, so that the store has it

An id is that of the content in the store, whatever kind of ids the project has.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct

from acp_wire.workspace.regular_files import contents
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import Checkout, checkout_at, object_format
from acphold.safety.snapshots.comparison import SnapshotReader, bare_folder
from acphold.safety.snapshots.git import Git, GitError
from acphold.safety.snapshots.objects import StoreObjects
from acphold.safety.snapshots.sieve import LeftOut, as_text
from acphold.safety.snapshots.store import SnapshotStore

MOST_BYTES = 64 << 20
"""Bytes that are staged and in no file of the work tree; beyond them contents are left out."""

LINE = re.compile(
    rb"(0|N|A|S|100644|100755|120000|160000) ([0-9a-f]{40}|[0-9a-f]{64}) ([0-3])\t([^\0]+)",
    re.DOTALL,
)
PART = re.compile(r"sharedindex\.([0-9a-f]{40}|[0-9a-f]{64})")
"""Names of the files that a split index refers to by their ids."""

MOST_INDEX = 256 << 20
"""Largest part of a split index that is read."""

SPARSE_MARK = b"sdir\0\0\0\0"
"""The extension of a sparse index."""

SPARSE = b"[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n[index]\n\tsparse = true\n"
"""Settings with which git does not expand it."""

EMPTY = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
"""The ids of an empty content, which git also notes for files marked with `git add -N`."""

NONE = "0" * 40
MARKS = ("N", "A", "S")
COMMIT = "tree {}\n{}author acphold <acphold> 0 +0000\ncommitter acphold <acphold> 0 +0000\n\n"


class Staged(Struct, frozen=True):
    """The commit with what is staged, "" if nothing is; and the staged contents that were left
    out."""

    commit: str = ""
    left_out: tuple[LeftOut, ...] = ()


class _Line(Struct, frozen=True):
    """A difference; see the module."""

    mode: str
    id: str
    stage: int
    path: str

    @property
    def has_content(self) -> bool:
        return self.mode.startswith("1") and self.mode != "160000"  # a submodule's is a commit

    def text(self, object_id: str) -> bytes:
        return f"{self.mode} {object_id} {self.stage}\t".encode() + os.fsencode(self.path) + b"\0"


def names_in_index(store: SnapshotStore, group: ProgramGroup, checkout: Checkout) -> set[str]:
    """Return the names in the index of a project."""
    if not checkout.is_repository or not os.path.isfile(checkout.index):
        return set()
    # An index of another kind: its files are taken as untracked ones.
    with suppress(GitError), _of_project(store, group, checkout) as git:
        names = git.names("ls-files", "-z", "--sparse")
        return {name for name in names if not name.endswith("/")}  # an absent folder
    return set()


def keep_staged(
    store: SnapshotStore,
    group: ProgramGroup,
    checkout: Checkout,
    head: str,
    most: int,
    require_room: Callable[[int], None],
) -> Staged:
    """Keep what is staged on top of `head`, contents of `most` bytes at most.

    Anything that cannot be read is left out. Raises the errors of `Git.run`, and of `require_room`
    for the bytes to be written.
    """
    with _of_project(store, group, checkout) as project:
        try:
            with _full_index(project, store, group, checkout) as full:
                lines = _staged_lines(project, full, head)
            if not all(LINE.fullmatch(line.text(line.id)[:-1]) for line in lines):
                raise GitError("it is damaged")
        except GitError as error:
            return Staged("", (LeftOut("the staged changes", f"cannot be read: {error}"),))
        if not lines:
            return Staged()
        wanted = {line.id for line in lines if line.has_content}
        own = store.git(group)
        sizes, there = SnapshotReader(project).sizes(wanted), SnapshotReader(own).sizes(wanted)
        missing: list[str] = []
        size = 0
        for it in sorted(sizes.keys() - there.keys(), key=lambda it: sizes[it]):
            if sizes[it] > most or size + sizes[it] > MOST_BYTES:
                break
            missing.append(it)
            size += sizes[it]
        require_room(size)
        texts = SnapshotReader(project).contents(missing, most)
    ids = {it: it for it in there}
    ids |= zip(texts, _write_objects(store, own, [*texts.values()]), strict=True)
    kept: list[_Line] = []
    left_out: dict[str, LeftOut] = {}
    for line in lines:
        if not line.has_content or line.id in ids:
            kept.append(line)
        else:
            how_large = f"{sizes[line.id] >> 20} MB" if line.id in sizes else "missing"
            # Not its path alone: the file itself is kept.
            left_out[line.path] = LeftOut(f"{as_text(line.path)} as it is staged", how_large)
    listed = b"".join(line.text(ids.get(line.id, line.id)) for line in kept)
    [list_id] = _write_objects(store, own, [listed])
    entries = {it: it for line in kept if line.has_content for it in [ids[line.id]]}
    rows = [f"100644 blob {it}\t{name}\0" for name, it in {"list": list_id, **entries}.items()]
    tree = own.run("mktree", "-z", stdin="".join(rows).encode()).decode().strip()
    return Staged(write_commit(StoreObjects(own, store.path), tree), tuple(left_out.values()))


def write_commit(objects: StoreObjects, tree: str, parent: str = "") -> str:
    """Write a commit that depends on nothing but these, and return its id.

    With `parent`, the commit with what is staged, it is a snapshot.
    """
    text = COMMIT.format(tree, f"parent {parent}\n" if parent else "")
    return objects.write("commit", text.encode())


def stage(store: SnapshotStore, group: ProgramGroup, snapshot: str, folder: str) -> None:
    """Stage in a new work tree, which has its files, what was staged when a snapshot was taken.

    Raises the errors of `Git.run`, also if a stranger's snapshot has names that git refuses.
    """
    own = store.git(group)
    lines: list[_Line] = []
    for raw in own.run("cat-file", "blob", f"{snapshot}^:list").split(b"\0")[:-1]:
        if (found := LINE.fullmatch(raw)) is None:
            raise GitError("the staged changes cannot be read")
        mode, object_id, number, path = found.groups()
        lines.append(_Line(mode.decode(), object_id.decode(), int(number), os.fsdecode(path)))
    wanted = {line.id for line in lines if line.has_content}
    texts = SnapshotReader(own).contents(wanted, MOST_BYTES)
    if len(texts) < len(wanted):
        raise GitError("some of the staged content is missing")
    project = Git.within(group, folder, store.path)
    ids = dict(zip(texts, _write_objects(store, project, [*texts.values()]), strict=True))
    laid = checkout_at(folder)
    ids[NONE] = NONE if laid is None or object_format(laid) == "sha1" else "0" * 64
    changed = [line.text(ids.get(line.id, line.id)) for line in lines if line.mode not in MARKS]
    if changed:
        # A file with conflicts has no entry of its own beside them.
        project.run("update-index", "-z", "--index-info", stdin=b"".join(changed))
    intended = [line.path for line in lines if line.mode == "N"]
    if intended := [it for it in intended if os.path.lexists(os.path.join(folder, it))]:
        project.run(
            *("add", "--force", "--intent-to-add"),
            *("--pathspec-from-file=-", "--pathspec-file-nul"),
            stdin=b"".join(os.fsencode(it) + b"\0" for it in intended),
        )
    for mode, option in (("A", "--assume-unchanged"), ("S", "--skip-worktree")):
        marked = {line.path for line in lines if line.mode == mode}
        folders = tuple(path for path in marked if path.endswith("/"))
        if marked:
            names = project.run("ls-files", "-z").split(b"\0")[:-1]
            project.run(
                *("update-index", option, "-z", "--stdin"),
                stdin=b"".join(
                    name + b"\0"
                    for name in dict.fromkeys(names)
                    if (path := os.fsdecode(name)) in marked or path.startswith(folders)
                ),
            )


@contextmanager
def _full_index(
    project: Git, store: SnapshotStore, group: ProgramGroup, checkout: Checkout
) -> Iterator[Git]:
    """Read, for a block, a copy of the index of a project without folders, if it is sparse; see
    `_of_project`. Of files marked with `git add -N` the copy knows nothing."""
    if not _is_sparse(checkout):
        yield project
        return
    full: list[bytes] = []
    for entry in project.run("ls-files", "-s", "-z", "--sparse").split(b"\0")[:-1]:
        facts, _, name = entry.partition(b"\t")
        mode, object_id, _ = facts.split()
        if not name.endswith(b"/"):
            full.append(entry)
            continue
        for line in project.run("ls-tree", "-r", "-z", object_id.decode()).split(b"\0")[:-1]:
            facts, _, path = line.partition(b"\t")
            mode, _, object_id = facts.split()
            full.append(b"%s %s 0\t%s%s" % (mode, object_id, name, path))
    with bare_folder(object_format(checkout), "index", store.path) as folder:
        index = os.path.join(folder, "index")
        objects = os.path.join(checkout.common, "objects")
        own = Git(group, folder, home=store.path, index=index, objects=objects)
        own.run("update-index", "-z", "--index-info", stdin=b"".join(it + b"\0" for it in full))
        yield own


def _is_sparse(checkout: Checkout) -> bool:
    """True if an index has folders whose files are absent."""
    with suppress(OSError):
        return os.path.exists(_patterns(checkout.git_folder)) and (
            SPARSE_MARK in contents(checkout.index, MOST_INDEX)
        )
    return False


def _patterns(git_folder: str) -> str:
    return os.path.join(git_folder, "info", "sparse-checkout")


def _staged_lines(project: Git, full: Git, head: str) -> list[_Line]:
    """Return how the full index differs from a commit, and the marks of the index; see the
    module."""

    def index_changes(*options: str) -> Iterator[tuple[list[str], str]]:
        raw = ("--raw", "-z", "--no-renames", "--no-abbrev")
        words = iter(full.run("diff-index", "--cached", *raw, *options, head, "--").split(b"\0"))
        for facts in words:
            if facts:
                yield facts.decode().split(), os.fsdecode(next(words))

    found: dict[str, _Line] = {}
    unmerged: set[str] = set()
    for (_, mode, _, object_id, status), path in index_changes("--ita-visible-in-index"):
        if status == "U":
            unmerged.add(path)
        mode, object_id = (mode, object_id) if status != "D" else ("0", NONE)
        found[path] = _Line(mode, object_id, 0, path)
    if any(line.id in EMPTY for line in found.values()):
        visible = {path for _, path in index_changes("--ita-invisible-in-index")}
        for path in found.keys() - visible:
            found[path] = _Line("N", NONE, 0, path)
    for path in unmerged:
        found[path] = _Line("0", NONE, 0, path)
    lines = [found[path] for path in sorted(found)]
    if unmerged:
        for line in full.run("ls-files", "-u", "-z").split(b"\0")[:-1]:
            facts, _, name = line.partition(b"\t")
            mode, object_id, number = facts.decode().split()
            lines.append(_Line(mode, object_id, int(number), os.fsdecode(name)))
    for line in project.run("ls-files", "-v", "-z", "--sparse").split(b"\0"):
        kind, path = line[:1], os.fsdecode(line[2:])
        if kind.islower():
            lines.append(_Line("A", NONE, 0, path))
        if kind.lower() == b"s":
            lines.append(_Line("S", NONE, 0, path))
    return lines


def _write_objects(store: SnapshotStore, git: Git, contents: Sequence[bytes]) -> list[str]:
    """Write contents as objects, exactly as they are; return their ids."""
    if not contents:
        return []
    with tempfile.TemporaryDirectory(dir=store.path, prefix="index") as folder:
        paths = [os.path.join(folder, str(number)) for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            with open(path, "wb") as file:
                file.write(content)
        output = git.run(
            *("hash-object", "-w", "--no-filters", "--stdin-paths"),
            stdin=b"".join(os.fsencode(path) + b"\n" for path in paths),
        )
    return output.decode().split()


@contextmanager
def _of_project(store: SnapshotStore, group: ProgramGroup, checkout: Checkout) -> Iterator[Git]:
    """Read the index and the objects of a project for a block: in a repository that has nothing of
    its own but copies of the parts of a split index: git would give the parts themselves a new
    time. A sparse index is not expanded: git would write the trees of its folders, or give them a
    new time."""
    with bare_folder(object_format(checkout), "index", store.path) as folder:
        parts = [it for it in os.listdir(checkout.git_folder) if PART.fullmatch(it)]
        with suppress(OSError):  # git then says what it cannot read
            index = contents(checkout.index, MOST_INDEX) if parts else b""
            for name in parts:
                if bytes.fromhex(name.partition(".")[2]) in index:
                    # Without a file here, git would look for it beside the index.
                    with open(os.path.join(folder, name), "wb") as file:
                        file.write(contents(os.path.join(checkout.git_folder, name), MOST_INDEX))
        if _is_sparse(checkout):
            patterns = contents(_patterns(checkout.git_folder), MOST_INDEX)
            os.mkdir(os.path.join(folder, "info"))
            for path, data in ((_patterns(folder), patterns), (f"{folder}/config", SPARSE)):
                with open(path, "ab") as file:
                    file.write(data)
        objects = os.path.join(checkout.common, "objects")
        yield Git(group, folder, home=store.path, index=checkout.index, objects=objects)
