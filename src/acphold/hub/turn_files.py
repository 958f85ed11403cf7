"""Snapshots of a session's files at both ends of its turns.

    begin   the prompt is committed and then waits at most 300 ms for the snapshot. A snapshot that
            takes longer goes on while the agent works, and is marked as late
    end     taken in the background after the answer was sent; late if the agent has the next
            prompt before it is done

Only for folders in git repositories, unless all folders are wanted. The row is written once the
files are in the store. The first time in a project, a notice says so; another one says when a
folder is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from acphold.errors import AcpholdError
from acphold.history.entries import now_ms
from acphold.hub import bounds
from acphold.hub.annotations import notice
from acphold.hub.session import HubSession
from acphold.journal import Journal, bounds as journal_bounds
from acphold.journal.seams import TurnSnapshot
from acphold.tasks import TaskSet
from acphold.workspace.threads import Threads

if TYPE_CHECKING:  # late below: an editor waits for the start, and most sessions keep no files
    from acphold.snapshots.checkouts import Checkout
    from acphold.snapshots.snapshot import NotTaken, Taken

Edge: TypeAlias = Literal["begin", "end"]

T = TypeVar("T")

log = logging.getLogger(__name__)

KEPT = "Files are kept with the conversation"
KEPT_HOW = (
    "From now on, acphold keeps the files in {} at the beginning and the end of each turn, in {}. "
    "`acphold fork ID --files` copies a session with its files; `snapshots = false` in the "
    "settings turns this off."
)

NOT_KEPT = "Files are not kept with the conversation"
NOT_KEPT_HOW = (
    "{}: {}. acphold tries again after a restart. `snapshots = false` in the settings turns "
    "snapshots off, for all agents or for one."
)


class FileKeeper:
    """Takes the snapshots of all sessions of a process: `wanted` is the option `snapshots`."""

    def __init__(self, journal: Journal, wanted: bool | Literal["all"]) -> None:
        self._journal = journal
        self.wanted = wanted
        self._threads = Threads(bounds.SNAPSHOTS_AT_ONCE)
        self._taking = TaskSet()
        self._failures: Counter[str] = Counter()
        self._slow: dict[str, NotTaken] = {}
        self._tidying: asyncio.Task[None] | None = None
        self._is_untidy = False

    def roots(self, folders: tuple[str, ...]) -> list[Checkout]:
        """The work trees of these folders that are kept; blocks."""
        from acphold.snapshots.checkouts import Checkout, checkout_of

        found = {
            checkout.top: checkout
            for folder in folders
            for checkout in [
                checkout_of(folder)
                or (Checkout(os.path.realpath(folder)) if self.wanted == "all" else None)
            ]
            if checkout is not None and self._failures[checkout.top] < bounds.REFUSALS
        }
        return [*found.values()]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin some work; the end of the process waits for it."""
        return self._taking.start(work, "snapshot")

    def tidy(self) -> None:
        """Begin the upkeep of the stores in the background; after one that is running."""
        self._is_untidy = True
        if self._tidying is None or self._tidying.done():
            self._tidying = self.start(self._tidy())

    async def _tidy(self) -> None:
        from acphold.hub.kept_files import tidy  # late: rarely needed, and the start waits for it

        while self._is_untidy:
            self._is_untidy = False
            try:
                await tidy(self._journal)
            except Exception:
                log.exception("cannot clean up the kept files")

    async def take(
        self,
        session: HubSession,
        turn: int,
        edge: Edge,
        roots: list[Checkout],
        is_late: Callable[[], bool],
    ) -> None:
        """Take snapshots for an edge; `is_late` is true once the agent is at work after it. Raises
        AcpholdError and OSError."""
        from acphold.hub.kept_files import is_due, stores_of
        from acphold.snapshots.snapshot import NotTaken, take

        stores = await stores_of(self._journal)
        file = self._journal.file
        own = () if file is None else (file.path, f"{file.path}-wal", f"{file.path}-shm")
        rows: list[TurnSnapshot] = []
        given_up: list[TurnSnapshot] = []
        is_full = False
        for root in roots:
            row = TurnSnapshot(
                turn=turn,
                edge=edge,
                root=os.fsencode(root.top).decode(errors="replace"),
                at=now_ms(),
                state="whole",
            )

            def work(root: Checkout = root) -> Taken | NotTaken:
                if (slow := self._slow.get(root.top)) is not None:
                    return slow
                return take(stores, root, spared=own, gently=edge == "end")

            taken = await self._threads.run(work)
            row = replace(row, state="late" if is_late() else "whole")
            if isinstance(taken, NotTaken):
                is_full |= taken.cause == "full"
                row = replace(row, state="refused", reason=taken.reason)
                if self._gives_up(root.top, taken):
                    given_up.append(row)
            else:
                self._failures[root.top] = 0
                row = replace(
                    row,
                    store=taken.store,
                    tree=taken.tree,
                    commit=taken.head.commit,
                    branch=taken.head.branch,
                    stashes=taken.head.stashes,
                    files=taken.added,
                    size=taken.size,
                    left_out=tuple(
                        (it.path, it.why) for it in taken.left_out[: journal_bounds.LEFT_OUT_NAMED]
                    ),
                    left_out_count=taken.left_out_count,
                )
            rows.append(row)
        last = (await self._journal.snapshots.newest([session.id])).get(session.id)
        if edge == "begin" and last is not None and last.edge == "begin" and last.turn < turn:
            # The process ended in that turn, before it could take the end.
            rows += [
                replace(row, turn=last.turn, edge="end", state="later")
                for row in rows
                if row.is_kept
            ]
        await self._journal.snapshots.keep(session.id, rows)
        notices = [notice(NOT_KEPT, NOT_KEPT_HOW.format(row.root, row.reason)) for row in given_up]
        for row in rows:
            if row.is_kept and (store := stores.find(row.store)) is not None:
                store.was_named(row.tree)
                if len(session.attachments) and store.is_news():
                    notices.append(notice(KEPT, KEPT_HOW.format(row.root, stores.folder)))
        if notices:
            await session.publish("update", notices)
        if is_full or (edge == "end" and is_due(stores)):
            self.tidy()

    def _gives_up(self, top: str, refusal: NotTaken) -> bool:
        """Count a refusal; return True if the person is to learn that this folder is left alone
        from now on."""
        failures = self._failures
        if refusal.cause == "slow":  # that has cost a minute: once is enough
            self._slow[top] = refusal
            failures[top] = max(failures[top], bounds.REFUSALS - 1)
        if refusal.cause in ("folder", "home", "slow"):
            failures[top] += 1
            if failures[top] == bounds.REFUSALS:
                shown = os.fsencode(top).decode(errors="replace")
                log.warning("no longer keeping the files in %s: %s", shown, refusal.reason)
        return refusal.cause != "home" and failures[top] == bounds.REFUSALS

    async def aclose(self) -> None:
        """Finish the last snapshots, within a bound."""
        await self._taking.aclose(bounds.LAST_SNAPSHOTS_SECONDS)


