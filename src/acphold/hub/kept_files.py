"""The files that are kept with the sessions of a journal: where, which of them, and for how long.

The journal alone says what is kept. The stores are beside its file; for a journal without one, in
the state folder of this user, under the identity of the journal. A copy of it has its own, which
begin with those of its original.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import PurePath
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import AcpholdError, NothingSaidError, WorkspaceError
from acphold.history.entries import now_ms, span_at, turn_spans
from acphold.hub import bounds
from acphold.hub.forks import Forked, fork
from acphold.journal import Journal, ListFilter, ListKey, SessionRow, history
from acphold.journal.lineage import family, identity
from acphold.journal.location import resolved_folder
from acphold.journal.moves import mark_of
from acphold.journal.seams import TurnSnapshot
from acphold.snapshots.store import SnapshotStore, Stores
from acphold.snapshots.worktree import (
    Included,
    Laid,
    PlaceTakenError,
    beside,
    has_list,
    included,
    lay,
    made_in,
    note_unused,
    remove_unfinished,
    unfinished,
    unlay,
)
from acphold.transports.runtime_folder import state_folder
from acphold.workspace.threads import Checkpoint, Threads

log = logging.getLogger(__name__)


SUFFIX = "-files"
"""Appended to the path of the journal: the folder of its stores."""


async def stores_of(journal: Journal) -> Stores:
    """The stores of a journal on this machine."""
    if journal.file is not None:
        return Stores(f"{journal.file.path}{SUFFIX}")
    own = await identity(journal)
    if own is None:
        return Stores(os.path.join(state_folder(), "files", "unknown"))
    name = f"{await family(journal)}-{own}"
    stores = Stores(os.path.join(state_folder(), "files", name))
    await Threads(1).run(_made, stores)
    return stores


def _made(stores: Stores) -> None:
    """Link the stores of other journals of the family into those of a copied one; blocks."""
    if not os.path.isdir(stores.folder):
        try:
            stores.begin_with(relatives(stores), time.monotonic() + bounds.STORES_COPY_SECONDS)
        except (OSError, TimeoutError) as error:
            log.warning(
                "%s: cannot link the kept files of the original journal: %s", stores.folder, error
            )


def relatives(stores: Stores) -> list[Stores]:
    """The stores of the copies of a journal, its original, and its earlier databases."""
    above, own = os.path.split(stores.folder)
    begin, mark, _ = own.rpartition("-")
    if not mark or own.endswith(SUFFIX):  # beside a file
        return []
    with suppress(FileNotFoundError):
        # The name of the family alone is from before copies had files of their own.
        names = sorted(name for name in os.listdir(above) if f"{name}-".startswith(f"{begin}-"))
        return [
            Stores(os.path.join(above, name)) for name in names if name != own and "." not in name
        ]
    return []


async def store_of(journal: Journal, snapshot: TurnSnapshot) -> SnapshotStore:
    """The store with the files of a snapshot; WorkspaceError if it is on another machine."""
    store = (await stores_of(journal)).find(snapshot.store)
    if store is None:
        raise WorkspaceError("the files of this session are not on this machine")
    return store


async def tidy(
    journal: Journal,
    *,
    most: int = bounds.SNAPSHOT_STORE_BYTES,
    before: int | None = None,
    all_of_them: bool = False,
) -> None:
    """Drop old snapshots, or all of them, and remove from the disk what no session names any more.

    `before` is the time (ms since the epoch) from which on they are old. May take seconds for each
    store; does nothing if there are none. A store in which something fails is left for the next
    time. What another process takes meanwhile stays.
    """
    stores = await stores_of(journal)
    threads = Threads(1)
    with suppress(TimeoutError, FileNotFoundError):
        await threads.run(stores.clear, time.monotonic() + bounds.STORE_UPKEEP_SECONDS)
    here = {store.id: store for store in stores}
    if not here:
        return
    since = _noted(_upkeep_note(stores))
    before = now_ms() - bounds.SNAPSHOT_AGE_MS if before is None else before
    rows = [row for row in await journal.snapshots.named() if row[1].store in here]
    spared = set() if all_of_them else _first_and_last(rows)
    old: list[SessionSnapshot] = []
    kept: list[SessionSnapshot] = []
    for session_id, snapshot in rows:
        is_spared = snapshot.at >= before or (session_id, snapshot.turn) in spared
        (kept if is_spared and not all_of_them else old).append((session_id, snapshot))
    await _drop(journal, old)
    kept.sort(key=lambda row: row[1].at)
    for store in here.values():
        own = [row for row in kept if row[1].store == store.id]
        former_size = None
        while True:
            trees = {snapshot.tree for _, snapshot in own if snapshot.is_kept}
            try:
                size = await threads.run_in_steps(partial(_keep, store, trees, since))
            except BaseException:  # the process ends: whoever comes next does it
                with suppress(OSError):
                    os.utime(_upkeep_note(stores), (0, 0))
                raise
            if size is None or size <= most or not trees or len(own) < 2:
                break
            if former_size is not None and size >= former_size:
                break  # something else fills it
            former_size = size
            half = len(own) // 2
            await _drop(journal, own[:half])
            own = own[half:]


SessionSnapshot: TypeAlias = tuple[str, TurnSnapshot]
"""A snapshot with the id of its session."""


def _first_and_last(rows: Sequence[SessionSnapshot]) -> set[tuple[str, int]]:
    """The first and the last turn of each session with a snapshot."""
    turns: dict[str, list[int]] = {}
    for session_id, snapshot in rows:
        turns.setdefault(session_id, []).append(snapshot.turn)
    return {(its, turn) for its, known in turns.items() for turn in (min(known), max(known))}


async def _drop(journal: Journal, rows: Iterable[SessionSnapshot]) -> None:
    by_session: dict[str, list[TurnSnapshot]] = {}
    for session_id, snapshot in rows:
        by_session.setdefault(session_id, []).append(snapshot)
    for session_id, snapshots in by_session.items():
        await journal.snapshots.drop(session_id, snapshots)


def _upkeep_note(stores: Stores) -> str:
    """The file whose time is that of the last upkeep."""
    return os.path.join(stores.folder, ".tidied")


def is_due(stores: Stores) -> bool:
    """True if the last upkeep, or the first snapshot, is a day old, or much was kept since."""
    try:
        last = os.stat(_upkeep_note(stores)).st_mtime
    except FileNotFoundError:
        _noted(_upkeep_note(stores))
        return False
    is_old = not 0 <= time.time() - last < bounds.UPKEEP_EVERY_SECONDS
    return is_old or any(store.is_loose() for store in stores)


def _noted(path: str) -> int:
    """Note the time of this upkeep in a file; return it by the clock of the disk, in ns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def _keep(store: SnapshotStore, trees: set[str], since: int, checkpoint: Checkpoint) -> int | None:
    """Keep these snapshots of a store and no others; return its size in bytes, None if that
    failed."""
    deadline = time.monotonic() + bounds.STORE_UPKEEP_SECONDS
    try:
        if trees:
            store.keep(trees, deadline, since=since, checkpoint=checkpoint)
        else:
            store.remove(deadline, since=since)
    except (AcpholdError, TimeoutError, BufferError, OSError) as error:
        # In use, or damaged: nothing that is to be kept is gone.
        log.warning("%s: cannot clean up the kept files: %s", store.path, error)
        return None
    return store.size()


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
    # A snapshot names the last entry before the prompt: it is of the first turn that begins after
    # that entry.
    first = spans[-2].first if len(spans) > 1 else 0
    of_turn = [it for it in rows if spans and first <= it.turn < spans[-1].first]
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
    return snapshot.cwd or resolved_folder(row.cwd)


