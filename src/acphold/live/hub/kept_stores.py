"""The stores of the files that are kept with the sessions of a journal: where, and for how long.

The journal alone says what is kept. The stores are beside its file; for a journal without one, in
a folder that follows from this user's number, under the identity of the journal. A copy of it has
its own, which begin with those of its original.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import now_ms
from acphold.errors import AcpError, WorkspaceError
from acphold.journal.journal import Journal
from acphold.journal.lineage import family, identity
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub import bounds
from acphold.machine.runtime_folder import account_folder
from acphold.safety.snapshots.rewriting import rewrite
from acphold.safety.snapshots.store import SnapshotStore, Stores

log = logging.getLogger(__name__)


SUFFIX = "-files"
"""Appended to the path of the journal: the folder of its stores."""


async def stores_of(journal: Journal) -> Stores:
    """The stores of a journal on this machine."""
    if journal.file is not None:
        return Stores(f"{journal.file.path}{SUFFIX}")
    own = await identity(journal)
    if own is None:
        return Stores(os.path.join(account_folder(), "files", "unknown"))
    stores = Stores(os.path.join(account_folder(), "files", f"{await family(journal)}-{own}"))
    await Threads(1).run(_link_relatives, stores)
    return stores


def _link_relatives(stores: Stores) -> None:
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


async def tidy(journal: Journal, *, all_of_them: bool = False) -> None:
    """Drop old snapshots, or all of them, and remove from the disk what no session names any more.

    May take seconds for each store; does nothing if there are none. A store in which something
    fails is left for the next time. What another process takes meanwhile stays.
    """
    stores = await stores_of(journal)
    threads = Threads(1)
    with suppress(TimeoutError, FileNotFoundError):
        await threads.run(stores.clear, time.monotonic() + bounds.STORE_UPKEEP_SECONDS)
    here = {store.id: store for store in stores}
    if not here:
        return
    has_jumped = _seconds_since_upkeep(stores) > bounds.CLOCK_JUMP_SECONDS
    since = _note_time(_upkeep_note(stores))
    before = 0 if has_jumped else now_ms() - bounds.SNAPSHOT_AGE_MS
    rows = [row for row in await journal.snapshots.of_all() if row[1].store in here]
    turns: dict[str, list[int]] = {}
    for session_id, snapshot in rows:
        turns.setdefault(session_id, []).append(snapshot.turn)
    ends = {its: (min(known), max(known)) for its, known in turns.items()}
    old: list[SessionSnapshot] = []
    kept: list[SessionSnapshot] = []
    for session_id, snapshot in rows:
        is_spared = snapshot.at >= before or snapshot.turn in ends[session_id]
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
            if size is None or size <= bounds.SNAPSHOT_STORE_BYTES or not trees or len(own) < 2:
                break
            if former_size is not None and size >= former_size:
                break  # something else fills it
            former_size = size
            half = len(own) // 2
            await _drop(journal, own[:half])
            own = own[half:]


async def rewrite_files(
    journal: Journal, change: Callable[[bytes], bytes | None]
) -> tuple[int, list[str]]:
    """Give files in all snapshots the content that `change` returns for theirs, unless that is
    None; return the number of changed snapshots, and why others may have been left.

    A snapshot that cannot be changed is dropped. `tidy` then removes the former ones.
    """
    count, left = 0, list[str]()
    rows = await journal.snapshots.of_all()
    for store in await stores_of(journal):
        own = [(its, one) for its, one in rows if one.store == store.id and one.is_kept]
        trees = {one.tree for _, one in own}
        try:
            work = partial(rewrite, store, trees, change, bounds.STORE_UPKEEP_SECONDS)
            instead, too_large = await Threads(1).run(work)
        except AcpError as error:
            left.append(f"{store.path}: {error}")
            continue
        if too_large:
            left.append(f"{store.path}: {too_large} files are too large to be searched")
        for session_id, one in own:
            if (tree := instead.get(one.tree)) is None:
                continue
            count += 1
            if tree:
                await journal.snapshots.keep(session_id, [replace(one, tree=tree)])
            else:
                await journal.snapshots.drop(session_id, [one])
        for tree in filter(None, instead.values()):
            store.was_named(tree)
    return count, left


SessionSnapshot: TypeAlias = tuple[str, TurnSnapshot]
"""A snapshot with the id of its session."""


async def _drop(journal: Journal, rows: Iterable[SessionSnapshot]) -> None:
    by_session: dict[str, list[TurnSnapshot]] = {}
    for session_id, snapshot in rows:
        by_session.setdefault(session_id, []).append(snapshot)
    for session_id, snapshots in by_session.items():
        await journal.snapshots.drop(session_id, snapshots)


def _upkeep_note(stores: Stores) -> str:
    """The file whose time is that of the last upkeep."""
    return os.path.join(stores.folder, ".tidied")


def _seconds_since_upkeep(stores: Stores) -> float:
    """Return how long ago the last upkeep was, or the first snapshot; negative if the clock was set
    back since."""
    try:
        return time.time() - os.stat(_upkeep_note(stores)).st_mtime
    except FileNotFoundError:
        _note_time(_upkeep_note(stores))
        return 0.0


def is_due(stores: Stores) -> bool:
    """True if the last upkeep, or the first snapshot, is a day old, or much was kept since."""
    is_old = not 0 <= _seconds_since_upkeep(stores) < bounds.UPKEEP_EVERY_SECONDS
    return is_old or any(store.is_loose() for store in stores)


def _note_time(path: str) -> int:
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
    except (AcpError, TimeoutError, BufferError, OSError) as error:
        # In use, or damaged: nothing that is to be kept is gone.
        log.warning("%s: cannot clean up the kept files: %s", store.path, error)
        return None
    return store.size()
