"""Work trees of a repository with a branch of their own, and the way back from them.

A new work tree begins with the commit that is checked out, on a new branch. Its way back is a merge
into the branch that it came from, which the folder of git's for the work tree notes: it is as long
there as git knows the work tree, also once its folder was deleted or moved.

Of the configuration of a repository nothing runs: no hook, filter, driver, signature or watcher.
Whatever git would not do as the person's own git does it, is left to that: files with a filter or a
driver of merges, submodules, conflicts.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from glob import escape as glob_escape, glob
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.errors import WorkspaceError
from acp_wire.surroundings import Surroundings
from acp_wire.workspace.regular_files import contents
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.checkouts import (
    COMMIT,
    Checkout,
    checkout_at,
    checkout_of,
    head,
    main_top,
    work_trees,
)
from acphold.safety.snapshots.git import Git, GitError, personal_configuration, working
from acphold.safety.snapshots.worktree import (
    ORIGIN,
    Laid,
    beside,
    make_folders,
    make_inside,
    note_origin,
    require_usable,
    unlay,
)

BRANCHES = "acphold/"
"""The names of our branches begin so."""

UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
"""Files in git's folder for a work tree in which something is under way."""

SUBMODULE = "160000"


class NewTree(Struct, frozen=True):
    """A new work tree of the repository at `project`, with a `branch`, "" if there is none yet;
    `cwd` is the same place in it as the one that was asked for. `notes` say what is not in it."""

    laid: Laid
    project: str
    branch: str = ""
    cwd: str = ""
    notes: tuple[str, ...] = ()

    def is_unused(self) -> bool:
        """Return True if nothing was changed or committed in it; blocks."""
        found, its = checkout_at(self.laid.folder), checkout_at(self.project)
        if found is None or its is None or head(found).branch != self.branch:
            return False
        with working(bounds.LAYING_OUT_SECONDS, "looking at a work tree") as group:
            git = Git.within(group, self.laid.folder, os.devnull, found.git_folder)
            since = f"{head(its).commit}..{self.branch}"
            return not (_changes(git) or git.run("rev-list", "-1", since))

    def remove(self) -> None:
        """Remove what was made, and the branch if it has nothing of its own; blocks."""
        unlay(self.laid, self.project)
        with (
            working(bounds.LAYING_OUT_SECONDS, "removing a work tree") as group,
            suppress(GitError),
        ):
            if self.branch:
                git = Git.within(group, self.project, os.devnull)
                git.run("branch", "-d", "--quiet", "--", self.branch)


class BranchTree(Struct, frozen=True):
    """A work tree of a repository that is not the main one. `is_there` is False once its folder was
    deleted. `branch` is "" if there is none, and `locked` says why it is locked, "" if it is
    not. It `is_ours` if acphold has made it."""

    top: str
    git_folder: str
    common: str
    commit: str
    branch: str
    origin: str
    locked: str = ""
    is_there: bool = True
    is_ours: bool = False

    @property
    def source(self) -> str:
        """Its branch, or else its commit: what can be merged."""
        return self.commit if self.branch.startswith("-") else self.branch or self.commit

    @property
    def main(self) -> str:
        """The top folder of the repository's main work tree."""
        return main_top(Checkout(self.top, self.git_folder, self.common))


class WayBack(Struct, frozen=True):
    """The work that would come from a work tree into the branch `target`, which is checked out in
    the folder `into`, "" if it is nowhere.

    `commits` are the subjects, the newest first; `files` have the lines that are added and removed,
    None for binary ones. `uncommitted` are changed and new files of the tree. `changed` are files
    with changes at the target that would come, too; `conflicts` are files in which git finds some.
    `own_git` says why it is left to the person's own git, "" if it is not.
    """

    tree: BranchTree
    target: str
    into: str
    commits: tuple[str, ...]
    files: tuple[tuple[str, int | None, int | None], ...]
    uncommitted: tuple[str, ...]
    changed: tuple[str, ...]
    conflicts: tuple[str, ...]
    own_git: str
    at: str = ""
    """The commit of the target."""

    @property
    def is_ready(self) -> bool:
        """True if it can be merged here."""
        return bool(self.commits) and not (self.changed or self.conflicts or self.own_git)

    @property
    def command(self) -> str:
        """The command of git that merges it."""
        if self.into:
            return shlex.join(["git", "-C", self.into, "merge", self.tree.source])
        switch = shlex.join(["git", "-C", self.tree.main, "switch", self.target or "BRANCH"])
        return f"{switch} && {shlex.join(['git', '-C', self.tree.main, 'merge', self.tree.source])}"