def has_folder(snapshot: TurnSnapshot, row: SessionRow) -> bool:
    """True if the files of a session's folder were kept with this snapshot."""
    return snapshot.is_kept and f"{folder_at(snapshot, row)}/".startswith(f"{snapshot.root}/")


class KeptTurn(Struct):
    """The ends of a turn at which the files of its session's folder were kept; `turn` is the last
    entry before its prompt."""

    turn: int
    before: bool = False
    after: bool = False


class KeptTurns(Struct):
    """The turns of a session with snapshots, oldest first; a refused one has neither end. `include`
    is True if the project names ignored files that `fork_with_files` may copy, too."""

    turns: list[KeptTurn]
    include: bool = False


async def kept_turns(journal: Journal, row: SessionRow) -> KeptTurns:
    """See `KeptTurns`; looks at the disk for a moment."""
    turns: dict[int, KeptTurn] = {}
    roots = set[str]()
    for snapshot in await journal.snapshots.of(row.session_id):
        turn = turns.setdefault(snapshot.turn, KeptTurn(snapshot.turn))
        if has_folder(snapshot, row):
            turn.before |= snapshot.edge == "begin"
            turn.after |= snapshot.edge == "end"
            roots.add(snapshot.root)
    return KeptTurns([*turns.values()], any(map(has_list, roots)))


