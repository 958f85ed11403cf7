"""The names in a work tree that differ from our index, as git lists them.

Looking for new files is nearly half of the work: git reads each folder that it does not ignore. So
the marks of these folders are remembered, with a digest of the names in each. As long as they are
the same, the new files are those of the last time, and git is asked for the changed ones alone. In
a small project the marks of its files are remembered, too, and git is not asked: its start takes
longer than looking at each.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import stat
import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec
from msgspec import Struct

from acp_wire.workspace.regular_files import contents
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.git import Git
from acphold.safety.snapshots.store import write_whole

FOLDERS = "folders"
"""The name of a file beside the index of a work tree: what is remembered of its folders."""

PER_FOLDER = "--exclude-per-directory=.gitignore"

RULES = {b".gitignore": b".gitignore", b".git": b".git", b".git/": b".git/HEAD"}
"""Names in a folder, and with each the file that says then what git looks for there."""

Marks = tuple[int, ...]


class Listing:
    """Files that are `new`, those of our index that may have `changed` or are gone, and
    repositories `inside`. `rules`: a list of ignored names is among them."""

    def __init__(self, new: Iterable[str], changed: Iterable[str]) -> None:
        self.new = {*new}
        self.changed = {*changed}
        self.names = self.new | self.changed
        self.inside = any(name.endswith("/") for name in self.new)
        self.rules = any(os.path.basename(name) == ".gitignore" for name in self.names)

    def __bool__(self) -> bool:
        return bool(self.names)


class _Folder(Struct, array_like=True):
    """A folder: its marks, () if a change may not show in them; a digest of the names in it, where
    those of folders end in a slash; and the marks of its `RULES`."""

    marks: Marks = ()
    names: bytes = b""
    rules: dict[bytes, Marks] = {}


class _Folders(Struct):
    """The folders in which git looks for new files, and those that it ignores; and the `new` and
    `changed` files that it has listed with this index. `files` are those of a small index, with
    their marks, which are () if a change may not show in them; None of another one. `sources` are
    files of ignored names, with their marks. Of a vast work tree nothing is remembered."""

    sources: list[tuple[bytes, Marks]] = []
    is_vast: bool = False
    index: Marks = ()
    new: list[bytes] = []
    changed: set[bytes] = set()
    folders: dict[bytes, _Folder] = {}
    ignored: set[bytes] = set()
    files: dict[bytes, Marks] | None = None

    def compare_files(self, top: bytes) -> tuple[bool, bool]:
        """Compare the files of a small index with what is known of them, and know it then, and
        those that have changed. Return whether git does not have to be asked for these, and whether
        nothing at all is new."""
        if self.files is None:
            return False, True
        now, is_enough, is_noted = time.time_ns(), True, True
        for path, marks in self.files.items():
            found = _marks_at(top + path, now)
            if marks != found:
                self.files[path], is_noted = found, False
            if path not in self.changed and not marks:
                is_enough = False  # it may have changed before
            elif path not in self.changed and marks != found:
                self.changed.add(path)
        return is_enough, is_noted

    def find_changed(self, top: bytes) -> list[bytes] | None:
        """Return the folders that may have changed; None if all have to be found anew."""
        found = []
        for path, folder in self.folders.items():
            if not folder.marks or folder.marks != _marks_at(top + path):
                found.append(path)
            if folder.rules and not all(
                marks and marks == _marks_at(os.path.join(top, path, name))
                for name, marks in folder.rules.items()
            ):
                return None
        return found if self.folders else None


class _VastError(Exception):
    """There are too many folders, or looking at them takes too long."""


class WorkTreeLook:
    """Looks for changes in the work tree at `top`. `index` is ours; what is remembered of the
    folders is beside it."""

    def __init__(self, git: Git, top: str, index: str) -> None:
        self._git = git
        self._top = os.path.join(os.fsencode(top), b"")
        self._index = index
        self._path = os.path.join(os.path.dirname(index), FOLDERS)

    def listing(self, sources: Sequence[str]) -> Listing:
        """Return what differs from our index. `sources` are files of ignored names, the strongest
        last. Raises OSError and the errors of `Git.run`."""
        index = mark(self._index)
        marks = [(os.fsencode(path), mark(path)) for path in sources]
        known = _Folders(marks)
        with suppress(OSError, msgspec.MsgspecError):
            noted = contents(self._path, bounds.FOLDERS_BYTES)
            before = msgspec.msgpack.decode(noted, type=_Folders)
            known = before if before.sources == marks else known
        if not index or known.is_vast:  # a first snapshot is not made to wait: all of it is new
            return Listing(*self._ask(sources))
        try:
            are_same, is_noted = self._compare(known)
        except _VastError:
            self._note(_Folders(marks, is_vast=True))
            return Listing(*self._ask(sources))
        if known.index != index:
            known.files, known.changed, are_same = None, set(), False
            with open(self._index, "rb") as file:
                count = int.from_bytes(file.read(12)[8:])  # after the signature and the version
            if count <= bounds.FILES_LOOKED_AT:
                files = [*map(os.fsencode, self._git.names("ls-files", "-z", "-c"))]
                if {*map(os.path.dirname, files)} <= known.folders.keys():
                    known.files = dict.fromkeys(files, ())  # their marks come with a comparison
        files_are_same, files_are_noted = known.compare_files(self._top)
        if not are_same:
            new, changed = self._ask(sources)
            known.index, known.new = index, [*map(os.fsencode, new)]
            known.changed = {*map(os.fsencode, changed)}
        elif not files_are_same:
            _, changed = self._ask()
            known.changed = {*map(os.fsencode, changed)}
        if not (are_same and is_noted and files_are_noted):
            self._note(known)
        return Listing(map(os.fsdecode, known.new), map(os.fsdecode, known.changed))

    def _ask(self, sources: Sequence[str] | None = None) -> tuple[list[str], list[str]]:
        """Ask git for the new files, if it is given the `sources` of ignored names, and for those
        that have changed or are gone."""
        others = () if sources is None else ("-o", *options(sources))
        new: list[str] = []
        changed: list[str] = []
        for line in self._git.names("ls-files", "-z", "-t", "-m", "-d", *others):
            (new if line[0] == "?" else changed).append(line[2:])
        return new, changed

    def _compare(self, known: _Folders) -> tuple[bool, bool]:
        """Compare the folders with what is known of them, and know it then. It is before git looks,
        so that a later change shows the next time. Return whether they have the same names, and
        whether nothing at all is new."""
        now, until = time.time_ns(), time.monotonic() + bounds.FOLDERS_SECONDS
        changed = known.find_changed(self._top)
        if changed == []:
            return True, True
        is_same, found = changed is not None, []
        for path in changed or ():
            before = known.folders.pop(path)
            after = self._scan(path, now)
            if after is None:
                is_same = False
                continue
            known.folders[path], inside = after
            found += inside
            if before.rules != after[0].rules:
                changed = None
            is_same = is_same and before.names == after[0].names
        if changed is None:
            known.folders, known.ignored, found, is_same = {}, set(), [b""], False
        while found := [it for it in found if it not in known.folders and it not in known.ignored]:
            if len(known.folders) + len(found) > bounds.FOLDERS or time.monotonic() > until:
                raise _VastError
            if found != [b""]:
                # Git ignores them whatever is in our index. It takes one file of ignored names
                # here; the last name that fits decides.
                texts = [contents(os.fsdecode(it), bounds.IGNORED_BYTES) for it, _ in known.sources]
                lists = b"\n".join(text.removeprefix(BOM_UTF8) for text in texts)
                names = f"{self._path}-ignored"
                write_whole(names, lists, is_lasting=False)
                known.ignored |= self._git.find_ignored(found, names)
            inside = []
            for path in found:
                if path not in known.ignored and (after := self._scan(path, now)) is not None:
                    known.folders[path] = after[0]
                    inside += after[1]
            found = inside
        return is_same, False

    def _scan(self, path: bytes, now: int) -> tuple[_Folder, list[bytes]] | None:
        """Return what a folder is now, and the folders in it; None if it is gone."""
        place = self._top + path
        try:
            status = os.lstat(place)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        folder = _Folder(file_marks(status) if is_settled(status, now) else ())
        names: set[bytes] = set()
        inside: list[bytes] = []
        with suppress(OSError), os.scandir(place) as entries:  # git cannot read it either
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.add(b"%s/" % entry.name)
                    if entry.name != b".git":
                        inside.append(os.path.join(path, entry.name))
                else:
                    is_listed = entry.is_symlink() or entry.is_file(follow_symlinks=False)
                    names.add(entry.name if is_listed else b"/%s" % entry.name)
        folder.names = blake2b(b"\0".join(sorted(names)), digest_size=16).digest()
        for name in names & RULES.keys():
            if path or name == b".gitignore":  # not of the work tree's own repository
                folder.rules[RULES[name]] = _marks_at(os.path.join(place, RULES[name]), now)
        return folder, inside

    def _note(self, known: _Folders) -> None:
        write_whole(self._path, msgspec.msgpack.encode(known), is_lasting=False)


def options(sources: Sequence[str]) -> list[str]:
    """The options that name the lists of ignored names."""
    return [PER_FOLDER, *(f"--exclude-from={path}" for path in sources)]


def mark(path: str) -> Marks:
    """Return its time, size and number, one of which changes with the file; () for none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def file_marks(status: os.stat_result) -> Marks:
    """Return the marks of a file, one of which changes with its content or its mode."""
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
    )


SIZE = 2
"""The place of the size in these marks."""


def is_settled(status: os.stat_result, now: int) -> bool:
    """True if a change of a file from `now` on (ns since the epoch) shows in its times."""
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    return changed < now - bounds.SETTLED_NS[changed % 1_000_000_000 == 0]


def _marks_at(path: bytes, now: int | None = None) -> Marks:
    """Return the marks of a file, which are not () if there is none; but if a change of it from
    `now` on may not show in them."""
    try:
        status = os.lstat(path)
    except OSError:
        return (0,)
    return file_marks(status) if now is None or is_settled(status, now) else ()