# -- a new one -------------------------------------------------------------------------------


def new_tree(cwd: str) -> NewTree:
    """Make a work tree of the repository that `cwd` lies in, beside it, at the commit that is
    checked out; blocks. Raises WorkspaceError; then nothing is left of it."""
    checkout = checkout_of(cwd)
    if checkout is None or not checkout.is_repository:
        raise WorkspaceError(f"{cwd!r} is in no git repository: there is nothing to copy")
    at = head(checkout)
    if at.commit is None:
        raise WorkspaceError(f"the repository at {checkout.top!r} has no commit yet")
    with working(bounds.LAYING_OUT_SECONDS, "making a work tree") as group:
        git = Git.within(group, checkout.top, os.devnull)
        for number in count(1):
            folder = beside(checkout.top, "work" if number == 1 else f"work-{number}")
            branch = f"{BRANCHES}{folder[folder.rindex('work') :]}"
            if not git.run("for-each-ref", "--format=x", f"refs/heads/{branch}"):
                break
        require_usable(folder, checkout.top)
        made = NewTree(Laid(folder, made=tuple(make_folders(folder))), checkout.top)
        try:
            git.run("worktree", "add", "-b", branch, "--no-checkout", "--", folder, at.commit)
            made = replace(made, branch=branch, cwd=folder)
            ours = checkout_of(folder)
            if ours is None or ours.top != os.path.realpath(folder):
                raise WorkspaceError(f"{folder!r}: git has made no work tree there")
            note_origin(ours, checkout)
            inside = Git.within(group, folder, os.devnull, ours.git_folder)
            inside.run("read-tree", at.commit)
            inside.run("checkout-index", "--all", "--quiet", "--index")
            below = os.path.relpath(os.path.realpath(cwd), checkout.top)
            cwd = make_inside(folder, os.path.normpath(os.path.join(folder, below)))
            return replace(
                made,
                laid=replace(made.laid, placed=_inside(folder)),
                cwd=cwd,
                notes=_notes_of(inside, checkout.top, _changes(git), at.branch),
            )
        except BaseException:
            replace(made, laid=replace(made.laid, placed=_inside(folder))).remove()
            raise
    raise AssertionError("count ends never")


def _inside(folder: str) -> tuple[str, ...]:
    return tuple(os.path.join(folder, name) for name in os.listdir(folder) if name != ".git")


def _notes_of(git: Git, project: str, changes: Sequence[str], branch: str) -> tuple[str, ...]:
    """Return what a person has to know of a new work tree."""
    notes = []
    if any(it.startswith(SUBMODULE) for it in git.names("ls-files", "-z", "--stage")):
        notes.append("submodules are empty: `git submodule update --init` there gets them")
    if changes:
        some = f"{len(changes)} uncommitted file{'s' * (len(changes) > 1)}"
        notes.append(f"without the {some} of {project}")
    if not branch:
        notes.append("no branch was checked out: `session merge` will have none to go to")
    return tuple(notes)


# -- the way back ----------------------------------------------------------------------------


