"""The versions of files in the snapshots of a store, and the steps between them: see
`origins.versions`.

A file that git sees as renamed has the versions under its former names, too. Of many versions the
newest are read, and of many edits the last are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import TurnSpan
from acphold.conversation.reports.file_edits import ABSENT, Edit, FileText, between
from acphold.journal.rows import SessionRow
from acphold.journal.seams import TurnSnapshot, with_numbers
from acphold.live.origins.kept_changes import SnapshotStep, steps
from acphold.live.origins.versions import MOST_BYTES, MOST_VERSIONS, Claim, GitStep, Versions
from acphold.safety.snapshots import bounds
from acphold.safety.snapshots.comparison import FileChange, SnapshotReader, reading
from acphold.safety.snapshots.store import SnapshotStore

MOST_NAMES: Final = 50
"""Most former names of files that one question follows."""

MOST_GONE: Final = 50
"""Most removed files whose lines are compared with a file that appeared at that time."""


class FolderHistory(Struct):
    """The snapshots of one folder in one session, with its turns and the edits in them."""

    row: SessionRow
    spans: list[TurnSpan]
    rows: list[TurnSnapshot]
    shown: dict[tuple[int, str], list[Edit]] = {}


class SnapshotFiles(Struct):
    """Files in the snapshots of a store; `paths` includes the former names of those asked for.

    `blobs` has the id of the content of a file, by tree and path. `changes` are the changes between
    two snapshots in a row, where one of the files appeared. `since` are the times of trees.
    `left_out` counts the contents of a file that were not read.
    """

    paths: list[str]
    blobs: dict[tuple[str, str], str | None]
    changes: dict[tuple[str, str], list[FileChange]]
    contents: dict[str, bytes]
    since: dict[str, int]
    left_out: Counter[str]

    def content(self, tree: str, path: str) -> bytes | None:
        blob = self.blobs.get((tree, path))
        return self.contents.get(blob) if blob else None


def read_files(
    store: SnapshotStore, chains: Sequence[Sequence[TurnSnapshot]], asked: Sequence[str]
) -> SnapshotFiles:
    """Read the files with these paths, and those that they were renamed from."""
    since: dict[str, int] = {}
    for snapshot in (it for rows in chains for it in rows if it.is_kept):
        since[snapshot.tree] = min(snapshot.at, since.get(snapshot.tree, snapshot.at))
    trees = sorted(since)
    tree_pairs = {
        (one.tree, two.tree)
        for rows in chains
        for one, two in pairwise(sorted((it for it in rows if it.is_kept), key=lambda it: it.order))
    }
    found = SnapshotFiles([], {}, {}, {}, since, Counter())
    with reading(store) as snapshots:
        paths = [*dict.fromkeys(asked)]
        while paths and len(found.paths) < MOST_NAMES + len(asked):
            found.paths += paths
            places = [(tree, path) for tree in trees for path in paths if "\n" not in path]
            found.blobs |= zip(places, snapshots.blobs(places), strict=True)
            former: dict[str, None] = {}
            for pair in sorted(tree_pairs):
                before, after = pair
                if appeared := {
                    path
                    for path in paths
                    if found.blobs.get((after, path)) and not found.blobs.get((before, path))
                }:
                    if pair not in found.changes:
                        found.changes[pair] = snapshots.changes(before, after)
                    for change in found.changes[pair]:
                        if change.path in appeared and change.old_path != change.path:
                            former[change.old_path] = None
            paths = [path for path in former if path not in found.paths]
        removed = [
            change.before
            for changes in found.changes.values()
            for change in [it for it in changes if it.after is None][:MOST_GONE]
        ]
        found.contents = snapshots.contents(blob for blob in removed if blob)
        for path, blobs in _newest(snapshots, found).items():
            found.contents |= snapshots.contents(blobs)
            found.left_out[path] -= len(blobs)
    return found


def _newest(snapshots: SnapshotReader, files: SnapshotFiles) -> dict[str, list[str]]:
    """Return the newest contents of each file, within the limits; all are counted in `left_out`."""
    last: dict[str, dict[str, int]] = {path: {} for path in files.paths}
    for (tree, path), blob in files.blobs.items():
        if blob:
            its = last[path]
            its[blob] = max(files.since[tree], its.get(blob, 0))
    sizes = snapshots.sizes({blob: 0 for its in last.values() for blob in its})
    found: dict[str, list[str]] = {}
    for path, its in last.items():
        files.left_out[path] = len(its)
        room = MOST_BYTES
        found[path] = []
        its_newest = sorted(its, key=lambda it: its[it], reverse=True)
        its_newest = [it for it in its_newest if sizes.get(it, 0) <= bounds.TEXT_BYTES]
        for blob in its_newest[:MOST_VERSIONS]:
            room -= sizes.get(blob, 0)
            if room < 0:
                break
            found[path].append(blob)
    return found


class VersionBuilder:
    """The versions of each file in these chains, and the steps between them."""

    def __init__(self, files: SnapshotFiles, chains: Sequence[FolderHistory]) -> None:
        self._files = files
        # The order in time only decides which of two steps that lead in a circle counts.
        found = [
            (step.after.at, number, step)
            for number, chain in enumerate(chains)
            for step in steps(with_numbers(chain.rows, chain.spans), len(chain.spans))
        ]
        found.sort(key=lambda it: it[:2])
        self._steps = [(chains[number], step) for _, number, step in found]

    def fill(self, paths: Sequence[str], versions: Sequence[Versions]) -> None:
        """Add to the versions of each of these paths."""
        for path, of_file in zip(paths, versions, strict=True):
            self._add_file(of_file, path, ())

    def _add_file(self, versions: Versions, path: str, later: tuple[str, ...]) -> None:
        """Add the versions of a file that had `later` names, the latest first."""
        files = self._files
        versions.left_out += files.left_out[path]
        for (tree, other_path), blob in files.blobs.items():
            if other_path == path and blob in files.contents:
                versions.note(versions.add(files.contents[blob]), files.since[tree])
        room = MOST_BYTES
        is_read: list[bool] = []  # of each step, the newest first
        for chain, step in reversed(self._steps):
            after = files.content(step.after.tree, path) or b""
            room -= len(after) * len(_edits(chain, step, path))
            is_read.append(room >= 0)
        for chain, step in self._steps:
            self._add_step(versions, chain, step, path, later, has_room=is_read.pop())

    def _add_step(
        self,
        versions: Versions,
        chain: FolderHistory,
        step: SnapshotStep,
        path: str,
        later: tuple[str, ...],
        *,
        has_room: bool,
    ) -> None:
        files = self._files
        trees = (step.before.tree, step.after.tree)
        old, new = (files.blobs.get((tree, path)) for tree in trees)
        if new is None or new not in files.contents or new == old:
            return
        content = files.contents[new]
        before = files.contents.get(old) if old else None
        if not has_room or (old is not None and before is None):
            versions.left_out += not has_room
            versions.cut.add(versions.add(content))
            return
        edits = _edits(chain, step, path)
        claim = None
        if step.is_sure and step.turns:
            turn = (chain.row.session_id, step.turns[0])
            claim = Claim(*turn, False, is_likely=step.is_likely)
        if old is None:
            # The name that it had before it appeared; None if it is new.
            changes = files.changes.get(trees, ())
            renames = (it for it in changes if it.path == path and it.old_path != path)
            former = next((it.old_path for it in renames), None)
            if former is not None and (before := files.content(trees[0], former)) is not None:
                if former not in later:  # otherwise it is being added
                    earlier = Versions()
                    self._add_file(earlier, former, (*later, path))
                    versions.adopt(earlier, before)
                if before == content:
                    return
                edits = [*_edits(chain, step, former), *edits]
            else:
                # Lines of files that were removed at the same time may have moved into it.
                removed = [it.before for it in changes if it.after is None]
                moved = versions.moved[versions.add(content)]
                for blob in removed:
                    moved.update(files.contents.get(blob or "", b"").split(b"\n"))
                claim = claim if len(removed) <= MOST_GONE and former is None else None
        begins = step.between[0] if step.before.edge == "begin" else None
        one, two = step.before, step.after
        commits = tuple(dict.fromkeys(it for it in (two.commit, one.commit) if it))
        popped = tuple(it for it in one.stashes if it not in two.stashes)
        git_step = GitStep(
            path, before or b"", commits, one.stashes, popped, one.at, is_written=False
        )
        last = _add_shown(versions, before, content, edits, chain.row.session_id, begins, git_step)
        after = versions.add(content)
        versions.git_steps[after].append(git_step)
        if last != after:
            if last is not None:
                versions.step(last, after)
            versions.step(None if before is None else versions.add(before), after, claim)


def _edits(chain: FolderHistory, step: SnapshotStep, path: str) -> list[Edit]:
    """Return the edits of a file that the agent showed in the turns of a step."""
    return [it for turn in step.turns for it in chain.shown.get((turn, path), ())]


def _add_shown(
    versions: Versions,
    before: bytes | None,
    after: bytes,
    edits: Sequence[Edit],
    session_id: str,
    begins: int | None,
    git_step: GitStep,
) -> str | None:
    """Add the versions that the edits of a step lead to; return the last one, None without any.

    An edit that writes a whole file has the lines of others, too: it claims lines only in the turn
    with whose beginning the step `begins`.
    """
    text: FileText = ABSENT
    if before is not None:
        try:
            text = before.decode()
        except UnicodeDecodeError:
            return None
    done = [it for it in edits if it.is_over]
    for applied in (edits, done):
        states = between(applied, text)
        if len(states) == len(applied) and states and _bytes(states[-1]) == after:
            break
    else:
        applied, states = done, between(done, text)
    last = None if before is None else versions.add(before)
    is_changed = False
    for edit, state in zip(applied, states, strict=False):
        if (content := _bytes(state)) is None:
            last = None
            continue
        version = versions.add(content)
        if version != last:
            calls = (edit.call,) if edit.call else ()
            is_sure = bool(edit.old) or edit.turn == begins
            claim = Claim(session_id, edit.turn, True, calls) if is_sure else None
            versions.step(last, version, claim)
            if not edit.old:
                written = replace(git_step, is_written=True)
                versions.git_steps[version].append(written)
        last, is_changed = version, True
    return last if is_changed else None


def _bytes(state: FileText) -> bytes | None:
    return state.encode(errors="surrogatepass") if isinstance(state, str) else None
