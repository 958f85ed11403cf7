"""The files that are kept with a session: the snapshots of its turns, and copies with them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings, resolve_folder
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import span_at, turn_spans
from acphold.errors import WorkspaceError
from acphold.journal.journal import Journal, history
from acphold.journal.moves import mark_of
from acphold.journal.rows import ListFilter, ListKey, SessionRow
from acphold.journal.seams import TurnSnapshot, with_numbers
from acphold.live.hub import bounds
from acphold.live.hub.forks import Forked, fork, turns_to_copy
from acphold.live.hub.kept_stores import store_of, stores_of
from acphold.safety.snapshots import worktree
from acphold.safety.snapshots.branches import tree_of


async def snapshot_at(
    journal: Journal, row: SessionRow, at: int | None, *, before: bool = False
) -> TurnSnapshot:
    """Return the snapshot of the session's folder at the end of the turn with entry `at`, or at its
    beginning if `before`; by default of the last turn. Raises WorkspaceError if there is none."""
    edge, moment = ("begin", "beginning") if before else ("end", "end")
    rows = await journal.snapshots.of(row.session_id)
    if not rows:
        raise WorkspaceError(
            "no files were kept with this session: acphold keeps them in git repositories, unless "
            "`snapshots` is turned off in the settings"
        )
    spans = await turn_spans(history(journal, row.session_id))
    if at is not None:
        span = span_at(spans, at)
        if span is None:
            raise WorkspaceError(f"no turn of this session has entry {at}")
        spans = spans[: span.number]
    of_turn = [it.snapshot for it in with_numbers(rows, spans) if it.turn == len(spans)]
    snapshots = [it for it in of_turn if it.edge == edge]
    for snapshot in snapshots:
        if has_folder(snapshot, row):
            return snapshot
    if refused := [it.reason for it in snapshots if not it.is_kept]:
        reason = refused[0]
    elif snapshots:
        roots = ", ".join(it.root for it in snapshots)
        reason = f"only those in {roots} were, outside of which the session works"
    elif of_turn and spans[-1].is_open:
        reason = "it has not ended"
    elif of_turn:
        reason = "its snapshot is not taken yet, or acphold stopped before that"
    else:
        reason = "`snapshots` was off, or they were removed since to save room"
    raise WorkspaceError(f"no files were kept at the {moment} of that turn: {reason}")


def folder_at(snapshot: TurnSnapshot, row: SessionRow) -> str:
    """The folder in which a session worked when a snapshot was taken."""
    return snapshot.cwd or resolve_folder(row.cwd)


def has_folder(snapshot: TurnSnapshot, row: SessionRow) -> bool:
    """True if the files of a session's folder were kept with this snapshot."""
    return snapshot.is_kept and f"{folder_at(snapshot, row)}/".startswith(f"{snapshot.root}/")


class KeptTurn(Struct):
    """The ends of a turn at which the files of its session's folder were kept; `turn` is the last
    entry before its prompt."""

    turn: int
    before: bool = False
    after: bool = False


class KeptTurns(Struct, rename="camel"):
    """The turns of a session with snapshots, oldest first; a refused one has neither end. `include`
    is True if the project names ignored files that `fork_with_files` may copy, too. The session
    `is_in_tree` if it works in a work tree that is not the main one."""

    turns: list[KeptTurn]
    include: bool = False
    is_in_tree: bool = False


async def read_kept_turns(journal: Journal, row: SessionRow) -> KeptTurns:
    """See `KeptTurns`; looks at the disk for a moment."""
    turns: dict[int, KeptTurn] = {}
    roots = set[str]()
    for snapshot in await journal.snapshots.of(row.session_id):
        turn = turns.setdefault(snapshot.turn, KeptTurn(snapshot.turn))
        if has_folder(snapshot, row):
            turn.before |= snapshot.edge == "begin"
            turn.after |= snapshot.edge == "end"
            roots.add(snapshot.root)
    include = any(map(worktree.has_list, roots))
    is_in_tree = await Threads(1).run(tree_of, row.cwd) is not None
    return KeptTurns([*turns.values()], include, is_in_tree)


class KeptThere(Struct, frozen=True):
    """Files that were laid out again: the snapshot, the folder with its top, and in that the place
    of the session's folder. `included` are ignored files of today beside them."""

    snapshot: TurnSnapshot
    laid: worktree.Laid
    cwd: str
    included: worktree.Included = worktree.Included()