class TurnFiles:
    """The files of one session, whose turns run one after the other."""

    def __init__(self, keeper: FileKeeper, session: HubSession) -> None:
        self._keeper = keeper
        self._session = session
        self._looking: asyncio.Task[list[Checkout]] | None = None
        self._without: tuple[str, ...] = ()  # folders in which no work tree was found
        self._without_until = 0.0
        self._hold = bounds.SNAPSHOT_HOLD_SECONDS
        self._last: asyncio.Task[None] | None = None
        self._begun: tuple[int, list[Checkout]] | None = None
        self._at_work = -1  # the turn that the agent has got last

    async def roots(self, folders: tuple[str, ...]) -> list[Checkout]:
        """See `FileKeeper.roots`; none if the disk, as a network one, takes longer than
        SNAPSHOT_HOLD_SECONDS."""
        if not self._keeper.wanted or (self._looking is not None and not self._looking.done()):
            return []
        began = time.monotonic()
        if folders == self._without and began < self._without_until:
            return []
        looking = Threads(1).run(self._keeper.roots, folders)
        self._looking = self._keeper.start(looking)
        done, _ = await asyncio.wait([self._looking], timeout=bounds.SNAPSHOT_HOLD_SECONDS)
        self._hold = max(0.0, bounds.SNAPSHOT_HOLD_SECONDS - (time.monotonic() - began))
        roots = self._looking.result() if done else []
        if done and not roots:
            self._without, self._without_until = folders, began + bounds.NO_WORK_TREE_SECONDS
        return roots

    async def begin(self, turn: int, roots: list[Checkout]) -> None:
        """Take snapshots at the beginning of a turn; returns once SNAPSHOT_HOLD_SECONDS are over,
        with those that `roots` took, at the latest."""
        self._begun = (turn, roots)
        self._start(turn, "begin", roots)
        assert self._last is not None
        await asyncio.wait([self._last], timeout=self._hold)
        self._at_work = turn

    def end(self, turn: int) -> None:
        """Take snapshots at the end of a turn that had some at its beginning."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == turn:
            self._start(turn, "end", begun[1])

    def _start(self, turn: int, edge: Edge, roots: list[Checkout]) -> None:
        """Take them after earlier ones, so that rows are written in order."""
        before = self._last

        def is_late() -> bool:
            return self._at_work >= turn if edge == "begin" else self._at_work > turn

        async def work() -> None:
            if before is not None and not before.done():
                await asyncio.wait([before])
            try:
                await self._keeper.take(self._session, turn, edge, roots, is_late)
            except (AcpholdError, OSError) as exc:
                log.warning("session %s: cannot keep its files: %s", self._session.id, exc)
            except Exception:  # nobody awaits this task
                log.exception("session %s: cannot keep its files", self._session.id)

        self._last = self._keeper.start(work())
