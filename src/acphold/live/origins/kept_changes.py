"""The files that a session changed: from the kept snapshots, or else from the agent's calls.

    begin 1 ──────▶ end 1 ──────▶ begin 2 ──────▶ end 2
             turn 1       between          turn 2

All changes are those from the first snapshot to the last one, those of a turn are from its
beginning to its end. A change between two turns is in no turn, and named in a line. Where a
snapshot was refused or late, a step has the changes of several turns, and a line says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import TurnSpan
from acphold.conversation.history.raw_update import storable
from acphold.conversation.reports.file_edits import FileText
from acphold.conversation.reports.session_diff import FileDiff, session_diff
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
    """From a snapshot to the next one of the same folder. `turns` are the numbers of those turns in
    which it may lie; none if it lies between two."""

    before: TurnSnapshot
    after: TurnSnapshot
    turns: tuple[int, ...]


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
        if (before.edge, after.edge) == ("begin", "end") and one.turn == two.turn:
            last = min(one.turn + is_late, count)
        last = max(last, reach.get((after.at, after.tree), last))
        found.append(SnapshotStep(before, after, tuple(range(first, last + 1))))
    return found


class FoundChanges(Struct, frozen=True):
    """The changed files of a session or a turn: those kept below `root`, or with "" those that the
    agent reported.

    `others` are the other folders of the session that were kept. `notes` are lines about changes
    between turns, about other sessions at work there, about snapshots that are missing or late, and
    about files that are in none. `problem` is the reason why kept files could not be read. Bytes of
    a kept patch that are no UTF-8 are in surrogates.
    """

    files: Sequence[FileDiff] = ()
    root: str = ""
    others: Sequence[str] = ()
    notes: Sequence[str] = ()
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
    """Return what changed in one turn, None for all; with `by_turn` each file once for each turn.

    `root` is one of the folders that were kept, by default that around the session's folder; for
    turns before the session moved, that around its folder then. `look` is as `on_disk` in
    `session_diff`. The agent's calls are read from `read`, by default the journal. Raises
    WorkspaceError if no files of `root` were kept.
    """
    problem = ""
    if reads_kept:
        try:
            kept = await _kept_changes(journal, row, spans, turn, root, threads, by_turn=by_turn)
            if kept is not None:
                return kept
        except (GitError, TimeoutError, BufferError, OSError) as error:
            problem = f"the kept files cannot be read: {error}"
    segments = history(read or journal, row.session_id)
    found = await session_diff(segments, row.cwd, spans, turn, look, threads, by_turn=by_turn)
    return FoundChanges(found, problem=problem)


async def _kept_changes(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    root: str | None,
    threads: Threads | None,
    *,
    by_turn: bool,
) -> FoundChanges | None:
    """See `session_changes`; None if no files were kept here. Raises GitError, TimeoutError,
    BufferError and OSError, too."""
    rows = await journal.snapshots.of(row.session_id)
    roots = sorted({one.root for one in rows})
    if not rows:
        return None
    if root is not None and root not in roots:
        raise WorkspaceError(f"no files of {root!r} were kept with this session")
    shown = _around_session(rows, row) if root is None else []
    shown = shown or [one for one in rows if one.root == (root or roots[0])]
    of_root = with_numbers(shown, spans)
    stores = await stores_of(journal)
    store_id = next((it.snapshot.store for it in reversed(of_root) if it.snapshot.is_kept), "")
    store = stores.find(store_id)
    if store is None:
        return None
    wanted = steps([it for it in of_root if it.snapshot.store == store_id], len(spans))
    if turn is not None:
        wanted = [step for step in wanted if turn in step.turns]
    if not wanted:
        return None

    def compare(checkpoint: Checkpoint) -> tuple[list[FileDiff], list[str]]:
        files, between = list[FileDiff](), dict[str, None]()
        turns: defaultdict[str, set[int]] = defaultdict(set)
        with reading(store) as snapshots:
            for step in wanted:
                checkpoint()
                for path, change in _known_changes(
                    snapshots, [step.before, step.after], patches=by_turn
                ):
                    turns[path].update(step.turns)
                    if not step.turns:
                        between[path] = None
                    elif by_turn:
                        files.append(_file(path, change, step.turns))
            ends = [wanted[0].before, *(step.after for step in wanted)]
            for path, change in [] if by_turn else _known_changes(snapshots, ends, patches=True):
                files.append(_file(path, change, sorted(turns[path])))
        return files, [*between]

    files, between = await (threads or Threads(1)).run_in_steps(compare)
    notes = [f"changed between turns: {_some(between)}"] if between else []
    notes += [
        f"{name} may also have changed files here meanwhile"
        for name in await _others(journal, row.session_id, rows, wanted)
    ]
    notes += _gaps(of_root, spans, turn)
    snapshots_of_steps = [it for step in wanted for it in (step.before, step.after)]
    left_out = {path: why for it in snapshots_of_steps for path, why in it.left_out}
    if count := max([len(left_out), *(it.left_out_count for it in snapshots_of_steps)]):
        named = [f"{path} ({why})" for path, why in sorted(left_out.items())]
        notes.append(f"not kept, so not shown: {_some(named, count)}")
    others = sorted({*roots}.difference(it.root for it in shown))
    return FoundChanges(files, shown[-1].root, others, notes)


def _file(path: str, change: FileChange, turns: Sequence[int]) -> FileDiff:
    return FileDiff(path, change.patch.decode(errors="surrogateescape"), turns=tuple(turns))


def _around_session(rows: Sequence[TurnSnapshot], row: SessionRow) -> list[TurnSnapshot]:
    """Return those of the innermost root around the folder in which the session worked then."""
    roots: dict[str, set[str]] = {}
    for one in rows:
        roots.setdefault(folder_at(one, row), set()).add(one.root)
    innermost = {folder: _root_around(its, folder) for folder, its in roots.items()}
    return [one for one in rows if one.root == innermost[folder_at(one, row)]]


def _root_around(roots: Collection[str], folder: str) -> str | None:
    """Return the innermost of these folders that a folder lies in; None if it lies in none."""
    around = [it for it in roots if f"{folder}/".startswith(f"{it.rstrip('/')}/")]
    return max(around, key=len, default=None)


SHOWN_NAMES = 5
"""Names in a line; the others are counted."""


def _some(names: Sequence[str], count: int | None = None) -> str:
    """Return the first names in a line, and the number of the others."""
    more = (len(names) if count is None else count) - len(names[:SHOWN_NAMES])
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more:,} more" if more else "")


def _known_changes(
    snapshots: SnapshotReader, ends: Sequence[TurnSnapshot], *, patches: bool
) -> Iterator[tuple[str, FileChange]]:
    """Yield the path and the change of each file that differs between the first and the last of
    these snapshots, without those that one of the two left out. If it does not name all of these,
    those that any of them names count.
    """
    was, now = (
        {
            path
            for it in (ends if one.left_out_count > len(one.left_out) else (one,))
            for path, _ in it.left_out
        }
        for one in (ends[0], ends[-1])
    )
    for it in snapshots.changes(ends[0].tree, ends[-1].tree, patches=patches):
        left_out = was if it.before is None else now if it.after is None else ()
        if as_text(it.path) not in left_out:
            yield storable(it.path), it


_STATES = {
    ("late", "begin"): "its first changes may be missing: the agent began before the snapshot",
    ("late", "end"): "its last snapshot was late and may have changes of later turns",
    ("later", "end"): "acphold stopped during it; its last snapshot is from the next start",
}


async def _others(
    journal: Journal,
    session_id: str,
    rows: Sequence[TurnSnapshot],
    wanted: Sequence[SnapshotStep],
) -> list[str]:
    """Return the names of other sessions that had a turn in the folders of these steps meanwhile;
    `rows` are all of this session. A copy of a turn is no other turn."""
    own = {row.moment for row in rows}
    turn_times: dict[tuple[str, str, int], tuple[int, int | None]] = {}
    for its, one in await journal.snapshots.of_all():
        if its != session_id and not one.taken_for and one.moment not in own:
            turn = (its, one.root, one.turn)
            first, last = turn_times.get(turn, (one.at, None))
            turn_times[turn] = (min(first, one.at), one.at if one.edge == "end" else last)
    found = dict.fromkeys(
        other
        for step in wanted
        for (other, root, _), (first, last) in turn_times.items()
        if root in (step.before.root, step.after.root)
        and first <= step.after.at
        and (last is None or last >= step.before.at)
    )
    names: list[str] = []
    for other in found:
        row = await row_of(journal, other)
        names.append(other if row is None or not row.title else f"“{row.title}”")
    return names


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