def tree_of(cwd: str) -> BranchTree | None:
    """Return the work tree that a folder lies in, or lay in before it was deleted; None if it is
    the main one, or unknown: git knows the place of one that its own command has moved."""
    checkout = checkout_of(cwd) if os.path.isdir(cwd) else None
    if checkout is not None:
        is_linked = checkout.git_folder != checkout.common and checkout.is_repository
        return _tree(checkout.top, checkout.git_folder, checkout.common) if is_linked else None
    above = os.path.dirname(cwd)
    while not os.path.isdir(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    commons: dict[str, Checkout] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(above))[: bounds.PROJECTS]:
            if (found := checkout_at(os.path.join(above, name))) is not None:
                commons.setdefault(found.common, found)
    for common, found in commons.items():
        for top in work_trees(found)[1:]:
            if f"{cwd}/".startswith(f"{top}/"):
                for note in glob(os.path.join(glob_escape(common), "worktrees", "*", "gitdir")):
                    with suppress(OSError, ValueError):
                        if os.fsdecode(contents(note, bounds.PATH_BYTES)).strip() == f"{top}/.git":
                            return _tree(top, os.path.dirname(note), common)
    return None


def _tree(top: str, git_folder: str, common: str) -> BranchTree:
    at = head(Checkout(top, git_folder, common))

    def text(name: str) -> str:
        with suppress(OSError, ValueError):
            found = contents(os.path.join(git_folder, name), bounds.PATH_BYTES)
            return found.decode(errors="replace").strip()
        return ""

    locked = ""
    if os.path.lexists(os.path.join(git_folder, "locked")):
        locked = text("locked") or "without a reason"
    origin, branch = text(ORIGIN), at.branch
    is_there = checkout_at(top) is not None
    is_ours = os.path.lexists(os.path.join(git_folder, ORIGIN))
    facts = (top, git_folder, common, at.commit or "", branch, origin, locked, is_there, is_ours)
    return BranchTree(*facts)


def way_back(tree: BranchTree) -> WayBack:
    """Return what would come from a work tree, and where to; blocks, and raises WorkspaceError."""
    if not tree.commit:
        raise WorkspaceError(f"the work tree {tree.top!r} has no commit")
    places = {
        head(found).branch: found
        for top in reversed(work_trees(Checkout(tree.top, tree.git_folder, tree.common)))
        if (found := checkout_at(top)) is not None and found.git_folder != tree.git_folder
    }
    main = checkout_at(tree.main)
    target = tree.origin or (head(main).branch if main is not None else "")
    place = places.get(target) if target else None
    with working(bounds.LAYING_OUT_SECONDS, "looking at the repository") as group:
        git = Git.within(group, tree.common, os.devnull)  # there also without a main work tree
        where = f"refs/heads/{target}"
        listed = git.run("for-each-ref", "--format=%(objectname)", where) if target else b""
        if COMMIT.fullmatch(at := listed.decode().strip()) is None:
            raise WorkspaceError(
                f"the branch {target!r}, which it came from, is gone"
                if target
                else "it came from no branch; name one to git: `git merge " + tree.source + "`"
            )
        since = f"{where}..{tree.commit}"
        subjects = git.run("log", "-z", "--format=%s", f"-{bounds.COMING_COMMITS}", since)
        commits = tuple(it.decode(errors="replace") for it in subjects.split(b"\0") if it)
        numstat = ("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")
        files = _numbers(git.run(*numstat, "--ignore-submodules=none", f"{where}...{tree.commit}"))
        uncommitted: Sequence[str] = ()
        if tree.is_there:
            inside = Git.within(group, tree.top, os.devnull, tree.git_folder)
            uncommitted = _changes(inside)
        names = [*dict.fromkeys((*(name for name, _, _ in files), *uncommitted))]
        changed: Sequence[str] = ()
        own_git = ""
        conflicts: Sequence[str] = ()
        if place is None:
            own_git = f"{target} is checked out nowhere"
        else:
            there = Git.within(group, place.top, os.devnull, place.git_folder)
            its = _changes(there)
            in_way, marked = _in_way(there, place.top, names)
            changed = [*dict.fromkeys([name for name in its if name in {*names}] + in_way)]
            busy = [it for it in UNDER_WAY if os.path.lexists(os.path.join(place.git_folder, it))]
            if busy:
                own_git = f"a merge or rebase is under way in {place.top}"
            elif its:
                own_git = f"{place.top} has uncommitted changes"
            else:
                own_git = marked or _special(there, where, tree.commit, names, "filter", "merge")
        if commits and not own_git:
            conflicts, own_git = _conflicts(git, where, tree.commit)
    into = "" if place is None else place.top
    return WayBack(
        *(tree, target, into, commits, files, tuple(uncommitted)),
        *(tuple(changed), tuple(conflicts), own_git, at),
    )


