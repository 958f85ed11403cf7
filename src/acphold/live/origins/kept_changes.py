"""All changes in a folder during a session, step by step, from the kept snapshots.

    begin 1 ──────▶ end 1 ──────▶ begin 2 ──────▶ end 2
             turn 1       between          turn 2

A snapshot that was refused or late makes a step that nobody can tell to be in one turn alone.

Each change of a file is one of these:

SHOWN     edits that the agent showed in that turn lead from the file before to the file after
IN_PART   the agent showed edits of the file in that turn, but they are not the whole change
OTHER     it changed in a turn, and the agent showed no edit of it: a command, a person, or another
          session did it; nobody saw which
BETWEEN   it changed between two turns
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import TurnSpan
from acphold.conversation.history.raw_update import storable
from acphold.conversation.reports.file_edits import ABSENT, Edit, FileText, edits, state_after
from acphold.conversation.reports.session_diff import FileDiff, relative, session_diff
from acphold.errors import WorkspaceError
from acphold.journal.journal import Journal, Readable, history, row_of
from acphold.journal.rows import SessionRow
from acphold.journal.seams import Numbered, TurnSnapshot, with_numbers
from acphold.live.hub.kept_files import folder_at
from acphold.live.hub.kept_stores import stores_of
from acphold.safety.snapshots.comparison import FileChange, SnapshotReader, ranges, reading
from acphold.safety.snapshots.git import GitError
from acphold.safety.snapshots.sieve import as_text


class SnapshotStep(Struct, frozen=True):
    """From a snapshot to the next one of the same folder.

    `turns` are the numbers of those turns in which it may lie; none if it lies between two. It
    `is_sure` if all of it lies in that turn, or between; it `is_likely` then if a snapshot is.
    `others` are other sessions that were at work in the same folder during it, once these were
    looked for.
    """

    before: TurnSnapshot
    after: TurnSnapshot
    turns: tuple[int, ...]
    between: tuple[int, int]
    is_sure: bool
    is_likely: bool = False
    others: tuple[str, ...] = ()

    @property
    def is_certain(self) -> bool:
        """True if it is sure, and not only likely."""
        return self.is_sure and not self.is_likely

    @property
    def words(self) -> str:
        """The time of the step, in words: "turn 2", "between turns 1 and 2"."""
        first, last = self.between
        likely = ", likely" if self.is_likely else ""
        if not self.turns:
            return f"between turns {first} and {last}{likely}"
        if self.is_sure:
            return f"turn {self.turns[0]}{likely}"
        if len(self.turns) == 1:
            after = (self.after.edge, self.after.state)
            around = ["before"] if self.before.edge == "end" else []
            around += ["after"] if after not in (("end", "whole"), ("begin", "late")) else []
            return f"turn {self.turns[0]}, or {' or '.join(around)} it"
        return f"turns {self.turns[0]} to {self.turns[-1]}, or between them"


def steps(rows: Sequence[Numbered], count: int) -> list[SnapshotStep]:
    """Return the steps between the kept snapshots of one folder and one store; the session has so
    many turns."""
    found: list[SnapshotStep] = []
    # Turns that end before a snapshot is taken share it: it has the changes of all of them.
    reach = {
        (it.snapshot.at, it.snapshot.tree): it.turn
        for it in rows
        if it.snapshot.edge == "end" or it.snapshot.state == "late"
    }
    for one, two in pairwise(it for it in rows if it.snapshot.is_kept):
        before, after = one.snapshot, two.snapshot
        # A late snapshot was taken when the agent was at work again already.
        is_late = after.state == "late"
        first = one.turn if before.edge == "begin" else one.turn + 1
        last = two.turn if after.edge == "end" or is_late else two.turn - 1
        is_sure = False
        if (before.edge, after.edge) == ("begin", "end") and one.turn == two.turn:
            last = min(one.turn + is_late, count)
            is_sure = after.state in ("whole", "likely")
        elif (before.edge, after.edge) == ("end", "begin") and one.turn + 1 == two.turn:
            is_sure = not is_late
        last = max(last, reach.get((after.at, after.tree), last))
        turns = tuple(range(first, last + 1))
        is_likely = is_sure and "likely" in (before.state, after.state)
        ends = (one.turn, two.turn)
        found.append(SnapshotStep(before, after, turns, ends, is_sure, is_likely))
    return found


class How(Enum):
    """See the module; the value is in words."""

    SHOWN = "shown by the agent"
    IN_PART = "shown in part by the agent"
    OTHER = "changed by something else"
    BETWEEN = "changed"


class StepFile(Struct, frozen=True):
    """A file that a step changed; `patch` is empty unless it was asked for."""

    step: SnapshotStep
    path: str
    how: How
    patch: bytes = b""


class KeptFile(Struct, frozen=True):
    """A file that is different now. `words` is a line about the steps in which it changed: "turns
    1, 3 · changed between turns …"; `turns` are those in which it changed,
    or may have."""

    path: str
    patch: bytes
    words: str
    turns: tuple[int, ...]


class KeptChanges(Struct, frozen=True):
    """The changes below `root`: of each file, and of each step.

    `others` are the other folders of the session that were kept. `notes` are lines about other
    sessions at work there, about snapshots that are missing or late, and about files that are in
    none: `left_out` has their paths, as far as they are known.
    """

    root: str
    files: list[KeptFile]
    parts: list[StepFile]
    others: list[str]
    notes: list[str]
    left_out: Collection[str]


async def read_kept_changes(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    *,
    root: str | None = None,
    by_turn: bool = False,
    read: Readable | None = None,
    threads: Threads | None = None,
) -> KeptChanges | None:
    """Return what changed in one turn, None for all; None if no files of it were kept here.

    `root` is one of the folders that were kept, by default that around the session's folder; for
    turns before the session moved, that around its folder then. With
    `by_turn` each step has its patches. The history is read from `read`, by default the journal.
    Raises GitError, TimeoutError, BufferError and OSError; and WorkspaceError if `root` was not
    kept.
    """
    rows = await journal.snapshots.of(row.session_id)
    roots = sorted({one.root for one in rows})
    if not rows:
        return None
    if root is not None and root not in roots:
        raise WorkspaceError(f"no files of {root!r} were kept with this session")
    shown = _around_session(rows, row) if root is None else []
    shown = shown or [one for one in rows if one.root == (root or roots[0])]
    root = shown[-1].root
    of_root = with_numbers(shown, spans)
    stores = await stores_of(journal)
    store_id = next((it.snapshot.store for it in reversed(of_root) if it.snapshot.is_kept), "")
    store = stores.find(store_id)
    if store is None:
        return None
    session_steps = steps([it for it in of_root if it.snapshot.store == store_id], len(spans))
    if turn is not None:
        session_steps = [step for step in session_steps if turn in step.turns]
    if not session_steps:
        return None
    edits_shown = await edits_by_turn(read or journal, row, spans, shown)
    session_steps = await _with_others(journal, row.session_id, rows, session_steps)

    def compare(checkpoint: Checkpoint) -> tuple[list[StepFile], list[KeptFile]]:
        with reading(store) as snapshots:
            parts: list[StepFile] = []
            for step in session_steps:
                checkpoint()
                parts += _step_files(snapshots, step, edits_shown, by_turn=by_turn)
            ends = [session_steps[0].before, *(step.after for step in session_steps)]
            files: list[KeptFile] = []
            by_path: defaultdict[str, list[StepFile]] = defaultdict(list)
            for part in parts:
                by_path[part.path].append(part)
            for change in _known_changes(snapshots, ends, patches=True):
                path = storable(change.path)
                own = by_path[path]
                turns = tuple(sorted({turn for part in own for turn in part.step.turns}))
                files.append(KeptFile(path, change.patch, _summary(own), turns))
        return parts, files

    parts, files = await (threads or Threads(1)).run_in_steps(compare)
    notes = []
    for other in dict.fromkeys(it for step in session_steps for it in step.others):
        its = await row_of(journal, other)
        name = other if its is None or not its.title else f"“{its.title}”"
        notes.append(f"{name} may also have changed files here meanwhile")
    notes += _gaps(of_root, spans, turn)
    ends = [it for step in session_steps for it in (step.before, step.after)]
    left_out = {path: why for it in ends for path, why in it.left_out}
    if count := max([len(left_out), *(it.left_out_count for it in ends)]):
        named = [f"{path} ({why})" for path, why in sorted(left_out.items())]
        notes.append(f"not kept, so not shown: {some(named, count)}")
    others = sorted({*roots}.difference(it.root for it in shown))
    return KeptChanges(root, files, parts, others, notes, left_out)


def _around_session(rows: Sequence[TurnSnapshot], row: SessionRow) -> list[TurnSnapshot]:
    """Return those of the innermost root around the folder in which the session worked then."""
    roots: dict[str, set[str]] = {}
    for one in rows:
        roots.setdefault(folder_at(one, row), set()).add(one.root)
    innermost = {folder: root_around(its, folder) for folder, its in roots.items()}
    return [one for one in rows if one.root == innermost[folder_at(one, row)]]


def root_around(roots: Collection[str], folder: str) -> str | None:
    """Return the innermost of these folders that a folder lies in; None if it lies in none."""
    around = [it for it in roots if f"{folder}/".startswith(f"{it.rstrip('/')}/")]
    return max(around, key=len, default=None)


def _summary(parts: Sequence[StepFile]) -> str:
    """See KeptFile."""
    phrases: list[str] = []
    for how in How:
        # Of changes that the agent showed the turns say enough.
        word = "" if how is How.SHOWN else f"{how.value} "
        into = "" if how is How.SHOWN else "in "
        sure = [it.step for it in parts if it.how is how and it.step.is_certain and it.step.turns]
        if sure:
            numbers = ", ".join(str(step.turns[0]) for step in sure)
            phrases.append(f"{word}{into}turn{'s' if len(sure) > 1 else ''} {numbers}")
        for part in parts:
            if part.how is how and part.step not in sure:
                when = "" if part.step.words.startswith("between") else into
                phrases.append(f"{word}{when}{part.step.words}")
    return " · ".join(phrases) or "changed"


SHOWN_NAMES = 5
"""Names in a line; the others are counted."""


def some(names: Sequence[str], count: int | None = None) -> str:
    """Return the first names in a line, and the number of the others."""
    more = (len(names) if count is None else count) - len(names[:SHOWN_NAMES])
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more:,} more" if more else "")


async def edits_by_turn(
    read: Readable,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    rows: Sequence[TurnSnapshot],
) -> dict[tuple[int, str], list[Edit]]:
    """Return the edits that the agent showed, by turn and by path below the root of these snapshots
    then."""
    found: dict[tuple[int, str], list[Edit]] = {}
    snapshots = {it.turn: it.snapshot for it in with_numbers(rows, spans)}
    for edit in await edits(history(read, row.session_id), spans):
        then = snapshots.get(edit.turn, rows[-1])
        folder = ((then.cwd if edit.turn in snapshots else "") or row.cwd).rstrip("/")
        path = f"{folder}/{edit.path}" if edit.path[:1] != "/" else edit.path
        path = relative(path, then.root)
        found.setdefault((edit.turn, path), []).append(edit)
    return found


def _known_changes(
    snapshots: SnapshotReader, ends: Sequence[TurnSnapshot], *, patches: bool
) -> list[FileChange]:
    """Return what differs between the first and the last of these snapshots, without the files that
    one of the two left out. If it does not name all of these, those that any of them names count.
    """
    was, now = (
        {
            path
            for it in (ends if one.left_out_count > len(one.left_out) else (one,))
            for path, _ in it.left_out
        }
        for one in (ends[0], ends[-1])
    )
    return [
        it
        for it in snapshots.changes(ends[0].tree, ends[-1].tree, patches=patches)
        if as_text(it.path) not in (was if it.before is None else now if it.after is None else ())
    ]


def _step_files(
    snapshots: SnapshotReader,
    step: SnapshotStep,
    shown: Mapping[tuple[int, str], list[Edit]],
    *,
    by_turn: bool,
) -> Iterator[StepFile]:
    changed = _known_changes(snapshots, [step.before, step.after], patches=by_turn)
    edits_by_path = {
        change.path: [it for turn in step.turns for it in shown.get((turn, change.path), ())]
        for change in changed
    }
    blobs = [
        blob
        for change in changed
        if edits_by_path[change.path]
        for blob in (change.before, change.after)
        if blob
    ]
    texts = snapshots.contents(blobs)
    for change in changed:
        edits_of = edits_by_path[change.path]
        how = How.OTHER if step.turns else How.BETWEEN
        if edits_of:
            how = How.IN_PART
            before, after = text_of(change.before, texts), text_of(change.after, texts)
            if before is not None and after is not None:
                ways = (edits_of, [it for it in edits_of if it.is_over])
                if any(state_after(applied, before) == after for applied in ways):
                    how = How.SHOWN
        yield StepFile(step, storable(change.path), how, change.patch)


def text_of(blob: str | None, texts: Mapping[str, bytes]) -> FileText | None:
    """Return a file as text; None if it is none."""
    if blob is None:
        return ABSENT
    raw = texts.get(blob)
    if raw is None or b"\0" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


_STATES = {
    ("late", "begin"): "its first changes may be missing: the agent began before the snapshot",
    ("late", "end"): "its last snapshot was late and may have changes of later turns",
    ("later", "end"): "acphold stopped during it; its last snapshot is from the next start",
}


async def _with_others(
    journal: Journal,
    session_id: str,
    rows: Sequence[TurnSnapshot],
    session_steps: Iterable[SnapshotStep],
) -> list[SnapshotStep]:
    """Return the steps with the other sessions that had a turn in the folder of each; `rows` are
    all of this session. A copy of a turn is no other turn."""
    own = {row.moment for row in rows}
    turn_times: dict[tuple[str, str, int], tuple[int, int | None]] = {}
    for its, one in await journal.snapshots.of_all():
        if its != session_id and not one.taken_for and one.moment not in own:
            turn = (its, one.root, one.turn)
            first, last = turn_times.get(turn, (one.at, None))
            turn_times[turn] = (min(first, one.at), one.at if one.edge == "end" else last)
    found: list[SnapshotStep] = []
    for step in session_steps:
        others = dict.fromkeys(
            session_id
            for (session_id, root, _), (first, last) in turn_times.items()
            if root in (step.before.root, step.after.root)
            and first <= step.after.at
            and (last is None or last >= step.before.at)
        )
        found.append(replace(step, others=tuple(others)))
    return found


def _gaps(
    of_root: Sequence[Numbered], spans: Sequence[TurnSpan], turn: int | None
) -> Iterator[str]:
    """Yield a line for each turn whose snapshots are missing or late."""
    by_turn: dict[int, dict[str, TurnSnapshot]] = {}
    for it in of_root:
        by_turn.setdefault(it.turn, {})[it.snapshot.edge] = it.snapshot
    without: list[int] = []
    for span in spans:
        if turn is not None and span.number != turn:
            continue
        edges = by_turn.get(span.number, {})
        if not edges:
            without.append(span.number)
            continue
        for edge, place in (("begin", "beginning"), ("end", "end")):
            snapshot = edges.get(edge)
            if snapshot is None:
                if not span.is_open:
                    yield f"turn {span.number}: no snapshot of its {place}"
            elif snapshot.state == "refused":
                yield f"turn {span.number}: no snapshot of its {place}: {snapshot.reason}"
            elif snapshot.state not in ("whole", "likely"):
                yield f"turn {span.number}: {_STATES.get((snapshot.state, edge), snapshot.state)}"
    if without:
        numbers = ", ".join(
            str(first) if first == last else f"{first}-{last}" for first, last in ranges(without)
        )
        yield f"turn{'s' if len(without) > 1 else ''} {numbers}: no files were kept"


class FoundChanges(Struct, frozen=True):
    """The changes of a session: from the `kept` files, or as `reported` by the agent. `problem` is
    the reason why kept files could not be read."""

    kept: KeptChanges | None = None
    reported: list[FileDiff] = []
    problem: str = ""


async def session_changes(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    look: Callable[[str], FileText | None],
    *,
    root: str | None = None,
    by_turn: bool = False,
    reads_kept: bool = True,
    read: Readable | None = None,
    threads: Threads | None = None,
) -> FoundChanges:
    """Return what changed in one turn, None for all.

    `look` is as `on_disk` in `session_diff`, the others are as in `read_kept_changes`. Raises
    WorkspaceError if no files of `root` were kept.
    """
    problem = ""
    if reads_kept:
        try:
            kept = await read_kept_changes(
                *(journal, row, spans, turn), root=root, by_turn=by_turn, read=read, threads=threads
            )
            if kept is not None:
                return FoundChanges(kept)
        except (GitError, TimeoutError, BufferError, OSError) as error:
            problem = f"the kept files cannot be read: {error}"
    found = await session_diff(
        history(read or journal, row.session_id), row.cwd, spans, turn, look, threads
    )
    return FoundChanges(None, found, problem)
