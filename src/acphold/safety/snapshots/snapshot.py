"""A snapshot is taken: what changed in a work tree since the last one goes into the store.

    1  git lists what differs from our own index of the work tree, and what is new and not ignored;
       of folders, and in a small project of files, that have not changed it is not asked again
    2  each of these names is looked at here: too large, a secret, a pipe, a repository inside
    3  git reads what is left into our index, and writes the tree; if few files have changed since,
       they are read here instead, and their trees are written, and our index stays as it was
    4  the tree is noted: the next snapshot of an unchanged work tree is the same, without writing

The first snapshot of a project is a copy of it. It is made in steps, at the lowest priority; after
an interruption, whoever comes next continues. A folder of which no snapshot can be taken is left
alone for a day, which is noted in the store.

Any call that fails ends in `NotTaken`: no tree is given out that an earlier index would yield. The
bytes of a file are kept as they are. A snapshot is per file, not of one instant.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from functools import cache, partial

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.regular_files import contents
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.checkouts import Checkout, GitHead, checkout_at, head
from acphold.safety.snapshots.git import (
    GitError,
    GitNotStartedError,
    personal_configuration,
    personal_excludes,
    program,
)
from acphold.safety.snapshots.objects import StoreObjects, content_of
from acphold.safety.snapshots.project_index import Staged, keep_staged, names_in_index, write_commit
from acphold.safety.snapshots.secret_names import RULES, may_hold_secret
from acphold.safety.snapshots.sieve import (
    Cause,
    LeftOut,
    RefusedSnapshotError,
    Sieve,
    Sifted,
    as_text,
)
from acphold.safety.snapshots.status import (
    SIZE,
    Listing,
    WorkTreeLook,
    file_marks,
    is_settled,
    mark,
    options,
)
from acphold.safety.snapshots.store import (
    UNFINISHED,
    SnapshotStore,
    StoreInUseError,
    Stores,
    locked,
    tree_of,
)
from acphold.safety.snapshots.tree_notes import Ahead, KnownTree, TreeNotes


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
    """No snapshot, and the reason. The cause is the "folder", because of its content; a "git" that
    is missing, old or fails; a folder that is "home" or above it; one so "slow" that git did not
    end; a "full" store; or something "passing". A folder is "given up" after several `times`."""

    reason: str
    cause: Cause = "passing"
    times: int = 0


def is_too_high(top: str, home: str) -> bool:
    """True for the home folder, `/`, and the folders between them."""
    home = os.path.realpath(home)
    return top == home or f"{home}/".startswith(f"{top.rstrip('/')}/")


def take(
    stores: Stores,
    checkout: Checkout,
    surroundings: Surroundings,
    *,
    limits: bounds.SnapshotLimits = bounds.SNAPSHOT_LIMITS,
    deadline: float | None = None,
    spared: Iterable[str] = (),
    gently: bool = False,
    checkpoint: Callable[[], None] | None = None,
    is_ending: Callable[[], bool] = bool,
) -> Taken | NotTaken:
    """Take a snapshot of a work tree; blocks until `deadline` (monotonic seconds) at most.

    The snapshot is kept in its store for an hour, until the journal names it. The `surroundings`
    have the home folder and the configuration of the person. `spared` are paths of
    our own, which are never in it. `gently`, git leaves the processors to others. What `checkpoint`
    raises, which is called while git runs, ends this. Once `is_ending` is true, a first snapshot is
    left for the next time.
    """
    if program() is None:
        return NotTaken("git is not installed", "git")
    if is_too_high(checkout.top, surroundings.home):
        return NotTaken("no snapshots are taken of the home folder or a folder above it", "home")
    until = time.monotonic() + bounds.SNAPSHOT_SECONDS if deadline is None else deadline
    try:
        with ExitStack() as held:
            is_used = False
            while not is_used:
                store = stores.of(checkout.common or checkout.top, until)
                with suppress(FileNotFoundError):  # the upkeep has removed it in this moment
                    held.enter_context(store.used(until))
                    is_used = True
            root = store.root(checkout.top)
            held.enter_context(locked(os.path.join(root, "lock"), until))
            notes = TreeNotes(root)
            refusal = notes.refusal(checkout)
            if refusal is not None and refusal.times >= bounds.REFUSALS:
                return NotTaken(refusal.reason, "given up", refusal.times)

            def check() -> None:
                if checkpoint is not None:
                    checkpoint()
                if is_ending() and os.path.exists(os.path.join(root, UNFINISHED)):
                    raise TimeoutError("the process ends")

            taken: Taken | NotTaken
            try:
                check()
                niceness = bounds.NICENESS if gently else 0
                with ProgramGroup(until, niceness=niceness, checkpoint=check) as group:
                    taker = _SnapshotTaker(
                        *(store, root, checkout, surroundings),
                        *(limits, group, (stores.folder, *spared)),
                    )
                    taker.is_patient = deadline is None
                    taken = taker.take()
            except TimeoutError as error:
                if os.path.exists(os.path.join(root, UNFINISHED)):
                    return NotTaken("its first snapshot is not finished; the next one continues")
                taken = NotTaken(f"it took too long: {error}", "slow")
            except GitNotStartedError as error:
                return NotTaken(str(error))
            except (GitError, BufferError) as error:
                return NotTaken(str(error), "git")
            if isinstance(taken, Taken):
                notes.forget_refusal()
            elif taken.cause in ("folder", "slow"):
                is_slow = taken.cause == "slow"  # that has cost a minute
                times = notes.refuse(checkout, taken.reason, refusal, at_once=is_slow)
                return replace(taken, times=times)
            return taken
    except StoreInUseError as error:
        return NotTaken(f"it took too long: {error}")
    except OSError as error:
        return NotTaken(error.strerror or str(error))


def find_ignored_names(
    store: SnapshotStore, group: ProgramGroup, checkout: Checkout, surroundings: Surroundings
) -> set[str]:
    """The files in a work tree that are ignored; raises what `Git.run` raises."""
    sources = options(_sources(checkout, personal_excludes(group, surroundings, store.path)))
    git = store.git(group, work_tree=checkout.top)
    found = {*git.names("ls-files", "-z", "-o", "-i", *sources)}
    return found - names_in_index(store, group, checkout)


def _sources(checkout: Checkout, personal: str) -> list[str]:
    """The files of ignored names, the strongest last."""
    paths = [personal]
    if checkout.is_repository:
        paths.append(os.path.join(checkout.common, "info", "exclude"))
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)]


BLOCK = 4096
"""Bytes by which a small file makes a store grow, at most."""


class _SnapshotTaker:
    """One snapshot being taken, under the locks."""

    def __init__(
        self,
        store: SnapshotStore,
        root: str,
        checkout: Checkout,
        surroundings: Surroundings,
        limits: bounds.SnapshotLimits,
        group: ProgramGroup,
        own: Iterable[str],
    ) -> None:
        self._store = store
        self._root = root
        self._notes = TreeNotes(root)
        self._checkout = checkout
        self._surroundings = surroundings
        self._limits = limits
        self._group = group
        self._index = os.path.join(root, "index")
        self._git = store.git(group, work_tree=checkout.top, index=self._index)
        self._objects = StoreObjects(self._git, store.path)
        self._look = WorkTreeLook(self._git, checkout.top, self._index)
        self._sieve = Sieve(checkout.top, limits, own)
        self._known = self._notes.known()
        self._ahead = {name for name, it in self._known.ahead.items() if it.id}
        self._personal = self._personal_excludes()
        self._tracked = cache(partial(names_in_index, store, group, checkout))
        self.is_patient = False
        """True if a step of a first snapshot may last as long as the whole otherwise."""

    def take(self) -> Taken | NotTaken:
        with suppress(FileNotFoundError):  # we have the lock: a killed process has left it
            os.unlink(f"{self._index}.lock")
        current = head(self._checkout)
        known, index = self._known, mark(self._index)
        if known.fresh and known.index == index and index[0] // 10**9 < time.time_ns() // 10**9:
            # Written once more, in a later second than that of its files.
            with suppress(OSError, GitError):  # then it is as good as before
                tree = tree_of(self._root)
                self._git.run("update-index", "--force-write-index")
                known.index, known.fresh = mark(self._index), False
                self._notes.note(tree, known)
        for attempt in range(1, bounds.TRIES + 1):
            try:
                return self._attempt(self._known, current)
            except GitError:
                if attempt == bounds.TRIES:
                    raise
                if attempt == bounds.TRIES - 1:
                    # Our own index may be damaged: read everything anew.
                    with suppress(FileNotFoundError):
                        os.unlink(self._index)
                self._known = self._notes.known()
                self._tracked.cache_clear()
            except RefusedSnapshotError as error:
                return NotTaken(str(error), error.cause)
        raise AssertionError("every attempt ends")

    def _attempt(self, known: KnownTree, current: GitHead) -> Taken:
        sources = _sources(self._checkout, self._personal)
        excludes = [(path, mark(path)) for path in sources]
        listed = self._look.listing(sources)
        project_index = mark(self._checkout.index)
        is_index_known = (project_index, current.commit) == (known.project_index, known.commit)
        has_returned = any(os.path.lexists(self._at(name)) for name in known.absent)
        is_same = is_index_known and excludes == known.excludes and not has_returned
        is_same = is_same and known.rules == RULES and os.path.exists(self._index)
        before = None
        with suppress(OSError):
            before = tree_of(self._root) if mark(self._index) == known.index else None
        if is_same and before and not listed.inside and not known.inside and not listed.rules:
            return self._take_changes(known, current, before, listed)
        if is_same and before and not listed:
            return self._keep(before, current)
        tracked = set(self._tracked())
        most = self._limits.new_files
        if len(listed.names) > most and len(listed.names - tracked) > most:
            # before each is looked at
            self._sieve.refuse_many(len(listed.names.difference(tracked, self._own_names())))
        candidates, inside = self._candidates(listed.names, tracked, known)
        if len(tracked) > (most := self._limits.tracked_files):
            raise RefusedSnapshotError(
                f"{len(tracked):,} files are tracked; at most {most:,} are allowed"
            )
        ours = set(self._own_names())
        if not is_same:
            candidates |= tracked - ours
            candidates |= {name for name in ours - tracked if may_hold_secret(name)}
        sifted = self._sieve.sift(candidates, tracked.__contains__, ours)
        self._read(sifted)
        self._remove({*self._git.names("ls-files", "-z", "-c", "-i", *options(sources))} - tracked)
        if not os.path.exists(self._index):  # an empty work tree
            self._git.run("read-tree", "--empty")
        tree = self._write_tree(known)
        staging = Staged()
        if is_index_known:
            staging = Staged(known.staged)
        elif current.commit is not None and os.path.isfile(self._checkout.index):
            staging = keep_staged(
                *(self._store, self._group, self._checkout, current.commit),
                *(self._limits.tracked_file, self._require_room),
            )
        if staging.commit:
            tree = write_commit(self._objects, tree, staging.commit)
        sifted.left_out += staging.left_out
        absent = tracked.difference(ours.difference(sifted.removed), sifted.added)
        known.excludes = excludes
        # To be looked at again if something staged was left out.
        known.project_index = () if staging.left_out else project_index
        known.commit, known.staged, known.rules = current.commit, staging.commit, RULES
        known.inside, known.untracked = inside, []
        known.absent = self._absent_names(absent)
        return self._keep(tree, current, sifted, known)

    def _take_changes(
        self, known: KnownTree, current: GitHead, before: str, listed: Listing
    ) -> Taken:
        """Take a snapshot if nothing but files has changed since the last one: what is tracked is
        asked for only if it matters."""
        if len(listed.new) > self._limits.new_files:  # before each is looked at
            self._sieve.refuse_many(len(listed.new - self._tracked()))
        untracked = {*known.untracked}

        def is_tracked(name: str) -> bool:
            if name in untracked or name in self._tracked():
                return name not in untracked
            untracked.add(name)
            return False

        # Those that are ahead of our index still, and as they were when read.
        same: dict[str, Ahead] = {}
        for name, it in known.ahead.items():
            if it.marks and name in listed.names and not self._sieve.is_behind_link(name):
                with suppress(OSError):
                    if it.marks == file_marks(os.lstat(self._at(name))):
                        same[name] = it
        sifted = self._sieve.sift(listed.names - same.keys(), is_tracked, listed.changed)
        looked_for = sorted(untracked & listed.names)[: bounds.ABSENT_NAMES]
        is_noted, known.untracked = known.untracked == looked_for, looked_for
        files = self._read_without_git(known, sifted, same)
        if files is None:
            if same:
                sifted = self._sieve.sift(listed.names, is_tracked, listed.changed)
            self._read(sifted)
            tree = self._write_tree(known)
        else:
            former = known.ahead
            changed = [name for name, it in files.items() if it.differs(former.get(name))]
            entries = {name: files[name].entry for name in changed}
            known.tree, edited = self._objects.edit(known.tree, entries)
            sifted.keep_only(edited)
            for name in changed:  # it was only touched
                if name not in former and name not in edited:
                    del files[name]
            is_noted, known.ahead = is_noted and files == former, files
            if not edited:
                return self._keep(before, current, sifted, None if is_noted else known)
            tree = known.tree
        if known.staged:
            tree = write_commit(self._objects, tree, known.staged)
        if sifted.removed:
            gone = {name for name in sifted.removed if is_tracked(name)}
            known.absent = self._absent_names(gone.union(known.absent))
        return self._keep(tree, current, sifted, known)

    def _keep(
        self,
        tree: str,
        current: GitHead,
        sifted: Sifted | None = None,
        known: KnownTree | None = None,
    ) -> Taken:
        """Keep a snapshot, note it if it is `known` what is in it, and return it."""
        self._store.note_fresh(tree)
        if known is not None:
            known.index = mark(self._index)
            self._notes.note(tree, known)
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._root, UNFINISHED))
        sifted = sifted or Sifted()
        # Those that leave now are named first: whoever compares would take them for deleted ones.
        leaving = {as_text(name) for name in self._ahead.union(sifted.removed)}
        left_out = sorted(sifted.left_out, key=lambda it: it.path not in leaving)
        return Taken(
            self._store.id,
            tree,
            current,
            len(sifted.added),
            sifted.size,
            tuple(left_out[: bounds.LEFT_OUT_NAMES]),
            len(sifted.left_out),
        )

    # -- the names to look at ------------------------------------------------------------------

    def _candidates(
        self, listed: set[str], tracked: set[str], known: KnownTree
    ) -> tuple[set[str], list[str]]:
        """Return the names to look at, and the repositories inside, whose tracked names are added
        to `tracked`."""
        inside = [name for name in known.inside if checkout_at(self._at(name.rstrip("/")))]
        inside += sorted(name for name in listed if name.endswith("/"))
        prefixes = tuple(inside)
        candidates = {name for name in listed if not name.startswith(prefixes)}
        for prefix in inside:
            # Its files are named one by one: git would keep only its commit.
            files: set[str] = set()
            place = os.path.join(self._checkout.top, prefix.rstrip("/"))
            checkout = checkout_at(place)
            if checkout is not None and not os.path.islink(place):
                index = names_in_index(self._store, self._group, checkout)
                its_tracked = {prefix + name for name in index}
                tracked |= its_tracked
                git = self._store.git(self._group, work_tree=place)
                sources = options(_sources(checkout, self._personal))
                found = {prefix + name for name in git.names("ls-files", "-z", "-o", *sources)}
                # Repositories in it: the loop goes on with them.
                inside += sorted(it for it in found if it.endswith("/") and it not in inside)
                files = {name for name in found if not name.endswith("/")} | its_tracked
                files = {name for name in files if os.path.lexists(self._at(name))}
            ours = {name for name in listed if name.startswith(prefix)}
            present = set(self._own_names(prefix))
            candidates |= (files - present) | (ours & (files | present))
        return candidates, inside

    def _own_names(self, below: str = "") -> list[str]:
        """The names in our own index."""
        if not os.path.exists(self._index):
            return []
        return [*self._git.names("ls-files", "-z", "-c", "--", *([below] if below else []))]

    def _at(self, name: str) -> str:
        return os.path.join(self._checkout.top, name)

    # -- what is written --------------------------------------------------------------------

    def _read(self, sifted: Sifted) -> None:
        """Have git read what is new into our index. Of many files, what was read until an
        interruption stays there, and in the store."""
        self._remove(sifted.removed)
        names = sifted.added
        if not names:
            return
        self._require_room(sifted.size, len(names))
        self._known.fresh = True
        # Blobs that count as big are streamed into one pack, which is three times as fast.
        big = ("-c", "core.bigFileThreshold=1", "-c", "pack.compression=1")
        options = big if len(names) > bounds.LOOSE_FILES else ()
        start, step = 0, min(bounds.FILES_AT_FIRST, bounds.FILES_AT_ONCE)
        if len(names) > step:
            with open(os.path.join(self._root, UNFINISHED), "w"):
                self._group.niceness = bounds.LOWEST_NICENESS
        while start < len(names):
            began = time.monotonic()
            if self.is_patient:
                self._group.deadline = began + bounds.SNAPSHOT_SECONDS
            some = names[start : start + step]
            self._git.run(
                *(*options, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"),
                stdin=b"".join(os.fsencode(name) + b"\0" for name in some),
            )
            start += step
            if time.monotonic() - began < bounds.STEP_SECONDS:
                step = min(2 * step, bounds.FILES_AT_ONCE)

    def _write_tree(self, known: KnownTree) -> str:
        """Write the tree of our index: nothing is ahead of it then."""
        known.tree, known.ahead = self._git.run("write-tree").decode().strip(), {}
        return known.tree

    def _read_without_git(
        self, known: KnownTree, sifted: Sifted, same: dict[str, Ahead]
    ) -> dict[str, Ahead] | None:
        """Return the files that are ahead of our index, whose contents are in the store then; None
        if git has to read them into it. `same` are those that still are, beside the sifted ones."""
        names = {*sifted.added, *sifted.removed}
        size = sifted.size + sum(it.marks[SIZE] for it in same.values())
        is_small = len(names) + len(same) <= bounds.CHANGED_FILES and size <= bounds.CHANGED_BYTES
        others = known.ahead.keys() - same.keys() - names
        # One that is ahead and not among them is now as our index has it, or was new and is gone.
        if not known.tree or not is_small or others or not all(map(PLAIN.fullmatch, names)):
            return None
        files = same | {name: Ahead() for name in sifted.removed}
        for name in sifted.added:
            now = time.time_ns()
            try:
                status, mode, content = content_of(self._at(name), bounds.CHANGED_BYTES)
                self._require_room(len(content))
                object_id = self._objects.write("blob", content)
            except (FileNotFoundError, BufferError):  # it is changed just now
                return None
            marks = file_marks(status) if is_settled(status, now) else ()
            files[name] = Ahead(mode.decode(), object_id, marks)
        return files

    def _require_room(self, size: int, files: int = 1) -> None:
        free = shutil.disk_usage(self._store.path).free
        if free - size < self._limits.free:
            raise RefusedSnapshotError(f"only {free >> 20:,} MB are free on the disk", "passing")
        known = self._known
        known.grown += size + files * 2 * BLOCK
        is_measured = known.measured and known.grown < bounds.GROWN_BYTES
        if not is_measured or known.measured + known.grown > self._limits.store:
            known.measured, known.grown = self._store.size(), size + files * 2 * BLOCK
        if known.measured > self._limits.store:
            raise RefusedSnapshotError(f"the store is full: {known.measured >> 20:,} MB", "full")

    def _remove(self, names: Collection[str]) -> None:
        if names:
            lines = b"".join(b"0 " + b"0" * 40 + b"\t" + os.fsencode(n) + b"\0" for n in names)
            self._git.run("update-index", "-z", "--index-info", stdin=lines)

    def _absent_names(self, names: set[str]) -> list[str]:
        if len(names) > bounds.ABSENT_NAMES:
            return []
        return [name for name in sorted(names) if not os.path.lexists(self._at(name))]

    def _personal_excludes(self) -> str:
        """The file of names that the person ignores: asked of git once for each state of their
        configuration."""
        paths = personal_configuration(self._surroundings, self._git.program)
        marks = [(path, mark(path)) for path in paths]
        if self._known.personal is not None and self._known.personal[1] == marks:
            return self._known.personal[0]
        found = personal_excludes(self._group, self._surroundings, self._store.path)
        texts = [b""]
        for path in paths:
            with suppress(OSError):
                texts.append(contents(path, bounds.PERSONAL_BYTES))
        if not any(b"include" in text.lower() for text in texts):
            self._known.personal = (found, marks)
        return found


PLAIN = re.compile(r"(?!(?:.*/)?\.git)[ -9;-\[\]-}]+", re.IGNORECASE | re.ASCII)
"""Paths that git takes on any system."""