def commit_all(back: WayBack, title: str, surroundings: Surroundings) -> BranchTree:
    """Commit what is not committed in a work tree, and return it as it is then; blocks. Raises
    WorkspaceError."""
    tree = back.tree
    with working(bounds.LAYING_OUT_SECONDS, "committing") as group:
        git = Git.within(group, tree.top, os.devnull, tree.git_folder)
        inner = [name for name in back.uncommitted if name.endswith("/")]
        special = f"{inner[0]} is a repository of its own" if inner else ""
        if special := special or _special(git, "HEAD", "HEAD", back.uncommitted, "filter"):
            raise WorkspaceError(f"commit in {tree.top} with your own git: {special}")
        who = _identity(group, tree.top, surroundings)
        stdin = b"".join(os.fsencode(name) + b"\0" for name in back.uncommitted)
        git.run("update-index", "-z", "--add", "--remove", "--stdin", stdin=stdin)
        git.run("commit", "--quiet", "--no-verify", "--cleanup=whitespace", "-m", title, env=who)
    return _tree(tree.top, tree.git_folder, tree.common)


def merge(back: WayBack, title: str, surroundings: Surroundings) -> None:
    """Merge a work tree's branch where its target is checked out, clean; blocks. Raises
    WorkspaceError; then nothing has changed there."""
    place = checkout_at(back.into)
    if place is None:
        raise WorkspaceError(f"{back.into!r} is no work tree any more")
    with working(bounds.LAYING_OUT_SECONDS, "merging") as group:
        git = Git.within(group, place.top, os.devnull, place.git_folder)
        who = _identity(group, place.top, surroundings)
        message = f"Merge {back.tree.source}: {title}"
        words = ("--quiet", "--no-verify", "--no-edit", "--no-stat", "--no-autostash", "--ff")
        try:
            # The commit that the person has seen: the branch may have gone on meanwhile.
            git.run("merge", *words, "-m", message, back.tree.commit, env=who)
        except GitError:
            if os.path.lexists(os.path.join(place.git_folder, "MERGE_HEAD")):
                git.run("merge", "--abort")
            raise


def remove_tree(tree: BranchTree) -> str:
    """Remove a work tree, and its branch if that is one of ours; return what stays, in words, "" if
    nothing does. Its changes are lost. Blocks."""
    if tree.locked:
        return f"the work tree {tree.top} is locked ({tree.locked})"
    with working(bounds.LAYING_OUT_SECONDS, "removing a work tree") as group:
        git = Git.within(group, tree.common, os.devnull)
        if tree.is_there:
            git.run("worktree", "remove", "--force", "--", tree.top)
        else:
            shutil.rmtree(tree.git_folder, ignore_errors=True)
        if tree.branch.startswith(BRANCHES):
            git.run("branch", "-D", "--quiet", "--", tree.branch)
        elif tree.branch:
            return f"the branch {tree.branch}"
    return ""


def _changes(git: Git) -> list[str]:
    """Return the changed and new files of a work tree. Nothing is asked of its submodules, which
    have a configuration of their own."""
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    found = git.run(*words, "--ignore-submodules=all").split(b"\0")
    return [os.fsdecode(it[3:]) for it in found if len(it) > 3]


def _numbers(numstat: bytes) -> tuple[tuple[str, int | None, int | None], ...]:
    """Return the files of a diff with their lines."""
    files: list[tuple[str, int | None, int | None]] = []
    for line in numstat.split(b"\0"):
        if line.count(b"\t") >= 2:
            added, removed, name = line.split(b"\t", 2)
            numbers = (int(it) if it.isdigit() else None for it in (added, removed))
            files.append((os.fsdecode(name), *numbers))  # type: ignore[arg-type]
    return tuple(files)