async def fork_with_files(
    journal: Journal,
    row: SessionRow,
    surroundings: Surroundings,
    folder: str | None = None,
    *,
    at: int | None = None,
    before: bool = False,
    agent: str | None = None,
    include: bool = False,
) -> tuple[KeptThere, Forked]:
    """Fork a session as `hub.forks.fork` does, with the files of that moment in a new or empty
    folder, by default in one beside the project.

    The new session is in the same place below it as the old one below its repository. With
    `include`, ignored files that `.worktreeinclude` names are copied from the project. The
    `surroundings` are those of whoever asks; a relative folder is one in theirs. Raises
    WorkspaceError, and what `fork` raises; then there is no new session.
    """
    spans = await turn_spans(history(journal, row.session_id))
    turns_to_copy(row, spans, at, before=before)
    if at is None and not before and spans and spans[-1].is_open and len(spans) > 1:
        at = spans[-2].first  # the running turn is not copied
    snapshot = await snapshot_at(journal, row, at, before=before)
    store = await store_of(journal, snapshot)
    await remove_remains(journal)
    place = None if folder is None else surroundings.absolute(folder)
    done: list[worktree.Laid] = []  # in a list: also known if this is cancelled at that very moment
    with ExitStack() as until:

        def lay(checkpoint: Checkpoint) -> worktree.Laid:
            while True:
                there = worktree.beside(snapshot.root) if place is None else place
                try:
                    return worktree.lay(
                        *(store, snapshot.tree, there),
                        project=snapshot.root,
                        commit=snapshot.commit,
                        checkpoint=checkpoint,
                        until=until,
                    )
                except worktree.PlaceTakenError:  # by another fork at this moment
                    if place is not None:
                        raise

        def work(checkpoint: Checkpoint) -> worktree.Included:
            laid = lay(checkpoint)
            placed, left_out = [*laid.placed], {path for path, _ in snapshot.left_out}
            try:
                if include:
                    more = worktree.include(
                        *(store, snapshot.root, laid.folder, left_out, surroundings),
                        *(placed, checkpoint),
                    )
                    checkpoint()
                else:
                    more = worktree.Included(is_possible=worktree.has_list(snapshot.root))
            except BaseException:  # remove them all
                worktree.unlay(replace(laid, placed=tuple(placed)), snapshot.root)
                raise
            done.append(replace(laid, placed=tuple(placed)))
            return more

        try:
            more = await Threads(1).run_in_steps(work)
            laid = done[0]
            below = PurePath(folder_at(snapshot, row)).relative_to(snapshot.root)
            cwd = worktree.make_inside(laid.folder, str(PurePath(laid.folder) / below))
            worktree.note_unused(laid)
            made = await fork(journal, row, at=at, before=before, agent=agent, folders=(cwd,))
        except BaseException as error:
            if not done:
                raise
            await Threads(1).run(worktree.unlay, done[0], snapshot.root)
            if isinstance(error, OSError):
                raise WorkspaceError(f"{done[0].folder!r}: {error.strerror or error}") from error
            raise
        return KeptThere(snapshot, laid, cwd, more), made


async def remains(journal: Journal) -> dict[str, bool]:
    """Return the folders that killed forks and moves have begun to lay out, each with True if a
    session works there: then only its note is left over."""
    found = await Threads(1).run(worktree.find_unfinished, await stores_of(journal))
    if not found:
        return {}
    cwds = set[str]()
    after: ListKey | None = None
    wanted = ListFilter(include_unprompted=True, archived="include")
    while rows := await journal.page(wanted, after, bounds.REMAINS_ROWS):
        # One that still arrives has its folder before that is there.
        cwds.update(f"{it.cwd}/" for it in rows if it.prompted or mark_of(it).laid)
        after = rows[-1].key
    return {folder: any(cwd.startswith(f"{folder}/") for cwd in cwds) for folder in found}


async def remove_remains(journal: Journal) -> None:
    """Remove what killed forks and moves have begun to lay out, if nobody can have used it."""
    if found := await remains(journal):
        await Threads(1).run(worktree.remove_unfinished, await stores_of(journal), found)
