"""A snapshot is taken: what changed in a work tree since the last one goes into the store.

    1  git lists what differs from our own index of the work tree, and what is new and not ignored
    2  each of these names is looked at here: too large, a secret, a pipe, a repository inside
    3  git reads what is left into our index, and writes the tree
    4  the tree is noted: the next snapshot of an unchanged work tree is the same, without writing

Any call that fails ends in `NotTaken`: no tree is given out that an earlier index would yield. The
bytes of a file are kept as they are. A snapshot is per file, not of one instant.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from functools import cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from acphold.errors import AgentStartError
from acphold.processes.program_group import ProgramGroup
from acphold.snapshots import bounds
from acphold.snapshots.checkouts import Checkout, GitHead, checkout_at, head
from acphold.snapshots.git import GitError, GitNotStartedError, personal_excludes, program
from acphold.snapshots.project_index import Staged, staged, tracked as tracked_names, write_commit
from acphold.snapshots.secret_names import RULES, may_hold_secret
from acphold.snapshots.store import SnapshotStore, StoreInUseError, Stores, locked, tree_of
from acphold.workspace.regular_files import contents

Cause: TypeAlias = Literal["folder", "home", "slow", "full", "passing"]


class LeftOut(Struct, frozen=True):
    """A file that is not in a snapshot, and why."""

    path: str
    why: str


class Taken(Struct, frozen=True):
    """A snapshot: `tree` in the store with the id `store`, or a commit with that tree and with what
    was staged (`snapshots.project_index`). `added` files of `size` bytes were new or had changed
    since the last one. `left_out` names some of the files that are not in it, `left_out_count` is
    their number."""

    store: str
    tree: str
    head: GitHead
    added: int = 0
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0


class NotTaken(Struct, frozen=True):
    """No snapshot, and the reason. The cause is the "folder", because of its content or a missing
    or old git; a folder that is "home" or above it; one so "slow" that git did not end; a "full"
    store; or something "passing"."""

    reason: str
    cause: Cause = "passing"


class _Known(Struct):
    """Remembered from the last snapshot of a work tree: the marks of the files that say what is
    ignored, of the project's index and of ours, the repositories inside, the commit that was
    checked out, our commit with what was staged, and names in the project's index without a file:
    `git ls-files` does not list such a file when it comes back, if its name is ignored. `rules` is
    the number of the rules by which names are left out."""

    excludes: list[tuple[str, tuple[int, ...]]] = []
    project_index: tuple[int, ...] = ()
    commit: str | None = None
    staged: str = ""
    index: tuple[int, ...] = ()
    inside: list[str] = []
    absent: list[str] = []
    rules: int = 0


def is_too_high(top: str) -> bool:
    """True for the home folder, `/`, and the folders between them."""
    home = os.path.realpath(os.path.expanduser("~"))
    return top == home or f"{home}/".startswith(f"{top.rstrip('/')}/")


def take(
    stores: Stores,
    checkout: Checkout,
    *,
    limits: bounds.SnapshotLimits = bounds.SNAPSHOT_LIMITS,
    deadline: float | None = None,
    spared: Iterable[str] = (),
    gently: bool = False,
) -> Taken | NotTaken:
    """Take a snapshot of a work tree; blocks until `deadline` (monotonic seconds) at most.

    The snapshot is kept in its store for an hour, until the journal names it. `spared` are paths of
    our own, which are never in it. `gently`, git leaves the processors to others.
    """
    if program() is None:
        return NotTaken("git is not installed", "folder")
    if is_too_high(checkout.top):
        return NotTaken(
            "acphold takes no snapshots of the home folder or a folder above it", "home"
        )
    deadline = time.monotonic() + bounds.SNAPSHOT_SECONDS if deadline is None else deadline
    try:
        with ExitStack() as held:
            is_used = False
            while not is_used:
                store = stores.of(checkout.common or checkout.top, deadline)
                with suppress(FileNotFoundError):  # the upkeep has removed it in this moment
                    held.enter_context(store.used(deadline))
                    is_used = True
            root = store.root(checkout.top)
            held.enter_context(locked(os.path.join(root, "lock"), deadline))
            group = ProgramGroup(deadline, niceness=bounds.NICENESS if gently else 0)
            held.enter_context(group)
            own = (stores.folder, *spared)
            return _SnapshotTaker(store, root, checkout, limits, group, own).take()
    except TimeoutError as error:
        is_passing = isinstance(error, StoreInUseError)
        return NotTaken(f"it took too long: {error}", "passing" if is_passing else "slow")
    except (GitNotStartedError, AgentStartError) as error:
        return NotTaken(str(error))
    except (GitError, BufferError) as error:
        return NotTaken(str(error), "folder")
    except OSError as error:
        return NotTaken(error.strerror or str(error))


def ignored_names_of(store: SnapshotStore, group: ProgramGroup, checkout: Checkout) -> set[str]:
    """The files in a work tree that are ignored; raises what `Git.run` raises."""
    sources = _sources(checkout, personal_excludes(group, store.path))
    git = store.git(group, work_tree=checkout.top)
    found = {*git.names("ls-files", "-z", "-o", "-i", *sources)}
    return found - tracked_names(store, group, checkout)


def _sources(checkout: Checkout, personal: str) -> list[str]:
    """The options that name the sources of ignored names, the strongest last."""
    paths = [personal]
    if checkout.is_repository:
        paths.append(os.path.join(checkout.common, "info", "exclude"))
    readable = [path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)]
    return [
        "--exclude-per-directory=.gitignore",
        *(f"--exclude-from={path}" for path in readable),
    ]


class _RefusedError(Exception):
    """Raised inside to end in NotTaken."""

    def __init__(self, reason: str, cause: Cause = "folder") -> None:
        super().__init__(reason)
        self.cause: Cause = cause


class _SnapshotTaker:
    """One snapshot being taken, under the locks."""

    def __init__(
        self,
        store: SnapshotStore,
        root: str,
        checkout: Checkout,
        limits: bounds.SnapshotLimits,
        group: ProgramGroup,
        own: Iterable[str],
    ) -> None:
        self._store = store
        self._root = root
        self._checkout = checkout
        self._limits = limits
        self._group = group
        self._index = os.path.join(root, "index")
        self._git = store.git(group, work_tree=checkout.top, index=self._index)
        self._own = tuple(
            os.path.relpath(path, checkout.top) for path in map(os.path.realpath, own)
        )
        self._behind_link = cache(self._is_behind_link)
        self._personal = personal_excludes(group, store.path)

    def take(self) -> Taken | NotTaken:
        with suppress(FileNotFoundError):  # we have the lock: a killed process has left it
            os.unlink(f"{self._index}.lock")
        known = self._known()
        current = head(self._checkout)
        for attempt in range(1, bounds.TRIES + 1):
            try:
                return self._attempt(known, current)
            except GitError:
                if attempt == bounds.TRIES:
                    raise
                if attempt == bounds.TRIES - 1:
                    # Our own index may be damaged: read everything anew.
                    with suppress(FileNotFoundError):
                        os.unlink(self._index)
                known = self._known()
            except _RefusedError as error:
                return NotTaken(str(error), error.cause)
        raise AssertionError("every attempt ends")

    def _attempt(self, known: _Known, current: GitHead) -> Taken:
        sources = _sources(self._checkout, self._personal)
        excludes = [(_json_name(option), _mark(option.partition("=")[2])) for option in sources[1:]]
        listed = set(self._git.names("ls-files", "-z", "-o", "-m", "-d", *sources))
        project_index = _mark(self._checkout.index)
        has_index = os.path.exists(self._index)
        is_index_known = (project_index, current.commit) == (known.project_index, known.commit)
        has_returned = any(
            os.path.lexists(self._at(_from_json_name(name))) for name in known.absent
        )
        is_same = is_index_known and excludes == known.excludes and has_index and not has_returned
        is_same &= known.rules == RULES
        before = None
        with suppress(OSError):
            before = tree_of(self._root)
        if is_same and not listed and before and _mark(self._index) == known.index:
            self._store.note_fresh(before)
            return Taken(self._store.id, before, current)
        tracked = tracked_names(self._store, self._group, self._checkout)
        most = self._limits.new_files
        if len(listed) > most and len(listed - tracked) > most:  # before each is looked at
            self._refuse_many(len(listed.difference(tracked, self._indexed_names())))
        candidates, inside = self._candidates(listed, tracked, known)
        ours = set(self._indexed_names())
        if not is_same:
            candidates |= tracked - ours
            candidates |= {name for name in ours - tracked if may_hold_secret(name)}
        removed, added, left_out, size = self._sift(candidates, tracked, ours)
        self._remove(removed)
        if added:
            self._require_room(size)
            # Blobs that count as big are streamed into one pack, which is three times as fast.
            options = ("-c", "core.bigFileThreshold=1") if len(added) > bounds.LOOSE_FILES else ()
            self._git.run(
                *(*options, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"),
                stdin=b"".join(os.fsencode(name) + b"\0" for name in added),
            )
        self._remove({*self._git.names("ls-files", "-z", "-c", "-i", *sources)} - tracked)
        if not os.path.exists(self._index):  # an empty work tree
            self._git.run("read-tree", "--empty")
        tree = self._git.run("write-tree").decode().strip()
        staging = Staged()
        if is_index_known:
            staging = Staged(known.staged)
        elif current.commit is not None and os.path.isfile(self._checkout.index):
            staging = staged(
                *(self._store, self._group, self._checkout, current.commit),
                *(self._limits.tracked_file, self._require_room),
            )
        if staging.commit:
            tree = write_commit(self._git, tree, staging.commit)
        left_out += [LeftOut(_shown(path), why) for path, why in staging.left_out]
        self._store.note_fresh(tree)
        self._note(
            tree,
            _Known(
                excludes,
                () if staging.left_out else project_index,  # to be looked at again
                current.commit,
                staging.commit,
                _mark(self._index),
                [*map(_json_name, inside)],
                self._absent_names(tracked.difference(ours.difference(removed), added)),
                RULES,
            ),
        )
        return Taken(
            self._store.id,
            tree,
            current,
            len(added),
            size,
            tuple(left_out[: bounds.LEFT_OUT_NAMES]),
            len(left_out),
        )

    # -- the names to look at ------------------------------------------------------------------

    def _candidates(
        self, listed: set[str], tracked: set[str], known: _Known
    ) -> tuple[set[str], list[str]]:
        """Return the names to look at, and the repositories inside, whose tracked names are added
        to `tracked`."""
        was_inside = map(_from_json_name, known.inside)
        inside = [name for name in was_inside if checkout_at(self._at(name.rstrip("/")))]
        candidates: set[str] = set()
        for name in sorted(listed):
            if name.endswith("/"):
                inside.append(name)
            elif not any(name.startswith(prefix) for prefix in inside):
                candidates.add(name)
        for prefix in inside:
            found, its_tracked = self._nested_repository(prefix, inside)
            tracked |= its_tracked
            ours = {name for name in listed if name.startswith(prefix)}
            present = set(self._indexed_names(prefix))
            candidates |= (found - present) | (ours & (found | present))
        return candidates, inside

    def _indexed_names(self, below: str = "") -> list[str]:
        """The names in our own index."""
        if not os.path.exists(self._index):
            return []
        return [*self._git.names("ls-files", "-z", "-c", "--", *([below] if below else []))]

    def _nested_repository(self, prefix: str, inside: list[str]) -> tuple[set[str], set[str]]:
        """The files of a repository inside, and those that it tracks; repositories in it are added
        to `inside`. Its files are named one by one: git would keep only its commit."""
        place = os.path.join(self._checkout.top, prefix.rstrip("/"))
        checkout = checkout_at(place)
        if checkout is None or os.path.islink(place):
            return set(), set()
        tracked = {prefix + name for name in tracked_names(self._store, self._group, checkout)}
        git = self._store.git(self._group, work_tree=place)
        names = git.names("ls-files", "-z", "-o", *_sources(checkout, self._personal))
        found = {prefix + name for name in names}
        for name in sorted(found):
            if name.endswith("/") and name not in inside:
                inside.append(name)  # the loop over it goes on with this one
        files = {name for name in found if not name.endswith("/")} | tracked
        return {name for name in files if os.path.lexists(self._at(name))}, tracked

    def _sift(
        self, candidates: Collection[str], tracked: Collection[str], ours: Collection[str]
    ) -> tuple[list[str], list[str], list[LeftOut], int]:
        """Look at each name: return what leaves the index, what is read, what is left out, and the
        bytes to be read. Raises _RefusedError beyond the limits."""
        removed: list[str] = []
        added: list[str] = []
        left_out: list[LeftOut] = []
        size = untracked = 0
        for name in sorted(candidates):
            if self._behind_link(os.path.dirname(name)):
                removed.append(name)
                continue
            if any(name == path or name.startswith(f"{path}/") for path in self._own):
                continue
            try:
                status = os.lstat(self._at(name))
            except OSError:
                removed.append(name)
                continue
            is_tracked = name in tracked
            if stat.S_ISDIR(status.st_mode):
                removed.append(name)
                continue
            why = self._reason_to_leave_out(name, status, is_tracked=is_tracked)
            if why is not None:
                removed.append(name)
                left_out.append(LeftOut(_shown(name), why))
                continue
            added.append(name)
            size += status.st_size
            untracked += not is_tracked and name not in ours
        self._refuse_many(untracked)
        if size > self._limits.new_bytes:
            most = self._limits.new_bytes
            raise _RefusedError(f"{size >> 20:,} MB are new; at most {most >> 20:,} MB are allowed")
        return [name for name in removed if name in ours], added, left_out, size

    def _refuse_many(self, untracked: int) -> None:
        if untracked > (most := self._limits.new_files):
            raise _RefusedError(
                f"{untracked:,} new files are not ignored; at most {most:,} are allowed"
            )

    def _reason_to_leave_out(
        self, name: str, status: os.stat_result, *, is_tracked: bool
    ) -> str | None:
        """The reason to leave a file out; None if it is taken."""
        if stat.S_ISLNK(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        most = self._limits.tracked_file if is_tracked else self._limits.untracked_file
        if status.st_size > most:
            return f"larger than {most >> 20} MB"
        if not is_tracked and may_hold_secret(name):
            return "may contain a secret"
        if not os.access(self._at(name), os.R_OK):
            return "cannot be read"
        return None

    def _at(self, name: str) -> str:
        return os.path.join(self._checkout.top, name)

    def _is_behind_link(self, folder: str) -> bool:
        """True if a folder in the work tree is reached through a link."""
        if not folder:
            return False
        return os.path.islink(self._at(folder)) or self._behind_link(os.path.dirname(folder))

    # -- what is written --------------------------------------------------------------------

    def _require_room(self, size: int) -> None:
        free = shutil.disk_usage(self._store.path).free
        if free - size < self._limits.free:
            raise _RefusedError(f"only {free >> 20:,} MB are free on the disk", "passing")
        if (taken := self._store.size()) > self._limits.store:
            raise _RefusedError(f"the store is full: {taken >> 20:,} MB", "full")

    def _remove(self, names: Collection[str]) -> None:
        if names:
            lines = b"".join(b"0 " + b"0" * 40 + b"\t" + os.fsencode(n) + b"\0" for n in names)
            self._git.run("update-index", "-z", "--index-info", stdin=lines)

    def _absent_names(self, names: set[str]) -> list[str]:
        if len(names) > bounds.ABSENT_NAMES:
            return []
        return [_json_name(name) for name in sorted(names) if not os.path.lexists(self._at(name))]

    def _known(self) -> _Known:
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(
                contents(os.path.join(self._root, "known"), 16 << 20), type=_Known
            )
        return _Known()

    def _note(self, tree: str, known: _Known) -> None:
        """Note the tree last: what is known then stands for it, or for nothing."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, "tree"))
        for name, data in (("known", msgspec.json.encode(known)), ("tree", tree.encode())):
            path = os.path.join(self._root, name)
            with open(f"{path}.new", "wb") as file:
                file.write(data)
            os.replace(f"{path}.new", path)


def _mark(path: str) -> tuple[int, ...]:
    """Return its time, size and number, one of which changes with the file; () for none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _json_name(name: str) -> str:
    """A name as text that JSON can hold; `_from_json_name` reverses it."""
    return os.fsencode(name).decode("latin-1")


def _from_json_name(plain: str) -> str:
    return os.fsdecode(plain.encode("latin-1"))


def _shown(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")