def _special(git: Git, target: str, commit: str, names: Sequence[str], *attributes: str) -> str:
    """Return why only the person's own git can write these files as they should be, by these
    attributes and submodules; "" if ours can as well."""
    listed = git.run("diff-tree", "-r", "-z", "--no-renames", target, commit)
    if any(it[:14].count(SUBMODULE.encode()) for it in listed.split(b"\0") if it[:1] == b":"):
        return "it changes a submodule"
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    found = git.run("check-attr", "-z", "--stdin", *attributes, stdin=stdin).split(b"\0")
    for name, attribute, value in zip(found[::3], found[1::3], found[2::3], strict=False):
        plain = (b"unspecified", b"unset", b"set", b"text", b"binary", b"union")
        if value not in plain:
            what = "a filter" if attribute == b"filter" else "a way to merge"
            shown = os.fsdecode(name)
            return f"{shown} has {what} of its own ({value.decode(errors='replace')})"
    return ""


def _in_way(git: Git, top: str, names: Sequence[str]) -> tuple[list[str], str]:
    """Return the files of these that a merge would write over, also ignored ones: git itself spares
    only those that are not; and why others are left to the person's git, "" if none is."""
    marks = {it[2:]: it[:1] for it in git.names("ls-files", "-z", "-v")}
    for name in names:
        if (mark := marks.get(name, "H")) != "H":
            is_sparse = mark.lower() == "s"
            return [], f"{name} is marked as {'skip-worktree' if is_sparse else 'assume-unchanged'}"
    found = []
    for name in names:
        path = name
        while path and path not in marks:
            place = os.path.join(top, path)
            is_folder = os.path.isdir(place) and not os.path.islink(place)
            if path == name and is_folder:
                inside = (os.path.join(at, it) for at, _, them in os.walk(place) for it in them)
                is_in_way = any(os.path.relpath(it, top) not in marks for it in inside)
            else:
                is_in_way = os.path.lexists(place) and not is_folder
            if is_in_way:
                found.append(name)
                break
            path = os.path.dirname(path)
    return found, ""


def _conflicts(git: Git, target: str, commit: str) -> tuple[list[str], str]:
    """Return the files in which a merge would find conflicts; or why only the person's own git can
    tell, "" if ours can. A git older than 2.38 can only if both sides have changed other files."""
    if git.version < (2, 38):
        base = git.run("merge-base", target, commit).decode().strip()
        names = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", base)
        ours, theirs = ({*git.names(*names, its)} for its in (target, commit))
        if both := sorted(name for name in theirs if _meets(name, ours)):
            return [], f"both sides changed {both[0]}; git 2.38 or newer could say how they fit"
        return [], ""
    found = git.run(
        *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", target, commit),
        fine=(0, 1),
    )
    return [os.fsdecode(name) for name in found.split(b"\0")[1:] if name], ""


def _meets(name: str, others: Collection[str]) -> bool:
    """Return True if a file is among others, or in the place of a folder of theirs, or below one of
    them."""
    above = [name[:at] for at, letter in enumerate(name) if letter == "/"]
    return any(it in others for it in (name, *above)) or any(
        it.startswith(f"{name}/") for it in others
    )


def _identity(group: ProgramGroup, top: str, surroundings: Surroundings) -> dict[str, str]:
    """Return the variables with a person's name, as their own configuration has it."""
    found: dict[str, str] = {}
    git = Git(group, None, home=os.devnull)
    for key in ("name", "email"):
        value = ""
        for path in personal_configuration(surroundings, git.program):
            with suppress(GitError):
                said = git.run("config", "--includes", "--file", path, "--get", f"user.{key}")
                value = said.decode(errors="replace").strip() or value
        value = surroundings.env.get(f"GIT_COMMITTER_{key.upper()}", value)
        if not value:
            raise WorkspaceError(
                f"git does not know your {key}: `git config --global user.{key} …` tells it"
            )
        for role in ("AUTHOR", "COMMITTER"):
            found[f"GIT_{role}_{key.upper()}"] = value
    return {**found, "GIT_EDITOR": "true"}