class KeptThere(Struct, frozen=True):
    """Files that were laid out again: the snapshot, the folder with its top, and in that the place
    of the session's folder. `included` are ignored files of today beside them."""

    snapshot: TurnSnapshot
    laid: Laid
    cwd: str
    included: Included = Included()


async def fork_with_files(
    journal: Journal,
    row: SessionRow,
    folder: str | None = None,
    *,
    at: int | None = None,
    before: bool = False,
    include: bool = False,
) -> tuple[KeptThere, Forked]:
    """Fork a session as `hub.forks.fork` does, with the files of that moment in a new or empty
    folder, by default in one beside the project.

    The new session is in the same place below it as the old one below its repository. With
    `include`, ignored files that `.worktreeinclude` names are copied from the project. Raises
    WorkspaceError, and what `fork` raises; then there is no new session.
    """
    spans = await turn_spans(history(journal, row.session_id))
    last = span_at(spans, at) if at is not None else spans[-1] if spans else None
    if before and (last is None or last.number == 1):
        raise NothingSaidError("there is no turn before that one: start a new session instead")
    if at is None and not before and spans and spans[-1].is_open and len(spans) > 1:
        at = spans[-2].first  # the running turn is not copied
    snapshot = await snapshot_at(journal, row, at, before=before)
    store = await store_of(journal, snapshot)
    await remove_remains(journal)
    done: list[Laid] = []  # in a list: also known if this is cancelled at that very moment
    with ExitStack() as until:

        def work(checkpoint: Checkpoint) -> Included:
            laid = _laid_out(store, snapshot, folder, checkpoint, until)
            if not include:
                done.append(laid)
                return Included(is_possible=has_list(snapshot.root))
            laid, more = _with_included(store, snapshot, laid, checkpoint)
            done.append(laid)
            return more

        try:
            more = await Threads(1).run_in_steps(work)
            laid = done[0]
            below = PurePath(folder_at(snapshot, row)).relative_to(snapshot.root)
            cwd = made_in(laid.folder, str(PurePath(laid.folder) / below))
            note_unused(laid)
            made = await fork(
                journal, row, at=at, before=before, cwd=cwd, additional_directories=()
            )
        except BaseException as error:
            if not done:
                raise
            await Threads(1).run(unlay, done[0], snapshot.root)
            if isinstance(error, OSError):
                raise WorkspaceError(f"{done[0].folder!r}: {error.strerror or error}") from error
            raise
        return KeptThere(snapshot, laid, cwd, more), made


async def remains(journal: Journal) -> dict[str, bool]:
    """Return the folders that killed forks and moves have begun to lay out, each with True if a
    session works there: then only its note is left over."""
    found = await Threads(1).run(unfinished, await stores_of(journal))
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
        await Threads(1).run(remove_unfinished, await stores_of(journal), found)


def _laid_out(
    store: SnapshotStore,
    snapshot: TurnSnapshot,
    folder: str | None,
    checkpoint: Checkpoint,
    until: ExitStack,
) -> Laid:
    """Lay the files of a snapshot out, by default in a new folder beside the project; blocks."""
    while True:
        place = beside(snapshot.root) if folder is None else folder
        try:
            return lay(
                *(store, snapshot.tree, place),
                project=snapshot.root,
                commit=snapshot.commit,
                checkpoint=checkpoint,
                until=until,
            )
        except PlaceTakenError:  # by another fork at this moment
            if folder is not None:
                raise


def _with_included(
    store: SnapshotStore, snapshot: TurnSnapshot, laid: Laid, checkpoint: Checkpoint
) -> tuple[Laid, Included]:
    """Copy the ignored files that the project names beside those laid out; if that fails, remove
    them all. Blocks."""
    placed = [*laid.placed]
    left_out = {path for path, _ in snapshot.left_out}
    try:
        more = included(store, snapshot.root, laid.folder, left_out, placed, checkpoint)
        checkpoint()
    except BaseException:
        unlay(replace(laid, placed=tuple(placed)), snapshot.root)
        raise
    return replace(laid, placed=tuple(placed)), more
