"""The prompts that lines of a file came from.

A line is searched by content in the versions of its file in the snapshots of all sessions: see
`origins.versions`. A file that git sees as renamed continues the versions under its former name.
The version in which the line first appears gives the answer:

shown     the agent showed an edit that led to it, in one turn
seen      it appeared between the beginning and the end of one turn, and the agent did not show it:
          a command, a person or another session made it
likely    as seen, and one of the two snapshots is only likely of its moment
git       git brought it in that turn: see `origins.project_lines`. If an earlier snapshot had the
          line, it has the origin that it had there
unknown   anything else, with the reason
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.processes.program_group import ProgramGroup
from acp_wire.workspace.threads import Threads
from acphold.errors import UnknownSessionError
from acphold.live.hub.kept_stores import stores_of
from acphold.live.origins.kept_changes import (
    SnapshotStep,
    edits_by_turn,
    root_around,
    steps,
)
from acphold.live.origins.project_lines import COMMIT_GONE, STASH_GONE, ProjectLines
from acphold.live.origins.versions import (
    MOST_BYTES,
    MOST_VERSIONS,
    Claim,
    GitStep,
    Versions,
    is_distinct,
)
from acphold.record.history.decisions import (
    AskedQuestion,
    ClosedQuestion,
    asked_question,
    closed_question,
)
from acphold.record.history.entries import ANSWER, QUESTION, TurnSpan, turn_spans
from acphold.record.history.raw_update import items, members, storable, string
from acphold.record.history.words import document
from acphold.record.journal import Journal, SessionRow, history
from acphold.record.journal.seams import TurnSnapshot, with_numbers
from acphold.record.reports.file_edits import ABSENT, Edit, FileText, between
from acphold.record.snapshots import bounds
from acphold.record.snapshots.checkouts import Checkout, checkout_at, checkout_of, object_format
from acphold.record.snapshots.comparison import FileChange, SnapshotReader, bare_folder, reading
from acphold.record.snapshots.store import SnapshotStore

SECONDS: Final = 60.0
"""Seconds that asking `git blame` may take."""

PROMPT_CHARACTERS: Final = 100_000

MOST_NAMES: Final = 50
"""Most former names of files that one question follows."""

MOST_GONE: Final = 50
"""Most removed files whose lines are compared with a file that appeared at that time."""

NO_SNAPSHOT = "there is no snapshot of this file"
NOT_KEPT = "it is in no snapshot: it changed after the last one, or was added some other way"
BEFORE = "it existed before, or was added between two turns"
OLDER = "it may be in one of the {:,} oldest or longest versions of this file, which were left out"
SEVERAL = "it appeared in several turns"
GONE = "its session was deleted"


class LineOrigin(Struct, frozen=True):
    """The origin of a line; `reason` says why it is unknown, and `claims` are the turns in
    which it then may have been made. Of one from `git`, `reason` has the commit."""

    how: Literal["shown", "seen", "likely", "git", "unknown"]
    claims: tuple[Claim, ...] = ()
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """True if the line is of one turn."""
        return self.how in ("shown", "seen", "likely")


class TurnFacts(Struct, frozen=True):
    """A turn that lines came from: `seq` is the entry of its prompt, `allowed` are lines about
    the answers to questions about the calls that showed them."""

    session_id: str
    title: str
    agent: str
    turn: int
    seq: int
    prompt: str
    allowed: tuple[str, ...] = ()

    def with_allowed(self, more: Sequence[str]) -> TurnFacts:
        """Return the facts with answers about other calls of the same turn."""
        return replace(self, allowed=tuple(dict.fromkeys((*self.allowed, *more))))


class LineRun(Struct):
    """Lines `first` to `last` of a file that have the same origin."""

    path: str
    first: int
    last: int
    origin: LineOrigin

    @property
    def turn(self) -> tuple[str, int]:
        """The session and the number of the turn that they came from, if it is known."""
        claim = self.origin.claims[0]
        return claim.session_id, claim.turn


class _FolderHistory(Struct):
    """The snapshots of one folder in one session, with its turns and the edits in them."""

    row: SessionRow
    spans: list[TurnSpan]
    rows: list[TurnSnapshot]
    shown: dict[tuple[int, str], list[Edit]] = {}


class Lines(Struct, frozen=True):
    """Lines of a file, numbered from 1, of whose origin is asked; `path` is below the top."""

    path: str
    content: bytes
    lines: tuple[int, ...]


async def origins(
    journal: Journal, checkout: Checkout, asked: Sequence[Lines]
) -> list[dict[int, LineOrigin]]:
    """Return the origin of each line, in each of these files. Raises GitError, TimeoutError,
    BufferError and OSError."""
    stores = await stores_of(journal)
    named = await journal.snapshots.of_all()
    known = stores.find_for(checkout.common or checkout.top)
    ids = {one.store for _, one in named if one.root == checkout.top and one.store}
    ids |= {known.id} if known is not None else set()
    stores_found = [store for store in map(stores.find, sorted(ids)) if store is not None]
    by_folder: dict[tuple[str, str, str], list[TurnSnapshot]] = {}
    originals = {one.moment for _, one in named if not one.taken_for}
    for session_id, one in named:
        if one.taken_for and one.moment in originals:
            continue
        originals.add(one.moment)  # of copies, whose original is gone, the first
        if one.store in ids or (not one.is_kept and one.root == checkout.top):
            by_folder.setdefault((one.store, session_id, one.root), []).append(one)
    threads = Threads(1)
    paths = [it.path for it in asked]
    found_versions = [Versions() for _ in asked]
    for store in stores_found:
        of_store = {key: rows for key, rows in by_folder.items() if key[0] == store.id}
        rows_of_store = [*of_store.values()]
        files = await threads.run(_read_files, store, rows_of_store, paths)
        chains: list[_FolderHistory] = []
        for (_, session_id, _), rows in of_store.items():
            trees = [one.tree for one in rows if one.is_kept]
            if all(len({files.blobs.get((it, path)) for it in trees}) < 2 for path in files.paths):
                continue  # no file changed
            try:
                row = await journal.session(session_id)
            except UnknownSessionError:  # deleted meanwhile
                continue
            spans = await turn_spans(history(journal, session_id))
            shown = await edits_by_turn(journal, row, spans, rows)
            chains.append(_FolderHistory(row, spans, rows, shown))
        filling = _VersionBuilder(files, chains)
        await threads.run(filling.fill, paths, found_versions)
    return await threads.run(_blame_lines, checkout, found_versions, asked)


class _SnapshotFiles(Struct):
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


def _read_files(
    store: SnapshotStore, chains: Sequence[Sequence[TurnSnapshot]], asked: Sequence[str]
) -> _SnapshotFiles:
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
    found = _SnapshotFiles([], {}, {}, {}, since, Counter())
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


def _newest(snapshots: SnapshotReader, files: _SnapshotFiles) -> dict[str, list[str]]:
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


class _VersionBuilder:
    """The versions of each file in these chains, and the steps between them."""

    def __init__(self, files: _SnapshotFiles, chains: Sequence[_FolderHistory]) -> None:
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
        chain: _FolderHistory,
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
                moved = versions.moved.setdefault(versions.add(content), set())
                for blob in removed:
                    moved.update(files.contents.get(blob or "", b"").split(b"\n"))
                claim = claim if len(removed) <= MOST_GONE and former is None else None
        begins = step.between[0] if step.before.edge == "begin" else None
        git_step = _git_step(step, path, before or b"")
        last = _add_shown(versions, before, content, edits, chain.row.session_id, begins, git_step)
        after = versions.add(content)
        versions.git_steps.setdefault(after, []).append(git_step)
        if last != after:
            if last is not None:
                versions.step(last, after)
            versions.step(None if before is None else versions.add(before), after, claim)


def _git_step(step: SnapshotStep, path: str, before: bytes) -> GitStep:
    one, two = step.before, step.after
    commits = dict.fromkeys(it for it in (two.commit, one.commit) if it)
    popped = tuple(it for it in one.stashes if it not in two.stashes)
    return GitStep(path, before, tuple(commits), one.stashes, popped, one.at, is_written=False)


def _edits(chain: _FolderHistory, step: SnapshotStep, path: str) -> list[Edit]:
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
                versions.git_steps.setdefault(version, []).append(written)
        last, is_changed = version, True
    return last if is_changed else None


def _bytes(state: FileText) -> bytes | None:
    return state.encode(errors="surrogatepass") if isinstance(state, str) else None


def _blame_lines(
    checkout: Checkout, versions: Sequence[Versions], asked: Sequence[Lines]
) -> list[dict[int, LineOrigin]]:
    deadline = time.monotonic() + SECONDS
    found: list[dict[int, LineOrigin]] = []
    for of_file, lines in zip(versions, asked, strict=True):
        # A group and folders for each: nothing of one file can be met in another.
        with ExitStack() as held:
            group = held.enter_context(ProgramGroup(deadline))
            folder = held.enter_context(bare_folder())
            project = None
            if checkout.is_repository:
                bare = held.enter_context(bare_folder(object_format(checkout)))
                project = ProjectLines(group, checkout, bare)
            found.append(_FileOrigins(group, folder, of_file, project).of(lines))
    return found


class _FileOrigins:
    """Finds the origins of lines of one file."""

    def __init__(
        self, group: ProgramGroup, folder: str, versions: Versions, project: ProjectLines | None
    ) -> None:
        self._group = group
        self._folder = folder
        self._versions = versions
        self._project = project

    def of(self, asked: Lines) -> dict[int, LineOrigin]:
        """Return the origins of these lines."""
        versions = self._versions
        firsts = versions.origins(self._group, self._folder, asked.content, asked.lines)
        found = {line: _origin(versions, version) for line, version in firsts.items()}
        if self._project is None:
            return found
        texts = asked.content.split(b"\n")
        by_version: dict[tuple[str, bool], list[int]] = {}
        for line, origin in found.items():
            if origin.is_known and (version := firsts[line]) is not None:
                by_version.setdefault((version, origin.how == "shown"), []).append(line)
        for (version, is_shown), lines in by_version.items():
            for step in versions.git_steps.get(version, ()):
                if step.is_written is not is_shown:
                    continue
                brought = self._project.lines_from_git(step, {texts[line - 1] for line in lines})
                for line in lines:
                    if reason := brought.get(texts[line - 1]):
                        is_git = reason not in (COMMIT_GONE, STASH_GONE)
                        found[line] = self._earlier(texts[line - 1], step.since) or LineOrigin(
                            "git" if is_git else "unknown", reason=reason
                        )
        return found

    def _earlier(self, text: bytes, until: int) -> LineOrigin | None:
        """Return the origin of a line in the first snapshot that had it; None if no turn is it."""
        version = self._versions.first_with(text, until) if is_distinct(text) else None
        if version is None:
            return None
        content = self._versions.contents[version]
        number = content.split(b"\n").index(text) + 1
        origin = self.of(Lines("", content, (number,)))[number]
        return origin if origin.is_known else None


def _origin(versions: Versions, version: str | None) -> LineOrigin:
    """Return what is known of a line that first stood in this version."""
    older = OLDER.format(versions.left_out) if versions.left_out else ""
    if version is None:
        return LineOrigin(
            "unknown", reason=older or (NOT_KEPT if versions.contents else NO_SNAPSHOT)
        )
    claims = versions.claims[version]
    for is_shown in (True, False):
        of_kind = [claim for claim in claims if claim.is_shown is is_shown]
        turns = {(claim.session_id, claim.turn) for claim in of_kind}
        if len(turns) == 1:
            calls = tuple(dict.fromkeys(call for claim in of_kind for call in claim.calls))
            claim = Claim(of_kind[0].session_id, of_kind[0].turn, is_shown, calls)
            if is_shown:
                return LineOrigin("shown", (claim,))
            is_likely = all(it.is_likely for it in of_kind)
            return LineOrigin("likely" if is_likely else "seen", (claim,))
        if turns:
            return LineOrigin("unknown", tuple(of_kind), SEVERAL)
    is_oldest = version in versions.cut or not versions.parents[version]
    return LineOrigin("unknown", reason=(older if is_oldest else "") or BEFORE)


# -- what is known of a turn -------------------------------------------------------------------


async def prompts(
    journal: Journal, checkout: Checkout, asked: Sequence[Lines]
) -> tuple[list[LineRun], dict[tuple[str, int], TurnFacts]]:
    """Return these lines in runs of the same origin, and the turns that they came from, by session
    and number. Raises what `origins` raises."""
    found = await origins(journal, checkout, asked)
    every = [run for lines, its in zip(asked, found, strict=True) for run in runs(lines.path, its)]
    facts: dict[tuple[str, int], TurnFacts] = {}
    claims: dict[Claim, None] = {}
    for run in every:
        claims |= dict.fromkeys(run.origin.claims if run.origin.is_known else ())
    for claim in claims:
        try:
            its = await turn_facts(journal, claim)
        except UnknownSessionError:  # deleted meanwhile
            continue
        key = (claim.session_id, claim.turn)
        facts[key] = facts[key].with_allowed(its.allowed) if key in facts else its
    for run in every:
        if run.origin.is_known and run.turn not in facts:
            run.origin = LineOrigin("unknown", reason=GONE)
    return every, facts


def runs(path: str, origins: Mapping[int, LineOrigin]) -> list[LineRun]:
    """Return the lines of a file in runs of the same origin."""
    found: list[LineRun] = []
    for line, origin in sorted(origins.items()):
        if found and found[-1].last + 1 == line and found[-1].origin == origin:
            found[-1].last = line
        else:
            found.append(LineRun(storable(path), line, line, origin))
    return found


async def turn_facts(journal: Journal, claim: Claim) -> TurnFacts:
    """Return the prompt of a turn and the answers to questions about its calls; raises
    UnknownSessionError."""
    row = await journal.session(claim.session_id)
    spans = await turn_spans(history(journal, row.session_id))
    span = spans[claim.turn - 1]
    seq, prompt = span.first, ""
    asked: dict[str, AskedQuestion] = {}
    answered: dict[str, list[str]] = {}
    async for segment in history(journal, row.session_id, span.first - 1):
        for entry in segment.entries():
            if not span.first <= entry.seq <= span.last:
                continue
            if not prompt and (words := document(entry).messages):
                prompt, seq = words[:PROMPT_CHARACTERS], entry.seq
            if entry.kind == QUESTION:
                question = asked_question(entry.raw)
                asked[question.id] = question
            elif entry.kind == ANSWER:
                closed = closed_question(entry.raw)
                if (about := asked.get(closed.question)) is None:
                    continue
                call = string(about.tool_call.get("toolCallId")) or ""
                if call in claim.calls:
                    answered.setdefault(call, []).append(_answer(entry.raw, closed, about))
        if segment.last_seq >= span.last:
            break
    allowed = [line for call in claim.calls for line in answered.get(call, ())]
    return TurnFacts(
        row.session_id, row.title or "", row.agent, claim.turn, seq, prompt, tuple(allowed)
    )


def _answer(raw: bytes, closed: ClosedQuestion, question: AskedQuestion) -> str:
    """Return the answer to a question, and who gave it."""
    if rule := members(members(raw).get("rule", b"")):
        texts = [text for it in items(rule.get("texts", b"")) if (text := string(it))]
        numbers = [it.decode() for it in items(rule.get("numbers", b""))]
        said = "; ".join(f"{n}: {text}" for n, text in zip(numbers, texts, strict=False))
        return f"by your rule {said}"
    if closed.outcome != "answered":
        return f"the question was {closed.outcome}"
    where = f" in {closed.client}" if closed.client else ""
    return f"answered{where} with “{closed.came(question).said}”"


async def folder_around(journal: Journal, file: str) -> Checkout | None:
    """Return the work tree of a file, or the folder that was kept with it in; None for none."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))  # noqa: ASYNC240 - at hand
    found = checkout_of(folder)
    stores = await stores_of(journal)
    if found is not None and stores.find_for(found.common or found.top) is not None:
        return found
    root = root_around({one.root for _, one in await journal.snapshots.of_all()}, folder)
    return found if root is None else checkout_at(root) or Checkout(root)


def below(checkout: Checkout, file: str) -> str:
    """Return the path of a file below the top of its checkout."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))
    return os.path.relpath(os.path.join(folder, os.path.basename(file)), checkout.top)
